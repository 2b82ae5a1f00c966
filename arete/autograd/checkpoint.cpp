#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>

#include "arete/autograd/engine.h"
#include "arete/autograd/function.h"
#include "arete/core/generator.h"
#include "arete/core/modes.h"
#include "arete/core/tracing.h"
#include "arete/ops/call.h"
#include "arete/ops/vmap_internal.h"

namespace arete::autograd {

// Note [Checkpointed calls]
// The first run keeps no graph, but gradients must flow to every tensor that needs one and that
// the function used: its inputs, and what it holds itself, which a listener to calls collects.
// All of them are inputs of one node, so that backward(), grad() and hooks treat them as those of
// any operator. The node's backward runs the function again and differentiates the small graph
// that this makes. That graph must end at these tensors, or what lies behind them would be walked
// twice: while it is made and differentiated an EndNode without edges stands in for their history.
// If the pass is recorded itself (create_graph) the edges are put in afterwards.
// Inside vmap the function may hold a tensor that is differentiated around the level, which only
// its run shows. So the first run makes a graph there, which is the result's if it was so and is
// dropped if not: a second run would repeat what the function does besides.

namespace {

constexpr const char *kName = "checkpoint", *kFirstRun = "checkpoint_forward";

/// Around the innermost level of vmap.
bool is_differentiated_around(const Tensor& t) {
  const VmapLevel* const level = VmapLevel::innermost();
  return level && t.defined() && ops::vmaps::is_differentiated_around(t, level->number());
}

/// Where the graph of a second run ends.
class EndNode final : public Node {
 public:
  EndNode() = default;
  explicit EndNode(const Tensor& t) {
    outputs.push_back({Shape(t.sizes()), t.dtype(), t.device()});
  }
  std::string name() const override { return "checkpoint_input"; }
  TensorList backward(const TensorList& grads, uint64_t) override { return grads; }
};

/// Collects the tensors with history, or with a gradient of their own, that calls use and that were
/// there before it.
class Uses final : public tracing::ThreadListener {
 public:
  /// A tensor that is not to be collected.
  void ignore(const Tensor& t) { seen_.insert(t.impl()); }
  uint64_t begin_call(const ops::OpRecord&, tracing::Items<ops::Arg> args, bool) noexcept override {
    for (size_t i = 0; i < args.size; ++i) {
      const ops::Arg& a = args.data[i];
      if (a.kind() == ops::Arg::Kind::tensor) note(a.tensor());
      if (a.kind() == ops::Arg::Kind::tensors)
        for (const Tensor& t : a.tensors()) note(t);
    }
    return 0;
  }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  bool has(const Tensor& t) const { return seen_.contains(t.impl()); }
  /// Whether one, or a result, is_differentiated_around().
  bool has_around(const std::vector<Tensor>& results) const {
    return has_around_ || std::ranges::any_of(results, is_differentiated_around);
  }

 private:
  void note(const Tensor& t) {
    // What levels of vmap inside the function batch comes by as physical tensors, too.
    if (VmapLevel::innermost() != level_ || !t.defined()) return;
    has_around_ = has_around_ || is_differentiated_around(t);
    if (t.requires_grad() && !is_made_meanwhile(t) && seen_.insert(t.impl()).second)
      tensors_.push_back(t);
  }
  bool is_made_meanwhile(const Tensor& t) const {
    const auto& meta = t.impl()->autograd;
    return meta && meta->grad_fn.node && meta->grad_fn.node->sequence > begin_->sequence;
  }
  const VmapLevel* const level_ = VmapLevel::innermost();
  const IntrusivePtr<Node> begin_{new EndNode};  // nodes are numbered
  std::vector<Tensor> tensors_;
  std::unordered_set<const TensorImpl*> seen_;
  bool has_around_ = false;
};

/// Ends of graphs, see Note [Checkpointed calls]. Tensors have their history back when it dies.
class Ends {
 public:
  Ends() = default;
  ~Ends() {
    for (auto& [t, meta] : replaced_) std::swap(t.impl()->autograd, meta);
  }
  Ends(const Ends&) = delete;
  Ends& operator=(const Ends&) = delete;

  /// The same values with an end as history.
  Tensor alias(const Tensor& t) {
    Tensor a = ops::alias(t, t.layout());
    if (t.requires_grad()) set_history(a, end(t), 0);
    return a;
  }
  /// Puts an end in the place of t's history.
  void replace(const Tensor& t) {
    const IntrusivePtr<Node> node = end(t);
    replaced_.emplace_back(t, std::make_unique<AutogradMeta>());
    replaced_.back().second->grad_fn = {node, 0};
    std::swap(t.impl()->autograd, replaced_.back().second);
  }
  /// Joins the graph behind the ends to that before them.
  void join() {
    for (auto& [node, edge] : ends_) node->edges.push_back(edge);
  }

 private:
  IntrusivePtr<Node> end(const Tensor& t) {
    ends_.emplace_back(IntrusivePtr<Node>(new EndNode(t)), gradient_edge(t));
    return ends_.back().first;
  }
  std::vector<std::pair<IntrusivePtr<Node>, Edge>> ends_;
  std::vector<std::pair<Tensor, std::unique_ptr<AutogradMeta>>> replaced_;
};

std::vector<Tensor> gradients_by_running_again(const Recomputation& f,
                                               const std::vector<Tensor>& inputs,
                                               const std::vector<Tensor>& held,
                                               const std::vector<Tensor>& gradients) {
  const bool create = is_grad_enabled();
  std::vector<Tensor> result;
  Ends ends;
  {
    std::vector<Tensor> again;
    for (const Tensor& t : inputs) again.push_back(ends.alias(t));
    std::vector<Tensor> wanted, tensors, given;
    for (const Tensor& t : again)
      if (t.requires_grad()) wanted.push_back(t);
    for (const Tensor& t : held) {
      ends.replace(t);
      wanted.push_back(t);
    }
    std::vector<Tensor> outputs;
    {
      const EnableGradGuard grad;
      const Uses uses;
      outputs = f.again(again);
      for (const Tensor& t : held)
        ARETE_CHECK(uses.has(t),
                    AutogradError("checkpoint",
                                  "computed again during backward, a checkpointed function did not "
                                  "use a tensor that it had used, whose gradient would be lost: " +
                                      to_string(t.sizes()) + " " + std::string(name_of(t.dtype())))
                        .hint("what puts other tensors into a module (functional_call) belongs "
                              "into the function that is checkpointed; of a tensor that only its "
                              "first run uses, also under no_grad(), take detach()"));
    }
    ARETE_CHECK(outputs.size() == gradients.size(),
                AutogradError("checkpoint",
                              "computed again during backward, a checkpointed "
                              "function gave another number of tensors")
                    .expected(std::to_string(gradients.size()))
                    .got(std::to_string(outputs.size())));
    for (size_t i = 0; i < outputs.size(); ++i)
      if (gradients[i].defined() && outputs[i].requires_grad()) {
        tensors.push_back(outputs[i]);
        given.push_back(gradients[i]);
      }
    TensorList found(wanted.size());
    if (!tensors.empty() && !wanted.empty())
      found = grad(tensors, wanted, given, create, create, /*allow_unused=*/true);
    size_t next = 0;
    for (const Tensor& t : again)
      result.push_back(t.requires_grad() ? std::move(found[next++]) : Tensor());
    for (size_t i = 0; i < held.size(); ++i) result.push_back(std::move(found[next++]));
  }
  if (create) ends.join();
  return result;
}

}  // namespace

bool is_checkpoint(std::string_view name) { return name == kName || name == kFirstRun; }

bool checkpoint_is_under_way() {
  for (const tracing::ThreadListener* l = modes().listener; l; l = l->outer())
    if (dynamic_cast<const Uses*>(l)) return true;
  return false;
}

std::vector<Tensor> checkpoint(const Recomputation& f, const std::vector<Tensor>& inputs) {
  // Where something is differentiated around a level of vmap, the function keeps its graph.
  if (!is_grad_enabled() || std::ranges::any_of(inputs, is_differentiated_around))
    return f.first(inputs);
  std::vector<Tensor> outputs, held;
  bool any_input = false;
  {
    // The function may hold one of the inputs, too: handles of their own tell the uses apart.
    Ends ends;
    Uses uses;
    std::vector<Tensor> given;
    for (const Tensor& t : inputs) {
      any_input = any_input || t.requires_grad();
      given.push_back(ends.alias(t));
      uses.ignore(given.back());
    }
    const bool makes_graph = VmapLevel::innermost() != nullptr;
    std::optional<NoGradGuard> no_grad;
    if (!makes_graph) no_grad.emplace();
    // Whoever writes calls down is to know that history is kept from them here only.
    const ops::Arg told(given);
    tracing::CallScope traced(ops::function_record(kFirstRun), {&told, 1}, false);
    outputs = f.first(given);
    const bool keeps_graph = makes_graph && uses.has_around(outputs);
    if (makes_graph && !keeps_graph)
      for (Tensor& t : outputs)
        if (t.defined()) t = t.detach();
    traced.end({outputs.data(), outputs.size()});
    if (keeps_graph) {
      ends.join();
      return outputs;
    }
    if (any_input || f.without_inputs) held = uses.tensors();
  }
  std::vector<Tensor> all = inputs;
  all.insert(all.end(), held.begin(), held.end());
  FunctionDef def;
  def.name = kName;
  def.materialize_grads = false;
  def.forward = [&](Context& context, const std::vector<Tensor>&) {
    context.save_for_backward(inputs);
    return outputs;
  };
  def.backward = [f, held](Context& context, const std::vector<Tensor>& gradients) {
    return gradients_by_running_again(f, context.saved_tensors(), held, gradients);
  };
  return autograd::apply(def, all);
}

std::vector<Tensor> checkpoint(
    const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& f,
    const std::vector<Tensor>& inputs) {
  const Generator::State before = default_generator().state();
  const auto again = [f, before](const std::vector<Tensor>& in) {
    struct Restore {
      Generator::State now = default_generator().state();
      ~Restore() { default_generator().set_state(now); }
    } const restore;
    default_generator().set_state(before);
    return f(in);
  };
  return checkpoint(Recomputation{f, again}, inputs);
}

}  // namespace arete::autograd
