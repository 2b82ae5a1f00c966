// What reverse-mode differentiation remembers: nodes, edges, saved tensors.
//
// Note [Ownership of history]
// A tensor owns the node that made it; a node owns, through its edges, the nodes that made its
// inputs, and the data it saved. Nothing points the other way: a saved output keeps no reference
// to its own node, a leaf's AccumulateGrad keeps the gradient, not the leaf. So ownership is
// acyclic. Destruction of a chain is iterative (Node::destroy queues), so depth costs no stack.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "arete/base/intrusive_ptr.h"
#include "arete/base/small_vector.h"
#include "arete/core/tensor.h"

namespace arete {

using TensorList = SmallVector<Tensor, 4>;

/// Where a gradient goes: input `slot` of `node` (that is, output `slot` of the function it stands
/// for).
struct Edge {
  IntrusivePtr<Node> node;
  uint32_t slot = 0;
  explicit operator bool() const { return bool(node); }
};

/// Shape, dtype and device of a function's output: what its gradient must look like.
struct GradMeta {
  Shape sizes;
  DType dtype = kFloat32;
  Device device;
};

class AccumulateGrad;

/// Who recorded nodes may see to the passes that reach them (compiled functions do).
class PassKeeper {
 public:
  virtual ~PassKeeper() = default;
  /// Runs `pass`.
  virtual void keep(const std::function<void()>& pass) = 0;
};

/// One recorded function. backward() maps gradients of its outputs to gradients of its inputs.
class Node : public RefCounted {
 public:
  /// Called before backward with the gradients of the outputs; may replace them.
  using PreHook = std::function<void(TensorList& grads)>;
  /// Called after backward with the gradients of inputs (replaceable) and outputs.
  using PostHook = std::function<void(TensorList& input_grads, const TensorList& output_grads)>;

  Node();
  virtual ~Node();
  /// The operator's name, as errors and graphs show it.
  virtual std::string name() const = 0;
  /// Gradients in: one per output, undefined where none arrived. Out: one per edge, undefined
  /// where not needed. `needed` bit i: edge i wants a gradient. Errors: saved data already freed,
  /// or modified in place since.
  virtual TensorList backward(const TensorList& grads, uint64_t needed) = 0;
  /// Drops saved data (after a backward pass without retain_graph).
  virtual void release_saved() {}

  void destroy() const noexcept;

  SmallVector<Edge, 3> edges;        // one per input that may need a gradient, else empty
  SmallVector<GradMeta, 1> outputs;  // one per output
  uint64_t sequence;                 // creation order on this process: later runs first
  bool is_leaf = false;              // an AccumulateGrad
  std::string forward_trace;         // anomaly mode: where the forward call was made
  std::shared_ptr<PassKeeper> keeper;

  struct Hooks {
    std::vector<std::pair<uint64_t, PreHook>> pre;
    std::vector<std::pair<uint64_t, PostHook>> post;
    /// Sinks of retain_grad() by output: they get what the pre-hooks leave.
    std::vector<std::pair<uint32_t, IntrusivePtr<AccumulateGrad>>> retained;
  };
  std::unique_ptr<Hooks> hooks;
};

/// The sink of a leaf: adds what arrives to `grad`.
class AccumulateGrad final : public Node {
 public:
  AccumulateGrad() { is_leaf = true; }
  std::string name() const override { return "AccumulateGrad"; }
  TensorList backward(const TensorList& grads, uint64_t needed) override;  // in autograd/
  Tensor grad;
  /// Called after accumulation with the new gradient (data-parallel reducers).
  std::vector<std::pair<uint64_t, std::function<void(const Tensor& grad)>>> post_accumulate;
};

/// Allocated only for tensors that take part in differentiation.
struct AutogradMeta {
  bool requires_grad = false;  // leaves only; others: grad_fn
  bool retains_grad = false;
  Edge grad_fn;                              // non-leaves: producer and its output
  IntrusivePtr<AccumulateGrad> accumulator;  // leaves; also holds the gradient
  std::string name;
};

/// A tensor kept for backward: no history of its own, checked against in-place writes when used.
class SavedTensor {
 public:
  SavedTensor() = default;
  /// `is_output`: of the node that saves it; unpack then gives it `owner` as history.
  SavedTensor(const Tensor& t, bool is_output);
  /// The tensor with its history, so that gradients of gradients flow. `owner` is the saving node.
  /// AutogradError if it was modified in place since, naming `op`.
  Tensor unpack(Node* owner, uint32_t output_slot, const std::string& op) const;
  bool defined() const { return saved_.defined(); }
  void reset() { *this = SavedTensor(); }

 private:
  Tensor saved_;  // a handle without history, sharing the storage (or the leaf itself)
  Edge edge_;
  uint64_t version_ = 0;
  DType dtype_ = kFloat32;
  bool is_output_ = false, is_leaf_ = false;
};

/// The edge into which a gradient for `t` flows: its grad_fn, its accumulator (made on demand) or
/// nothing.
Edge gradient_edge(const Tensor& t);
/// Gives `t` (an output of `node`) its history.
void set_history(Tensor& t, const IntrusivePtr<Node>& node, uint32_t slot);
/// The autograd meta of `t`, made on demand.
AutogradMeta& autograd_meta(const Tensor& t);

}  // namespace arete
