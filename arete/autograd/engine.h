// Reverse-mode differentiation over recorded history.
#pragma once

#include <span>

#include "arete/core/history.h"
#include "arete/core/tensor.h"

namespace arete::autograd {

/// Accumulates the gradients of `tensors`, weighted by `gradients` (one for each, or empty where
/// every tensor has one element), in the leaves they depend on. `retain_graph` keeps saved data
/// for another pass; `create_graph` records the pass itself, so that it can be differentiated.
/// Errors (AutogradError): a tensor that does not require grad, a graph that was freed, a gradient
/// of another shape.
void backward(std::span<const Tensor> tensors, std::span<const Tensor> gradients = {},
              bool retain_graph = false, bool create_graph = false);

/// The gradients of `outputs` with respect to `inputs`, without touching any leaf's grad.
/// allow_unused: inputs that are not reached give undefined tensors instead of an error.
TensorList grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                std::span<const Tensor> gradients = {}, bool retain_graph = false,
                bool create_graph = false, bool allow_unused = false);
inline TensorList grad(const Tensor& output, const Tensor& input, bool create_graph = false) {
  return grad({&output, 1}, {&input, 1}, {}, create_graph, create_graph);
}

/// While it lives, a NaN that appears in a result or in a gradient is an error that names the
/// operator which made it (slow: every result is looked at).
class AnomalyGuard {
 public:
  explicit AnomalyGuard(bool enabled = true);
  ~AnomalyGuard();
  AnomalyGuard(const AnomalyGuard&) = delete;
  AnomalyGuard& operator=(const AnomalyGuard&) = delete;

 private:
  bool previous_;
};

}  // namespace arete::autograd
