#include "arete/nn/adaptive.h"

#include <cmath>

#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "arete/ops/softmax.h"

namespace arete::nn {

namespace {

std::vector<int64_t> with_end(std::vector<int64_t> cutoffs, int64_t n_classes) {
  bool ordered = !cutoffs.empty() && cutoffs[0] > 0;
  cutoffs.push_back(n_classes);
  for (size_t i = 1; i < cutoffs.size(); ++i) ordered &= cutoffs[i - 1] < cutoffs[i];
  ARETE_CHECK(ordered, ValueError("AdaptiveLogSoftmaxWithLoss",
                                  "cutoffs should be unique, positive integers in an increasing "
                                  "order, each between 1 and n_classes-1"));
  return cutoffs;
}

}  // namespace

AdaptiveLogSoftmaxWithLoss::AdaptiveLogSoftmaxWithLoss(int64_t in_features, int64_t n_classes,
                                                       std::vector<int64_t> cutoffs,
                                                       const AdaptiveLogSoftmaxOptions& options)
    : cutoffs_(with_end(std::move(cutoffs), n_classes)),
      head(child("head", Linear(in_features, cutoffs_[0] + int64_t(cutoffs_.size()) - 1,
                                {.bias = options.head_bias}))),
      tail(child("tail", ModuleList())) {
  for (int64_t i = 0; i + 1 < int64_t(cutoffs_.size()); ++i) {
    const auto hidden =
        int64_t(std::floor(double(in_features) / std::pow(options.div_value, double(i + 1))));
    const int64_t classes = cutoffs_[size_t(i) + 1] - cutoffs_[size_t(i)];
    tail.append(Sequential(Linear(in_features, hidden, {.bias = false}),
                           Linear(hidden, classes, {.bias = false})));
  }
}

AdaptiveLogSoftmaxResult AdaptiveLogSoftmaxWithLoss::forward(const Tensor& input_,
                                                             const Tensor& target_) {
  const bool batched = target_.dim() > 0;
  ARETE_CHECK(
      target_.dim() <= 1 && input_.dim() == target_.dim() + 1 &&
          (!batched || input_.size(0) == target_.size(0)),
      ValueError(name(), "expected inputs (n, features) and classes (n), or both of one")
          .got(arete::to_string(input_.sizes()) + " and " + arete::to_string(target_.sizes())));
  const Tensor input = batched ? input_ : input_.unsqueeze(0);
  const Tensor target = batched ? target_ : target_.unsqueeze(0);
  const Tensor inside = logical_and(target >= 0, target < cutoffs_.back());
  ARETE_CHECK(inside.all().item<bool>(),
              IndexError(name(), "Target values should be in [0, " +
                                     std::to_string(cutoffs_.back() - 1) + "]"));
  const Tensor first = log_softmax(head(input), 1);
  Tensor index = target, rare = zeros({target.size(0)}, first.options());
  for (size_t i = 0; i + 1 < cutoffs_.size(); ++i) {
    const Tensor mine = logical_and(target >= cutoffs_[i], target < cutoffs_[i + 1]);
    const Tensor rows = nonzero(mine).reshape({-1});
    if (rows.numel() == 0) continue;
    const Tensor within = (target.index_select(0, rows) - cutoffs_[i]).unsqueeze(1);
    const Tensor all = log_softmax(tail[i](input.index_select(0, rows)), 1);
    rare = index_copy(rare, 0, rows, all.gather(1, within).squeeze(1));
    index = index.masked_fill(mine, cutoffs_[0] + int64_t(i));
  }
  const Tensor output = first.gather(1, index.unsqueeze(1)).squeeze(1) + rare;
  return {batched ? output : output.squeeze(0), -output.mean()};
}

Tensor AdaptiveLogSoftmaxWithLoss::log_prob(const Tensor& input) {
  const Tensor first = log_softmax(head(input), 1);
  std::vector<Tensor> parts{first.narrow(1, 0, cutoffs_[0])};
  for (size_t i = 0; i + 1 < cutoffs_.size(); ++i)
    parts.push_back(log_softmax(tail[i](input), 1) + first.narrow(1, cutoffs_[0] + int64_t(i), 1));
  return cat(parts, 1);
}

Tensor AdaptiveLogSoftmaxWithLoss::predict(const Tensor& input) {
  return log_prob(input).argmax(1);
}

}  // namespace arete::nn
