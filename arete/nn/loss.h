// Losses as modules; formulas and shapes are documented with the functions in ops/loss.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "arete/nn/module.h"

namespace arete::nn {

/// A module of an input and a target.
class Loss : public Module {
 public:
  using Module::forward;
  virtual Tensor forward(const Tensor& input, const Tensor& target) const = 0;
  Tensor operator()(const Tensor& input, const Tensor& target) const {
    return forward(input, target);
  }

 protected:
  /// ValueError unless one of "none", "mean", "sum" (and "batchmean" if allowed).
  Loss(const char* name, std::string_view reduction, bool batchmean = false);
  std::string reduction_;
};

struct CrossEntropyLossOptions {
  Tensor weight = {};  ///< a factor for each class
  int64_t ignore_index = -100;
  std::string_view reduction = "mean";
  double label_smoothing = 0;
};
/// Logits against classes (integers) or probabilities.
class CrossEntropyLoss : public Loss {
 public:
  explicit CrossEntropyLoss(const CrossEntropyLossOptions& options = {});
  Tensor forward(const Tensor& input, const Tensor& target) const override;

  Buffer weight;

 private:
  int64_t ignore_index_;
  double label_smoothing_;
};

struct NLLLossOptions {
  Tensor weight = {};
  int64_t ignore_index = -100;
  std::string_view reduction = "mean";
};
/// Log probabilities against classes.
class NLLLoss : public Loss {
 public:
  explicit NLLLoss(const NLLLossOptions& options = {});
  Tensor forward(const Tensor& input, const Tensor& target) const override;

  Buffer weight;

 private:
  int64_t ignore_index_;
};

struct LossOptions {
  std::string_view reduction = "mean";
};
class MSELoss : public Loss {
 public:
  explicit MSELoss(const LossOptions& options = {}) : Loss("MSELoss", options.reduction) {}
  Tensor forward(const Tensor& input, const Tensor& target) const override;
};
class L1Loss : public Loss {
 public:
  explicit L1Loss(const LossOptions& options = {}) : Loss("L1Loss", options.reduction) {}
  Tensor forward(const Tensor& input, const Tensor& target) const override;
};

struct SmoothL1LossOptions {
  std::string_view reduction = "mean";
  double beta = 1;
};
class SmoothL1Loss : public Loss {
 public:
  explicit SmoothL1Loss(const SmoothL1LossOptions& options = {})
      : Loss("SmoothL1Loss", options.reduction), beta_(options.beta) {}
  Tensor forward(const Tensor& input, const Tensor& target) const override;

 private:
  double beta_;
};

struct HuberLossOptions {
  std::string_view reduction = "mean";
  double delta = 1;
};
class HuberLoss : public Loss {
 public:
  explicit HuberLoss(const HuberLossOptions& options = {})
      : Loss("HuberLoss", options.reduction), delta_(options.delta) {}
  Tensor forward(const Tensor& input, const Tensor& target) const override;

 private:
  double delta_;
};

struct BCELossOptions {
  Tensor weight = {};
  std::string_view reduction = "mean";
};
/// Probabilities against numbers in [0, 1].
class BCELoss : public Loss {
 public:
  explicit BCELoss(const BCELossOptions& options = {});
  Tensor forward(const Tensor& input, const Tensor& target) const override;

  Buffer weight;
};

struct BCEWithLogitsLossOptions {
  Tensor weight = {};
  std::string_view reduction = "mean";
  Tensor pos_weight = {};
};
/// Logits against numbers in [0, 1].
class BCEWithLogitsLoss : public Loss {
 public:
  explicit BCEWithLogitsLoss(const BCEWithLogitsLossOptions& options = {});
  Tensor forward(const Tensor& input, const Tensor& target) const override;

  Buffer weight, pos_weight;
};

struct KLDivLossOptions {
  std::string_view reduction = "mean";  ///< "batchmean" is the mathematical one
  bool log_target = false;
};
/// Log probabilities against probabilities (or their logarithms).
class KLDivLoss : public Loss {
 public:
  explicit KLDivLoss(const KLDivLossOptions& options = {})
      : Loss("KLDivLoss", options.reduction, true), log_target_(options.log_target) {}
  Tensor forward(const Tensor& input, const Tensor& target) const override;

 private:
  bool log_target_;
};

}  // namespace arete::nn
