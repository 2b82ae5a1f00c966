// A backward pass in two parts: what other processes wait for first, the gradients of parameters
// later.
#pragma once

#include <memory>
#include <span>

#include "arete/core/history.h"

namespace arete::autograd {

/// Making one runs the first part, which finds the gradients of `inputs`. Nodes of products run in
/// it for the way to these alone, and once more in the second part for the other way; all others
/// run once, and what they have for leaves waits.
/// Hooks of a node run in the first part, those of leaves in the second. The history is used up.
/// Errors as of grad(); an input that nothing reaches has no gradient.
class SplitBackward {
 public:
  SplitBackward(std::span<const Tensor> tensors, std::span<const Tensor> gradients,
                std::span<const Tensor> inputs);
  ~SplitBackward();
  SplitBackward(const SplitBackward&) = delete;
  SplitBackward& operator=(const SplitBackward&) = delete;

  /// One for each input.
  const TensorList& input_gradients() const { return input_gradients_; }
  /// The second part: leaves accumulate their gradients. AutogradError if it has run.
  void accumulate();

  /// What the second part begins with.
  struct Later;

 private:
  TensorList input_gradients_;
  std::unique_ptr<Later> later_;
};

}  // namespace arete::autograd
