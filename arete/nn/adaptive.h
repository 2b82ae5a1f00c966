// Softmax over very many classes, of which few are frequent.
#pragma once

#include <cstdint>
#include <vector>

#include "arete/nn/container.h"
#include "arete/nn/linear.h"

namespace arete::nn {

struct AdaptiveLogSoftmaxOptions {
  double div_value = 4;  ///< each cluster has so many times fewer features than the one before
  bool head_bias = false;
};

struct AdaptiveLogSoftmaxResult {
  Tensor output;  ///< the log probabilities of the targets
  Tensor loss;    ///< their negated mean
};

/// Classes by frequency in clusters that begin at `cutoffs`; rare ones get fewer features.
/// ValueError unless cutoffs are increasing numbers between 1 and n_classes - 1.
class AdaptiveLogSoftmaxWithLoss : public Module {
 public:
  AdaptiveLogSoftmaxWithLoss(int64_t in_features, int64_t n_classes, std::vector<int64_t> cutoffs,
                             const AdaptiveLogSoftmaxOptions& options = {});
  using Module::forward;
  using Module::operator();
  /// Input (n, in_features) and classes (n), or (in_features) and one class. IndexError for classes
  /// that are none, which waits for a GPU.
  AdaptiveLogSoftmaxResult forward(const Tensor& input, const Tensor& target);
  AdaptiveLogSoftmaxResult operator()(const Tensor& input, const Tensor& target) {
    return forward(input, target);
  }
  /// Log probabilities of all classes: (n, in_features) -> (n, n_classes).
  Tensor log_prob(const Tensor& input);
  /// The likeliest classes (n).
  Tensor predict(const Tensor& input);

 private:
  std::vector<int64_t> cutoffs_;  // the last one is the number of classes

 public:
  Linear head;
  ModuleList tail;
};

}  // namespace arete::nn
