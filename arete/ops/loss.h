// Losses. `reduction` is "none" (one value per element or sample), "mean" or "sum"; other texts are
// a ValueError. Sizes of input and target broadcast unless said otherwise.
#pragma once

#include <string_view>

#include "arete/core/tensor.h"

namespace arete {

/// Cross entropy of logits `input` (N, C), (C) or (N, C, d1, ...) against classes: integers (N),
/// () or (N, d1, ...) in [0, C), or probabilities of input's shape. `weight` (C) scales classes;
/// targets equal to ignore_index count nothing (integers only); "mean" divides by the weights of
/// the targets that count. label_smoothing in [0, 1] mixes in the uniform distribution.
/// Errors: IndexError "Target 10 is out of bounds.", ValueError "Expected input batch_size (3) to
/// match target batch_size (4).", ...
Tensor cross_entropy(const Tensor& input, const Tensor& target, const Tensor& weight = {},
                     int64_t ignore_index = -100, std::string_view reduction = "mean",
                     double label_smoothing = 0);
/// The same from log probabilities and integer targets, without softmax.
Tensor nll_loss(const Tensor& input, const Tensor& target, const Tensor& weight = {},
                int64_t ignore_index = -100, std::string_view reduction = "mean");
/// (input - target)^2.
Tensor mse_loss(const Tensor& input, const Tensor& target, std::string_view reduction = "mean");
/// |input - target|.
Tensor l1_loss(const Tensor& input, const Tensor& target, std::string_view reduction = "mean");
/// Quadratic / beta below beta, linear beyond; beta 0 is l1_loss. ValueError for negative beta.
Tensor smooth_l1_loss(const Tensor& input, const Tensor& target,
                      std::string_view reduction = "mean", double beta = 1);
/// Quadratic up to delta, linear with slope delta beyond. ValueError unless delta > 0.
Tensor huber_loss(const Tensor& input, const Tensor& target, std::string_view reduction = "mean",
                  double delta = 1);
/// -(y log x + (1 - y) log(1 - x)) for probabilities x of target's size, logarithms not below -100.
Tensor binary_cross_entropy(const Tensor& input, const Tensor& target, const Tensor& weight = {},
                            std::string_view reduction = "mean");
/// The same from logits, accurate for large ones; pos_weight scales the positive term.
Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target,
                                        const Tensor& weight = {},
                                        std::string_view reduction = "mean",
                                        const Tensor& pos_weight = {});
/// target * (log target - input) with `input` (and with log_target `target`) in logarithms.
/// reduction "batchmean" divides the sum by the first size.
Tensor kl_div(const Tensor& input, const Tensor& target, std::string_view reduction = "mean",
              bool log_target = false);
/// x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along `dim`.
Tensor cosine_similarity(const Tensor& x1, const Tensor& x2, int64_t dim = 1, double eps = 1e-8);
/// p-norm of x1 - x2 + eps along the last dimension.
Tensor pairwise_distance(const Tensor& x1, const Tensor& x2, double p = 2, double eps = 1e-6,
                         bool keepdim = false);
/// 1 - cos(x1, x2) where target is 1, max(0, cos - margin) where it is -1.
Tensor cosine_embedding_loss(const Tensor& input1, const Tensor& input2, const Tensor& target,
                             double margin = 0, std::string_view reduction = "mean");
/// x where target is 1, max(0, margin - x) where it is -1.
Tensor hinge_embedding_loss(const Tensor& input, const Tensor& target, double margin = 1,
                            std::string_view reduction = "mean");
/// max(0, -target * (input1 - input2) + margin).
Tensor margin_ranking_loss(const Tensor& input1, const Tensor& input2, const Tensor& target,
                           double margin = 0, std::string_view reduction = "mean");
/// max(0, d(anchor, positive) - d(anchor, negative) + margin) with pairwise distances.
Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           double margin = 1, double p = 2, double eps = 1e-6, bool swap = false,
                           std::string_view reduction = "mean");

namespace ops {
/// t, its mean or its sum; ValueError "<text> is not a valid value for reduction".
Tensor apply_reduction(const Tensor& t, std::string_view reduction, const char* op);
}  // namespace ops

}  // namespace arete
