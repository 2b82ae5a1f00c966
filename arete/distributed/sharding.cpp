#include "arete/distributed/sharding.h"

#include <algorithm>
#include <map>
#include <ranges>
#include <set>
#include <utility>

#include "arete/autograd/engine.h"
#include "arete/autograd/function.h"
#include "arete/core/history.h"
#include "arete/core/modes.h"
#include "arete/distributed/call_internal.h"
#include "arete/distributed/flight_recorder.h"
#include "arete/distributed/packing_internal.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/foreach.h"
#include "arete/ops/shape.h"
#include "arete/ops/sparse.h"
#include "arete/ops/target.h"
#include "arete/prim/backend.h"
#include "arete/prim/recorder.h"

namespace arete::distributed {
namespace {

constexpr const char* kName = "fully_shard";
constexpr int64_t kAlignment = 256;  // of parameters within their memory, in bytes
// Gathered ahead are the next group, and one more if they are together no larger.
constexpr size_t kAhead = 2, kAheadBytes = size_t(32) << 20;
constexpr size_t kReductionsUnderWay = 2;
constexpr int64_t kMostParts = 16;  // that a parameter is packed in one by one

// So many elements of a message that the next ones begin where wide loads may, here and in NCCL.
int64_t in_message(int64_t elements, DType dtype) {
  const int64_t unit = kAlignment / int64_t(size_of(dtype));
  return (elements + unit - 1) / unit * unit;
}

Tensor over(const StoragePtr& memory, Layout layout, DType dtype) {
  Tensor t(IntrusivePtr<TensorImpl>(new TensorImpl(memory, std::move(layout), dtype)));
  // Not the writes of those who compute with the memory.
  t.impl()->own_version = IntrusivePtr<VersionCounter>(new VersionCounter(0));
  return t;
}

// Without gaps, the rows along a dimension one after the other.
Layout by_rows(Shape sizes, int dim) {
  const int64_t rows = sizes[size_t(dim)];
  sizes.erase(sizes.begin() + dim);
  sizes.insert(sizes.begin(), rows);
  const Layout first(sizes);
  Layout l = first;
  for (int d = dim; d > 0; --d) l = transpose(l, d - 1, d);
  return l;
}

// A promise where the thread puts calls off.
StoragePtr new_memory(Device device, size_t bytes) {
  return device.is_meta() ? Storage::create(device, bytes, nullptr)
                          : ops::target(device).new_storage(bytes);
}

// What a promise was given, in other hands.
StoragePtr taken_from(const Storage& memory) {
  prim::Backend& backend = prim::backend_for(memory.device());
  return Storage::adopt(memory.device(), memory.data(), memory.bytes(),
                        [&backend, data = memory.data(), bytes = memory.bytes()] {
                          backend.deallocate(data, bytes);
                        });
}

Tensor fresh(int64_t n, DType dtype, Device device) {
  return Tensor(IntrusivePtr<TensorImpl>(
      new TensorImpl(new_memory(device, size_t(n) * size_of(dtype)), Layout({n}), dtype)));
}

// Stands in for memory that was given back.
class Absent final : public Promiser {
 public:
  void settle(const Storage&) override {
    throw ValueError("", "a sharded parameter was used whole while it is not")
        .hint(
            "use parameters in the forward pass of the module that was given to fully_shard, or "
            "call its unshard() before");
  }
};
Absent absent;

bool is_under_way(uint64_t pass) {
  const std::vector<uint64_t> passes = autograd::passes_under_way();
  return std::ranges::find(passes, pass) != passes.end();
}

}  // namespace

// A forward pass of the module.
struct ShardedParameters::Call {
  int64_t inputs = 0;  // whose gradients tell that the module's part of a pass backward is over
  uint64_t pass = 0;   // the last one that reached it
  int64_t left = 0;    // of the inputs, in that pass
};

struct ShardedNetwork::Reduction {
  void go_on();
  std::shared_ptr<ShardedParameters> of;
  Tensor in, out;  // all rows by processes, and those of this one
  WorkPtr work;
  std::shared_ptr<const std::string> label;
  bool unsure;  // some parameters had no gradient in this process
};

// ---- what groups share

ShardedNetwork::ShardedNetwork() = default;
ShardedNetwork::~ShardedNetwork() = default;

void ShardedNetwork::begin_forward() {
  if (!began_.empty()) expected_ = std::exchange(began_, {});
  ended_.clear();
}

StoragePtr ShardedNetwork::take(Device device, size_t bytes) {
  const void* const stream = prim::backend_for(device).current_stream();
  for (size_t i = 0; i < free_.size(); ++i) {
    const Block& b = free_[i];
    if (b.stream != stream || b.memory->bytes() != bytes || b.memory->device() != device) continue;
    StoragePtr memory = b.memory;
    free_.erase(free_.begin() + int64_t(i));
    return memory;
  }
  return new_memory(device, bytes);
}

// Whoever has it next comes after what the current stream was given until now.
void ShardedNetwork::give(StoragePtr memory) {
  const void* const stream = prim::backend_for(memory->device()).current_stream();
  free_.push_back({std::move(memory), stream});
}

// A pass backward has come to a group.
void ShardedNetwork::note_pass() {
  if (pass_ != 0 && is_under_way(pass_)) return;
  pass_ = autograd::passes_under_way().back();
  used_.clear();
  // A pass that fails forgets what it was to do at its end.
  struct End {
    ShardedNetwork* network;
    uint64_t pass;
    bool done = false;
    ~End() {
      if (done || network->pass_ != pass) return;
      network->reductions_.clear();
      try {
        for (const auto& weak : network->used_)
          if (const auto g = weak.lock()) {
            g->finish_pass();
            std::ranges::fill(g->sums_, Tensor());
          }
      } catch (...) {
        // The error that ended the pass is on its way.
      }
      network->pass_ = 0;
    }
  };
  const auto end = std::make_shared<End>(this, pass_);
  autograd::at_end_of_pass([end] {
    end->network->end_pass();
    end->done = true;
  });
}

// All but the last `most` leave their memory to the next, which waits for them.
void ShardedNetwork::keep_reductions(size_t most) {
  size_t n = size_t(std::ranges::count_if(reductions_, [](auto& r) { return r->in.defined(); }));
  const bool puts_off = prim::putting_off();
  for (const auto& r : reductions_) {
    if (puts_off) {
      // A plan sees to it when its memory is used again.
      if (r->in.defined()) r->go_on();
      continue;
    }
    if (n <= most) return;
    if (!r->in.defined()) continue;
    --n;
    r->in.storage()->writable_data();
    give(r->in.storage());
    r->go_on();
  }
}

// What comes after the sums over those who have the other rows.
void ShardedNetwork::Reduction::go_on() {
  in = Tensor();
  if (of->waits_for_replicas()) return;
  if (of->partial_.defined()) out.add_(std::exchange(of->partial_, Tensor()));
  if (!of->options.replicas) return;
  const CallLabel told(label);
  work = of->options.replicas->all_reduce(out, kSum, true);
}

void ShardedNetwork::end_pass() {
  const NoGradGuard no_grad;
  for (size_t i = 0; i < used_.size(); ++i)
    if (const auto g = used_[i].lock(); g && g->pass_ && g->missing_ > 0) {
      g->missing_ = 0;  // gradients that did not come after all
      g->complete();
    }
  for (const auto& r : reductions_)
    if (r->in.defined()) r->go_on();
  for (const auto& weak : used_)
    if (const auto g = weak.lock()) g->finish_pass();
  std::vector<Tensor> trained;
  while (!reductions_.empty()) {
    Reduction& r = *reductions_.front();
    if (r.work) r.work->wait_unless_readers_do();
    for (Tensor& t : r.of->give_gradients(r.out, r.unsure)) trained.push_back(std::move(t));
    reductions_.pop_front();
  }
  // Those that were gathered ahead for nothing, too.
  for (const auto& weak : ended_)
    if (const auto g = weak.lock(); g && g->reshard_after_backward) g->drop();
  free_.clear();  // others need memory most when the next pass begins
  pass_ = 0;
  for (const Tensor& t : trained) autograd::call_post_accumulate_hooks(t);
}

// ---- shards

std::shared_ptr<ShardedParameters> ShardedParameters::make(std::vector<Tensor> parameters,
                                                           std::vector<std::string> names,
                                                           ProcessGroupPtr group,
                                                           const ShardingOptions& options) {
  ARETE_CHECK(group, ValueError(kName, "there is no group"));
  ARETE_CHECK(!parameters.empty(), ValueError(kName, "there are no parameters"));
  ARETE_CHECK(names.size() == parameters.size(),
              ValueError(kName, "there must be a name for each parameter"));
  return std::shared_ptr<ShardedParameters>(
      new ShardedParameters(std::move(parameters), std::move(names), std::move(group), options));
}

ShardedParameters::ShardedParameters(std::vector<Tensor> parameters, std::vector<std::string> names,
                                     ProcessGroupPtr group, const ShardingOptions& options_in)
    : options(options_in),
      parameters_(std::move(parameters)),
      names_(std::move(names)),
      group_(std::move(group)),
      network_(std::make_shared<ShardedNetwork>()) {
  const NoGradGuard no_grad;
  const int64_t n = group_->size(), rank = group_->rank();
  if (options.kept_by) {
    const std::vector<int>& all = group_->ranks();
    const std::vector<int>& some = options.kept_by->ranks();
    const int64_t m = options.kept_by->size();
    ARETE_CHECK(n % m == 0 && std::equal(some.begin(), some.end(), all.begin() + rank / m * m),
                ValueError(kName,
                           "parameters are kept by ranks of their group that follow each "
                           "other, as many as divide it"));
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& p = parameters_[i];
    ARETE_CHECK(p.dim() > 0, ValueError(kName,
                                        "fully_shard doesn't support scalar parameters. "
                                        "Change " +
                                            names_[i] + " to a 1D tensor with numel equal to 1."));
    ARETE_CHECK(p.is_contiguous(),
                NotImplementedError(
                    kName, "FSDP does not support non-contiguous parameters yet: " + names_[i]));
    ARETE_CHECK(p.is_leaf(), ValueError(kName, names_[i] + " is no leaf of the graph"));
    Part part;
    part.sizes = Shape(p.sizes());
    part.dim = options.dims.empty() ? 0 : options.dims.at(i);
    ARETE_CHECK(part.dim >= 0 && part.dim < p.dim(),
                ValueError(kName, names_[i] + " has no dimension " + std::to_string(part.dim)));
    const int64_t rows = p.size(part.dim), each = (rows + n - 1) / n;
    part.first = std::min(rank * each, rows);
    part.rows = std::min(each, rows - part.first);
    part.chunk = each * row_elements(part);
    parts_.push_back(std::move(part));
  }
  lay_out();
  for (size_t i = 0; i < parameters_.size(); ++i)
    take_shard(i, parameters_[i].detach().narrow(parts_[i].dim, parts_[i].first, parts_[i].rows));
  take_over();
}

ShardedParameters::~ShardedParameters() {
  for (const Tensor& p : parameters_) autograd::remove_grad_sink(p, this);
  try {
    drop();  // tensors that were saved may live on
  } catch (...) {
    // A destructor has nobody to tell; the memory lives as long as it is pointed to.
    if (present_) new StoragePtr(borrowed_);
  }
}

int64_t ShardedParameters::row_elements(const Part& part) const {
  int64_t n = 1;
  for (size_t d = 0; d < part.sizes.size(); ++d)
    if (d != size_t(part.dim)) n *= part.sizes[d];
  return n;
}

// Where each parameter is when it is whole.
void ShardedParameters::lay_out() {
  device_ = options.offload_from.value_or(parameters_[0].device());
  std::set<DType> trained;
  int64_t bytes = 0;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Tensor& p = parameters_[i];
    Part& part = parts_[i];
    ARETE_CHECK(options.offload_from || p.device() == device_,
                DeviceError(kName, "the parameters of a group must be on one device")
                    .expected(device_.to_string())
                    .got(p.device().to_string() + " of " + names_[i]));
    part.shard_dtype = p.dtype();
    part.dtype = is_floating(p.dtype()) ? options.param_dtype.value_or(p.dtype()) : p.dtype();
    if (p.requires_grad()) trained.insert(p.dtype());
    const int64_t size = int64_t(size_of(part.dtype));
    part.whole = by_rows(part.sizes, part.dim);
    part.whole.offset = bytes / size;
    bytes += part.chunk * group_->size() * size;
    bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  ARETE_CHECK(trained.size() <= 1,
              NotImplementedError(kName,
                                  "FSDP expects uniform original parameter dtype in the "
                                  "parameters of one group that are trained"));
  whole_ = device_.is_meta() ? Storage::create(device_, size_t(bytes), nullptr)
                             : Storage::promise(device_, size_t(bytes), nullptr);
  if (!device_.is_meta()) whole_->put_off(&absent, true);
}

// Puts the rows of this process into memory of their own, behind the leaf.
void ShardedParameters::take_shard(size_t index, const Tensor& values) {
  Part& part = parts_[index];
  const Tensor& p = parameters_[index];
  const size_t bytes = size_t(part.chunk) * size_of(part.shard_dtype);
  const bool offloads = options.offload_from && !p.is_meta();
  if (offloads && options.pin_memory && options.offload_from->is_cuda())
    part.memory = Storage::create(
        kCPU, bytes, &prim::backend_for(*options.offload_from).pinned_allocator(), true);
  else
    part.memory = new_memory(offloads ? Device(kCPU) : p.device(), bytes);
  Shape sizes = part.sizes;
  sizes[size_t(part.dim)] = part.rows;
  part.shard = by_rows(sizes, part.dim);
  if (!p.is_meta()) {
    over(part.memory, Layout({part.chunk}), part.shard_dtype).zero_();
    over(part.memory, part.shard, part.shard_dtype).copy_(values);
  }
}

// The leaves show their shards, and count their own writes.
void ShardedParameters::take_over() {
  has_sink_.assign(parts_.size(), false);
  sums_.assign(parts_.size(), Tensor());
  before_.assign(parts_.size(), Tensor());
  awaited_.assign(parts_.size(), false);
  for (size_t i = 0; i < parts_.size(); ++i) {
    TensorImpl& leaf = *parameters_[i].impl();
    if (!leaf.own_version) leaf.own_version = IntrusivePtr<VersionCounter>(new VersionCounter(0));
    if (leaf.autograd && leaf.autograd->accumulator) {
      const Tensor grad = leaf.autograd->accumulator->grad;
      ARETE_CHECK(!grad.defined() || grad.layout().sizes == parts_[i].shard.sizes,
                  ValueError(kName, names_[i] + " has a gradient; shard a network before it is "
                                                "trained"));
    }
  }
  shows_whole_ = true;
  show(false);
}

void ShardedParameters::rebind(std::vector<Tensor> parameters) {
  const NoGradGuard no_grad;
  ARETE_CHECK(parameters.size() == parts_.size(),
              ValueError(kName, "another number of parameters than before"));
  for (size_t i = 0; i < parts_.size(); ++i)
    ARETE_CHECK(parameters[i].layout().sizes == parts_[i].shard.sizes,
                ValueError(kName, names_[i] + " was given other sizes")
                    .expected(to_string(parts_[i].shard.sizes))
                    .got(to_string(parameters[i].sizes())));
  drop();
  kept_.clear();
  for (const Tensor& p : parameters_) autograd::remove_grad_sink(p, this);
  parameters_ = std::move(parameters);
  lay_out();
  for (size_t i = 0; i < parts_.size(); ++i) take_shard(i, parameters_[i].detach());
  take_over();
}

void ShardedParameters::show(bool whole) {
  if (shows_whole_ == whole) return;
  for (size_t i = 0; i < parts_.size(); ++i) {
    TensorImpl& leaf = *parameters_[i].impl();
    const Part& part = parts_[i];
    leaf.storage = whole ? whole_ : part.memory;
    leaf.layout = whole ? part.whole : part.shard;
    leaf.dtype = whole ? part.dtype : part.shard_dtype;
    if (leaf.autograd && leaf.autograd->accumulator && !leaf.autograd->accumulator->outputs.empty())
      leaf.autograd->accumulator->outputs[0] = {leaf.layout.sizes, leaf.dtype,
                                                leaf.storage->device()};
  }
  shows_whole_ = whole;
}

bool ShardedParameters::is_stale() const {
  return std::ranges::any_of(parts_, [](const Part& p) { return p.memory->writes() != p.writes; });
}

void ShardedParameters::gather() {
  if (present_ && !is_stale()) return;
  ARETE_CHECK(!device_.is_meta(),
              ValueError(kName, names_[0] + " is on meta; call to_empty() and initialize it"));
  const NoGradGuard no_grad;
  prim::Capture* const capture = prim::putting_off();
  std::optional<MadeNow> now;
  if (!capture) now.emplace(kName, std::initializer_list<std::span<const Tensor>>{});
  if (!present_) {
    whole_->forget_promise(&absent);
    if (capture) {
      capture->promise(*whole_);
    } else {
      borrowed_ = network_->take(device_, whole_->bytes());
      whole_->provide(borrowed_->data(), nullptr);
    }
    present_ = true;
  }
  // A forward pass begins with what everybody has, whatever was kept for a pass backward that did
  // not come.
  const std::vector<Tensor> kept = std::exchange(kept_, {});
  const bool takes_kept = !kept.empty() && !is_stale() && !autograd::passes_under_way().empty();
  const ProcessGroupPtr& from = takes_kept ? options.kept_by : group_;
  std::vector<Tensor> slots, shards, wholes;
  for (size_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    // Optimizers write to shards behind the leaf's back; what was saved of it is not valid any
    // more.
    if (part.writes != part.memory->writes()) parameters_[i].bump_version();
    part.writes = part.memory->writes();
    if (part.chunk == 0) continue;
    slots.push_back(piece(part, *from));
    shards.push_back(takes_kept ? kept[i]
                                : over(part.memory, Layout({part.chunk}), part.shard_dtype));
    wholes.push_back(
        over(whole_, Layout({part.chunk * group_->size()}, {1}, part.whole.offset), part.dtype));
  }
  if (!slots.empty()) {
    ops::foreach_copy(slots, shards, /*non_blocking=*/true);
    const CallLabel label(std::make_shared<const std::string>("FSDP: " + names_.front()));
    if (from->size() > 1) from->all_gather_in_place(wholes, true);
  }
}

// What this process has of a parameter, in its place among all rows, where `who` have all of it.
Tensor ShardedParameters::piece(const Part& part, const ProcessGroup& who) const {
  const int64_t each = part.chunk * (group_->size() / who.size());
  return over(whole_, Layout({each}, {1}, part.whole.offset + who.rank() * each), part.dtype);
}

// Before all rows are given back, for the pass backward.
void ShardedParameters::keep() {
  if (!present_) return;
  const NoGradGuard no_grad;
  std::vector<Tensor> pieces, copies;
  kept_.assign(parts_.size(), Tensor());
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].chunk == 0) continue;
    pieces.push_back(piece(parts_[i], *options.kept_by));
    kept_[i] = fresh(pieces.back().numel(), parts_[i].dtype, device_);
    copies.push_back(kept_[i]);
  }
  ops::foreach_copy(copies, pieces, /*non_blocking=*/true);
}

void ShardedParameters::drop() {
  if (!present_) return;
  const auto leave = [&] {
    whole_->provide(nullptr, nullptr);
    whole_->put_off(&absent, true);
    present_ = false;
  };
  prim::Capture* const capture = prim::putting_off();
  if (capture && capture->let_go(*whole_)) return leave();
  if (capture) capture->make_calls_for(kName);
  try {
    whole_->writable_data();  // what was gathered for nobody
  } catch (...) {
    if (!borrowed_) leave();  // a promise that nobody has kept
    throw;
  }
  if (!borrowed_) borrowed_ = taken_from(*whole_);
  leave();
  network_->give(std::move(borrowed_));
}

void ShardedParameters::unshard(bool shows) {
  gather();
  if (shows) show(true);
}

void ShardedParameters::reshard() {
  show(false);
  drop();
}

Tensor ShardedParameters::gathered(size_t index, const Tensor& others) const {
  const NoGradGuard no_grad;
  const Part& part = parts_.at(index);
  ARETE_CHECK(!others.defined() || others.layout().sizes == part.shard.sizes,
              ValueError(kName, "these are not spread as " + names_[index])
                  .expected(to_string(part.shard.sizes))
                  .got(to_string(others.sizes())));
  const DType dtype = others.defined() ? others.dtype() : part.shard_dtype;
  Tensor shard = over(part.memory, Layout({part.chunk}), part.shard_dtype).to(device_);
  if (others.defined()) {
    shard = fresh(part.chunk, dtype, device_);
    shard.zero_();
    ops::alias(shard, part.shard).copy_(others);
  }
  const Tensor all = fresh(part.chunk * group_->size(), dtype, device_);
  if (part.chunk > 0) group_->all_gather_into_tensor(all, shard);
  return ops::alias(all, by_rows(part.sizes, part.dim));
}

int64_t ShardedParameters::first_row(size_t index) const { return parts_.at(index).first; }
IntList ShardedParameters::full_sizes(size_t index) const {
  const Shape& s = parts_.at(index).sizes;
  return {s.data(), s.size()};
}

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
