#include "arete/core/history.h"

#include <atomic>

namespace arete {

namespace {
std::atomic<uint64_t> next_sequence{0};

// Nodes waiting to be deleted on this thread, and whether somebody is deleting already.
struct Graveyard {
  std::vector<const Node*> waiting;
  bool busy = false;
};
thread_local Graveyard graveyard;
}  // namespace

Node::Node() : sequence(next_sequence.fetch_add(1, std::memory_order_relaxed)) {}
Node::~Node() = default;

void Node::destroy() const noexcept {
  // See Note [Ownership of history]: deleting a node may release the last reference to its
  // producers; they queue up here instead of recursing.
  Graveyard& g = graveyard;
  g.waiting.push_back(this);
  if (g.busy) return;
  g.busy = true;
  while (!g.waiting.empty()) {
    const Node* node = g.waiting.back();
    g.waiting.pop_back();
    delete node;
  }
  g.busy = false;
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
  t.impl()->view_version = t.impl()->storage->version();
}

SavedTensor::SavedTensor(const Tensor& t, bool is_output)
    : version_(t.version()), is_output_(is_output) {
  ARETE_CHECK(!t.is_inference(),
              AutogradError("", "Inference tensors cannot be saved for backward.")
                  .hint("make the tensor outside inference mode, or clone() it"));
  if (!is_output && t.is_leaf()) {
    // A leaf has no history that could lead back here, so the handle itself is safe to keep.
    saved_ = t;
    is_leaf_ = true;
    return;
  }
  saved_ = Tensor(IntrusivePtr<TensorImpl>(new TensorImpl(t.storage(), t.layout(), t.dtype())));
  if (!is_output) edge_ = gradient_edge(t);
}

Tensor SavedTensor::unpack(Node* owner, uint32_t output_slot, const std::string& op) const {
  ARETE_CHECK(saved_.defined(),
              AutogradError(op,
                            "Trying to backward through the graph a second time (or directly "
                            "access saved tensors after they have already been freed)")
                  .hint("pass retain_graph=true to the first backward call"));
  ARETE_CHECK(saved_.version() == version_,
              AutogradError(op,
                            "one of the variables needed for gradient computation has been "
                            "modified by an inplace operation")
                  .argument("a saved " + std::string(is_output_ ? "output" : "input") + ", " +
                            std::string(name_of(saved_.dtype())) + to_string(saved_.sizes()))
                  .expected("version " + std::to_string(version_))
                  .got("version " + std::to_string(saved_.version()))
                  .hint("use the out-of-place form of the later operator, or clone() first"));
  if (is_leaf_) return saved_;
  Tensor t(
      IntrusivePtr<TensorImpl>(new TensorImpl(saved_.storage(), saved_.layout(), saved_.dtype())));
  // Not by set_history(): the producers keep their numbers.
  if (is_output_ && owner) autograd_meta(t).grad_fn = {IntrusivePtr<Node>(owner), output_slot};
  if (!is_output_ && edge_) autograd_meta(t).grad_fn = edge_;
  return t;
}

}  // namespace arete
