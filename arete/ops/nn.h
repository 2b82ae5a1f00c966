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
Tensor alpha_dropout(const Tensor& input, double p = 0.5, bool training = true,
                     Generator* generator = nullptr);

/// Rows of `weight` (V, D) at the integers `input` (any shape) -> (*, D). The row padding_idx
/// (negative: from the end) gets no gradient. IndexError for indices out of range.
Tensor embedding(const Tensor& input, const Tensor& weight,
                 std::optional<int64_t> padding_idx = {});
/// int64 (*, num_classes): 1 at the class, else 0. num_classes -1: one more than the largest.
/// Errors: ValueError "Class values must be non-negative.", "Class values must be smaller than
/// num_classes.".
Tensor one_hot(const Tensor& input, int64_t num_classes = -1);

/// Resizes the spatial dimensions of (N, C, L), (N, C, H, W) or (N, C, D, H, W) to `size` or by
/// `scale_factor` (exactly one of them). mode: "nearest", "nearest-exact", "linear" (3-d),
/// "bilinear" and "bicubic" (4-d), "trilinear" (5-d), "area". align_corners maps the centres of
/// corner elements onto each other; the others map the corners of the grid.
Tensor interpolate(const Tensor& input, std::optional<Extent> size = {},
                   const std::vector<double>& scale_factor = {}, std::string_view mode = "nearest",
                   bool align_corners = false);

/// softmax(scale * query @ key^T + mask) @ value: query (..., L, E), key (..., S, E), value
/// (..., S, Ev) -> (..., L, Ev). attn_mask broadcasts to (..., L, S): false positions of a boolean
/// one take no part, a floating one is added. is_causal lets position i see j <= i only (and allows
/// no attn_mask). scale: by default 1 / sqrt(E). enable_gqa repeats the heads (dimension -3) of key
/// and value to query's number. Rows that may see nothing are 0.
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask = {}, double dropout_p = 0,
                                    bool is_causal = false, std::optional<double> scale = {},
                                    bool enable_gqa = false);

/// (*, C r^2, H, W) -> (*, C, H r, W r).
Tensor pixel_shuffle(const Tensor& self, int64_t upscale_factor);
/// (*, C, H r, W r) -> (*, C r^2, H, W).
Tensor pixel_unshuffle(const Tensor& self, int64_t downscale_factor);
/// x / max(|x|_p, eps) along `dim`.
Tensor normalize(const Tensor& input, double p = 2, int64_t dim = 1, double eps = 1e-12);

}  // namespace arete
