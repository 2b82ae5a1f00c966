// Functions of neural networks that belong to no other family.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "arete/core/tensor.h"
#include "arete/ops/extent.h"

namespace arete {

class Generator;

/// With `training`: elements set to 0 with probability p, the others divided by 1 - p; else the
/// input itself. ValueError "dropout probability has to be between 0 and 1, but got ...".
Tensor dropout(const Tensor& input, double p = 0.5, bool training = true,
               Generator* generator = nullptr);
/// The same for whole channels: input (N, C, ...).
Tensor feature_dropout(const Tensor& input, double p = 0.5, bool training = true,
                       Generator* generator = nullptr);
/// Dropout that keeps mean and variance of inputs of mean 0 and variance 1 (for selu).
Tensor alpha_dropout(const Tensor& input, double p = 0.5, bool training = false,
                     Generator* generator = nullptr);
/// The same for whole channels: input (N, C, ...).
Tensor feature_alpha_dropout(const Tensor& input, double p = 0.5, bool training = false,
                             Generator* generator = nullptr);
/// feature_dropout of (N, C, L) or (C, L).
Tensor dropout1d(const Tensor& input, double p = 0.5, bool training = true,
                 Generator* generator = nullptr);
/// feature_dropout; 3 dimensions are read as (N, C, L).
Tensor dropout2d(const Tensor& input, double p = 0.5, bool training = true,
                 Generator* generator = nullptr);
/// feature_dropout of (N, C, D, H, W) or (C, D, H, W).
Tensor dropout3d(const Tensor& input, double p = 0.5, bool training = true,
                 Generator* generator = nullptr);
/// softmax((logits + g) / tau) along `dim` with Gumbel noise g. hard: 1 at the largest element,
/// else 0, with the gradient of the soft result.
Tensor gumbel_softmax(const Tensor& logits, double tau = 1, bool hard = false, int64_t dim = -1,
                      Generator* generator = nullptr);

/// Rows of `weight` (V, D) at the integers `input` (any shape) -> (*, D). The row padding_idx
/// (negative: from the end) gets no gradient. IndexError for indices out of range.
Tensor embedding(const Tensor& input, const Tensor& weight,
                 std::optional<int64_t> padding_idx = {});
/// Rows of `weight` (V, D) summed ("sum"), averaged ("mean") or maximised ("max") over bags of
/// indices -> (bags, D): the rows of `input` (bags, n), or of a 1-d input the stretches that begin
/// at `offsets` (1-d; with include_last_offset its last element is the end of the last bag).
/// per_sample_weights of input's size scale the rows ("sum" only). The row padding_idx does not
/// count. An empty bag gives 0.
Tensor embedding_bag(const Tensor& input, const Tensor& weight, const Tensor& offsets = {},
                     std::string_view mode = "mean", const Tensor& per_sample_weights = {},
                     bool include_last_offset = false, std::optional<int64_t> padding_idx = {});
/// int64 (*, num_classes): 1 at the class, else 0. num_classes -1: one more than the largest.
/// Errors: ValueError "Class values must be non-negative.", "Class values must be smaller than
/// num_classes.".
Tensor one_hot(const Tensor& input, int64_t num_classes = -1);

/// Resizes the spatial dimensions of (N, C, L), (N, C, H, W) or (N, C, D, H, W) to `size` or by
/// `scale_factor` (exactly one of them). mode: "nearest", "nearest-exact", "linear" (3-d),
/// "bilinear" and "bicubic" (4-d), "trilinear" (5-d), "area". align_corners maps the centres of
/// corner elements onto each other; the others map the corners of the grid. antialias ("bilinear"
/// and "bicubic" only): filters as wide as the spacing of the outputs, for making images smaller.
Tensor interpolate(const Tensor& input, std::optional<Extent> size = {},
                   const std::vector<double>& scale_factor = {}, std::string_view mode = "nearest",
                   bool align_corners = false, bool antialias = false);
/// Values of `input` (N, C, H, W) or (N, C, D, H, W) at the positions `grid` (N, H', W', 2) or
/// (N, D', H', W', 3) -> (N, C, H', W'), ...: (x, y[, z]) with -1 and 1 at the edges, or with
/// align_corners at the centres, of the corner elements. mode: "bilinear", "nearest" or, for
/// images, "bicubic". padding_mode says what is outside: "zeros", the "border" or its "reflection".
/// Errors: ValueError "grid_sampler(): expected ...", TypeError for differing dtypes.
Tensor grid_sample(const Tensor& input, const Tensor& grid, std::string_view mode = "bilinear",
                   std::string_view padding_mode = "zeros", bool align_corners = false);
/// The grid (N, H, W, 2) or (N, D, H, W, 3) of positions theta @ (x, y[, z], 1) for an output of
/// `size` (N, C, H, W) or (N, C, D, H, W); theta (N, 2, 3) or (N, 3, 4).
Tensor affine_grid(const Tensor& theta, IntList size, bool align_corners = false);

/// softmax(scale * query @ key^T + mask) @ value: query (..., L, E), key (..., S, E), value
/// (..., S, Ev) -> (..., L, Ev). attn_mask broadcasts to (..., L, S): false positions of a boolean
/// one take no part, a floating one is added. is_causal lets position i see j <= i only (and allows
/// no attn_mask). scale: by default 1 / sqrt(E). enable_gqa repeats the heads (dimension -3) of key
/// and value to query's number. Rows that may see nothing are 0.
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask = {}, double dropout_p = 0,
                                    bool is_causal = false, std::optional<double> scale = {},
                                    bool enable_gqa = false);

/// torch.nn.functional.unfold: the windows of images (N, C, H, W) or (C, H, W) as columns
/// (N, C kh kw, windows), windows counted row by row. Padding is zeros.
Tensor im2col(const Tensor& input, const Extent& kernel_size, const Extent& dilation = 1,
              const Extent& padding = 0, const Extent& stride = 1);
/// Its adjoint: images of output_size, each element the sum of all places that show it in `input`
/// (N, C kh kw, windows) or (C kh kw, windows).
Tensor fold(const Tensor& input, const Extent& output_size, const Extent& kernel_size,
            const Extent& dilation = 1, const Extent& padding = 0, const Extent& stride = 1);

/// (*, C r^2, H, W) -> (*, C, H r, W r).
Tensor pixel_shuffle(const Tensor& self, int64_t upscale_factor);
/// (*, C, H r, W r) -> (*, C r^2, H, W).
Tensor pixel_unshuffle(const Tensor& self, int64_t downscale_factor);
/// Channels of (N, C, ...) in `groups` groups, dealt out one from each in turn.
Tensor channel_shuffle(const Tensor& input, int64_t groups);
/// x / (k + alpha * mean of x^2 over `size` neighbouring channels)^beta: input (N, C, L, ...),
/// channels that do not exist count as 0.
Tensor local_response_norm(const Tensor& input, int64_t size, double alpha = 1e-4,
                           double beta = 0.75, double k = 1);
/// x / max(|x|_p, eps) along `dim`.
Tensor normalize(const Tensor& input, double p = 2, const Extent& dim = 1, double eps = 1e-12);

}  // namespace arete
