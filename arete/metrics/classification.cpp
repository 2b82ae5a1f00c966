#include "arete/metrics/classification.h"

#include <algorithm>
#include <array>
#include <limits>

#include "arete/core/modes.h"
#include "arete/ops/activation.h"
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/loss.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/ops/search.h"
#include "arete/ops/shape.h"
#include "arete/ops/softmax.h"
#include "arete/ops/sort.h"

namespace arete::metrics {

namespace {

// Floats that are no probabilities are logits. Which of both is decided where the values are.
Tensor probabilities(const Tensor& preds, bool softmax_of_rows) {
  const Tensor beyond = logical_or(preds<0, preds> 1).any();
  return where(beyond, softmax_of_rows ? softmax(preds, 1) : sigmoid(preds), preds);
}

void check_same_shape(const Tensor& preds, const Tensor& target) {
  ARETE_CHECK(std::ranges::equal(preds.sizes(), target.sizes()),
              ValueError("metrics", "Predictions and targets are expected to have the same shape")
                  .got(to_string(preds.sizes()) + " and " + to_string(target.sizes())));
}

// (N, C, ...) as (rows, C).
Tensor rows_of(const Tensor& t) {
  return t.dim() > 2 ? t.movedim({1}, {-1}).reshape({-1, t.size(1)}) : t;
}

bool has_scores(const Tensor& preds, const Tensor& target, int64_t classes) {
  if (preds.dim() != target.dim() + 1) {
    check_same_shape(preds, target);
    ARETE_CHECK(
        !preds.is_floating_point(),
        TypeError("metrics", "labels must be integers").got(std::string(name_of(preds.dtype()))));
    return false;
  }
  Shape rest;
  for (int64_t d = 0; d < preds.dim(); ++d)
    if (d != 1) rest.push_back(preds.size(d));
  ARETE_CHECK(
      preds.size(1) == classes && std::ranges::equal(rest, target.sizes()),
      ValueError("metrics", "scores must be (N, num_classes, ...) where the target is (N, ...)")
          .got(to_string(preds.sizes()) + " and " + to_string(target.sizes())));
  return true;
}

// Which targets count, and the others as class 0.
struct Targets {
  Tensor label, counts;  // int64, bool
  Targets(const Tensor& target, const std::optional<int64_t>& ignore_index) {
    ARETE_CHECK(
        !target.is_floating_point(),
        TypeError("metrics", "targets must be integers").got(std::string(name_of(target.dtype()))));
    label = target.detach().to(kInt64);
    counts = ignore_index ? label != *ignore_index : ones_like(label, kBool);
    if (ignore_index) label = where(counts, label, 0);
  }
};

void check_options(const ClassOptions& o, const char* name) {
  ARETE_CHECK(o.task == Task::binary || o.num_classes >= 2,
              ValueError(name, "`num_classes` (`num_labels` of multilabel) must be at least 2")
                  .got(std::to_string(o.num_classes)));
  ARETE_CHECK(o.threshold >= 0 && o.threshold <= 1,
              ValueError(name, "`threshold` must be within [0, 1]"));
  ARETE_CHECK(
      o.top_k >= 1 && (o.top_k == 1 || (o.task == Task::multiclass && o.top_k <= o.num_classes)),
      ValueError(name, "`top_k` is for multiclass scores, from 1 to num_classes")
          .got(std::to_string(o.top_k)));
}

ClassOptions without_top_k(const ClassOptions& o, const char* name) {
  ARETE_CHECK(o.top_k == 1, ValueError(name, "`top_k` is offered by Accuracy only"));
  return o;
}

Tensor divided(const Tensor& a, const Tensor& b) { return a / where(b == 0, 1.0, b); }

// Decisions of binary and multilabel.
Tensor decided(const Tensor& preds, double threshold) {
  return preds.is_floating_point() ? probabilities(preds.detach(), false) > threshold
                                   : preds.detach().to(kBool);
}

Tensor zeros_of(int64_t n, const Tensor& like) {
  return zeros({n}, TensorOptions(kFloat64, like.device()));
}

}  // namespace

Task task_of(const std::string& name) {
  for (int i = 0; i < 3; ++i)
    if (name == std::array{"binary", "multiclass", "multilabel"}[size_t(i)]) return Task(i);
  throw ValueError("metrics", "unknown task '" + name + "'")
      .expected("binary, multiclass or multilabel");
}

Average average_of(const std::string& name) {
  for (int i = 0; i < 4; ++i)
    if (name == std::array{"micro", "macro", "weighted", "none"}[size_t(i)]) return Average(i);
  throw ValueError("metrics", "unknown average '" + name + "'")
      .expected("micro, macro, weighted or none");
}

ClassCounts::ClassCounts(const ClassOptions& options) : options_(options) {
  check_options(options, "metrics");
  if (options_.task == Task::binary) options_.num_classes = 1;
  for (const char* name : {"tp", "fp", "fn", "tn"}) add_sum(name, {options_.num_classes}, kFloat64);
}

void ClassCounts::update(const Tensor& preds, const Tensor& target) {
  const NoGradGuard no_grad;
  const ClassOptions& o = options_;
  follow(preds);
  const Targets t(target.to(preds.device()), o.ignore_index);
  if (o.task != Task::multiclass) {
    check_same_shape(preds, target);
    ARETE_CHECK(
        o.task == Task::binary || (preds.dim() >= 2 && preds.size(1) == o.num_classes),
        ValueError("metrics", "preds must be (N, num_labels, ...)").got(to_string(preds.sizes())));
    const auto flat = [&](const Tensor& x) {
      return o.task == Task::binary ? x.reshape({-1, 1}) : rows_of(x);
    };
    const Tensor yes = flat(decided(preds, o.threshold)), is = flat(t.label != 0),
                 counts = flat(t.counts);
    const auto sum = [&](const Tensor& which) {
      return logical_and(which, counts).to(kFloat64).sum({0});
    };
    add(0, sum(logical_and(yes, is)));
    add(1, sum(logical_and(yes, is.logical_not())));
    add(2, sum(logical_and(yes.logical_not(), is)));
    add(3, sum(logical_or(yes, is).logical_not()));
    return;
  }
  const Tensor label = t.label.reshape({-1}), weight = t.counts.reshape({-1}).to(kFloat64);
  const auto counted = [&](const Tensor& classes, const Tensor& amounts) {
    return zeros_of(o.num_classes, label).scatter_add(0, classes, amounts);
  };
  Tensor right, decision;
  if (has_scores(preds, target, o.num_classes)) {
    const Tensor scores = rows_of(preds.detach());
    if (o.top_k == 1)
      decision = scores.argmax(1);
    else
      right = (std::get<1>(scores.topk(o.top_k, 1)) == label.unsqueeze(1)).any({1});
  } else {
    ARETE_CHECK(o.top_k == 1, ValueError("metrics", "`top_k` needs scores, but preds are labels"));
    decision = preds.detach().to(kInt64).reshape({-1});
    // What does not count may be labelled anyhow.
    if (o.ignore_index) decision = where(t.counts.reshape({-1}), decision, 0);
  }
  if (!right.defined()) right = decision == label;
  const Tensor tp = counted(label, weight * right.to(kFloat64)), actual = counted(label, weight);
  const Tensor fp = decision.defined() ? counted(decision, weight) - tp : zeros_like(tp);
  add(0, tp);
  add(1, fp);
  add(2, actual - tp);
  add(3, weight.sum() - actual - fp);
}

Tensor ClassCounts::compute() const {
  const bool micro = options_.average == Average::micro && options_.task != Task::binary;
  const auto get = [&](size_t i) { return micro ? state(i).sum() : state(i); };
  const Counts c{get(0), get(1), get(2), get(3)};
  const Tensor s = score(c);
  if (micro) return s.to(kFloat32);
  if (options_.task == Task::binary) return s.squeeze(0).to(kFloat32);
  if (options_.average == Average::none) return s.to(kFloat32);
  Tensor weight = options_.average == Average::weighted ? c.tp + c.fn : ones_like(s);
  // Classes that never occur say nothing.
  if (options_.average == Average::macro && options_.task == Task::multiclass)
    weight = where(c.tp + c.fp + c.fn == 0, 0.0, weight);
  return divided((s * weight).sum(), weight.sum()).to(kFloat32);
}

Tensor Accuracy::score(const Counts& c) const {
  return options_.task == Task::multiclass ? divided(c.tp, c.tp + c.fn)
                                           : divided(c.tp + c.tn, c.tp + c.tn + c.fp + c.fn);
}

Precision::Precision(const ClassOptions& options)
    : ClassCounts(without_top_k(options, "Precision")) {}
Tensor Precision::score(const Counts& c) const { return divided(c.tp, c.tp + c.fp); }

Recall::Recall(const ClassOptions& options) : ClassCounts(without_top_k(options, "Recall")) {}
Tensor Recall::score(const Counts& c) const { return divided(c.tp, c.tp + c.fn); }

FBetaScore::FBetaScore(const ClassOptions& options, double beta)
    : ClassCounts(without_top_k(options, "FBetaScore")), beta_(beta) {
  ARETE_CHECK(beta > 0, ValueError("FBetaScore", "`beta` must be positive"));
}
Tensor FBetaScore::score(const Counts& c) const {
  const double b = beta_ * beta_;
  return divided((1 + b) * c.tp, (1 + b) * c.tp + b * c.fn + c.fp);
}

ConfusionMatrix::ConfusionMatrix(const ClassOptions& options)
    : options_(without_top_k(options, "ConfusionMatrix")) {
  check_options(options, "ConfusionMatrix");
  ARETE_CHECK(options.task != Task::multilabel,
              NotImplementedError("ConfusionMatrix", "the task multilabel is not offered"));
  if (options_.task == Task::binary) options_.num_classes = 2;
  add_sum("confmat", {options_.num_classes, options_.num_classes}, kInt64);
}

void ConfusionMatrix::update(const Tensor& preds, const Tensor& target) {
  const NoGradGuard no_grad;
  const int64_t n = options_.num_classes;
  follow(preds);
  const Targets t(target.to(preds.device()), options_.ignore_index);
  Tensor decision;
  if (options_.task == Task::binary) {
    check_same_shape(preds, target);
    decision = decided(preds, options_.threshold).to(kInt64);
  } else {
    decision = has_scores(preds, target, n) ? preds.detach().argmax(1) : preds.detach().to(kInt64);
  }
  if (options_.ignore_index) decision = where(t.counts, decision, 0);
  // A label outside of the classes must not be counted in another row: it is out of range.
  const auto within = [&](const Tensor& x) { return logical_and(x >= 0, x < n); };
  const Tensor cell =
      where(logical_and(within(t.label), within(decision)), t.label * n + decision, n * n);
  const Tensor sums = zeros({n * n}, TensorOptions(kInt64, preds.device()))
                          .scatter_add(0, cell.reshape({-1}), t.counts.reshape({-1}).to(kInt64))
                          .view({n, n});
  add(0, sums);
}

AUROC::AUROC(const ClassOptions& options) : options_(without_top_k(options, "AUROC")) {
  check_options(options, "AUROC");
  ARETE_CHECK(options.task != Task::multilabel,
              NotImplementedError("AUROC", "the task multilabel is not offered"));
  ARETE_CHECK(options.task == Task::binary || options.average == Average::macro ||
                  options.average == Average::none,
              ValueError("AUROC", "`average` must be macro or none"));
  if (options_.task == Task::binary) options_.num_classes = 1;
  // Scores that differ in float64 only are no ties.
  add_list("preds", {options_.num_classes}, kFloat64);
  add_list("target", {}, kInt64);  // -1: does not count
}

void AUROC::update(const Tensor& preds, const Tensor& target) {
  const NoGradGuard no_grad;
  ARETE_CHECK(preds.is_floating_point(), TypeError("AUROC", "preds must be scores"));
  follow(preds);
  const Targets t(target.to(preds.device()), options_.ignore_index);
  const Tensor x = preds.detach().to(preds.dtype() == kFloat64 ? kFloat64 : kFloat32);
  if (options_.task == Task::binary) {
    check_same_shape(preds, target);
    add(0, x.reshape({-1, 1}).to(kFloat64));  // a sigmoid would not change the order
  } else {
    ARETE_CHECK(has_scores(preds, target, options_.num_classes),
                ValueError("AUROC", "preds must be (N, num_classes, ...)"));
    add(0, rows_of(probabilities(x, true)).to(kFloat64));
  }
  // Labels that do not exist are found where values are read, which waits for a device anyway.
  const int64_t wrong = options_.task == Task::binary ? 2 : options_.num_classes;
  add(1, where(t.counts, where(t.label < 0, wrong, t.label), -1).reshape({-1}));
}

Tensor AUROC::compute() const {
  const NoGradGuard no_grad;
  const int64_t classes = options_.num_classes;
  const Tensor target = state(1), counts = target >= 0;
  const int64_t labels = options_.task == Task::binary ? 2 : classes;
  ARETE_CHECK(!(target >= labels).any().item<bool>(),
              ValueError("AUROC", "targets must be from 0 to " + std::to_string(labels - 1)));
  // What does not count lies above all others, and changes no rank of theirs.
  const Tensor scores =
      where(counts.unsqueeze(0), state(0).t(), std::numeric_limits<double>::infinity())
          .contiguous();
  const Tensor sorted = std::get<0>(scores.sort(1));
  // Ranks from 1, those of ties their mean.
  const Tensor rank =
      (searchsorted(sorted, scores, false) + searchsorted(sorted, scores, true) + 1).to(kFloat64) /
      2;
  const Tensor which =
      arange(options_.task == Task::binary ? 1 : 0, options_.task == Task::binary ? 2 : classes,
             TensorOptions(kInt64, device()));
  const Tensor is = (target.unsqueeze(0) == which.unsqueeze(1)).to(kFloat64);
  const Tensor positive = is.sum({1}), negative = counts.to(kFloat64).sum() - positive;
  const Tensor above = (rank * is).sum({1}) - positive * (positive + 1) / 2;
  const Tensor area = divided(above, positive * negative);
  if (options_.task == Task::binary) return area.squeeze(0).to(kFloat32);
  if (options_.average == Average::none) return area.to(kFloat32);
  const Tensor defined = (positive * negative > 0).to(kFloat64);
  return divided((area * defined).sum(), defined.sum()).to(kFloat32);
}

Perplexity::Perplexity(std::optional<int64_t> ignore_index) : ignore_index_(ignore_index) {
  add_sum("total_log_probs", {}, kFloat64);
  add_sum("count", {}, kFloat64);
}

void Perplexity::update(const Tensor& preds, const Tensor& target) {
  const NoGradGuard no_grad;
  ARETE_CHECK(preds.is_floating_point() && preds.dim() == 3 && target.dim() == 2 &&
                  preds.size(0) == target.size(0) && preds.size(1) == target.size(1),
              ValueError("Perplexity", "preds must be floats (N, T, V), target (N, T)")
                  .got(to_string(preds.sizes()) + " and " + to_string(target.sizes())));
  follow(preds);
  const Targets t(target.to(preds.device()), ignore_index_);
  // Only what is to be ignored has the number that cross_entropy ignores.
  const Tensor within = where(t.label < 0, preds.size(2), t.label);
  const Tensor label = where(t.counts, within, -100).reshape({-1});
  const Tensor logits = preds.detach().reshape({-1, preds.size(2)}).to(kFloat32);
  add(0, cross_entropy(logits, label, {}, -100, "sum"));
  add(1, t.counts.to(kFloat64).sum());
}

Tensor Perplexity::compute() const { return (state(0) / state(1)).exp().to(kFloat32); }

}  // namespace arete::metrics
