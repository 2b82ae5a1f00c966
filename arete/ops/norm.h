// Normalization layers as functions. Statistics are computed in f32 (f64 for f64 inputs), in two
// passes (mean, then variance), whatever the dtype.
#pragma once

#include <optional>

#include "arete/core/tensor.h"

namespace arete {

/// (x - mean) / sqrt(var + eps) * weight + bias over the last dimensions, whose sizes are
/// normalized_shape; weight and bias have that shape or are undefined.
/// Errors: ValueError "Given normalized_shape=[4], expected input with shape [*, 4], but got input
/// of size[2, 3]".
Tensor layer_norm(const Tensor& input, IntList normalized_shape, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5);
/// x / sqrt(mean(x^2) + eps) * weight over the last dimensions; eps: by default that of the dtype.
Tensor rms_norm(const Tensor& input, IntList normalized_shape, const Tensor& weight = {},
                std::optional<double> eps = {});
/// Normalizes each sample's channels in num_groups groups: input (N, C, ...), weight and bias (C).
/// ValueError "Expected number of channels in input to be divisible by num_groups".
Tensor group_norm(const Tensor& input, int64_t num_groups, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5);
/// Normalizes each channel of (N, C, ...) over all samples. In training the batch's own statistics
/// are used and running ones, if defined, are moved towards them by `momentum` in place (with the
/// unbiased variance); otherwise the running ones are used, which must be defined.
/// Errors: ValueError "Expected more than 1 value per channel when training, got input size ...".
Tensor batch_norm(const Tensor& input, const Tensor& running_mean, const Tensor& running_var,
                  const Tensor& weight = {}, const Tensor& bias = {}, bool training = false,
                  double momentum = 0.1, double eps = 1e-5);
/// relu(batch_norm(...) + residual) in one pass, forward and backward; `residual` (like input) may
/// be undefined.
Tensor batch_norm_relu(const Tensor& input, const Tensor& running_mean, const Tensor& running_var,
                       const Tensor& weight = {}, const Tensor& bias = {}, bool training = false,
                       double momentum = 0.1, double eps = 1e-5, const Tensor& residual = {});
/// Normalizes each channel of each sample; without use_input_stats by the running statistics.
Tensor instance_norm(const Tensor& input, const Tensor& running_mean = {},
                     const Tensor& running_var = {}, const Tensor& weight = {},
                     const Tensor& bias = {}, bool use_input_stats = true, double momentum = 0.1,
                     double eps = 1e-5);

}  // namespace arete
