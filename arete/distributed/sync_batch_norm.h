// Batch normalization over the batches of several processes.
#pragma once

#include "arete/distributed/process_group.h"
#include "arete/nn/norm.h"

namespace arete::distributed {

/// Normalizes each channel of (N, C, ...) by the mean and variance over the inputs of all processes
/// of a group, whose sizes may differ in all but C; gradients flow through these, too, also those
/// of gradients. One call of the group forward and one backward. `weight`, `bias` and the running
/// statistics, which move by `momentum` (variances without bias), may be undefined.
/// ValueError for inputs of fewer than two dimensions, or without an element in any process.
Tensor sync_batch_norm(const Tensor& input, const Tensor& running_mean, const Tensor& running_var,
                       const Tensor& weight, const Tensor& bias, double momentum, double eps,
                       const ProcessGroupPtr& group);

/// As nn::BatchNorm1d to 3d, over the batches of all processes of a group in training; null: of the
/// default group.
class SyncBatchNorm : public nn::NormBase {
 public:
  explicit SyncBatchNorm(int64_t num_features, const nn::BatchNormOptions& options = {},
                         ProcessGroupPtr group = nullptr)
      : NormBase("BatchNorm1d", num_features, options), group_(std::move(group)) {}
  std::string name() const override { return "SyncBatchNorm"; }
  Tensor forward(const Tensor& input) override;

 private:
  ProcessGroupPtr group_;
};

}  // namespace arete::distributed
