// Custom differentiable functions.
#pragma once

#include <any>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arete/core/history.h"

namespace arete::autograd {

/// What a custom function's forward leaves for its backward.
class Context {
 public:
  /// Keeps tensors (inputs or outputs of the forward) for backward; checked against in-place
  /// writes when read.
  void save_for_backward(std::vector<Tensor> tensors) { to_save_ = std::move(tensors); }
  /// The tensors kept, in order, with their history.
  std::vector<Tensor> saved_tensors() const;
  /// Anything else.
  std::any data;
  /// Backward only: input i wants a gradient.
  bool needs_input_grad(size_t i) const { return needed_ >> i & 1; }

 private:
  friend class CustomNode;
  std::vector<Tensor> to_save_;
  std::vector<SavedTensor> saved_;
  std::vector<int> output_slot_;  // of each saved tensor, -1 for inputs
  Node* node_ = nullptr;
  std::string name_;
  uint64_t needed_ = 0;
};

/// forward(context, inputs) -> outputs, run without recording;
/// backward(context, output gradients) -> one gradient per input (undefined for none), written in
/// operators if it is to be differentiated again.
struct FunctionDef {
  std::string name;
  std::function<std::vector<Tensor>(Context&, const std::vector<Tensor>&)> forward;
  std::function<std::vector<Tensor>(Context&, const std::vector<Tensor>&)> backward;
  /// Whether backward gets zeros for gradients that did not arrive, instead of undefined tensors.
  bool materialize_grads = true;
  /// Whether forward, of tensors under vmap, keeps the history around its levels itself. Without
  /// it such tensors are refused where they have one: AutogradError.
  bool keeps_outer_history = false;
};

/// Calls `f` on `inputs` and records it as one function.
std::vector<Tensor> apply(const FunctionDef& f, const std::vector<Tensor>& inputs);

/// A custom function as a class, PyTorch's way: `struct Square : Function<Square>` with static
/// `std::vector<Tensor> forward(Context&, const std::vector<Tensor>&)` and `backward` alike, and
/// a static `name`; used as `Square::apply({x})`.
template <class Derived>
struct Function {
  static std::vector<Tensor> apply(const std::vector<Tensor>& inputs) {
    static const FunctionDef def{Derived::name, Derived::forward, Derived::backward};
    return autograd::apply(def, inputs);
  }
};

/// Runs `f(inputs)` without keeping what its operators save; backward runs it again (with the same
/// random numbers). Trades time for memory. Gradients equal those of the plain call bit for bit,
/// also those of tensors that f holds itself (parameters) and of gradients (create_graph).
std::vector<Tensor> checkpoint(
    const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& f,
    const std::vector<Tensor>& inputs);

/// A checkpointed function whose second run is prepared by the caller.
struct Recomputation {
  std::function<std::vector<Tensor>(const std::vector<Tensor>&)> first, again;
  /// Whether the results have history if none of the inputs needs a gradient, but a tensor that
  /// the function holds does.
  bool without_inputs = true;
};
std::vector<Tensor> checkpoint(const Recomputation& f, const std::vector<Tensor>& inputs);
/// Whether a traced call of this name is checkpoint()'s or that of its first run, whose calls have
/// their history from the second.
bool is_checkpoint(std::string_view name);
/// Whether this thread runs a checkpointed function that is computed again for a backward pass, or
/// is now: no results have history the first time.
bool checkpoint_is_under_way();

}  // namespace arete::autograd
