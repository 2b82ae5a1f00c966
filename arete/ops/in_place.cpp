#include "arete/ops/in_place.h"

#include <algorithm>

#include "arete/core/modes.h"
#include "arete/ops/call.h"
#include "arete/ops/complex_internal.h"
#include "arete/ops/creation.h"
#include "arete/ops/fft.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"

namespace arete {

// Note [In-place writes]
// Writing a tensor that has history replaces its producer: the node of the write takes the old
// producer as its first edge. Writing through a view changes the base as well: the base's new
// producer is a ViewWrite node, which routes the gradient of the written window through the node
// of the write and the rest to the old producer. Every other view of the base finds on its next
// use that its storage has a newer version and regenerates its grad_fn as a strided view of the
// base (gradient_edge below). Views made under no_grad keep out of all this.

namespace {

bool has_own_history(const Tensor& t) {
  const AutogradMeta* meta = t.impl()->autograd.get();
  return meta && (meta->requires_grad || meta->grad_fn);
}

// A live differentiable view whose storage was written after its grad_fn was made.
bool is_stale_view(const Tensor& t) {
  const TensorImpl* impl = t.impl();
  return impl->base && !impl->no_grad_view && impl->view_version != impl->version();
}

Tensor base_of(const Tensor& t) { return Tensor(t.impl()->base); }

// Elements of memory that a base's layout spans.
int64_t extent(const Layout& base) { return base.end() - base.offset; }

// A piece of memory of that length as the base shows it.
Tensor unpack(const Tensor& flat, const Layout& base) {
  return flat.as_strided(base.sizes, base.strides, flat.storage_offset());
}

// Values of that layout as a piece of memory of `n` elements: as they are, where they are all of it
// in order.
Tensor in_memory(const Tensor& values, IntList strides, int64_t offset, int64_t n) {
  if (values.numel() == n && offset == 0 && Layout(values.sizes(), strides).is_contiguous())
    return values.reshape({n}).contiguous();
  return ops::embed_window(values, {n}, strides, offset);
}

// A base and a view of it in common units: where one is complex and the other shows its parts, in
// those of the parts.
struct Window {
  bool base_in_parts, view_in_parts;
  Layout base, view;
  Window(const Tensor& b, const Tensor& v)
      : base_in_parts(is_complex(b.dtype()) && !is_complex(v.dtype())),
        view_in_parts(is_complex(v.dtype()) && !is_complex(b.dtype())),
        base(base_in_parts ? ops::layout_of_parts(b.layout()) : b.layout()),
        view(view_in_parts ? ops::layout_of_parts(v.layout()) : v.layout()) {}
  int64_t offset() const { return view.offset - base.offset; }
};
Tensor split(const Tensor& g, bool in_parts) { return in_parts ? view_as_real_copy(g) : g; }
Tensor join(const Tensor& g, bool in_parts) { return in_parts ? view_as_complex_copy(g) : g; }

// The gradient of reading `view` out of a base.
class RegeneratedView final : public Node {
 public:
  explicit RegeneratedView(Window w) : w_(std::move(w)) {}
  std::string name() const override { return "as_strided"; }
  TensorList backward(const TensorList& grads, uint64_t) override {
    if (!grads[0].defined()) return {Tensor()};
    const Tensor g = split(grads[0], w_.view_in_parts);
    const Tensor flat = ops::embed_window(g, {extent(w_.base)}, w_.view.strides, w_.offset());
    return {join(unpack(flat, w_.base), w_.base_in_parts)};
  }

 private:
  Window w_;
};

// The base's producer after a write through a view: see Note [In-place writes].
class ViewWrite final : public Node {
 public:
  ViewWrite(const Tensor& base, Edge old_base, const Tensor& view, IntrusivePtr<Node> write)
      : w_(base, view), write_(std::move(write)) {
    edges.push_back(std::move(old_base));
    for (size_t i = 1; i < write_->edges.size(); ++i) edges.push_back(write_->edges[i]);
    outputs.push_back({Shape(base.sizes()), base.dtype(), base.device()});
  }
  std::string name() const override { return write_->name() + " (through a view)"; }
  TensorList backward(const TensorList& grads, uint64_t needed) override {
    TensorList result(edges.size());
    if (!grads[0].defined()) return result;
    const Tensor g = split(grads[0], w_.base_in_parts);
    const Layout& view = w_.view;
    const int64_t offset = w_.offset(), n = extent(w_.base);
    // A view of everything leaves nothing of g to be kept beside it.
    const bool whole = view.numel() == n;
    Tensor flat =
        whole ? in_memory(g, w_.base.strides, 0, n) : ops::embed_window(g, {n}, w_.base.strides, 0);
    Tensor window = flat.as_strided(view.sizes, view.strides, flat.storage_offset() + offset);
    TensorList inner =
        write_->backward({join(whole ? window : window.clone(), w_.view_in_parts)}, needed);
    if (needed & 1) {
      // What was overwritten keeps only what the write passes on to the old values.
      const Tensor kept = inner[0].defined() ? split(inner[0], w_.view_in_parts) : Tensor();
      if (whole)
        flat = kept.defined() ? in_memory(kept, view.strides, offset, n) : zeros({n}, g.options());
      else if (kept.defined())
        window.copy_(kept);
      else
        window.zero_();
      result[0] = join(unpack(flat, w_.base), w_.base_in_parts);
    }
    for (size_t i = 1; i < edges.size(); ++i) result[i] = inner[i];
    return result;
  }
  void release_saved() override { write_->release_saved(); }

 private:
  Window w_;
  IntrusivePtr<Node> write_;
};

// set_history() for a tensor that had one: retain_grad() is about the values that it has last.
void replace_history(Tensor& t, const IntrusivePtr<Node>& node, uint32_t slot) {
  const AutogradMeta* meta = t.impl()->autograd.get();
  const bool retains = meta && meta->retains_grad && meta->grad_fn;
  if (retains && meta->grad_fn.node->hooks)
    std::erase_if(meta->grad_fn.node->hooks->retained,
                  [meta](const auto& r) { return r.second == meta->accumulator; });
  set_history(t, node, slot);
  if (!retains) return;
  if (!node->hooks) node->hooks = std::make_unique<Node::Hooks>();
  node->hooks->retained.emplace_back(slot, meta->accumulator);
}

void regenerate(const Tensor& view) {
  const Tensor base = base_of(view);
  if (!base.requires_grad()) return;
  IntrusivePtr<Node> node(new RegeneratedView(Window(base, view)));
  node->edges.push_back(gradient_edge(base));
  node->outputs.push_back({Shape(view.sizes()), view.dtype(), view.device()});
  Tensor t = view;
  replace_history(t, node, 0);
}

}  // namespace

Edge gradient_edge(const Tensor& t) {
  if (is_stale_view(t)) regenerate(t);
  AutogradMeta* meta = t.impl()->autograd.get();
  if (!meta) return {};
  if (meta->grad_fn) return meta->grad_fn;
  if (!meta->requires_grad) return {};
  if (!meta->accumulator) {
    meta->accumulator = IntrusivePtr<AccumulateGrad>(new AccumulateGrad);
    meta->accumulator->outputs.push_back({Shape(t.sizes()), t.dtype(), t.device()});
  }
  return {IntrusivePtr<Node>(meta->accumulator), 0};
}

bool Tensor::requires_grad() const {
  const AutogradMeta* meta = impl_->autograd.get();
  if (meta && (meta->requires_grad || meta->grad_fn)) return true;
  return impl_->base && is_stale_view(*this) && is_differentiable(impl_->dtype) &&
         has_own_history(base_of(*this));
}

bool Tensor::is_leaf() const {
  const Edge e = requires_grad() ? gradient_edge(*this) : Edge{};
  return !e || dynamic_cast<AccumulateGrad*>(e.node.get());
}

IntrusivePtr<Node> Tensor::grad_fn() const {
  if (!requires_grad() || is_leaf()) return {};
  return gradient_edge(*this).node;
}

namespace ops {

void check_castable(DType from, DType to, const std::string& op) {
  ARETE_CHECK(
      category_of(from) <= category_of(to),
      TypeError(op, "result type " + std::string(name_of(from)) +
                        " can't be cast to the desired output type " + std::string(name_of(to))));
}

void check_result(const Tensor& self, IntList sizes, DType dtype, const std::string& op) {
  ARETE_CHECK(std::ranges::equal(self.sizes(), sizes),
              ValueError(op, "output with shape " + to_string(self.sizes()) +
                                 " doesn't match the broadcast shape " + to_string(sizes)));
  if (dtype != self.dtype()) check_castable(dtype, self.dtype(), op);
}

void check_inference(const Tensor& self, const char* op) {
  ARETE_CHECK(!self.impl()->inference || is_inference_mode(),
              AutogradError(op,
                            "Inplace update to inference tensor outside InferenceMode is not "
                            "allowed.")
                  .hint("clone() it first"));
}

void check_in_place(const Tensor& self, const char* op, bool record) {
  const TensorImpl* impl = self.impl();
  check_inference(self, op);
  ARETE_CHECK(
      !impl->layout.may_overlap(),
      ValueError(op,
                 "unsupported operation: more than one element of the written-to "
                 "tensor refers to a single memory location.")
          .got("sizes " + to_string(self.sizes()) + ", strides " + to_string(self.strides()))
          .hint("clone() the tensor before performing the operation"));
  // A view that was made under no_grad has no history, but its base has: it would miss this write.
  const bool missed =
      is_grad_enabled() && impl->base && impl->no_grad_view && Tensor(impl->base).requires_grad();
  if (!record && !missed) return;
  ARETE_CHECK(!(impl->autograd && impl->autograd->requires_grad && !impl->autograd->grad_fn),
              AutogradError(op,
                            "a leaf Variable that requires grad is being used in an in-place "
                            "operation.")
                  .hint("do it under no_grad, or on a clone()"));
  if (!impl->base) return;
  const std::string made_by = impl->made_by ? impl->made_by : "a view operator";
  ARETE_CHECK(!impl->multi_output,
              AutogradError(op, "Output 0 of " + made_by +
                                    " is a view and is being modified inplace. This view is the "
                                    "output of a function that returns multiple views.")
                  .hint("use the out-of-place form, or slice with narrow() or select()"));
  ARETE_CHECK(!impl->no_grad_view,
              AutogradError(op,
                            "A view was created in no_grad mode and is being modified inplace "
                            "with grad mode enabled.")
                  .got("a view made by " + made_by)
                  .hint("make the view and write it in the same mode"));
  const AutogradMeta* base = impl->base->autograd.get();
  ARETE_CHECK(!(base && base->requires_grad && !base->grad_fn),
              AutogradError(op,
                            "a view of a leaf Variable that requires grad is being used in an "
                            "in-place operation.")
                  .hint("do it under no_grad, or on a clone()"));
}

void rebase_history(Tensor& self, const IntrusivePtr<Node>& node, uint32_t slot) {
  if (!self.impl()->base) {
    replace_history(self, node, slot);
    return;
  }
  Tensor base = base_of(self);
  Edge old_base;
  if (has_own_history(base)) old_base = gradient_edge(base);
  IntrusivePtr<Node> write(new ViewWrite(base, std::move(old_base), self, node));
  replace_history(base, write, 0);
  regenerate(self);
}

}  // namespace ops
}  // namespace arete
