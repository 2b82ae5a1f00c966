// Losses as modules; formulas and shapes are documented with the functions in ops/loss.h.
#pragma once

#include <cstdint>
#include <string_view>

#include "arete/nn/layer.h"

namespace arete::nn {

/// A module of an input and a target.
using Loss = PairLayer;

/// A loss with a weight for each class or element.
class WeightedLoss : public Loss {
 public:
  Tensor forward(const Tensor& input, const Tensor& target) const override {
    return run({input, target, weight});
  }

  Buffer weight;

 protected:
  WeightedLoss(std::string_view layer, const Tensor& weights, const OptionList& options)
      : Loss(layer, options), weight(register_buffer("weight", weights)) {}
};

/// A loss of three tensors.
class TripleLoss : public OperatorLayer {
 public:
  using OperatorLayer::forward;
  Tensor forward(const Tensor& first, const Tensor& second, const Tensor& third) const {
    return run({first, second, third});
  }
  Tensor operator()(const Tensor& first, const Tensor& second, const Tensor& third) const {
    return forward(first, second, third);
  }

 protected:
  using OperatorLayer::OperatorLayer;
};

struct CrossEntropyLossOptions {
  Tensor weight = {};  ///< a factor for each class
  int64_t ignore_index = -100;
  std::string_view reduction = "mean";
  double label_smoothing = 0;
};
/// Logits against classes (integers) or probabilities.
class CrossEntropyLoss : public WeightedLoss {
 public:
  explicit CrossEntropyLoss(const CrossEntropyLossOptions& o = {})
      : WeightedLoss("CrossEntropyLoss", o.weight,
                     {{"ignore_index", o.ignore_index},
                      {"reduction", o.reduction},
                      {"label_smoothing", o.label_smoothing}}) {}
};

struct NLLLossOptions {
  Tensor weight = {};
  int64_t ignore_index = -100;
  std::string_view reduction = "mean";
};
/// Log probabilities against classes.
class NLLLoss : public WeightedLoss {
 public:
  explicit NLLLoss(const NLLLossOptions& o = {})
      : WeightedLoss("NLLLoss", o.weight,
                     {{"ignore_index", o.ignore_index}, {"reduction", o.reduction}}) {}
};

struct LossOptions {
  std::string_view reduction = "mean";
};
#define ARETE_PLAIN_LOSS(Name)                                                              \
  class Name : public Loss {                                                                \
   public:                                                                                  \
    explicit Name(const LossOptions& o = {}) : Loss(#Name, {{"reduction", o.reduction}}) {} \
  };
ARETE_PLAIN_LOSS(MSELoss)
ARETE_PLAIN_LOSS(L1Loss)
ARETE_PLAIN_LOSS(SoftMarginLoss)
ARETE_PLAIN_LOSS(MultiLabelMarginLoss)
#undef ARETE_PLAIN_LOSS

struct SmoothL1LossOptions {
  std::string_view reduction = "mean";
  double beta = 1;
};
class SmoothL1Loss : public Loss {
 public:
  explicit SmoothL1Loss(const SmoothL1LossOptions& o = {})
      : Loss("SmoothL1Loss", {{"reduction", o.reduction}, {"beta", o.beta}}) {}
};

struct HuberLossOptions {
  std::string_view reduction = "mean";
  double delta = 1;
};
class HuberLoss : public Loss {
 public:
  explicit HuberLoss(const HuberLossOptions& o = {})
      : Loss("HuberLoss", {{"reduction", o.reduction}, {"delta", o.delta}}) {}
};

struct WeightedLossOptions {
  Tensor weight = {};
  std::string_view reduction = "mean";
};
using BCELossOptions = WeightedLossOptions;
/// Probabilities against numbers in [0, 1].
class BCELoss : public WeightedLoss {
 public:
  explicit BCELoss(const WeightedLossOptions& o = {})
      : WeightedLoss("BCELoss", o.weight, {{"reduction", o.reduction}}) {}
};
/// Logits against labels: binary cross entropies averaged over the classes.
class MultiLabelSoftMarginLoss : public WeightedLoss {
 public:
  explicit MultiLabelSoftMarginLoss(const WeightedLossOptions& o = {})
      : WeightedLoss("MultiLabelSoftMarginLoss", o.weight, {{"reduction", o.reduction}}) {}
};

struct BCEWithLogitsLossOptions {
  Tensor weight = {};
  std::string_view reduction = "mean";
  Tensor pos_weight = {};
};
/// Logits against numbers in [0, 1].
class BCEWithLogitsLoss : public WeightedLoss {
 public:
  explicit BCEWithLogitsLoss(const BCEWithLogitsLossOptions& o = {})
      : WeightedLoss("BCEWithLogitsLoss", o.weight, {{"reduction", o.reduction}}),
        pos_weight(register_buffer("pos_weight", o.pos_weight)) {}
  Tensor forward(const Tensor& input, const Tensor& target) const override {
    return run({input, target, weight, pos_weight});
  }

  Buffer pos_weight;
};

struct MultiMarginLossOptions {
  int64_t p = 1;  ///< or 2
  double margin = 1;
  Tensor weight = {};
  std::string_view reduction = "mean";
};
/// Hinge of every other class against the target's.
class MultiMarginLoss : public WeightedLoss {
 public:
  explicit MultiMarginLoss(const MultiMarginLossOptions& o = {})
      : WeightedLoss("MultiMarginLoss", o.weight,
                     {{"p", o.p},
                      {"margin", o.margin},
                      {"weight", o.weight.defined() ? Option(o.weight) : Option()},
                      {"reduction", o.reduction}}) {}
};

struct KLDivLossOptions {
  std::string_view reduction = "mean";  ///< "batchmean" is the mathematical one
  bool log_target = false;
};
/// Log probabilities against probabilities (or their logarithms).
class KLDivLoss : public Loss {
 public:
  explicit KLDivLoss(const KLDivLossOptions& o = {})
      : Loss("KLDivLoss", {{"reduction", o.reduction}, {"log_target", o.log_target}}) {}
};

struct PoissonNLLLossOptions {
  bool log_input = true;
  bool full = false;
  double eps = 1e-8;
  std::string_view reduction = "mean";
};
/// Rates, or their logarithms, against counts.
class PoissonNLLLoss : public Loss {
 public:
  explicit PoissonNLLLoss(const PoissonNLLLossOptions& o = {})
      : Loss("PoissonNLLLoss", {{"log_input", o.log_input},
                                {"full", o.full},
                                {"eps", o.eps},
                                {"reduction", o.reduction}}) {}
};

struct HingeEmbeddingLossOptions {
  double margin = 1;
  std::string_view reduction = "mean";
};
/// Distances against 1 (near) and -1 (far).
class HingeEmbeddingLoss : public Loss {
 public:
  explicit HingeEmbeddingLoss(const HingeEmbeddingLossOptions& o = {})
      : Loss("HingeEmbeddingLoss", {{"margin", o.margin}, {"reduction", o.reduction}}) {}
};

struct GaussianNLLLossOptions {
  bool full = false;
  double eps = 1e-6;
  std::string_view reduction = "mean";
};
/// Means, targets and variances.
class GaussianNLLLoss : public TripleLoss {
 public:
  explicit GaussianNLLLoss(const GaussianNLLLossOptions& o = {})
      : TripleLoss("GaussianNLLLoss",
                   {{"full", o.full}, {"eps", o.eps}, {"reduction", o.reduction}}) {}
};

struct MarginLossOptions {
  double margin = 0;
  std::string_view reduction = "mean";
};
/// Pairs of vectors, near where the third is 1 and far where it is -1.
class CosineEmbeddingLoss : public TripleLoss {
 public:
  explicit CosineEmbeddingLoss(const MarginLossOptions& o = {})
      : TripleLoss("CosineEmbeddingLoss", {{"margin", o.margin}, {"reduction", o.reduction}}) {}
};
/// Pairs of numbers, of which the third (1 or -1) says which should be larger.
class MarginRankingLoss : public TripleLoss {
 public:
  explicit MarginRankingLoss(const MarginLossOptions& o = {})
      : TripleLoss("MarginRankingLoss", {{"margin", o.margin}, {"reduction", o.reduction}}) {}
};

struct TripletMarginLossOptions {
  double margin = 1;
  double p = 2;
  double eps = 1e-6;
  bool swap = false;
  std::string_view reduction = "mean";
};
/// Anchors, what they should be near, and what they should be far from.
class TripletMarginLoss : public TripleLoss {
 public:
  explicit TripletMarginLoss(const TripletMarginLossOptions& o = {})
      : TripleLoss("TripletMarginLoss", {{"margin", o.margin},
                                         {"p", o.p},
                                         {"eps", o.eps},
                                         {"swap", o.swap},
                                         {"reduction", o.reduction}}) {}
};

struct CTCLossOptions {
  int64_t blank = 0;
  std::string_view reduction = "mean";
  bool zero_infinity = false;
};
/// Connectionist temporal classification of log probabilities (T, N, C); lengths are integers (N).
class CTCLoss : public OperatorLayer {
 public:
  explicit CTCLoss(const CTCLossOptions& o = {})
      : OperatorLayer(
            "CTCLoss",
            {{"blank", o.blank}, {"reduction", o.reduction}, {"zero_infinity", o.zero_infinity}}) {}
  using OperatorLayer::forward;
  Tensor forward(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                 const Tensor& target_lengths) const {
    return run({log_probs, targets, input_lengths, target_lengths});
  }
  Tensor operator()(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                    const Tensor& target_lengths) const {
    return forward(log_probs, targets, input_lengths, target_lengths);
  }
};

}  // namespace arete::nn
