#include "arete/nn/loss.h"

#include "arete/ops/loss.h"

namespace arete::nn {

Loss::Loss(const char* name, std::string_view reduction, bool batchmean) : reduction_(reduction) {
  ARETE_CHECK(reduction == "none" || reduction == "mean" || reduction == "sum" ||
                  (batchmean && reduction == "batchmean"),
              ValueError(name, std::string(reduction) + " is not a valid value for reduction")
                  .expected(batchmean ? "none, mean, sum or batchmean" : "none, mean or sum"));
}

CrossEntropyLoss::CrossEntropyLoss(const CrossEntropyLossOptions& o)
    : Loss("CrossEntropyLoss", o.reduction),
      ignore_index_(o.ignore_index),
      label_smoothing_(o.label_smoothing) {
  weight = register_buffer("weight", o.weight);
}
Tensor CrossEntropyLoss::forward(const Tensor& input, const Tensor& target) const {
  return cross_entropy(input, target, weight, ignore_index_, reduction_, label_smoothing_);
}

NLLLoss::NLLLoss(const NLLLossOptions& o)
    : Loss("NLLLoss", o.reduction), ignore_index_(o.ignore_index) {
  weight = register_buffer("weight", o.weight);
}
Tensor NLLLoss::forward(const Tensor& input, const Tensor& target) const {
  return nll_loss(input, target, weight, ignore_index_, reduction_);
}

Tensor MSELoss::forward(const Tensor& input, const Tensor& target) const {
  return mse_loss(input, target, reduction_);
}
Tensor L1Loss::forward(const Tensor& input, const Tensor& target) const {
  return l1_loss(input, target, reduction_);
}
Tensor SmoothL1Loss::forward(const Tensor& input, const Tensor& target) const {
  return smooth_l1_loss(input, target, reduction_, beta_);
}
Tensor HuberLoss::forward(const Tensor& input, const Tensor& target) const {
  return huber_loss(input, target, reduction_, delta_);
}

BCELoss::BCELoss(const BCELossOptions& o) : Loss("BCELoss", o.reduction) {
  weight = register_buffer("weight", o.weight);
}
Tensor BCELoss::forward(const Tensor& input, const Tensor& target) const {
  return binary_cross_entropy(input, target, weight, reduction_);
}

BCEWithLogitsLoss::BCEWithLogitsLoss(const BCEWithLogitsLossOptions& o)
    : Loss("BCEWithLogitsLoss", o.reduction) {
  weight = register_buffer("weight", o.weight);
  pos_weight = register_buffer("pos_weight", o.pos_weight);
}
Tensor BCEWithLogitsLoss::forward(const Tensor& input, const Tensor& target) const {
  return binary_cross_entropy_with_logits(input, target, weight, reduction_, pos_weight);
}

Tensor KLDivLoss::forward(const Tensor& input, const Tensor& target) const {
  return kl_div(input, target, reduction_, log_target_);
}

}  // namespace arete::nn
