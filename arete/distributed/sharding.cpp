#include "arete/distributed/sharding.h"

#include <algorithm>
#include <set>
#include <utility>

#include "arete/autograd/engine.h"
#include "arete/core/history.h"
#include "arete/core/modes.h"
#include "arete/distributed/call_internal.h"
#include "arete/distributed/flight_recorder.h"
#include "arete/distributed/sharding_internal.h"
#include "arete/ops/call.h"
#include "arete/ops/foreach.h"
#include "arete/ops/shape.h"
#include "arete/ops/target.h"
#include "arete/prim/backend.h"
#include "arete/prim/recorder.h"

namespace arete::distributed {
namespace {

constexpr const char* kName = "fully_shard";
constexpr int64_t kAlignment = 256;  // of parameters within their memory, in bytes

// What a promise was given, in other hands.
StoragePtr taken_from(const Storage& memory) {
  prim::Backend& backend = prim::backend_for(memory.device());
  return Storage::adopt(memory.device(), memory.data(), memory.bytes(),
                        [&backend, data = memory.data(), bytes = memory.bytes()] {
                          backend.deallocate(data, bytes);
                        });
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

}  // namespace

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

Layout by_rows(Shape sizes, int dim) {
  const int64_t rows = sizes[size_t(dim)];
  sizes.erase(sizes.begin() + dim);
  sizes.insert(sizes.begin(), rows);
  const Layout first(sizes);
  Layout l = first;
  for (int d = dim; d > 0; --d) l = transpose(l, d - 1, d);
  return l;
}

StoragePtr new_memory(Device device, size_t bytes) {
  return device.is_meta() ? Storage::create(device, bytes, nullptr)
                          : ops::target(device).new_storage(bytes);
}

Tensor fresh(int64_t n, DType dtype, Device device) {
  return Tensor(IntrusivePtr<TensorImpl>(
      new TensorImpl(new_memory(device, size_t(n) * size_of(dtype)), Layout({n}), dtype)));
}

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

}  // namespace arete::distributed
