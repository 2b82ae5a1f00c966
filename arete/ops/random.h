// Random tensors. All numbers come from a Generator (the default one if none is given): a counter
// stream that gives the same numbers on every device. manual_seed() makes them repeatable.
#pragma once

#include <optional>

#include "arete/core/generator.h"
#include "arete/core/tensor.h"

namespace arete {

/// Uniform in [0, 1). Floating dtypes.
Tensor rand(IntList sizes, const TensorOptions& options = {}, Generator* generator = nullptr);
/// Normal with mean 0 and standard deviation 1. Floating dtypes.
Tensor randn(IntList sizes, const TensorOptions& options = {}, Generator* generator = nullptr);
/// Uniform whole numbers in [low, high); int64 unless the options say otherwise.
Tensor randint(int64_t low, int64_t high, IntList sizes, const TensorOptions& options = {},
               Generator* generator = nullptr);
Tensor randint(int64_t high, IntList sizes, const TensorOptions& options = {},
               Generator* generator = nullptr);
/// The numbers 0 to n - 1 in random order; int64 unless the options say otherwise.
Tensor randperm(int64_t n, const TensorOptions& options = {}, Generator* generator = nullptr);
/// rand and randn in self's shape, strides and, unless given, dtype and device.
Tensor rand_like(const Tensor& self, std::optional<DType> dtype = {},
                 std::optional<Device> device = {}, Generator* generator = nullptr);
Tensor randn_like(const Tensor& self, std::optional<DType> dtype = {},
                  std::optional<Device> device = {}, Generator* generator = nullptr);
/// 1 with the probability given by each element of self (floating, in [0, 1]), else 0.
Tensor bernoulli(const Tensor& self, Generator* generator = nullptr);
/// Self's shape and dtype: 1 with probability p.
Tensor bernoulli(const Tensor& self, double p, Generator* generator = nullptr);
/// Normal numbers.
Tensor normal(double mean, double std, IntList sizes, const TensorOptions& options = {},
              Generator* generator = nullptr);
/// The same with a mean and a standard deviation for each element (broadcast; no gradient).
Tensor normal(const Tensor& mean, const Tensor& std, Generator* generator = nullptr);
Tensor normal(const Tensor& mean, double std = 1, Generator* generator = nullptr);
Tensor normal(double mean, const Tensor& std, Generator* generator = nullptr);
/// Whole numbers in [low, high) in self's shape, strides and, unless given, dtype and device.
Tensor randint_like(const Tensor& self, int64_t low, int64_t high, std::optional<DType> dtype = {},
                    std::optional<Device> device = {}, Generator* generator = nullptr);
/// Poisson numbers with the rates of self (floating, not negative), in its dtype; no gradient.
/// Reads the rates.
Tensor poisson(const Tensor& self, Generator* generator = nullptr);
/// Indices drawn with probabilities proportional to the weights in the last dimension of self
/// (1-d or 2-d, floating, not negative): int64 of shape (num_samples) or (rows, num_samples).
/// Without replacement at most as many as there are weights. On the CPU the weights are checked.
Tensor multinomial(const Tensor& self, int64_t num_samples, bool replacement = false,
                   Generator* generator = nullptr);

/// The in-place forms with a generator: uniform in [from, to).
Tensor& uniform_(Tensor& self, double from, double to, Generator* generator);
Tensor& normal_(Tensor& self, double mean, double std, Generator* generator);
/// Whole numbers in [from, to), of any dtype.
Tensor& random_(Tensor& self, int64_t from, int64_t to, Generator* generator);
Tensor& bernoulli_(Tensor& self, double p, Generator* generator);
/// Density lambda exp(-lambda x).
Tensor& exponential_(Tensor& self, double lambda, Generator* generator);
/// How many trials until the first success of probability p; also of integer dtypes.
Tensor& geometric_(Tensor& self, double p, Generator* generator = nullptr);
Tensor& cauchy_(Tensor& self, double median = 0, double sigma = 1, Generator* generator = nullptr);
/// exp of normal numbers.
Tensor& log_normal_(Tensor& self, double mean = 1, double std = 2, Generator* generator = nullptr);

}  // namespace arete
