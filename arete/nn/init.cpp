#include "arete/nn/init.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "arete/core/modes.h"
#include "arete/ops/creation.h"
#include "arete/ops/random.h"

namespace arete::nn::init {

Fans calculate_fan_in_and_fan_out(const Tensor& tensor) {
  ARETE_CHECK(tensor.dim() >= 2,
              ValueError("init",
                         "Fan in and fan out can not be computed for tensor with fewer "
                         "than 2 dimensions")
                  .got(to_string(tensor.sizes())));
  int64_t window = 1;
  for (int64_t d = 2; d < tensor.dim(); ++d) window *= tensor.size(d);
  return {tensor.size(1) * window, tensor.size(0) * window};
}

double calculate_gain(std::string_view nonlinearity, double param) {
  if (nonlinearity == "tanh") return 5.0 / 3;
  if (nonlinearity == "relu") return std::numbers::sqrt2;
  if (nonlinearity == "leaky_relu") return std::sqrt(2 / (1 + param * param));
  if (nonlinearity == "selu") return 0.75;
  const bool linear =
      nonlinearity == "linear" || nonlinearity == "sigmoid" || nonlinearity.starts_with("conv");
  ARETE_CHECK(linear,
              ValueError("calculate_gain", "Unsupported nonlinearity " + std::string(nonlinearity))
                  .expected("linear, conv*, sigmoid, tanh, relu, leaky_relu or selu"));
  return 1;
}

Tensor uniform_(Tensor tensor, double a, double b, Generator* generator) {
  const NoGradGuard no_grad;
  return arete::uniform_(tensor, a, b, generator);
}

Tensor normal_(Tensor tensor, double mean, double std, Generator* generator) {
  const NoGradGuard no_grad;
  return arete::normal_(tensor, mean, std, generator);
}

Tensor trunc_normal_(Tensor tensor, double mean, double std, double a, double b,
                     Generator* generator) {
  ARETE_CHECK(a < b && std > 0,
              ValueError("trunc_normal_", "the interval must not be empty and std positive"));
  const NoGradGuard no_grad;
  // The inverse of the normal distribution function on uniform numbers of its range over [a, b].
  const auto cdf = [&](double x) {
    return 0.5 * std::erfc(-(x - mean) / (std * std::numbers::sqrt2));
  };
  Tensor x = arete::empty(tensor.sizes(), tensor.options().dtype(kFloat64));
  arete::uniform_(x, 2 * cdf(a) - 1, 2 * cdf(b) - 1, generator);
  x.erfinv_().mul_(std * std::numbers::sqrt2).add_(mean).clamp_(a, b);
  return tensor.copy_(x);
}

Tensor constant_(Tensor tensor, double value) {
  const NoGradGuard no_grad;
  return tensor.fill_(value);
}
Tensor ones_(Tensor tensor) { return constant_(std::move(tensor), 1); }
Tensor zeros_(Tensor tensor) { return constant_(std::move(tensor), 0); }

Tensor eye_(Tensor tensor) {
  ARETE_CHECK(tensor.dim() == 2, ValueError("eye_", "Only tensors with 2 dimensions are supported")
                                     .got(to_string(tensor.sizes())));
  const NoGradGuard no_grad;
  return tensor.copy_(eye(tensor.size(0), tensor.size(1), tensor.options()));
}

Tensor xavier_uniform_(Tensor tensor, double gain, Generator* generator) {
  const Fans fans = calculate_fan_in_and_fan_out(tensor);
  const double bound = gain * std::sqrt(6.0 / double(fans.in + fans.out));
  return uniform_(std::move(tensor), -bound, bound, generator);
}

Tensor xavier_normal_(Tensor tensor, double gain, Generator* generator) {
  const Fans fans = calculate_fan_in_and_fan_out(tensor);
  return normal_(std::move(tensor), 0, gain * std::sqrt(2.0 / double(fans.in + fans.out)),
                 generator);
}

namespace {
double kaiming_std(const Tensor& tensor, double a, std::string_view mode,
                   std::string_view nonlinearity) {
  ARETE_CHECK(mode == "fan_in" || mode == "fan_out",
              ValueError("kaiming", "Mode " + std::string(mode) + " not supported")
                  .expected("fan_in or fan_out"));
  const Fans fans = calculate_fan_in_and_fan_out(tensor);
  return calculate_gain(nonlinearity, a) / std::sqrt(double(mode == "fan_in" ? fans.in : fans.out));
}
}  // namespace

Tensor kaiming_uniform_(Tensor tensor, double a, std::string_view mode,
                        std::string_view nonlinearity, Generator* generator) {
  if (tensor.numel() == 0) return tensor;
  const double bound = std::sqrt(3.0) * kaiming_std(tensor, a, mode, nonlinearity);
  return uniform_(std::move(tensor), -bound, bound, generator);
}

Tensor kaiming_normal_(Tensor tensor, double a, std::string_view mode,
                       std::string_view nonlinearity, Generator* generator) {
  if (tensor.numel() == 0) return tensor;
  const double std = kaiming_std(tensor, a, mode, nonlinearity);
  return normal_(std::move(tensor), 0, std, generator);
}

Tensor orthogonal_(Tensor tensor, double gain, Generator* generator) {
  ARETE_CHECK(tensor.dim() >= 2,
              ValueError("orthogonal_", "Only tensors with 2 or more dimensions are supported")
                  .got(to_string(tensor.sizes())));
  if (tensor.numel() == 0) return tensor;
  const NoGradGuard no_grad;
  const int64_t rows = tensor.size(0), cols = tensor.numel() / rows;
  // Gram-Schmidt over the shorter side: `n` vectors of `length` normal numbers. Twice is enough
  // for orthogonality to rounding.
  const int64_t n = std::min(rows, cols), length = std::max(rows, cols);
  std::vector<double> v = randn({n, length}, kFloat64, generator).to_vector<double>();
  for (int64_t i = 0; i < n; ++i) {
    double* x = &v[size_t(i * length)];
    for (int pass = 0; pass < 2; ++pass) {
      for (int64_t j = 0; j < i; ++j) {
        const double* y = &v[size_t(j * length)];
        double dot = 0;
        for (int64_t k = 0; k < length; ++k) dot += x[k] * y[k];
        for (int64_t k = 0; k < length; ++k) x[k] -= dot * y[k];
      }
      double norm = 0;
      for (int64_t k = 0; k < length; ++k) norm += x[k] * x[k];
      norm = std::sqrt(norm);
      for (int64_t k = 0; k < length; ++k) x[k] /= norm;
    }
  }
  for (double& x : v) x *= gain;
  Tensor q = tensor_from_host(v.data(), kFloat64, {n, length});
  if (rows > cols) q = q.t();
  return tensor.copy_(q.reshape(tensor.sizes()));
}

}  // namespace arete::nn::init
