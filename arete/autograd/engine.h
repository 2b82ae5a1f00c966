// Reverse-mode differentiation over recorded history.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "arete/core/history.h"
#include "arete/core/tensor.h"

namespace arete::autograd {

/// Accumulates the gradients of `tensors`, weighted by `gradients` (one for each, or empty where
/// every tensor has one element), in the leaves they depend on. `retain_graph` keeps saved data
/// for another pass; `create_graph` records the pass itself, so that it can be differentiated.
/// With `inputs` the gradients go to these alone, which need not be leaves (others then retain
/// theirs, as after retain_grad()), and only hooks on the way to them run.
/// Errors (AutogradError): a tensor or input that does not require grad, a graph that was freed, a
/// gradient of another shape.
void backward(std::span<const Tensor> tensors, std::span<const Tensor> gradients = {},
              bool retain_graph = false, bool create_graph = false,
              std::span<const Tensor> inputs = {});

/// The gradients of `outputs` with respect to `inputs`, without touching any leaf's grad.
/// allow_unused: inputs that are not reached give undefined tensors instead of an error.
TensorList grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                std::span<const Tensor> gradients = {}, bool retain_graph = false,
                bool create_graph = false, bool allow_unused = false);
inline TensorList grad(const Tensor& output, const Tensor& input, bool create_graph = false) {
  return grad({&output, 1}, {&input, 1}, {}, create_graph, create_graph);
}

/// Calls `hook` whenever a gradient has been added to the leaf's grad(), with that (undefined where
/// an earlier hook took it away). Hooks may change the leaf, its gradient and its hooks. Gives a
/// number to remove it by.
/// AutogradError for what is no leaf, or needs no gradient.
uint64_t register_post_accumulate_grad_hook(const Tensor& leaf,
                                            std::function<void(const Tensor& grad)> hook);
/// Does nothing if there is none of that number.
void remove_post_accumulate_grad_hook(const Tensor& leaf, uint64_t id);

/// Calls `hook` before each time that the node's backward runs, or after it. Gives a number to
/// remove it by.
uint64_t register_hook(Node& node, Node::PreHook hook);
uint64_t register_hook(Node& node, Node::PostHook hook);
/// Does nothing if there is none of that number.
void remove_hook(Node& node, uint64_t id);

/// The numbers of the passes under way on this thread, the innermost last.
std::vector<uint64_t> passes_under_way();
/// Calls `f` when all gradients of the innermost pass of this thread are known. AutogradError
/// outside of a pass.
void at_end_of_pass(std::function<void()> f);

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
