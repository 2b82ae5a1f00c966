#include "arete/autograd/engine.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory_resource>
#include <optional>
#include <queue>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "arete/autograd/leaf_internal.h"
#include "arete/autograd/split_backward.h"
#include "arete/base/warn.h"
#include "arete/core/modes.h"
#include "arete/core/tracing.h"
#include "arete/ops/anomaly.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/op_node.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/sparse.h"
#include "arete/ops/vmap.h"
#include "arete/ops/work.h"

namespace arete {

namespace autograd {

struct SplitBackward::Later {
  // A node that ran for some of its edges, and what it is to run with for these.
  struct Half {
    IntrusivePtr<Node> node;
    TensorList gradients;
    uint64_t edges;
  };
  std::vector<Half> halves;
  std::vector<std::pair<Edge, Tensor>> seeds;
};

namespace {

// Note [The backward pass]
// A walk from the roots counts, for each node, the edges through which a gradient may reach it. A
// node runs once, when all of these are settled: their nodes have run, or were found to have
// nothing to pass on. Among nodes that are ready the one created last runs first, but leaves run at
// once, so that their hooks (a reducer's, an optimizer's) work while the rest of the pass goes on.
// What the pass is limited to (captures) limits the walk, too: edges that lead to nothing wanted do
// not exist for it. The walk is iterative.
// A pass of which a second part is wanted (SplitBackward) notes where it left such edges: nodes of
// products, the costly ones, to run again for these; of others the gradients, which are there.

// What a pass is limited to: the gradient that arrives at an edge. grad() wants it as a result.
struct Capture {
  Node* node;
  uint32_t slot;
  Tensor* result;
};
using Captures = std::vector<Capture>;

// What is known of a pass outside of it.
struct PassState {
  uint64_t number;
  PassState* outer;
  int depth = 0;                       // of passes that hooks and custom functions begin in others
  const char* end_of_stack = nullptr;  // known where many are nested: a pass begins above it
  std::vector<std::function<void()>> at_end{};
};
constinit thread_local PassState* innermost = nullptr;
std::atomic<uint64_t> passes_begun{0};

// An error instead of a crash: levels that are C++ alone count against no limit of Python's.
void check_stack(PassState& pass) {
  constexpr int kAlwaysFit = 16;
  if (pass.depth < kAlwaysFit) return;
  if (!pass.end_of_stack) {
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes)) return;
    void* lowest = nullptr;
    size_t size = 0;
    pthread_attr_getstack(&attributes, &lowest, &size);
    pthread_attr_destroy(&attributes);
    // What a step of the deepest pass may need.
    pass.end_of_stack = static_cast<const char*>(lowest) + std::min<size_t>(size / 4, 256 << 10);
  }
  ARETE_CHECK(static_cast<const char*>(__builtin_frame_address(0)) > pass.end_of_stack,
              AutogradError("backward",
                            "backward passes are nested too deep for the stack of this "
                            "thread")
                  .got(std::to_string(pass.depth) + " passes inside one another")
                  .hint("a hook or a custom function begins a pass that calls it again"));
}

// Whether a node's gradients for some edges cost about their share of those for all: formulas of
// products. Formulas of programs need not heed what is asked for.
bool runs_in_halves(const Node& node) {
  const auto* const op = dynamic_cast<const ops::OpNode*>(&node);
  return op && op->op().flops && op->op().flops != &ops::no_flops &&
         (!node.hooks || (node.hooks->pre.empty() && node.hooks->post.empty()));
}

class Pass {
 public:
  /// Without captures the pass goes everywhere. `accumulate`: leaves that it reaches get gradients.
  Pass(bool keep, bool create, const Captures* captures, bool accumulate)
      : keep_(keep), create_(create), captures_(captures), accumulate_(accumulate) {}

  void seed(Edge e, Tensor gradient) { seeds_.emplace_back(std::move(e), std::move(gradient)); }
  /// Leaves what does not lead to captures to `later`.
  void leave(SplitBackward::Later& later) { later_ = &later; }
  /// Begins with what a pass left.
  void resume(SplitBackward::Later& left) {
    halves_ = std::move(left.halves);
    for (auto& [edge, gradient] : left.seeds) seed(edge, std::move(gradient));
  }

  void run() {
    const ModesGuard guard;
    modes().grad_enabled = create_;
    struct Entered : PassState {
      Entered() : PassState{++passes_begun, innermost} {
        if (outer) {
          depth = outer->depth + 1;
          end_of_stack = outer->end_of_stack;
          check_stack(*this);
        }
        innermost = this;
      }
      ~Entered() { innermost = outer; }
    } entered;
    for (const auto& [node, state] : walk()) {
      if ((state->wanted || state->needed) && state->missing == 0) push(*node, *state);
      if (!keeper_ && node->keeper) [[unlikely]]
        keeper_ = node->keeper;
      if (accumulate_ && node->is_leaf && (state->wanted || state->needed)) note_sink(*node);
    }
    for (const auto& [sink, places] : sinks_) sink->begin(places, create_);
    if (keeper_)
      keeper_->keep([&] { go(entered); });
    else
      go(entered);
  }

 private:
  void go(PassState& entered) {
    for (auto& [edge, gradient] : seeds_) {
      Tensor g = as_wanted(edge.node->outputs[edge.slot], std::move(gradient));
      if (leads_on(edge))
        deliver(*edge.node, states_.at(edge.node.get()), edge.slot, std::move(g));
      else if (later_)
        later_->seeds.emplace_back(edge, std::move(g));
    }
    for (auto& half : halves_) states_.at(half.node.get()).grads = std::move(half.gradients);
    while (!ready_.empty()) {
      const auto [priority, node, state] = ready_.top();
      ready_.pop();
      step(*node, *state);
    }
    for (size_t i = 0; i < entered.at_end.size(); ++i) std::function(entered.at_end[i])();
  }

  // What the pass knows of a node.
  struct State {
    TensorList grads;
    int64_t missing = 0;  // edges that are not settled
    bool seen = false;    // by the walk
    bool wanted = false;  // a gradient is captured here
    bool needed = false;  // it runs: without captures all do, else those on the way to a wanted one
    bool second = false;  // it runs for the edges that another pass left, which `edges` has
    uint64_t edges = ~uint64_t(0);  // that exist; from the 64th on as the last one
    bool has(size_t edge) const { return edges >> std::min<size_t>(edge, 63) & 1; }
  };
  struct Ready {
    uint64_t priority;
    Node* node;
    State* state;
    bool operator<(const Ready& other) const { return priority < other.priority; }
  };

  void note_sink(const Node& leaf) {
    for (const auto& [id, hook] : static_cast<const AccumulateGrad&>(leaf).post_accumulate) {
      const SinkHook* const of_leaf = as_sink(hook);
      if (!of_leaf) continue;
      auto sink = of_leaf->sink.lock();
      if (!sink) continue;
      auto at = std::ranges::find(sinks_, sink, [](const auto& s) { return s.first; });
      if (at == sinks_.end()) at = sinks_.insert(at, {std::move(sink), {}});
      at->second.push_back(of_leaf->place);
    }
  }

  // Makes the states of all nodes that can be reached, producers first.
  std::pmr::vector<std::pair<Node*, State*>> walk() {
    if (captures_)
      for (const Capture& c : *captures_) states_[c.node].wanted = true;
    std::pmr::vector<std::pair<Node*, State*>> order(&memory_);
    struct Visit {
      Node* node;
      State* state;
      size_t next;  // the edge to look at
    };
    std::pmr::vector<Visit> stack(&memory_);
    const auto enter = [&](Node* node) -> State& {
      State& state = states_[node];
      if (!state.seen) stack.push_back({node, &state, 0});
      state.seen = true;
      return state;
    };
    for (const auto& half : halves_) {
      State& state = states_[half.node.get()];
      state.second = true;
      state.edges = half.edges;
    }
    const auto visit_from = [&](Node* root) {
      enter(root);
      while (!stack.empty()) {
        Visit& visit = stack.back();
        const auto& edges = visit.node->edges;
        if (visit.next < edges.size()) {
          const size_t i = visit.next++;
          if (edges[i] && visit.state->has(i)) ++enter(edges[i].node.get()).missing;
          continue;
        }
        State& state = *visit.state;
        state.needed = !captures_ ||
                       std::ranges::any_of(edges, [&](const Edge& e) { return e && leads_on(e); });
        if (!state.needed)  // it settles nothing
          for (const Edge& e : edges)
            if (e) --states_.at(e.node.get()).missing;
        order.emplace_back(visit.node, &state);
        stack.pop_back();
      }
    };
    for (const auto& [edge, gradient] : seeds_) visit_from(edge.node.get());
    for (const auto& half : halves_) visit_from(half.node.get());
    return order;
  }
  bool leads_on(const Edge& e) const {
    if (!captures_) return true;
    const State& s = states_.at(e.node.get());
    return s.wanted || s.needed;
  }

  void push(Node& node, State& state) {
    ready_.push({node.is_leaf ? UINT64_MAX - leaves_++ : node.sequence, &node, &state});
  }

  void deliver(const Node& node, State& state, uint32_t slot_number, Tensor gradient) {
    if (state.grads.empty()) state.grads.resize(node.outputs.size());
    Tensor& slot = state.grads[slot_number];
    if (!slot.defined()) {
      slot = std::move(gradient);
    } else if (create_ || is_sparse(gradient) || is_batched(gradient) ||
               !owned_.contains(slot.impl())) {
      slot = ops::sum_of(slot, gradient);
      if (!create_) owned_.insert(slot.impl());
    } else {
      slot.add_(gradient);  // a sum made here belongs to nobody else
    }
  }

  void step(Node& node, State& state) {
    TensorList grads = std::move(state.grads);
    state.grads.clear();
    TensorList results;
    std::optional<tracing::RangeScope> traced;  // until its results are added to others
    if (!grads.empty()) results = compute(node, state, grads, traced);
    if (!state.needed) return;
    for (size_t i = 0; i < node.edges.size(); ++i) {
      const Edge& e = node.edges[i];
      if (!e || !state.has(i)) continue;
      State& target = states_.at(e.node.get());
      if (!target.wanted && !target.needed) continue;
      if (i < results.size() && results[i].defined())
        deliver(*e.node, target, e.slot, std::move(results[i]));
      if (--target.missing == 0) push(*e.node, target);
    }
  }

  // The gradients for a node's edges, from those of its outputs, of which at least one arrived.
  TensorList compute(Node& node, const State& state, TensorList& grads,
                     std::optional<tracing::RangeScope>& traced) {
    for (const Tensor& g : grads)
      if (g.defined()) owned_.erase(g.impl());
    if (node.hooks && !state.second) {
      for (const auto& [id, hook] : std::vector(node.hooks->pre)) hook(grads);  // which may remove
      for (auto& [slot, sink] : node.hooks->retained)
        if (grads[slot].defined()) sink->backward({grads[slot]}, 1);
    }
    if (captures_ && state.wanted)
      for (const Capture& c : *captures_)
        if (c.result && c.node == &node) *c.result = grads[c.slot];
    if (node.is_leaf ? !accumulate_ : !state.needed) {
      // Beyond what is wanted nothing else is: its hooks have run, its formula runs later.
      if (later_ && !node.is_leaf)
        later_->halves.push_back({IntrusivePtr<Node>(&node), std::move(grads), ~uint64_t(0)});
      return {};
    }
    if (!node.is_leaf &&
        std::none_of(grads.begin(), grads.end(), [](const Tensor& g) { return g.defined(); }))
      return {};
    uint64_t needed = 0, left = 0;
    for (size_t i = 0; i < node.edges.size() && i < 64; ++i)
      if (node.edges[i] && state.has(i))
        (leads_on(node.edges[i]) ? needed : left) |= uint64_t(1) << i;
    if (!later_) left = 0;
    // Masks are of 64 edges; what has more runs whole.
    const bool again = left && node.edges.size() <= 64 && runs_in_halves(node);
    if (again)
      later_->halves.push_back({IntrusivePtr<Node>(&node), grads, left});
    else
      needed |= left;
    traced.emplace(
        tracing::RangeKind::backward, [&] { return tracing::backward_name(node.name()); },
        int64_t(node.sequence));
    TensorList results = node.backward(grads, needed);
    if (modes().word & Modes::kAnomaly) check_nan(node, grads, results);
    if (node.hooks)
      for (const auto& [id, hook] : std::vector(node.hooks->post)) hook(results, grads);
    for (size_t i = 0; i < results.size() && i < node.edges.size(); ++i) {
      if (!results[i].defined()) continue;
      const Edge& e = node.edges[i];
      const bool leads = e && state.has(i) && leads_on(e);
      if (leads)
        results[i] = validate(node, i, std::move(results[i]));
      else if (later_ && e && !again)
        later_->seeds.emplace_back(e, validate(node, i, std::exchange(results[i], Tensor())));
      else
        results[i] = Tensor();
    }
    if (!keep_ && !again) node.release_saved();
    grads.clear();  // within the range, so that recordings see where the memory goes
    return results;
  }

  Tensor validate(const Node& node, size_t i, Tensor g) const {
    const GradMeta& want = node.edges[i].node->outputs[node.edges[i].slot];
    if (g.sizes().size() != want.sizes.size() ||
        !std::equal(want.sizes.begin(), want.sizes.end(), g.sizes().begin())) {
      // What may be summed up: the wanted shape, expanded.
      const int64_t extra = g.dim() - int64_t(want.sizes.size());
      bool fits = extra >= 0;
      for (size_t d = 0; fits && d < want.sizes.size(); ++d)
        fits = want.sizes[d] == 1 || want.sizes[d] == g.size(int64_t(d) + extra);
      ARETE_CHECK(fits, AutogradError(
                            node.name(),
                            "Function " + node.name() + " returned an invalid gradient at index " +
                                std::to_string(i) + " - got " + to_string(g.sizes()) +
                                " but expected shape compatible with " + to_string(want.sizes)));
      g = ops::sum_to_size(g, want.sizes);
    }
    const Device there = device_of_elements(g);
    ARETE_CHECK(there == want.device,
                AutogradError(node.name(), "invalid gradient at index " + std::to_string(i) +
                                               " - expected device " + want.device.to_string() +
                                               " but got " + there.to_string()));
    return as_wanted(want, std::move(g));
  }
  // Formulas read gradients as what they say in `outputs`: of another dtype they would be misread.
  static Tensor as_wanted(const GradMeta& want, Tensor g) {
    if (g.dtype() == want.dtype) return g;
    return is_sparse(g) ? ops::with_values(g, sparse_parts(g)->values.to(want.dtype))
                        : g.to(want.dtype);
  }

  static void check_nan(const Node& node, const TensorList& in, const TensorList& out) {
    for (const Tensor& g : in)
      if (g.defined() && ops::holds_nan(ops::elements_of(g))) return;
    for (size_t i = 0; i < out.size(); ++i)
      ARETE_CHECK(!out[i].defined() || !ops::holds_nan(ops::elements_of(out[i])),
                  AutogradError(node.name(), "Function '" + node.name() +
                                                 "Backward' returned nan values in its " +
                                                 std::to_string(i) + "th output.")
                      .hint(node.forward_trace.empty() ? "look at the inputs of this operator in "
                                                         "the forward pass"
                                                       : node.forward_trace));
  }

  std::shared_ptr<PassKeeper> keeper_;
  SplitBackward::Later* later_ = nullptr;
  std::vector<SplitBackward::Later::Half> halves_;
  const bool keep_, create_;
  const Captures* captures_;
  const bool accumulate_;
  // Small graphs need no memory of the heap.
  std::byte space_[8192];
  std::pmr::monotonic_buffer_resource memory_{space_, sizeof space_};
  std::pmr::vector<std::pair<Edge, Tensor>> seeds_{&memory_};  // they keep the graph alive, too
  std::pmr::unordered_map<Node*, State> states_{&memory_};
  std::priority_queue<Ready, std::pmr::vector<Ready>> ready_{std::less<Ready>(),
                                                             std::pmr::vector<Ready>(&memory_)};
  uint64_t leaves_ = 0;  // that were ready so far: they run in this order
  std::vector<std::pair<std::shared_ptr<GradSink>, std::vector<size_t>>> sinks_;
  std::pmr::unordered_set<const TensorImpl*> owned_{&memory_};  // sums that deliver() made
};

Tensor seed_gradient(const Tensor& t, const Tensor& given, size_t index) {
  if (!given.defined()) {
    ARETE_CHECK(t.numel() == 1,
                AutogradError("backward", "grad can be implicitly created only for scalar outputs")
                    .got(ops::describe(t))
                    .hint("reduce it with sum() or mean(), or pass a gradient of its shape"));
    ARETE_CHECK(
        !is_complex(t.dtype()),
        AutogradError("backward", "grad can be implicitly created only for real scalar outputs")
            .got(ops::describe(t)));
    return ones(t.sizes(), t.options());
  }
  ARETE_CHECK(given.layout().sizes == t.layout().sizes,
              AutogradError("backward", "Mismatch in shape: grad_output[" + std::to_string(index) +
                                            "] has a shape of " + to_string(given.sizes()) +
                                            " and output[" + std::to_string(index) +
                                            "] has a shape of " + to_string(t.sizes()) + "."));
  ARETE_CHECK(device_of_elements(given) == t.device(),
              AutogradError("backward", "invalid gradient at index " + std::to_string(index) +
                                            " - expected device " + t.device().to_string() +
                                            " but got " + given.device().to_string()));
  ARETE_CHECK(is_complex(given.dtype()) == is_complex(t.dtype()),
              AutogradError("backward",
                            "For complex Tensors, both grad_output and output are required to have "
                            "the same dtype. Mismatch in dtype: grad_output[" +
                                std::to_string(index) + "] has a dtype of " +
                                std::string(name_of(given.dtype())) + " and output[" +
                                std::to_string(index) + "] has a dtype of " +
                                std::string(name_of(t.dtype())) + "."));
  return given;  // a pass converts it
}

void seed_all(Pass& pass, std::span<const Tensor> tensors, std::span<const Tensor> gradients) {
  ARETE_CHECK(gradients.empty() || gradients.size() == tensors.size(),
              AutogradError("backward", "got " + std::to_string(tensors.size()) + " tensors and " +
                                            std::to_string(gradients.size()) + " gradients"));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& t = tensors[i];
    ARETE_CHECK(t.defined() && t.requires_grad(),
                AutogradError("backward", "element " + std::to_string(i) +
                                              " of tensors does not require grad and does not "
                                              "have a grad_fn")
                    .got(ops::describe(t))
                    .hint("call requires_grad_() on the parameters before the forward pass, and "
                          "make sure it ran outside no_grad and detach()"));
    pass.seed(gradient_edge(t), seed_gradient(t, gradients.empty() ? Tensor() : gradients[i], i));
  }
}

// The edges at which gradients of `inputs` arrive, kept alive by `edges`.
Captures captures_of(const char* op, std::span<const Tensor> inputs, std::vector<Edge>& edges) {
  Captures captures;
  for (size_t i = 0; i < inputs.size(); ++i) {
    ARETE_CHECK(inputs[i].defined() && inputs[i].requires_grad(),
                AutogradError(op, "One of the differentiated Tensors does not require grad")
                    .argument("inputs[" + std::to_string(i) + "]"));
    edges.push_back(gradient_edge(inputs[i]));
    captures.push_back({edges.back().node.get(), edges.back().slot, nullptr});
  }
  return captures;
}

}  // namespace

void backward(std::span<const Tensor> tensors, std::span<const Tensor> gradients, bool retain_graph,
              bool create_graph, std::span<const Tensor> inputs) {
  std::vector<Edge> keep_alive;
  const Captures captures = captures_of("backward", inputs, keep_alive);
  for (const Tensor& t : inputs) t.retain_grad();  // what is no leaf takes its gradient in passing
  if (create_graph)
    warn(
        "Using backward() with create_graph=True will create a reference cycle between the "
        "parameter and its gradient which can cause a memory leak. Use grad(), or set the "
        "gradients of the parameters to none when they have been used.");
  Pass pass(retain_graph || create_graph, create_graph, inputs.empty() ? nullptr : &captures, true);
  seed_all(pass, tensors, gradients);
  pass.run();
}

TensorList grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                std::span<const Tensor> gradients, bool retain_graph, bool create_graph,
                bool allow_unused) {
  TensorList results(inputs.size());
  std::vector<Edge> keep_alive;
  Captures captures = captures_of("grad", inputs, keep_alive);
  for (size_t i = 0; i < inputs.size(); ++i) captures[i].result = &results[i];
  Pass pass(retain_graph || create_graph, create_graph, &captures, false);
  seed_all(pass, outputs, gradients);
  pass.run();
  for (size_t i = 0; i < results.size(); ++i)
    ARETE_CHECK(allow_unused || results[i].defined(),
                AutogradError("grad",
                              "One of the differentiated Tensors appears to not have been "
                              "used in the graph.")
                    .argument("inputs[" + std::to_string(i) + "]")
                    .hint("pass allow_unused=true if this is the desired behavior"));
  return results;
}

SplitBackward::SplitBackward(std::span<const Tensor> tensors, std::span<const Tensor> gradients,
                             std::span<const Tensor> inputs)
    : input_gradients_(inputs.size()), later_(std::make_unique<Later>()) {
  std::vector<Edge> keep_alive;
  Captures captures = captures_of("SplitBackward", inputs, keep_alive);
  for (size_t i = 0; i < inputs.size(); ++i) captures[i].result = &input_gradients_[i];
  Pass pass(false, false, &captures, false);
  pass.leave(*later_);
  seed_all(pass, tensors, gradients);
  pass.run();
}

SplitBackward::~SplitBackward() = default;

void SplitBackward::accumulate() {
  ARETE_CHECK(later_, AutogradError("SplitBackward", "accumulate() has run"));
  const std::unique_ptr<Later> later = std::move(later_);
  Pass pass(false, false, nullptr, true);
  pass.resume(*later);
  pass.run();
}

std::vector<uint64_t> passes_under_way() {
  std::vector<uint64_t> numbers;
  for (const PassState* p = innermost; p; p = p->outer) numbers.insert(numbers.begin(), p->number);
  return numbers;
}

void at_end_of_pass(std::function<void()> f) {
  ARETE_CHECK(innermost, AutogradError("at_end_of_pass", "no backward pass is under way"));
  innermost->at_end.push_back(std::move(f));
}

AnomalyGuard::AnomalyGuard(bool enabled) : previous_(modes().word & Modes::kAnomaly) {
  modes().word = enabled ? modes().word | Modes::kAnomaly : modes().word & ~Modes::kAnomaly;
}
AnomalyGuard::~AnomalyGuard() {
  modes().word = previous_ ? modes().word | Modes::kAnomaly : modes().word & ~Modes::kAnomaly;
}

}  // namespace autograd

}  // namespace arete
