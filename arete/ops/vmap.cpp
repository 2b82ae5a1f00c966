#include "arete/ops/vmap.h"

#include <algorithm>
#include <atomic>

#include "arete/core/generator.h"
#include "arete/ops/call.h"
#include "arete/ops/complex.h"
#include "arete/ops/complex_internal.h"
#include "arete/ops/creation.h"
#include "arete/ops/make_view.h"
#include "arete/ops/op_node.h"
#include "arete/ops/pointwise_call.h"
#include "arete/ops/shape.h"
#include "arete/ops/vmap_rules_internal.h"

namespace arete {

namespace {

// What is behind the storage of a batched tensor, which keeps it.
class Body final : public Promiser {
 public:
  Body(Tensor t, bool mapped, uint64_t level)
      : physical(std::move(t)), is_mapped(mapped), level(level) {
    const Layout& l = physical.layout();
    const size_t hidden = is_mapped ? 1 : 0;
    layout = Layout(IntList(l.sizes).subspan(hidden), IntList(l.strides).subspan(hidden), l.offset);
  }
  void settle(const Storage&) override {
    throw AutogradError(
        "vmap",
        "vmap: It looks like you're calling .item() on a Tensor, or using a Tensor in some "
        "data-dependent control flow. There is one value for each element of the batch, and "
        "none that could be looked at inside the function")
        .hint(
            "write it with other operators (where() for conditions), or look at the value outside "
            "of vmap");
  }
  const Tensor physical;
  const bool is_mapped;
  const uint64_t level;
  Layout layout;  // of one element
};

const Body* body_of(const Tensor& t) {
  if (!t.defined()) return nullptr;
  Promiser* const by = t.storage()->promiser();
  return by ? dynamic_cast<const Body*>(by) : nullptr;
}

StoragePtr storage_for(Tensor physical, bool is_mapped, uint64_t level) {
  const Device device = physical.device();
  auto body = std::make_shared<Body>(std::move(physical), is_mapped, level);
  const size_t bytes = size_t(body->layout.end()) * body->physical.element_size();
  StoragePtr storage = Storage::adopt(device, nullptr, bytes, [body] {});
  storage->put_off(body.get(), true);
  return storage;
}

Tensor batched(const Tensor& physical, bool is_mapped, uint64_t level) {
  StoragePtr storage = storage_for(physical, is_mapped, level);
  Layout layout =
      body_of(Tensor(IntrusivePtr<TensorImpl>(new TensorImpl(storage, Layout(), physical.dtype()))))
          ->layout;
  IntrusivePtr<TensorImpl> impl(
      new TensorImpl(std::move(storage), std::move(layout), physical.dtype()));
  // Views of it, whose storages are others, count writes with it.
  impl->own_version = IntrusivePtr<VersionCounter>(new VersionCounter(0));
  return Tensor(std::move(impl));
}

// What a batched tensor shows, or an alias of one in another layout.
Tensor physical_of(const Tensor& t, const Body& b) {
  if (t.layout() == b.layout && t.dtype() == b.physical.dtype()) return b.physical;
  Layout l = t.layout();
  if (b.is_mapped) {
    const int64_t from = int64_t(b.physical.element_size()), to = int64_t(t.element_size());
    l.sizes.insert(l.sizes.begin(), b.physical.sizes()[0]);
    l.strides.insert(l.strides.begin(), b.physical.strides()[0] * from / to);
  }
  if (b.physical.requires_grad() && modes().grad_enabled && is_differentiable(t.dtype())) {
    if (t.dtype() == b.physical.dtype()) return b.physical.as_strided(l.sizes, l.strides, l.offset);
    ARETE_CHECK(is_complex(b.physical.dtype()) && t.dtype() == ops::real_of(b.physical.dtype()),
                NotImplementedError("vmap",
                                    "a tensor of another dtype in the memory of one that is "
                                    "differentiated around vmap has no gradient")
                    .got(ops::describe(t)));
    return view_as_real(b.physical).as_strided(l.sizes, l.strides, l.offset);
  }
  return Tensor(b.physical.impl()->alias(std::move(l), t.dtype()));
}

std::atomic<uint64_t> last_level{0};

// Levels from this one on take no part in calls: a rule of one of them makes calls.
constinit thread_local uint64_t first_quiet = UINT64_MAX;

class Quiet {
 public:
  explicit Quiet(uint64_t level) : before_(first_quiet) {
    first_quiet = std::min(first_quiet, level);
  }
  ~Quiet() { first_quiet = before_; }
  Quiet(const Quiet&) = delete;

 private:
  const uint64_t before_;
};

template <class F>
const VmapLevel* find_level(F&& wanted) {
  if (!ops::vmaps::may_be()) return nullptr;
  for (const tracing::ThreadListener* l = modes().listener; l; l = l->outer())
    if (auto* const v = dynamic_cast<const VmapLevel*>(l); v && wanted(*v)) return v;
  return nullptr;
}

const VmapLevel& level_numbered(uint64_t number) {
  const VmapLevel* const v = find_level([&](const VmapLevel& l) { return l.number() == number; });
  ARETE_CHECK(v, AutogradError("vmap", "a tensor of a function under vmap is used outside of it")
                     .hint("return it from the function"));
  return *v;
}

}  // namespace

// ---- levels

VmapLevel::VmapLevel(int64_t batch, Randomness randomness)
    : batch_(batch), randomness_(randomness), number_(++last_level) {}

const VmapLevel* VmapLevel::innermost() {
  return find_level([](const VmapLevel& l) { return l.number() < first_quiet; });
}

Tensor VmapLevel::enter(const Tensor& t, int64_t dim) const {
  const int d = normalize_dim(dim, int(t.dim()), "vmap");
  ARETE_CHECK(t.size(d) == batch_,
              ValueError("vmap", "the mapped dimension has another size than the batch")
                  .expected(std::to_string(batch_))
                  .got(ops::describe(t)));
  return batched(d == 0 ? t : t.movedim(d, 0), true, number_);
}

Tensor VmapLevel::share(const Tensor& t) const {
  const Body* const b = body_of(t);
  return b && b->level == number_ ? t : batched(t, false, number_);
}

std::optional<Tensor> VmapLevel::shared(const Tensor& t) const {
  const Body* const b = body_of(t);
  if (!b || b->level != number_) return t;
  if (b->is_mapped) return {};
  return physical_of(t, *b);
}

Tensor VmapLevel::leave(const Tensor& t, int64_t dim) const {
  const Body* const b = body_of(t);
  ARETE_CHECK(!b || b->level <= number_,
              AutogradError("vmap", "a tensor of a function under vmap is used outside of it"));
  const int d = normalize_dim(dim, int(t.dim()) + 1, "vmap");
  const bool is_mapped = b && b->level == number_ && b->is_mapped;
  Tensor physical = b && b->level == number_ ? physical_of(t, *b) : t;
  if (!is_mapped) {
    Shape sizes(physical.sizes());
    sizes.insert(sizes.begin(), batch_);
    physical = physical.unsqueeze(0).expand(sizes);
  }
  return d == 0 ? physical : physical.movedim(0, d);
}

void VmapLevel::detached(const Tensor& from, const Tensor& to) noexcept {
  const Body* const b = body_of(from);
  if (!b || b->level != number_ || !(b->physical.requires_grad() || is_batched(b->physical)))
    return;
  to.impl()->storage = storage_for(physical_of(to, *b).detach(), b->is_mapped, number_);
}

bool is_batched(const Tensor& t) { return body_of(t); }

Tensor all_values(const Tensor& t) {
  const Body* const b = body_of(t);
  return b ? all_values(physical_of(t.detach(), *b)) : t.detach();
}

bool has_outer_history(const Tensor& t) {
  const Body* const b = body_of(t);
  return b && (b->physical.requires_grad() || has_outer_history(b->physical));
}

bool will_record(const Tensor& t) {
  return modes().grad_enabled && (t.requires_grad() || has_outer_history(t));
}

std::vector<Tensor> vmap(const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& func,
                         const std::vector<Tensor>& inputs,
                         const std::vector<std::optional<int64_t>>& in_dims, int64_t out_dim,
                         Randomness randomness) {
  ARETE_CHECK(in_dims.empty() || in_dims.size() == inputs.size(),
              ValueError("vmap", "in_dims must have an entry for each input"));
  const auto dim_of = [&](size_t i) {
    return in_dims.empty() ? std::optional<int64_t>(0) : in_dims[i];
  };
  std::optional<int64_t> batch;
  for (size_t i = 0; i < inputs.size() && !batch; ++i)
    if (const auto d = dim_of(i)) batch = inputs[i].size(*d);
  ARETE_CHECK(batch, ValueError("vmap", "at least one input must be mapped"));
  const VmapLevel level(*batch, randomness);
  std::vector<Tensor> entered;
  for (size_t i = 0; i < inputs.size(); ++i)
    entered.push_back(dim_of(i) ? level.enter(inputs[i], *dim_of(i)) : inputs[i]);
  std::vector<Tensor> results = func(entered);
  for (Tensor& t : results) t = level.leave(t, out_dim);
  return results;
}

// ---- calls

namespace ops::vmaps {

namespace {

bool draws(const Call& call) {
  const auto is_seeded = call.op.batching.is_seeded;
  return call.op.random || (is_seeded && is_seeded(call));
}

Operand operand_of(const Tensor& t, uint64_t level) {
  const Body* const b = body_of(t);
  if (!b || b->level != level) return {t, false};
  return {physical_of(t, *b), b->is_mapped};
}

Rewriting rewriting_of(const Call& call, const OutputSpecs& specs, uint64_t level) {
  const VmapLevel& l = level_numbered(level);
  Rewriting r{call, specs, l.batch(), l.randomness(), {}};
  for (size_t i = 0; i < call.size(); ++i) {
    auto& list = r.tensors.emplace_back();
    if (call[i].kind() == Arg::Kind::tensors)
      for (const Tensor& t : call.tensors(i)) list.push_back(operand_of(t, level));
    else
      list.push_back(call[i].kind() == Arg::Kind::tensor ? operand_of(call.tensor(i), level)
                                                         : Operand{});
  }
  return r;
}

bool any_mapped(const Rewriting& r) {
  return std::ranges::any_of(r.tensors, [](const auto& list) {
    return std::ranges::any_of(list, [](const Operand& o) { return o.is_mapped; });
  });
}

// The call with other tensors.
struct Given {
  std::vector<Arg> args;
  std::vector<std::vector<Tensor>> lists;
  Given(const Rewriting& r, auto&& physical) : args(r.call.args().begin(), r.call.args().end()) {
    lists.resize(args.size());
    for (size_t i = 0; i < args.size(); ++i) {
      const Arg::Kind kind = args[i].kind();
      if (kind != Arg::Kind::tensor && kind != Arg::Kind::tensors) continue;
      for (const Operand& o : r.tensors[i]) lists[i].push_back(physical(o));
      args[i] = kind == Arg::Kind::tensors ? Arg(lists[i]) : Arg(lists[i][0]);
    }
  }
};

[[noreturn]] void refuse_write(const char* name) {
  throw AutogradError(
      name, std::string("vmap: inplace arithmetic(self, *extra_args) is not possible because there "
                        "exists a Tensor "
                        "`other` in extra_args that has more elements than `self`: `") +
                name +
                "` would write what each element of the batch has into a tensor that all share")
      .hint(
          "compute out of place, or make the tensor batched: map over it, or make it of a batched "
          "one "
          "(x.new_zeros(...), zeros_like(x))");
}

// Gives a tensor that was made where one element is seen, and is about to be filled with what each
// has, a batch: in its place and in that of its base. False if others know its memory.
bool add_batch(Tensor& self, uint64_t level) {
  const Making* const making = Making::innermost();
  if (!making || making->was_given(self)) return false;
  TensorImpl& impl = *self.impl();
  const bool is_view = bool(impl.base);
  TensorImpl& base = is_view ? *impl.base : impl;
  if (impl.storage->use_count() != (is_view ? 2 : 1) || base.layout.offset != 0 ||
      !base.layout.is_dense())
    return false;
  const bool is_part = impl.dtype != base.dtype;
  if (is_part && !(is_complex(base.dtype) && impl.dtype == real_of(base.dtype))) return false;
  const int64_t numel = base.layout.numel(), per_element = is_part ? 2 : 1;
  const Operand old = operand_of(Tensor(IntrusivePtr<TensorImpl>(&base)), level);
  if (old.is_mapped) return false;
  const int64_t batch = level_numbered(level).batch();
  Shape sizes{batch};
  for (int64_t s : base.layout.sizes) sizes.push_back(s);
  Shape strides{base.layout.numel()};
  for (int64_t s : base.layout.strides) strides.push_back(s);
  Tensor whole = empty_strided(sizes, strides, old.physical.options());
  whole.copy_(old.physical);
  const Layout shown = impl.layout;
  const DType dtype = impl.dtype;
  base.own_version = IntrusivePtr<VersionCounter>(new VersionCounter(0));
  base.storage = storage_for(whole, true, level);
  base.layout = body_of(Tensor(IntrusivePtr<TensorImpl>(&base)))->layout;
  base.autograd.reset();  // the copy has it
  if (is_view) {
    impl.storage = base.storage;
    impl.own_version = base.own_version;
    impl.autograd.reset();
    impl.view_version = impl.version();
    // A view even where nothing is recorded yet: what is written to it is the base's, too.
    Shape shown_sizes{batch}, shown_strides{numel * per_element};
    for (int64_t s : shown.sizes) shown_sizes.push_back(s);
    for (int64_t s : shown.strides) shown_strides.push_back(s);
    const Tensor from = is_part ? view_as_real(whole) : whole;
    impl.storage =
        storage_for(from.as_strided(shown_sizes, shown_strides, shown.offset), true, level);
    impl.layout = shown;
    impl.dtype = dtype;
  }
  return true;
}

[[noreturn]] void refuse_random() {
  throw AutogradError(
      "vmap",
      "vmap: called random operation while in randomness error mode. Please either use the "
      "'same' or 'different' randomness flags on vmap or perform the randomness operation out of "
      "vmap");
}

}  // namespace

uint64_t level_of(std::span<const Tensor> tensors) {
  uint64_t level = 0;
  for (const Tensor& t : tensors)
    if (const Body* const b = body_of(t)) level = std::max(level, b->level);
  return level;
}

uint64_t level_of(const Call& call) {
  uint64_t level = 0;
  for (const Arg& a : call.args()) {
    if (a.kind() == Arg::Kind::tensor) level = std::max(level, level_of({&a.tensor(), 1}));
    if (a.kind() == Arg::Kind::tensors) level = std::max(level, level_of(a.tensors()));
  }
  if (draws(call))
    if (const VmapLevel* const l = VmapLevel::innermost()) level = std::max(level, l->number());
  return level;
}

bool is_recorded_at(uint64_t level, std::span<const Tensor> tensors) {
  return !level || std::ranges::any_of(tensors, [&](const Tensor& t) {
    const Body* const b = body_of(t);
    return b && b->level == level && t.requires_grad();
  });
}

bool is_differentiated_around(const Tensor& t, uint64_t level) {
  return has_outer_history(t) || (t.requires_grad() && level_of({&t, 1}) != level);
}

bool needs_history(const Call& call, uint64_t level) {
  if (!modes().grad_enabled) return false;
  bool needs = false;
  for_each_tensor(call, [&](size_t, const Tensor& t) {
    needs = needs || is_recorded_at(level, {&t, 1});
  });
  return needs;
}

namespace {
constinit thread_local const Making* making = nullptr;
}
Making::Making(std::span<const Arg> given) : given_(given), outer_(making) { making = this; }
Making::~Making() { making = outer_; }
const Making* Making::innermost() { return making; }
bool Making::was_given(const Tensor& t) const {
  for (const Arg& a : given_) {
    if (a.kind() == Arg::Kind::tensor && a.tensor().storage() == t.storage()) return true;
    if (a.kind() == Arg::Kind::tensors)
      for (const Tensor& given : a.tensors())
        if (given.defined() && given.storage() == t.storage()) return true;
  }
  return outer_ && outer_->was_given(t);
}

bool Rewriting::is_mapped(size_t arg) const {
  return arg < tensors.size() &&
         std::ranges::any_of(tensors[arg], [](const Operand& o) { return o.is_mapped; });
}

Tensor Rewriting::whole(const Operand& o) const {
  if (o.is_mapped || !o.physical.defined()) return o.physical;
  Shape sizes(o.physical.sizes());
  sizes.insert(sizes.begin(), batch);
  return o.physical.unsqueeze(0).expand(sizes);
}
Tensor Rewriting::whole(size_t arg) const {
  return arg < tensors.size() && !tensors[arg].empty() ? whole(at(arg)) : Tensor();
}

Tensor one_for_each(const Tensor& t, uint64_t level) {
  const Quiet quiet(level);
  const Operand o = operand_of(t, level);
  if (o.is_mapped) return t;
  const VmapLevel& l = level_numbered(level);
  Shape sizes(o.physical.sizes());
  sizes.insert(sizes.begin(), l.batch());
  return batched(o.physical.unsqueeze(0).expand(sizes).clone(), true, level);
}

Results run(const Call& call, const OutputSpecs& specs, uint64_t level) {
  const Quiet quiet(level);
  const Rewriting r = rewriting_of(call, specs, level);
  Results results;
  const bool random = draws(call);
  if (random && r.randomness == Randomness::error) refuse_random();
  if (!any_mapped(r) && !(random && r.randomness == Randomness::different)) {
    const Given given(r, [](const Operand& o) { return o.physical; });
    for (Tensor& t : call_all(call.op, given.args)) results.push_back(batched(t, false, level));
    return results;
  }
  results = rewritten(r);
  for (size_t i = 0; i < results.size(); ++i) {
    Shape sizes(specs[i].sizes);
    sizes.insert(sizes.begin(), r.batch);
    if (results[i].dim() < int64_t(sizes.size()) && Shape(results[i].sizes()) == specs[i].sizes)
      results[i] = results[i].unsqueeze(0).expand(sizes);  // it depends on no mapped argument
    else if (Shape(results[i].sizes()) != sizes)
      results[i] = results[i].reshape(sizes);
    results[i] = batched(results[i], true, level);
  }
  return results;
}

Results run_composition(const Call& call, uint64_t level) {
  const Quiet quiet(level);
  const OutputSpecs unknown{};
  const Rewriting r = rewriting_of(call, unknown, level);
  const bool is_mapped = any_mapped(r);
  Results results =
      is_mapped ? one_by_one(r)
                : call_all(call.op, Given(r, [](const Operand& o) { return o.physical; }).args);
  for (Tensor& t : results) t = batched(t, is_mapped, level);
  return results;
}

void run_in_place(const Call& call, const OutputSpecs& specs, uint64_t level) {
  const Quiet quiet(level);
  {
    const Rewriting r = rewriting_of(call, specs, level);
    Tensor self = call.tensor(0);
    const bool differs = draws(call) && r.randomness == Randomness::different;
    if (!r.at(0).is_mapped && (any_mapped(r) || differs) && !add_batch(self, level) &&
        any_mapped(r))
      refuse_write(call.name());
  }
  Rewriting r = rewriting_of(call, specs, level);
  const bool random = draws(call);
  if (random && r.randomness == Randomness::error) refuse_random();
  Tensor own = r.at(0).physical;
  if (!r.at(0).is_mapped) {
    ARETE_CHECK(
        !random || r.randomness == Randomness::same,
        AutogradError(
            call.name(),
            "vmap: Cannot ask for different inplace randomness on an unbatched tensor. This "
            "will appear like same randomness.")
            .hint("make the tensor of a batched one, or draw out of place"));
    const Given given(r, [](const Operand& o) { return o.physical; });
    call_in_place(own, call.op, given.args);
    return;
  }
  if (is_elementwise(r)) return elementwise_in_place(r);
  // What is saved for a gradient must outlive the write.
  const bool records = std::ranges::any_of(r.tensors, [](const auto& list) {
    return std::ranges::any_of(
        list, [](const Operand& o) { return o.physical.defined() && will_record(o.physical); });
  });
  if (records) r.tensors[0][0].physical = own.clone();
  const Results results = rewritten(r);
  own.copy_(Shape(results[0].sizes()) == Shape(own.sizes()) ? results[0]
                                                            : results[0].reshape(own.sizes()));
}

namespace {

// Operands that broadcast, each with the batch in front if it has one.
std::vector<Tensor> aligned(std::span<const Operand> operands) {
  int64_t rank = 0;
  for (const Operand& o : operands) rank = std::max(rank, o.physical.dim() - o.is_mapped);
  std::vector<Tensor> all;
  for (const Operand& o : operands) {
    const int64_t missing = rank - (o.physical.dim() - 1);
    if (o.is_mapped && missing > 0) {
      all.push_back(o.physical.reshape(with_ones(o.physical.sizes(), missing)));
    } else {
      all.push_back(o.physical);
    }
  }
  return all;
}

// The arguments of the call that is behind an application; nothing where its operands would be
// promoted otherwise with the batch than without it.
struct PointwiseArguments {
  std::vector<Tensor> tensors;
  std::vector<Arg> args;
  PointwiseArguments(const Call& call, uint64_t level, DType compute, DType result)
      : args(call.args().begin(), call.args().end()) {
    std::vector<Operand> operands;
    std::vector<size_t> places;
    Promotion before, after;
    for (size_t i = 0; i < args.size(); ++i) {
      if (args[i].kind() == Arg::Kind::tensor) {
        operands.push_back(operand_of(args[i].tensor(), level));
        places.push_back(i);
        before.add(args[i].tensor());
      } else if (args[i].kind() == Arg::Kind::scalar) {
        if (int(i) < call.op.pointwise->n_inputs)
          before.add(args[i].scalar()), after.add(args[i].scalar());
      }
    }
    tensors = aligned(operands);
    for (const Tensor& t : tensors) after.add(t);
    // 0-dimensional tensors do not decide a dtype beside others, and with a batch they would.
    const bool differ = before.result() != after.result();
    // Programs compute half types in float32: a number loses no more than it does beside one.
    const DType work = is_reduced_float(compute) ? kFloat32 : compute;
    const PointwiseDef& def = *call.op.pointwise;
    for (size_t k = 0; k < tensors.size(); ++k) {
      const bool is_condition =
          def.non_differentiable >> places[k] & 1 && tensors[k].dtype() == kBool;
      const bool is_half = rounds_to_half(def, compute, result, int(places[k]));
      if (differ && def.compute_promoted && !is_condition && tensors[k].dtype() != compute)
        tensors[k] = tensors[k].to(is_half ? compute : work);
    }
    for (size_t k = 0; k < tensors.size(); ++k) args[places[k]] = Arg(tensors[k]);
  }
};

}  // namespace

Results run_physical(std::span<const Tensor> inputs, uint64_t level,
                     const std::function<Results(std::span<const Tensor>, bool)>& f) {
  const Quiet quiet(level);
  level_numbered(level);
  std::vector<Operand> operands;
  for (const Tensor& t : inputs) operands.push_back(operand_of(t, level));
  const bool is_mapped = std::ranges::any_of(operands, &Operand::is_mapped);
  Results results = f(aligned(operands), is_mapped);
  for (Tensor& t : results) t = batched(t, is_mapped, level);
  return results;
}

Results run_program(const Application& a, uint64_t level) {
  if (!a.call)
    return run_physical(a.inputs, level, [&](std::span<const Tensor> inputs, bool) {
      return call_program({a.name, a.program, inputs, a.params});
    });
  const Quiet quiet(level);
  level_numbered(level);
  bool is_mapped = false;
  for (const Tensor& t : a.inputs) is_mapped = is_mapped || operand_of(t, level).is_mapped;
  Results results;
  {
    const PointwiseArguments given(*a.call, level, a.variant->compute,
                                   a.program->outputs()[0].dtype);
    results = call_all(a.call->op, given.args);
    // A result's dtype was chosen by the logical operands.
    for (size_t i = 0; i < results.size(); ++i)
      if (const DType t = a.program->outputs()[i].dtype; results[i].dtype() != t)
        results[i] = results[i].to(t);
  }
  for (Tensor& t : results) t = batched(t, is_mapped, level);
  return results;
}

void run_pointwise_in_place(Tensor& self, const Application& a, uint64_t level) {
  const Quiet quiet(level);
  level_numbered(level);
  bool is_mapped = false;
  for (const Tensor& t : a.inputs) is_mapped = is_mapped || operand_of(t, level).is_mapped;
  if (is_mapped && !operand_of(self, level).is_mapped && !add_batch(self, level))
    refuse_write(a.name);
  const Operand own = operand_of(self, level);
  PointwiseArguments given(*a.call, level, a.variant->compute, a.program->outputs()[0].dtype);
  Tensor target = own.physical;
  given.args[0] = Arg(target);
  call_in_place(target, a.call->op, given.args);
}

// ---- views

namespace {

// The views of the physical tensor that a call's are of the logical one, whose layouts those are.
Results physical_views(const Call& call, std::span<const Layout> layouts, uint64_t level) {
  const OutputSpecs unknown{};
  const Rewriting r = rewriting_of(call, unknown, level);
  if (!r.is_mapped(0)) return Changed(r).run();
  Results views = call.op.batching.rule ? call.op.batching.rule(r) : by_dimensions(r);
  for (size_t i = 0; i < views.size(); ++i)  // a number has been a vector of one
    if (const Shape sizes = with_front(r.batch, layouts[i].sizes); Shape(views[i].sizes()) != sizes)
      views[i] = views[i].view(sizes);
  return views;
}

Tensor view_over(const Call& call, const Layout& layout, const Tensor& physical, uint64_t level) {
  const Tensor& self = call.tensor(0);
  Tensor out = make_one_view(self, Layout(layout), call.op);
  out.impl()->storage = storage_for(physical, operand_of(self, level).is_mapped, level);
  out.impl()->layout = body_of(out)->layout;
  out.impl()->dtype = physical.dtype();
  return out;
}

}  // namespace

Tensor run_view(const Call& call, const Layout& layout, uint64_t level) {
  const Quiet quiet(level);
  const Results views = physical_views(call, {&layout, 1}, level);
  return view_over(call, layout, views[0], level);
}

Results run_views(const Call& call, uint64_t level) {
  const Quiet quiet(level);
  const std::vector<Layout> layouts = call.op.views(call);
  Results views = physical_views(call, layouts, level);
  for (size_t i = 0; i < views.size(); ++i) views[i] = view_over(call, layouts[i], views[i], level);
  return views;
}

}  // namespace ops::vmaps
}  // namespace arete
