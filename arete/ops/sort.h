// Running reductions, sorting and selection along a dimension.
#pragma once

#include <optional>
#include <tuple>

#include "arete/core/tensor.h"
#include "arete/ops/statistics.h"

namespace arete {

/// Running sum (product) along `dim`; integers and bool give int64.
Tensor cumsum(const Tensor& self, int64_t dim);
Tensor cumprod(const Tensor& self, int64_t dim);
/// Running maximum (minimum) along `dim` and its position so far (int64), the last of equal ones;
/// the gradient goes there.
std::tuple<Tensor, Tensor> cummax(const Tensor& self, int64_t dim);
std::tuple<Tensor, Tensor> cummin(const Tensor& self, int64_t dim);
/// log of the running sum of exp(x) along `dim`, without overflow.
Tensor logcumsumexp(const Tensor& self, int64_t dim);

/// Sorted values along `dim` and their former positions (int64). NaN counts as the largest. The
/// order is always stable; `stable` is there for PyTorch's signature.
std::tuple<Tensor, Tensor> sort(const Tensor& self, int64_t dim = -1, bool descending = false,
                                bool stable = true);
/// The positions alone.
Tensor argsort(const Tensor& self, int64_t dim = -1, bool descending = false, bool stable = true);
/// The k largest (smallest) values along `dim` and their positions; always sorted. IndexError
/// "selected index k out of range" if k is larger than the dimension.
std::tuple<Tensor, Tensor> topk(const Tensor& self, int64_t k, int64_t dim = -1,
                                bool largest = true, bool sorted = true);
/// Sorted values along the first dimension.
Tensor msort(const Tensor& self);

/// The different values in ascending order, or with `dim` the different slices along it in
/// lexicographic order; optionally, for every element (slice), the position of its value among them
/// (self's shape; 1-d), and how often each occurs. Undefined tensors where not asked.
std::tuple<Tensor, Tensor, Tensor> unique(const Tensor& self, bool return_inverse = false,
                                          bool return_counts = false,
                                          std::optional<int64_t> dim = {});
/// The same of equal neighbours only, in their order.
std::tuple<Tensor, Tensor, Tensor> unique_consecutive(const Tensor& self,
                                                      bool return_inverse = false,
                                                      bool return_counts = false,
                                                      std::optional<int64_t> dim = {});

}  // namespace arete
