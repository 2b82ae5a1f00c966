// Pooling over windows of 1 to 3 spatial dimensions. Inputs are (N, C, L...) or (C, L...).
#pragma once

#include <optional>
#include <tuple>

#include "arete/core/tensor.h"
#include "arete/ops/extent.h"

namespace arete {

/// The maximum of each window (stride: by default the kernel's size; padding counts as -inf).
/// ceil_mode rounds the output's size up. Gradients go to the first maximum of a window.
/// Errors: ValueError "pad should be at most half of effective kernel size, ...", "Output size is
/// too small".
Tensor max_pool1d(const Tensor& self, const Extent& kernel_size, std::optional<Extent> stride = {},
                  const Extent& padding = 0, const Extent& dilation = 1, bool ceil_mode = false);
Tensor max_pool2d(const Tensor& self, const Extent& kernel_size, std::optional<Extent> stride = {},
                  const Extent& padding = 0, const Extent& dilation = 1, bool ceil_mode = false);
Tensor max_pool3d(const Tensor& self, const Extent& kernel_size, std::optional<Extent> stride = {},
                  const Extent& padding = 0, const Extent& dilation = 1, bool ceil_mode = false);
/// The same and the position (i64) of each maximum within the flattened spatial plane.
std::tuple<Tensor, Tensor> max_pool1d_with_indices(const Tensor& self, const Extent& kernel_size,
                                                   std::optional<Extent> stride = {},
                                                   const Extent& padding = 0,
                                                   const Extent& dilation = 1,
                                                   bool ceil_mode = false);
std::tuple<Tensor, Tensor> max_pool2d_with_indices(const Tensor& self, const Extent& kernel_size,
                                                   std::optional<Extent> stride = {},
                                                   const Extent& padding = 0,
                                                   const Extent& dilation = 1,
                                                   bool ceil_mode = false);
std::tuple<Tensor, Tensor> max_pool3d_with_indices(const Tensor& self, const Extent& kernel_size,
                                                   std::optional<Extent> stride = {},
                                                   const Extent& padding = 0,
                                                   const Extent& dilation = 1,
                                                   bool ceil_mode = false);

/// The mean of each window. Padding counts as zeros if count_include_pad, else not at all;
/// divisor_override replaces the number of elements.
Tensor avg_pool1d(const Tensor& self, const Extent& kernel_size, std::optional<Extent> stride = {},
                  const Extent& padding = 0, bool ceil_mode = false, bool count_include_pad = true);
Tensor avg_pool2d(const Tensor& self, const Extent& kernel_size, std::optional<Extent> stride = {},
                  const Extent& padding = 0, bool ceil_mode = false, bool count_include_pad = true,
                  std::optional<int64_t> divisor_override = {});
Tensor avg_pool3d(const Tensor& self, const Extent& kernel_size, std::optional<Extent> stride = {},
                  const Extent& padding = 0, bool ceil_mode = false, bool count_include_pad = true,
                  std::optional<int64_t> divisor_override = {});

/// Pools to a given output size: window i covers [floor(i L / O), ceil((i + 1) L / O)). -1 keeps a
/// dimension's size.
Tensor adaptive_avg_pool1d(const Tensor& self, const Extent& output_size);
Tensor adaptive_avg_pool2d(const Tensor& self, const Extent& output_size);
Tensor adaptive_avg_pool3d(const Tensor& self, const Extent& output_size);
Tensor adaptive_max_pool1d(const Tensor& self, const Extent& output_size);
Tensor adaptive_max_pool2d(const Tensor& self, const Extent& output_size);
Tensor adaptive_max_pool3d(const Tensor& self, const Extent& output_size);
/// The same and the positions, as max_pool2d_with_indices.
std::tuple<Tensor, Tensor> adaptive_max_pool1d_with_indices(const Tensor& self,
                                                            const Extent& output_size);
std::tuple<Tensor, Tensor> adaptive_max_pool2d_with_indices(const Tensor& self,
                                                            const Extent& output_size);
std::tuple<Tensor, Tensor> adaptive_max_pool3d_with_indices(const Tensor& self,
                                                            const Extent& output_size);

/// (sum of x^p in each window)^(1 / p); windows as in avg_pool. Negative sums count as 0.
Tensor lp_pool1d(const Tensor& input, double norm_type, const Extent& kernel_size,
                 std::optional<Extent> stride = {}, bool ceil_mode = false);
Tensor lp_pool2d(const Tensor& input, double norm_type, const Extent& kernel_size,
                 std::optional<Extent> stride = {}, bool ceil_mode = false);
Tensor lp_pool3d(const Tensor& input, double norm_type, const Extent& kernel_size,
                 std::optional<Extent> stride = {}, bool ceil_mode = false);

/// Zeros with the values of `input` at the positions `indices` (int64, as max_pool2d_with_indices
/// gives them) of each plane. The sizes are those the pool's input would have, or output_size, less
/// than a stride away from them. Where indices repeat, one of the values stays.
Tensor max_unpool1d(const Tensor& input, const Tensor& indices, const Extent& kernel_size,
                    std::optional<Extent> stride = {}, const Extent& padding = 0,
                    std::optional<Extent> output_size = {});
Tensor max_unpool2d(const Tensor& input, const Tensor& indices, const Extent& kernel_size,
                    std::optional<Extent> stride = {}, const Extent& padding = 0,
                    std::optional<Extent> output_size = {});
Tensor max_unpool3d(const Tensor& input, const Tensor& indices, const Extent& kernel_size,
                    std::optional<Extent> stride = {}, const Extent& padding = 0,
                    std::optional<Extent> output_size = {});

/// Maxima of windows whose places are drawn at random so that there are output_size of them along
/// each dimension, or output_ratio (between 0 and 1) times the input's size: exactly one is given.
/// random_samples (N, C, 2 or 3) in [0, 1) fixes the places.
Tensor fractional_max_pool2d(const Tensor& input, const Extent& kernel_size,
                             std::optional<Extent> output_size = {},
                             const std::vector<double>& output_ratio = {},
                             const Tensor& random_samples = {});
Tensor fractional_max_pool3d(const Tensor& input, const Extent& kernel_size,
                             std::optional<Extent> output_size = {},
                             const std::vector<double>& output_ratio = {},
                             const Tensor& random_samples = {});
std::tuple<Tensor, Tensor> fractional_max_pool2d_with_indices(
    const Tensor& input, const Extent& kernel_size, std::optional<Extent> output_size = {},
    const std::vector<double>& output_ratio = {}, const Tensor& random_samples = {});
std::tuple<Tensor, Tensor> fractional_max_pool3d_with_indices(
    const Tensor& input, const Extent& kernel_size, std::optional<Extent> output_size = {},
    const std::vector<double>& output_ratio = {}, const Tensor& random_samples = {});

}  // namespace arete
