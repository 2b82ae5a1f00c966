// Metrics of numbers, and of losses: with torchmetrics' names.
#pragma once

#include "arete/metrics/metric.h"

namespace arete::metrics {

/// The mean of values, such as losses of batches, weighted by `target` (one number, or one for each
/// value; undefined: 1).
class MeanMetric : public Metric {
 public:
  MeanMetric();
  using Metric::update;
  void update(const Tensor& values, const Tensor& weights = {}) override;
  Tensor compute() const override;
};

/// mean((preds - target)^2); `squared` false: its root.
class MeanSquaredError : public Metric {
 public:
  explicit MeanSquaredError(bool squared = true);
  void update(const Tensor& preds, const Tensor& target) override;
  Tensor compute() const override;

 private:
  bool squared_;
};

class MeanAbsoluteError : public Metric {
 public:
  MeanAbsoluteError();
  void update(const Tensor& preds, const Tensor& target) override;
  Tensor compute() const override;
};

/// 1 - sum((target - preds)^2) / sum((target - mean(target))^2), of one number or of the mean over
/// the columns of (N, D). Sums are taken in float64.
class R2Score : public Metric {
 public:
  explicit R2Score(int64_t num_outputs = 1);
  void update(const Tensor& preds, const Tensor& target) override;
  Tensor compute() const override;
};

}  // namespace arete::metrics
