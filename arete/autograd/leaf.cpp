// What happens at tensors: how a leaf's gradient accumulates, hooks, and Tensor's methods.
#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <utility>

#include "arete/autograd/engine.h"
#include "arete/autograd/leaf_internal.h"
#include "arete/core/modes.h"
#include "arete/core/tracing.h"
#include "arete/ops/call.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/sparse.h"
#include "arete/prim/recorder.h"

namespace arete {

namespace {
// One of them is sparse, or the only one is. What is kept owns its memory.
void accumulate_sparse(Tensor& grad, const Tensor& g) {
  const bool history = modes().grad_enabled;
  if (!grad.defined()) {
    const Tensor& values = sparse_parts(g)->values;
    const bool shared = values.impl()->use_count() > 1 || values.storage()->use_count() > 1 ||
                        !values.layout().is_dense();
    grad = history ? g : ops::with_values(g, shared ? values.clone() : values.detach());
  } else if (!history && !is_sparse(grad) && sparse_parts(g)->indices.size(0) == 1) {
    ops::add_at_places(grad, g, sparse_parts(g)->values);  // of one place several count as well
  } else {
    grad = ops::sum_of(grad, g);
  }
}

// The handles of the memory that calls have which were put off and are to write it. On GPUs a
// copy's place is the plan's choice.
int handles_put_off(const Storage& memory) {
  const prim::Capture* const capture = prim::putting_off();
  const Promiser* const owner = memory.promiser();
  const bool may_have_some =
      owner && capture && owner == capture->promiser() && memory.device().is_cpu();
  return may_have_some ? int(capture->handles_of(memory)) : 0;
}

// A hook may take the gradient away, remove itself or add others.
void call_hooks(const AccumulateGrad& leaf) {
  const auto& hooks = leaf.post_accumulate;
  for (size_t i = 0; i < hooks.size();) {
    const auto [id, hook] = hooks[i];
    if (!autograd::as_sink(hook)) hook(Tensor(leaf.grad));
    if (i < hooks.size() && hooks[i].first == id) ++i;
  }
}
}  // namespace

TensorList AccumulateGrad::backward(const TensorList& grads, uint64_t) {
  const Tensor& g = grads[0];
  if (!g.defined()) return {};
  if (is_sparse(g) || (grad.defined() && is_sparse(grad))) {
    accumulate_sparse(grad, g);
  } else if (!grad.defined()) {
    // With history (create_graph) the gradient is kept as it is; else it must own its memory,
    // for the caller's tensor may be shared or a broadcast view.
    const bool shared = g.impl()->use_count() > 1 ||
                        g.storage()->use_count() > 1 + handles_put_off(*g.storage()) ||
                        !g.layout().is_dense();
    grad = modes().grad_enabled ? (g.is_leaf() && shared ? g.clone() : g)
                                : (shared ? g.clone() : g.detach());
  } else if (modes().grad_enabled) {
    grad = grad + g;
  } else {
    grad.add_(g);
  }
  std::optional<autograd::SinkHook> sink;
  for (const auto& [id, hook] : post_accumulate)
    if (const autograd::SinkHook* s = autograd::as_sink(hook)) sink = *s;
  const auto held = sink ? sink->sink.lock() : nullptr;
  if (!held || !held->keeps_hooks(sink->place)) call_hooks(*this);
  if (sink) (*sink)(grad);
  return {};
}

// ---- methods of Tensor

namespace {
const IntrusivePtr<AccumulateGrad>& accumulator_of(const Tensor& t) {
  IntrusivePtr<AccumulateGrad>& a = autograd_meta(t).accumulator;
  if (!a) {
    a = IntrusivePtr<AccumulateGrad>(new AccumulateGrad);
    a->outputs.push_back({Shape(t.sizes()), t.dtype(), t.device()});
  }
  return a;
}
}  // namespace

Tensor& Tensor::requires_grad_(bool value) {
  if (!value) {
    ARETE_CHECK(is_leaf(),
                AutogradError("requires_grad_",
                              "you can only change requires_grad flags of leaf variables.")
                    .hint("use detach() to get a tensor without history"));
    if (impl_->autograd) impl_->autograd->requires_grad = false;
    return *this;
  }
  ARETE_CHECK(is_differentiable(dtype()),
              AutogradError("requires_grad_",
                            "only Tensors of floating point and complex dtype can "
                            "require gradients")
                  .got(ops::describe(*this)));
  ARETE_CHECK(!is_inference() || (modes().word & Modes::kInference),
              AutogradError("requires_grad_",
                            "Setting requires_grad=True on inference tensor "
                            "outside InferenceMode is not allowed.")
                  .hint("clone() it first"));
  if (!requires_grad()) autograd_meta(*this).requires_grad = true;
  return *this;
}

Tensor Tensor::grad() const {
  const AutogradMeta* meta = impl_->autograd.get();
  return meta && meta->accumulator ? meta->accumulator->grad : Tensor();
}

void Tensor::set_grad(const Tensor& g) const {
  if (!g.defined() && !impl_->autograd) return;
  ARETE_CHECK(
      !g.defined() || (g.layout().sizes == layout().sizes && device_of_elements(g) == device()),
      AutogradError("grad", "assigned grad has data of a different size or device")
          .expected(ops::describe(*this))
          .got(ops::describe(g)));
  accumulator_of(*this)->grad = g;
}

namespace {
uint64_t next_hook_id() {
  static std::atomic<uint64_t> id{1};
  return id.fetch_add(1);
}
Node::Hooks& hooks_of(Node& node) {
  if (!node.hooks) node.hooks = std::make_unique<Node::Hooks>();
  return *node.hooks;
}
}  // namespace

void Tensor::retain_grad() const {
  ARETE_CHECK(requires_grad(), AutogradError("retain_grad",
                                             "can't retain_grad on Tensor that has "
                                             "requires_grad=False"));
  if (is_leaf()) return;
  AutogradMeta& meta = autograd_meta(*this);
  if (meta.retains_grad) return;
  meta.retains_grad = true;
  const IntrusivePtr<AccumulateGrad>& kept = accumulator_of(*this);
  kept->grad = Tensor();
  const Edge e = gradient_edge(*this);
  hooks_of(*e.node).retained.emplace_back(e.slot, kept);
}

uint64_t Tensor::register_hook(std::function<Tensor(const Tensor&)> hook) const {
  ARETE_CHECK(requires_grad(),
              AutogradError("register_hook",
                            "cannot register a hook on a tensor that doesn't require gradient"));
  tracing::note_hook(*this);
  const Edge e = gradient_edge(*this);
  const uint64_t id = next_hook_id();
  hooks_of(*e.node).pre.emplace_back(
      id, [hook = std::move(hook), slot = e.slot](TensorList& grads) {
        if (!grads[slot].defined()) return;
        if (Tensor replacement = hook(grads[slot]); replacement.defined()) {
          ARETE_CHECK(replacement.layout().sizes == grads[slot].layout().sizes,
                      AutogradError("register_hook", "hook has changed the size of value")
                          .expected(arete::to_string(grads[slot].sizes()))
                          .got(arete::to_string(replacement.sizes())));
          ARETE_CHECK(replacement.dtype() == grads[slot].dtype() &&
                          replacement.device() == grads[slot].device(),
                      AutogradError("register_hook", "hook has changed the type of value")
                          .expected(ops::describe(grads[slot]))
                          .got(ops::describe(replacement)));
          grads[slot] = replacement;
        }
      });
  return id;
}

void Tensor::remove_hook(uint64_t id) const {
  if (const Edge e = gradient_edge(*this)) autograd::remove_hook(*e.node, id);
}

namespace autograd {

uint64_t register_hook(Node& node, Node::PreHook hook) {
  tracing::note_hook(Tensor());
  return hooks_of(node).pre.emplace_back(next_hook_id(), std::move(hook)).first;
}

uint64_t register_hook(Node& node, Node::PostHook hook) {
  tracing::note_hook(Tensor());
  return hooks_of(node).post.emplace_back(next_hook_id(), std::move(hook)).first;
}

void remove_hook(Node& node, uint64_t id) {
  if (!node.hooks) return;
  const auto is = [id](const auto& h) { return h.first == id; };
  std::erase_if(node.hooks->pre, is);
  std::erase_if(node.hooks->post, is);
}

namespace {
std::vector<std::pair<uint64_t, LeafHook>>& hooks_of_leaf(const char* op, const Tensor& leaf) {
  ARETE_CHECK(
      leaf.requires_grad(),
      AutogradError(op, "cannot register a hook on a tensor that doesn't require gradient"));
  ARETE_CHECK(
      leaf.is_leaf(),
      AutogradError(op, "post accumulate grad hooks cannot be registered on non-leaf tensors")
          .hint("use register_hook()"));
  return static_cast<AccumulateGrad&>(*gradient_edge(leaf).node).post_accumulate;
}
}  // namespace

uint64_t register_post_accumulate_grad_hook(const Tensor& leaf, LeafHook hook) {
  auto& hooks = hooks_of_leaf("register_post_accumulate_grad_hook", leaf);
  return hooks.emplace_back(next_hook_id(), std::move(hook)).first;
}

void set_grad_sink(const Tensor& leaf, const std::shared_ptr<GradSink>& sink, size_t place) {
  auto& hooks = hooks_of_leaf("set_grad_sink", leaf);
  const auto old = std::ranges::find_if(hooks, [](const auto& h) { return as_sink(h.second); });
  if (old != hooks.end()) {
    const SinkHook before = *as_sink(old->second);
    hooks.erase(old);
    if (const auto held = before.sink.lock()) held->replaced(before.place);
  }
  hooks.emplace_back(next_hook_id(), SinkHook{sink, place});
}

void call_post_accumulate_hooks(const Tensor& leaf) {
  const AutogradMeta* const meta = leaf.impl()->autograd.get();
  if (meta && meta->accumulator) call_hooks(*meta->accumulator);
}

void remove_grad_sink(const Tensor& leaf, const GradSink* sink) {
  const AutogradMeta* meta = leaf.impl()->autograd.get();
  if (!meta || !meta->accumulator) return;
  std::erase_if(meta->accumulator->post_accumulate, [&](const auto& h) {
    const SinkHook* const s = as_sink(h.second);
    // One that has died was on its way here.
    return s && (s->sink.expired() || s->sink.lock().get() == sink);
  });
}

void remove_post_accumulate_grad_hook(const Tensor& leaf, uint64_t id) {
  const AutogradMeta* meta = leaf.impl()->autograd.get();
  if (meta && meta->accumulator)
    std::erase_if(meta->accumulator->post_accumulate,
                  [id](const auto& h) { return h.first == id; });
}

}  // namespace autograd

Tensor Tensor::detach() const {
  Tensor t = ops::alias(*this, layout());
  tracing::note_detached(*this, t);
  return t;
}

Tensor& Tensor::detach_() {
  ARETE_CHECK(
      !is_view(),
      AutogradError("detach_", "Can't detach views in-place.").hint("use detach() instead"));
  impl_->autograd.reset();
  tracing::note_detached(*this, *this);
  return *this;
}

void Tensor::backward(const Tensor& gradient, bool retain_graph, bool create_graph) const {
  const std::span<const Tensor> gradients =
      gradient.defined() ? std::span<const Tensor>(&gradient, 1) : std::span<const Tensor>();
  autograd::backward({this, 1}, gradients, retain_graph, create_graph);
}

}  // namespace arete
