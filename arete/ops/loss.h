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
/// (input - target)^2, times `weight` of input's size: "mean" then divides by the sum of weights.
Tensor mse_loss(const Tensor& input, const Tensor& target, std::string_view reduction = "mean",
                const Tensor& weight = {});
/// |input - target|, weighted in the same way.
Tensor l1_loss(const Tensor& input, const Tensor& target, std::string_view reduction = "mean",
               const Tensor& weight = {});
/// Quadratic / beta below beta, linear beyond; beta 0 is l1_loss. ValueError for negative beta.
Tensor smooth_l1_loss(const Tensor& input, const Tensor& target,
                      std::string_view reduction = "mean", double beta = 1);
/// Quadratic up to delta, linear with slope delta beyond, times `weight` ("mean" divides by the
/// number of elements all the same). ValueError unless delta > 0.
Tensor huber_loss(const Tensor& input, const Tensor& target, std::string_view reduction = "mean",
                  double delta = 1, const Tensor& weight = {});
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
/// log(1 + exp(-target * input)) for targets of 1 and -1.
Tensor soft_margin_loss(const Tensor& input, const Tensor& target,
                        std::string_view reduction = "mean");
/// Scores (N, C) or (C) and classes (N) or () (int64): the sum over the other classes of
/// max(0, margin - input[target] + input)^p, p 1 or 2, scaled by weight[target], over C.
Tensor multi_margin_loss(const Tensor& input, const Tensor& target, int64_t p = 1,
                         double margin = 1, const Tensor& weight = {},
                         std::string_view reduction = "mean");
/// Scores (N, C) or (C); target of the same size lists the classes of each row, ended by -1. The
/// sum over pairs of such a class j and another i of max(0, 1 - input[j] + input[i]), over C.
Tensor multilabel_margin_loss(const Tensor& input, const Tensor& target,
                              std::string_view reduction = "mean");
/// Logits and targets (..., C): the mean over the last dimension of binary cross entropies times
/// `weight`.
Tensor multilabel_soft_margin_loss(const Tensor& input, const Tensor& target,
                                   const Tensor& weight = {}, std::string_view reduction = "mean");
/// exp(input) - target * input, or without log_input input - target * log(input + eps); `full`
/// adds Stirling's approximation of log(target!) where target > 1.
Tensor poisson_nll_loss(const Tensor& input, const Tensor& target, bool log_input = true,
                        bool full = false, double eps = 1e-8, std::string_view reduction = "mean");
/// (log v + (input - target)^2 / v) / 2 with v = max(var, eps); `full` adds log(2 pi) / 2. var has
/// input's size, or that without its last dimension, or size 1 in one of them, or is 0-d.
/// Errors: ValueError "var is of incorrect size", "var has negative entry/entries" (looked at on
/// the CPU only).
Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& var,
                         bool full = false, double eps = 1e-6, std::string_view reduction = "mean");
/// Connectionist temporal classification: the negative log probability that log_probs (T, N, C) or
/// (T, C) emit the targets in order, with repeats and blanks in between. targets: (N, S), padded,
/// or all one after the other (1-d); input_lengths and target_lengths: integers (N) or (). "mean"
/// divides each loss by its target's length first. A target that does not fit gives infinity, or
/// with zero_infinity 0. The gradient is PyTorch's: right behind log_softmax.
Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, int64_t blank = 0,
                std::string_view reduction = "mean", bool zero_infinity = false);

namespace ops {
/// t, its mean or its sum; ValueError "<text> is not a valid value for reduction".
Tensor apply_reduction(const Tensor& t, std::string_view reduction, const char* op);
}  // namespace ops

}  // namespace arete
