// Forward and backward passes with sharded parameters.
#include <algorithm>
#include <map>
#include <ranges>
#include <set>
#include <utility>

#include "arete/autograd/engine.h"
#include "arete/autograd/function.h"
#include "arete/core/history.h"
#include "arete/core/modes.h"
#include "arete/distributed/flight_recorder.h"
#include "arete/distributed/packing_internal.h"
#include "arete/distributed/sharding_internal.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/shape.h"
#include "arete/ops/sparse.h"
#include "arete/prim/recorder.h"

namespace arete::distributed {
namespace {

// Gathered ahead are the next group, and one more if they are together no larger.
constexpr size_t kAhead = 2, kAheadBytes = size_t(32) << 20;
constexpr size_t kReductionsUnderWay = 2;
constexpr int64_t kMostParts = 16;  // that a parameter is packed in one by one

}  // namespace

// A forward pass of the module.
struct ShardedParameters::Call {
  int64_t inputs = 0;  // whose gradients tell that the module's part of a pass backward is over
  uint64_t pass = 0;   // the last one that reached it
  int64_t left = 0;    // of the inputs, in that pass
};

// ---- forward

void ShardedParameters::join(std::shared_ptr<ShardedNetwork> network) {
  drop();
  network_ = std::move(network);
}

void ShardedParameters::prefetch(const std::vector<std::weak_ptr<ShardedParameters>>& list) {
  for (const auto& weak : list)
    if (const auto g = weak.lock()) g->gather();
}

void ShardedParameters::gather_ahead(auto&& next) {
  size_t n = 0, bytes = 0;
  for (const auto& weak : next) {
    const auto g = weak.lock();
    if (!g) return;
    bytes += g->whole_->bytes();
    if (n > 0 && bytes > kAheadBytes) return;
    g->gather();
    if (++n == kAhead) return;
  }
}

void ShardedParameters::prefetch_previous() {
  if (backward_prefetch) return prefetch(*backward_prefetch);
  const std::span ended(network_->ended_);
  for (size_t i = ended.size(); i-- > 1;)
    if (ended[i].lock().get() == this) return gather_ahead(std::views::reverse(ended.first(i)));
}

void ShardedParameters::before_forward(std::span<const Tensor> inputs) {
  const NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (parameters_[i].requires_grad() && !has_sink_[i]) {
      autograd::set_grad_sink(parameters_[i], shared_from_this(), i);
      has_sink_[i] = true;
    }
  // The inputs' gradients may need values of parameters whose own gradients are there already, or
  // that have none: the module is left once both are known.
  const auto call = std::make_shared<Call>();
  for (const Tensor& t : inputs) {
    if (!t.requires_grad()) continue;
    ++call->inputs;
    autograd::register_hook(*gradient_edge(t).node,
                            Node::PreHook([weak = weak_from_this(), call](TensorList&) {
                              const auto self = weak.lock();
                              if (!self || call->left == 0 || --call->left > 0) return;
                              --self->active_;
                              self->leave_backward();
                            }));
  }
  gather();
  show(true);
  calls_.push_back(call);
  if (!autograd::passes_under_way().empty()) return prefetch_previous();  // computed again
  auto& began = network_->began_;
  const auto& expected = network_->expected_;
  const size_t at = began.size();
  began.push_back(weak_from_this());
  if (forward_prefetch)
    prefetch(*forward_prefetch);
  else if (at < expected.size() && expected[at].lock().get() == this)
    gather_ahead(std::span(expected).subspan(at + 1));
}

void ShardedParameters::after_forward(std::span<const Tensor> outputs) {
  if (calls_.empty()) return;  // it has failed before it began
  const std::shared_ptr<Call> call = std::move(calls_.back());
  calls_.pop_back();
  std::set<Node*> seen;
  for (const Tensor& t : outputs) {
    if (!t.requires_grad() || t.is_leaf()) continue;
    Node& node = *gradient_edge(t).node;
    if (seen.insert(&node).second)
      autograd::register_hook(node, Node::PreHook([weak = weak_from_this(), call](TensorList&) {
                                if (const auto self = weak.lock()) self->enter_backward(call);
                              }));
  }
  // What is computed again is differentiated at once.
  if (!calls_.empty() || !autograd::passes_under_way().empty()) return;
  network_->ended_.push_back(weak_from_this());
  show(false);
  if (!options.reshard_after_forward) return;
  // A checkpoint's first run shows no history, but a pass backward computes it again.
  if (options.kept_by && (!seen.empty() || autograd::checkpoint_is_under_way())) keep();
  drop();
}

// ---- backward

void ShardedParameters::enter_backward(const std::shared_ptr<Call>& call) {
  const NoGradGuard no_grad;
  join_pass();
  if (call->pass != network_->pass_) {
    call->pass = network_->pass_;
    call->left = call->inputs;
    if (call->left > 0) ++active_;
  }
  gather();
  show(true);
  prefetch_previous();
}

void ShardedParameters::join_pass() {
  network_->note_pass();
  auto& used = network_->used_;
  if (std::ranges::none_of(used, [&](const auto& g) { return g.lock().get() == this; }))
    used.push_back(weak_from_this());
}

void ShardedParameters::begin(std::span<const size_t> places, bool create_graph) {
  ARETE_CHECK(!create_graph,
              AutogradError("backward",
                            "gradients that were reduced over processes have no history, so "
                            "create_graph=True is not possible here"));
  ARETE_CHECK(pass_ == 0 || !is_under_way(pass_),
              AutogradError("backward",
                            "a backward pass within another one reaches the same sharded "
                            "parameters"));
  join_pass();
  pass_ = network_->pass_;
  trained_.clear();
  missing_ = places.size();
  for (const size_t p : places) awaited_[p] = true;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!has_sink_[i] || !parameters_[i].requires_grad()) continue;
    const auto& accumulator = parameters_[i].impl()->autograd->accumulator;
    trained_.push_back(i);
    before_[i] = std::exchange(accumulator->grad, Tensor());
  }
  show(true);
}

void ShardedParameters::ready(size_t place) {
  if (pass_ == 0 || !awaited_[place]) return;
  const NoGradGuard no_grad;
  awaited_[place] = false;
  Tensor g = std::exchange(parameters_[place].impl()->autograd->accumulator->grad, Tensor());
  if (g.defined()) g = ops::dense_of(g);
  Tensor& sum = sums_[place];
  if (!reduces && g.defined() && options.reduce_dtype) g = g.to(*options.reduce_dtype);
  if (!sum.defined())
    sum = std::move(g);
  else if (g.defined())
    sum.add_(g);
  if (--missing_ == 0) complete();
}

void ShardedParameters::replaced(size_t place) {
  has_sink_[place] = false;
  throw ValueError("fully_shard",
                   names_[place] + " is sharded; nobody else can reduce its gradient");
}

// All gradients of the pass are there.
void ShardedParameters::complete() {
  if (reduces) reduce();
  leave_backward();
}

// The memory is given back once nothing needs the parameters any more in this pass.
void ShardedParameters::leave_backward() {
  if (reshard_after_backward && (pass_ == 0 || missing_ == 0) && active_ == 0) drop();
}

void ShardedParameters::reduce() {
  const NoGradGuard no_grad;
  const int64_t n = group_->size();
  const DType gradient = parts_[trained_[0]].dtype;
  const DType dtype = options.reduce_dtype.value_or(gradient);
  const auto rounded = [&](int64_t elements) { return in_message(elements, dtype); };
  const int64_t numbers = int64_t(trained_.size());  // that say who had a gradient
  int64_t total = rounded(numbers);
  for (const size_t i : trained_) total += rounded(parts_[i].chunk);
  network_->keep_reductions(kReductionsUnderWay - 1);
  const size_t bytes = size_t(total * n) * size_of(dtype);
  const StoragePtr memory =
      prim::putting_off() ? new_memory(device_, bytes) : network_->take(device_, bytes);
  Tensor in = over(memory, Layout({n, total}), dtype);

  std::map<DType, std::pair<std::vector<Tensor>, std::vector<Tensor>>> packed;
  const auto pack = [&](const Tensor& from, Layout to, int64_t offset) {
    to.offset = offset;
    auto& [froms, tos] = packed[from.dtype()];
    froms.push_back(from);
    tos.push_back(over(memory, std::move(to), dtype));
  };
  std::vector<float> had;
  bool full = rounded(numbers) == numbers;  // nothing is left that nobody writes
  int64_t at = 0;
  for (const size_t i : trained_) {
    const Part& part = parts_[i];
    const size_t dim = size_t(part.dim);
    const Tensor g = std::exchange(sums_[i], Tensor());
    had.push_back(g.defined());
    const int64_t each = part.chunk == 0 ? 0 : part.chunk / row_elements(part);
    const int64_t all = part.sizes[dim];
    full = full && g.defined() && rounded(part.chunk) == part.chunk && all == each * n;
    if (g.defined() && n > kMostParts && all == each * n) {
      // [processes, rows, ...]
      Layout from = g.layout(), to = by_rows(part.sizes, part.dim);
      from.sizes[dim] = each;
      from.sizes.insert(from.sizes.begin(), n);
      from.strides.insert(from.strides.begin(), each * from.strides[dim]);
      to.sizes = from.sizes;
      to.strides.insert(to.strides.begin(), total);
      pack(ops::alias(g, std::move(from)), std::move(to), at);
    } else if (g.defined()) {
      for (int64_t r = 0; r < n && r * each < all; ++r) {
        const int64_t rows = std::min(each, all - r * each);
        Layout from = narrow(g.layout(), part.dim, r * each, rows);
        Layout to = by_rows(from.sizes, part.dim);
        pack(ops::alias(g, std::move(from)), std::move(to), r * total + at);
      }
    }
    at += rounded(part.chunk);
  }
  const bool unsure = std::ranges::find(had, 0.0F) != had.end();
  if (!ones_.defined() || ones_.numel() != numbers || ones_.dtype() != gradient ||
      ones_.device() != device_)
    ones_ = arete::full({numbers}, 1.0, TensorOptions(gradient, device_));
  const Tensor flags = unsure ? tensor(had).to(device_, gradient) : ones_;
  for (int64_t r = 0; r < n; ++r) pack(flags, Layout({numbers}), r * total + at);
  if (!full) in.zero_();
  const int replicas = options.replicas ? options.replicas->size() : 1;
  for (const auto& [from, lists] : packed)
    pack_scaled(lists.first, lists.second, 1 / divisor.value_or(double(n * replicas)));

  auto r = std::make_unique<ShardedNetwork::Reduction>();
  r->of = shared_from_this();
  r->in = in;
  r->out = fresh(total, dtype, device_);
  r->unsure = unsure;
  r->label = std::make_shared<const std::string>("FSDP: " + names_[trained_[0]]);
  const CallLabel label(r->label);
  if (n > 1)
    r->work = group_->reduce_scatter_beside(r->out, in);
  else
    r->out.copy_(in.reshape({-1}));
  network_->reductions_.push_back(std::move(r));
}

// Of a pass that is over, or has failed: what was accumulated before it is back, and shards are
// shown.
void ShardedParameters::finish_pass() {
  show(false);
  if (pass_ != 0)
    for (const size_t i : trained_)
      parameters_[i].impl()->autograd->accumulator->grad = std::exchange(before_[i], Tensor());
  std::ranges::fill(awaited_, char(false));
  pass_ = 0;
  missing_ = 0;
  active_ = 0;
  if (reshard_after_backward) drop();
}

// Of the pass whose gradients were reduced last.
std::vector<Tensor> ShardedParameters::give_gradients(Tensor flat, bool unsure) {
  if (waits_for_replicas()) {
    if (partial_.defined())
      partial_.add_(flat);
    else
      partial_ = flat;
    return {};
  }
  std::vector<Tensor> given;
  std::vector<int64_t> places;
  int64_t at = 0;
  for (const size_t i : trained_) {
    places.push_back(at);
    at += in_message(parts_[i].chunk, flat.dtype());
  }
  if (all_reduce_hook) all_reduce_hook(flat.narrow(0, 0, at));
  std::vector<float> had;
  if (unsure)
    had = flat.narrow(0, at, int64_t(trained_.size())).to(kCPU, kFloat32).to_vector<float>();
  const Part& first = parts_[trained_[0]];
  flat = flat.to(first.memory->device(), first.shard_dtype);
  for (size_t k = 0; k < trained_.size(); ++k) {
    const Part& part = parts_[trained_[k]];
    Layout layout = part.shard;
    layout.offset = places[k];
    if (unsure && had[k] == 0) continue;
    Tensor& grad = parameters_[trained_[k]].impl()->autograd->accumulator->grad;
    const Tensor own = ops::alias(flat, std::move(layout));
    if (grad.defined())
      grad.add_(own);
    else
      grad = own;
    given.push_back(parameters_[trained_[k]]);
  }
  return given;
}

}  // namespace arete::distributed
