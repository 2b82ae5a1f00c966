// Metrics of classifiers, with the names, arguments and conventions of torchmetrics.
#pragma once

#include <optional>

#include "arete/metrics/metric.h"

namespace arete::metrics {

/// binary: preds are probabilities, logits or labels of one class, target 0 or 1, of one shape.
/// multiclass: preds (N, C, ...) scores or (N, ...) labels, target (N, ...) labels.
/// multilabel: preds (N, L, ...) probabilities, logits or labels, target the same of 0 and 1.
enum class Task : uint8_t { binary, multiclass, multilabel };
/// "binary", "multiclass", "multilabel"; ValueError for others.
Task task_of(const std::string& name);

/// How the values of classes become one: of all decisions together, the mean over classes that
/// occur, that weighted by how often they are the target, or none: one value for each class.
enum class Average : uint8_t { micro, macro, weighted, none };
Average average_of(const std::string& name);

struct ClassOptions {
  Task task = Task::multiclass;
  int64_t num_classes = 0;  ///< of multiclass; of multilabel the number of labels
  Average average = Average::micro;
  double threshold = 0.5;  ///< of binary and multilabel; floats beyond [0, 1] are taken as logits
  std::optional<int64_t> ignore_index = {};  ///< targets that do not count
  int64_t top_k = 1;  ///< Accuracy of multiclass scores: the target is among the k highest
};

/// Counts of right and wrong decisions for each class. A label outside of the classes is an
/// IndexError: at once on the CPU, at the next wait on a GPU.
class ClassCounts : public Metric {
 public:
  void update(const Tensor& preds, const Tensor& target) override;
  Tensor compute() const override;

 protected:
  explicit ClassCounts(const ClassOptions& options);
  struct Counts {
    Tensor tp, fp, fn, tn;  // float64
  };
  /// The score of each class; where nothing can be counted 0.
  virtual Tensor score(const Counts& c) const = 0;
  ClassOptions options_;
};

class Accuracy : public ClassCounts {
 public:
  explicit Accuracy(const ClassOptions& options) : ClassCounts(options) {}

 protected:
  Tensor score(const Counts& c) const override;
};
class Precision : public ClassCounts {
 public:
  explicit Precision(const ClassOptions& options);

 protected:
  Tensor score(const Counts& c) const override;
};
class Recall : public ClassCounts {
 public:
  explicit Recall(const ClassOptions& options);

 protected:
  Tensor score(const Counts& c) const override;
};
/// (1 + beta^2) precision recall / (beta^2 precision + recall).
class FBetaScore : public ClassCounts {
 public:
  explicit FBetaScore(const ClassOptions& options, double beta = 1);

 protected:
  Tensor score(const Counts& c) const override;

 private:
  double beta_;
};
class F1Score : public FBetaScore {
 public:
  explicit F1Score(const ClassOptions& options) : FBetaScore(options) {}
};

/// (C, C) int64, rows the target, columns the decision: of binary or multiclass.
class ConfusionMatrix : public Metric {
 public:
  explicit ConfusionMatrix(const ClassOptions& options);
  void update(const Tensor& preds, const Tensor& target) override;
  Tensor compute() const override { return state(0); }

 private:
  ClassOptions options_;
};

/// The area under the curve of true over false positive rates: of binary or multiclass, there each
/// class against the rest (macro: the mean over classes with both kinds of targets; none; no
/// others). All scores are kept; ties count half. Without both kinds of targets it is 0.
class AUROC : public Metric {
 public:
  explicit AUROC(const ClassOptions& options);
  void update(const Tensor& preds, const Tensor& target) override;
  Tensor compute() const override;

 private:
  ClassOptions options_;
};

/// exp of the mean cross entropy of logits (N, T, V) and targets (N, T).
class Perplexity : public Metric {
 public:
  explicit Perplexity(std::optional<int64_t> ignore_index = {});
  void update(const Tensor& preds, const Tensor& target) override;
  Tensor compute() const override;

 private:
  std::optional<int64_t> ignore_index_;
};

}  // namespace arete::metrics
