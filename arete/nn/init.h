// Initial values of weights. All functions write into `tensor`, without history, and return it;
// random ones draw from `generator`, or the default one.
#pragma once

#include <cstdint>
#include <string_view>

#include "arete/core/generator.h"
#include "arete/core/tensor.h"

namespace arete::nn::init {

/// The numbers of inputs and outputs that each element of a weight (out, in, *window) connects.
struct Fans {
  int64_t in, out;
};
/// ValueError for fewer than two dimensions.
Fans calculate_fan_in_and_fan_out(const Tensor& tensor);
/// The factor that keeps variances steady through a nonlinearity: "linear", "conv1d", "sigmoid",
/// ..., "tanh" 5/3, "relu" sqrt(2), "leaky_relu" (param: its slope), "selu" 3/4. ValueError for
/// other names.
double calculate_gain(std::string_view nonlinearity, double param = 0.01);

Tensor uniform_(Tensor tensor, double a = 0, double b = 1, Generator* generator = nullptr);
Tensor normal_(Tensor tensor, double mean = 0, double std = 1, Generator* generator = nullptr);
/// Normal numbers, those outside [a, b] drawn again.
Tensor trunc_normal_(Tensor tensor, double mean = 0, double std = 1, double a = -2, double b = 2,
                     Generator* generator = nullptr);
Tensor constant_(Tensor tensor, double value);
Tensor ones_(Tensor tensor);
Tensor zeros_(Tensor tensor);
/// The identity matrix (ValueError unless 2-d).
Tensor eye_(Tensor tensor);
/// U(-b, b) with b = gain sqrt(6 / (fan_in + fan_out)).
Tensor xavier_uniform_(Tensor tensor, double gain = 1, Generator* generator = nullptr);
/// N(0, gain^2 2 / (fan_in + fan_out)).
Tensor xavier_normal_(Tensor tensor, double gain = 1, Generator* generator = nullptr);
/// U(-b, b) with b = calculate_gain(nonlinearity, a) sqrt(3 / fan); mode "fan_in" or "fan_out".
Tensor kaiming_uniform_(Tensor tensor, double a = 0, std::string_view mode = "fan_in",
                        std::string_view nonlinearity = "leaky_relu",
                        Generator* generator = nullptr);
/// N(0, gain^2 / fan).
Tensor kaiming_normal_(Tensor tensor, double a = 0, std::string_view mode = "fan_in",
                       std::string_view nonlinearity = "leaky_relu",
                       Generator* generator = nullptr);
/// A random matrix with orthonormal rows or columns (the fewer of them), times gain; dimensions
/// after the first count as columns.
Tensor orthogonal_(Tensor tensor, double gain = 1, Generator* generator = nullptr);

}  // namespace arete::nn::init
