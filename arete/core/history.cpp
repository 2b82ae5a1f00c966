#include "arete/core/history.h"

#include <atomic>
#include <utility>

#include "arete/core/modes.h"
#include "arete/core/saved_tensor_hooks.h"

namespace arete {

namespace {
std::atomic<uint64_t> next_sequence{0};

// Nodes waiting to be deleted on this thread, where somebody is deleting already. Behind a pointer
// because tensors of a thread may be freed after its other objects.
thread_local constinit std::vector<const Node*>* graveyard = nullptr;

thread_local SavedTensorHooks* current_hooks = nullptr;

// Note [Packed tensors]
// In the place of a tensor that hooks packed, a SavedTensor keeps a stand-in: a tensor of the same
// shape on the meta device, whose producer is a PackNode that has what the hooks made of the values
// and where the gradient of the tensor goes.
class PackNode final : public Node {
 public:
  PackNode(IntrusivePtr<PackedTensor> packed, Edge edge, bool leaf)
      : packed(std::move(packed)), edge(std::move(edge)), leaf(leaf) {}
  std::string name() const override { return "packed"; }
  TensorList backward(const TensorList&, uint64_t) override { ARETE_BUG("no part of a graph"); }

  const IntrusivePtr<PackedTensor> packed;
  const Edge edge;
  const bool leaf;
};

/// What the hooks kept, or null if they kept nothing.
Tensor pack(const Tensor& t, bool is_output) {
  IntrusivePtr<PackedTensor> packed;
  const uint64_t version = t.version();
  {
    const NoGradGuard no_grad;
    SavedTensorHooks* const hooks = current_hooks;
    const SavedTensorHooksGuard none(nullptr);
    packed = hooks->pack(Tensor(t.impl()->alias()));
  }
  ARETE_CHECK(t.version() == version,
              AutogradError("saved_tensors_hooks",
                            "A saved tensor pack hook is modifying its input in place.")
                  .hint("clone() the tensor in the hook and change the copy"));
  if (!packed) return {};
  Tensor stand_in(IntrusivePtr<TensorImpl>(
      new TensorImpl(Storage::create(kMeta, 0, nullptr), t.layout(), t.dtype())));
  autograd_meta(stand_in).grad_fn = {
      IntrusivePtr<Node>(new PackNode(std::move(packed), is_output ? Edge() : gradient_edge(t),
                                      !is_output && t.is_leaf())),
      0};
  return stand_in;
}

/// See Note [Packed tensors]; null for any other tensor.
const PackNode* pack_node(const Tensor& t) {
  if (!t.device().is_meta() || !t.impl()->autograd) return nullptr;
  return dynamic_cast<const PackNode*>(t.impl()->autograd->grad_fn.node.get());
}

Tensor unpack_values(const PackNode& node, const std::string& op) {
  const NoGradGuard no_grad;
  const SavedTensorHooksGuard none(nullptr);
  const Tensor values = node.packed->unpack();
  ARETE_CHECK(values.defined(),
              AutogradError(op, "the hook that unpacks saved tensors returned no tensor"));
  return Tensor(values.impl()->alias());
}
}  // namespace

SavedTensorHooksGuard::SavedTensorHooksGuard(std::shared_ptr<SavedTensorHooks> hooks)
    : hooks_(std::move(hooks)), outer_(std::exchange(current_hooks, hooks_.get())) {}
bool SavedTensorHooksGuard::has_hooks() noexcept { return current_hooks != nullptr; }
SavedTensorHooksGuard::~SavedTensorHooksGuard() { current_hooks = outer_; }

Node::Node() : sequence(next_sequence.fetch_add(1, std::memory_order_relaxed)) {}
Node::~Node() = default;

void Node::destroy() const noexcept {
  // See Note [Ownership of history]: deleting a node may release the last reference to its
  // producers; they queue up here instead of recursing.
  if (graveyard) {
    graveyard->push_back(this);
    return;
  }
  std::vector<const Node*> waiting{this};
  graveyard = &waiting;
  while (!waiting.empty()) {
    const Node* node = waiting.back();
    waiting.pop_back();
    delete node;
  }
  graveyard = nullptr;
}

AutogradMeta& autograd_meta(const Tensor& t) {
  TensorImpl* impl = t.impl();
  if (!impl->autograd) impl->autograd = std::make_unique<AutogradMeta>();
  return *impl->autograd;
}

void set_history(Tensor& t, const IntrusivePtr<Node>& node, uint32_t slot) {
  AutogradMeta& meta = autograd_meta(t);
  meta.grad_fn = {node, slot};
  // Numbered anew: sinks and regenerated views that its edges lead to may have been made after the
  // node itself, and every producer must have a lower number than its consumers.
  node->sequence = next_sequence.fetch_add(1, std::memory_order_relaxed);
  meta.requires_grad = false;
  t.impl()->view_version = t.version();
}

SavedTensor::SavedTensor(const Tensor& t, bool is_output)
    : version_(t.version()), dtype_(t.dtype()), is_output_(is_output) {
  ARETE_CHECK(!t.is_inference(),
              AutogradError("", "Inference tensors cannot be saved for backward.")
                  .hint("make the tensor outside inference mode, or clone() it"));
  if (current_hooks) [[unlikely]]
    if ((saved_ = pack(t, is_output)).defined()) return;
  if (!is_output && t.is_leaf()) {
    // A leaf has no history that could lead back here, so the handle itself is safe to keep.
    saved_ = t;
    is_leaf_ = true;
    return;
  }
  saved_ = Tensor(t.impl()->alias());
  if (!is_output) edge_ = gradient_edge(t);
}

Tensor SavedTensor::unpack(Node* owner, uint32_t output_slot, const std::string& op) const {
  ARETE_CHECK(saved_.defined(),
              AutogradError(op,
                            "Trying to backward through the graph a second time (or directly "
                            "access saved tensors after they have already been freed)")
                  .hint("pass retain_graph=true to the first backward call"));
  // Formulas know the dtype: they would misread the elements of another one.
  const auto check_dtype = [&](const Tensor& t, const char* hint) {
    ARETE_CHECK(t.dtype() == dtype_, AutogradError(op, "a saved tensor has changed its dtype")
                                         .expected(std::string(name_of(dtype_)))
                                         .got(std::string(name_of(t.dtype())))
                                         .hint(hint));
  };
  if (const PackNode* packed = pack_node(saved_)) [[unlikely]] {
    Tensor t = unpack_values(*packed, op);
    check_dtype(t, "the unpack hook must give back what the pack hook got");
    if (is_output_) {
      if (owner) autograd_meta(t).grad_fn = {IntrusivePtr<Node>(owner), output_slot};
    } else if (packed->edge && packed->leaf) {
      // A leaf with the same accumulator, so that gradients of gradients reach it.
      AutogradMeta& meta = autograd_meta(t);
      meta.requires_grad = true;
      meta.accumulator =
          IntrusivePtr<AccumulateGrad>(static_cast<AccumulateGrad*>(packed->edge.node.get()));
    } else if (packed->edge) {
      autograd_meta(t).grad_fn = packed->edge;
    }
    return t;
  }
  ARETE_CHECK(saved_.version() == version_,
              AutogradError(op,
                            "one of the variables needed for gradient computation has been "
                            "modified by an inplace operation")
                  .argument("a saved " + std::string(is_output_ ? "output" : "input") + ", " +
                            std::string(name_of(saved_.dtype())) + to_string(saved_.sizes()))
                  .expected("version " + std::to_string(version_))
                  .got("version " + std::to_string(saved_.version()))
                  .hint("use the out-of-place form of the later operator, or clone() first"));
  check_dtype(saved_, "convert it after the backward pass");
  if (is_leaf_) return saved_;
  Tensor t(saved_.impl()->alias());
  // Not by set_history(): the producers keep their numbers.
  if (is_output_ && owner) autograd_meta(t).grad_fn = {IntrusivePtr<Node>(owner), output_slot};
  if (!is_output_ && edge_) autograd_meta(t).grad_fn = edge_;
  return t;
}

}  // namespace arete
