#include "arete/metrics/regression.h"

#include <algorithm>

#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"

namespace arete::metrics {

namespace {
void check_pair(const Tensor& preds, const Tensor& target) {
  ARETE_CHECK(std::ranges::equal(preds.sizes(), target.sizes()),
              ValueError("metrics", "Predictions and targets are expected to have the same shape")
                  .got(to_string(preds.sizes()) + " and " + to_string(target.sizes())));
}
Tensor count_of(const Tensor& t) {
  return full({}, double(t.numel()), TensorOptions(kFloat64, t.device()));
}
}  // namespace

MeanMetric::MeanMetric() {
  add_sum("mean_value", {}, kFloat64);
  add_sum("weight", {}, kFloat64);
}
void MeanMetric::update(const Tensor& values, const Tensor& weights) {
  follow(values);
  const Tensor v = values.detach().to(kFloat64);
  if (!weights.defined()) {
    add(0, v.sum());
    add(1, count_of(v));
    return;
  }
  const Tensor w = weights.detach().to(v.device(), kFloat64).expand(v.sizes());
  add(0, (v * w).sum());
  add(1, w.sum());
}
Tensor MeanMetric::compute() const { return (state(0) / state(1)).to(kFloat32); }

MeanSquaredError::MeanSquaredError(bool squared) : squared_(squared) {
  add_sum("sum_squared_error", {}, kFloat64);
  add_sum("total", {}, kFloat64);
}
void MeanSquaredError::update(const Tensor& preds, const Tensor& target) {
  check_pair(preds, target);
  follow(preds);
  const Tensor d = preds.detach().to(kFloat64) - target.detach().to(kFloat64);
  add(0, (d * d).sum());
  add(1, count_of(d));
}
Tensor MeanSquaredError::compute() const {
  const Tensor mean = state(0) / state(1);
  return (squared_ ? mean : mean.sqrt()).to(kFloat32);
}

MeanAbsoluteError::MeanAbsoluteError() {
  add_sum("sum_abs_error", {}, kFloat64);
  add_sum("total", {}, kFloat64);
}
void MeanAbsoluteError::update(const Tensor& preds, const Tensor& target) {
  check_pair(preds, target);
  follow(preds);
  const Tensor d = preds.detach().to(kFloat64) - target.detach().to(kFloat64);
  add(0, d.abs().sum());
  add(1, count_of(d));
}
Tensor MeanAbsoluteError::compute() const { return (state(0) / state(1)).to(kFloat32); }

R2Score::R2Score(int64_t num_outputs) {
  ARETE_CHECK(num_outputs >= 1, ValueError("R2Score", "num_outputs must be at least 1"));
  for (const char* name : {"sum_error", "sum_squared_error", "residual"})
    add_sum(name, {num_outputs}, kFloat64);
  add_sum("total", {}, kFloat64);
}
void R2Score::update(const Tensor& preds, const Tensor& target) {
  check_pair(preds, target);
  const int64_t outputs = state(0).size(0);
  ARETE_CHECK(outputs == 1 ? preds.dim() == 1 : preds.dim() == 2 && preds.size(1) == outputs,
              ValueError("R2Score", "preds must be (N) for one output, or (N, num_outputs)")
                  .got(to_string(preds.sizes())));
  follow(preds);
  const Tensor p = preds.detach().to(kFloat64).view({-1, outputs}),
               t = target.detach().to(kFloat64).view({-1, outputs});
  add(0, t.sum({0}));
  add(1, (t * t).sum({0}));
  const Tensor d = t - p;
  add(2, (d * d).sum({0}));
  add(3, full({}, double(t.size(0)), TensorOptions(kFloat64, t.device())));
}
Tensor R2Score::compute() const {
  const Tensor mean = state(0) / state(3);
  const Tensor total = state(1) - state(0) * mean;
  return (1 - state(2) / total).mean().to(kFloat32);
}

}  // namespace arete::metrics
