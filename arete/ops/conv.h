// Convolutions (cross-correlations, as everywhere in deep learning) of 1 to 3 spatial dimensions.
#pragma once

#include "arete/core/tensor.h"
#include "arete/ops/extent.h"

namespace arete {

/// input (N, Cin, L) or (Cin, L), weight (Cout, Cin / groups, k), bias (Cout) or undefined.
/// Results have (L + 2 padding - dilation (k - 1) - 1) / stride + 1 elements along each spatial
/// dimension; channels-last inputs give channels-last results.
/// Errors: ValueError "Given groups=1, weight of size [...], expected input[...] to have 3
/// channels, but got 4 channels instead", "Kernel size can't be greater than actual input size",
/// ...; TypeError for differing dtypes.
Tensor conv1d(const Tensor& input, const Tensor& weight, const Tensor& bias = {},
              const Extent& stride = 1, const Padding& padding = 0, const Extent& dilation = 1,
              int64_t groups = 1);
/// The same with two spatial dimensions: input (N, Cin, H, W) or (Cin, H, W).
Tensor conv2d(const Tensor& input, const Tensor& weight, const Tensor& bias = {},
              const Extent& stride = 1, const Padding& padding = 0, const Extent& dilation = 1,
              int64_t groups = 1);
/// The same with three: input (N, Cin, D, H, W) or (Cin, D, H, W).
Tensor conv3d(const Tensor& input, const Tensor& weight, const Tensor& bias = {},
              const Extent& stride = 1, const Padding& padding = 0, const Extent& dilation = 1,
              int64_t groups = 1);

/// The gradient of a convolution with respect to its input, used as an operator: input
/// (N, Cin, L), weight (Cin, Cout / groups, k). Results have (L - 1) stride - 2 padding +
/// dilation (k - 1) + output_padding + 1 elements along each spatial dimension.
Tensor conv_transpose1d(const Tensor& input, const Tensor& weight, const Tensor& bias = {},
                        const Extent& stride = 1, const Extent& padding = 0,
                        const Extent& output_padding = 0, int64_t groups = 1,
                        const Extent& dilation = 1);
Tensor conv_transpose2d(const Tensor& input, const Tensor& weight, const Tensor& bias = {},
                        const Extent& stride = 1, const Extent& padding = 0,
                        const Extent& output_padding = 0, int64_t groups = 1,
                        const Extent& dilation = 1);
Tensor conv_transpose3d(const Tensor& input, const Tensor& weight, const Tensor& bias = {},
                        const Extent& stride = 1, const Extent& padding = 0,
                        const Extent& output_padding = 0, int64_t groups = 1,
                        const Extent& dilation = 1);

/// conv1d over the first dimension: input (T, N, Cin), weight (k, Cin, Cout), bias (Cout), result
/// (T + 2 pad - k + 1, N, Cout).
Tensor conv_tbc(const Tensor& input, const Tensor& weight, const Tensor& bias, int64_t pad = 0);

}  // namespace arete
