#include "arete/ops/pointwise_call.h"

#include <algorithm>
#include <cmath>

#include "arete/core/half.h"
#include "arete/core/modes.h"
#include "arete/core/sparse.h"
#include "arete/core/tracing.h"
#include "arete/ops/complex.h"
#include "arete/ops/complex_internal.h"
#include "arete/ops/creation.h"
#include "arete/ops/filling.h"
#include "arete/ops/in_place.h"
#include "arete/ops/program_node.h"
#include "arete/ops/target.h"
#include "arete/ops/vmap_internal.h"
#include "arete/ops/window_util.h"
#include "arete/ops/work.h"

namespace arete::ops {

using expr::Literal;
using expr::ProgramPtr;
using expr::Value;

namespace {

using Tensors = SmallVector<Tensor, 3>;
using Literals = SmallVector<Literal, 4>;

// The fields of a variant's key: for each input its dtype or, of a number, its category; the
// computation's and the result's dtype; the parameters that are folded.
constexpr int kDTypeBits = 5, kInputBits = 6, kParamBits = 8;
constexpr uint64_t kNumberKey = uint64_t(1) << kDTypeBits;
static_assert(kNumDTypes <= 1 << kDTypeBits, "a variant's key has no room for another dtype");
static_assert(kNumberKey + 4 <= uint64_t(1) << kInputBits, "there are four categories");
constexpr int kMostInputs = (64 - 2 * kDTypeBits - kParamBits) / kInputBits;

// The dtype a call computes in and that of its result.
struct PointwiseTypes {
  DType compute, result;
};

// Everything about one call that the choice of program needs.
struct Resolved {
  const Call* call;
  const OpRecord* op;
  const PointwiseDef* def;
  Variant* variant = nullptr;  // none: the call is one of complex numbers (types.compute)
  Tensors inputs;              // tensors only, in order
  Literals params;             // numbers among the inputs first, then the record's parameters
  PointwiseTypes types;

  Application application() const {
    return {op->name.c_str(),
            variant->program,
            {inputs.data(), inputs.size()},
            {params.data(), params.size()},
            variant,
            def,
            call};
  }
};

// Conditions take no part: integers that promote with nothing are chosen by them, too.
DType promoted_type(const Call& call, const PointwiseDef& def) {
  Promotion p;
  for (int i = 0; i < def.n_inputs; ++i) {
    const bool is_tensor = call[i].kind() == Arg::Kind::tensor;
    if (is_tensor && def.non_differentiable >> i & 1 && call[i].tensor().dtype() == kBool) continue;
    is_tensor ? p.add(call[i].tensor()) : p.add(call[i].scalar());
  }
  return p.result();
}

// Small multiples of a half, by which PointwiseDef::constant_number tells programs apart: 0 is no
// such number.
uint32_t small_number_code(double v) {
  const bool is_small = v >= -1 && v <= 3 && 2 * v == std::floor(2 * v);
  return is_small ? uint32_t(2 * v + 3) : 0;
}
double small_number(uint32_t code) { return (double(code) - 3) / 2; }

// `numbers`: bit i: input i is a number. `folded`: see resolve().
ProgramPtr build(const PointwiseDef& def, const Call& call, const PointwiseTypes& types,
                 uint32_t numbers, uint32_t folded) {
  expr::Builder b;
  const expr::Type compute = expr::compute_type(types.compute);
  std::vector<Value> values(def.n_inputs + def.n_params);
  for (int i = 0; i < def.n_inputs; ++i)
    if (!(numbers >> i & 1)) values[i] = b.input(call[i].tensor().dtype());
  for (int i = 0; i < def.n_inputs; ++i) {
    if (i == def.constant_number && folded)
      values[i] = is_float(compute) ? b.constant(compute, small_number(folded))
                                    : b.constant(compute, int64_t(small_number(folded)));
    else if (numbers >> i & 1)
      values[i] = b.param(compute);
    else if (def.compute_promoted)
      values[i] = rounds_to_half(def, types.compute, types.result, i) &&
                          call[i].tensor().dtype() != types.compute
                      ? b.round_to(b.cast(values[i], compute), types.compute)
                      : b.cast(values[i], compute);
  }
  for (int k = 0; k < def.n_params; ++k)
    values[def.n_inputs + k] = folded >> k & 1 ? b.constant(compute, int64_t(1)) : b.param(compute);
  std::vector<Value> outputs = def.of_halves && is_reduced_float(types.compute)
                                   ? def.of_halves(values, types.compute)
                                   : def.definition(values);
  const std::vector<DType> dtypes(outputs.size(), types.result);
  return b.build(outputs, dtypes);
}

// Note [Numbers in tensors of the CPU]
// A CPU tensor without dimensions beside tensors of another device counts as a number: it takes
// part in promotion as the tensor it is, and its value is read now and handed over as a parameter.
// Where history wants its gradient, or numbers are complex, it is copied to that device instead.
}  // namespace

bool is_host_number(const Tensor& t) { return t.dim() == 0 && t.device().is_cpu(); }

Device device_beside_numbers(const Call& call, int n) {
  for (int i = 0; i < n; ++i)
    if (call[i].kind() == Arg::Kind::tensor && !is_host_number(call.tensor(size_t(i))))
      return call.tensor(size_t(i)).device();
  return kCPU;
}

namespace {

Scalar number_at(const Arg& a) {
  return a.kind() == Arg::Kind::tensor ? a.tensor().item() : a.scalar();
}

// The number that `s` becomes in a tensor of `dtype`, if that is a half.
Scalar among_halves(const Scalar& s, DType dtype) {
  if (dtype == kFloat16) return double(float(Half(float(s.to_double()))));
  if (dtype == kBFloat16) return double(float(BFloat16(float(s.to_double()))));
  return s;
}

// Sorts out which of the inputs are such numbers; key and r.inputs are made anew.
void take_host_numbers(const Call& call, Resolved& r, uint64_t& key, uint32_t& numbers) {
  const Device device = device_beside_numbers(call, r.def->n_inputs);
  if (device.is_cpu()) return;
  key = 0;
  r.inputs.clear();
  for (int i = 0; i < r.def->n_inputs; ++i) {
    const Arg& a = call[i];
    const bool tensor = a.kind() == Arg::Kind::tensor, host = tensor && is_host_number(a.tensor());
    if (host && (will_record(a.tensor()) || is_batched(a.tensor()))) {
      r.inputs.push_back(a.tensor().to(device));
    } else if (tensor && !host) {
      r.inputs.push_back(a.tensor());
    } else {
      key = key << kInputBits | (kNumberKey + number_at(a).category());
      numbers |= 1u << i;
      continue;
    }
    key = key << kInputBits | uint64_t(a.tensor().dtype());
  }
}

Resolved resolve(const Call& call, const DType* forced_result = nullptr) {
  const OpRecord& op = call.op;
  const PointwiseDef& def = *op.pointwise;
  Resolved r;
  r.call = &call;
  r.op = &op;
  r.def = &def;
  uint64_t key = 0;
  int n_tensors = 0;
  uint32_t numbers = 0;  // bit i: input i is one
  bool all_same = true, host_numbers = false;
  DType first = kFloat32;
  for (int i = 0; i < def.n_inputs; ++i) {
    const Arg& a = call[i];
    if (a.kind() == Arg::Kind::tensor) {
      const Tensor& t = a.tensor();
      key = key << kInputBits | uint64_t(t.dtype());
      if (n_tensors++ == 0) first = t.dtype();
      all_same = all_same && t.dtype() == first;
      host_numbers = host_numbers || is_host_number(t);
      r.inputs.push_back(t);
    } else {
      ARETE_CHECK(!a.is_none(),
                  TypeError(op.name, op.name + ": argument " + schema_of(op).args[i].name +
                                         " must be a Tensor, not an undefined one"));
      key = key << kInputBits | (kNumberKey + a.scalar().category());
      all_same = all_same && a.scalar().category() <= category_of(first);
      numbers |= 1u << i;
    }
  }
  ARETE_CHECK(n_tensors > 0,
              TypeError(op.name, op.name + ": at least one argument must be a Tensor"));
  if (def.check) def.check(call);
  DType compute = all_same && call[0].kind() == Arg::Kind::tensor && def.compute_promoted
                      ? first
                      : promoted_type(call, def);
  DType result = compute;
  if (def.result == PointwiseDef::Result::floating) {
    if (is_integral_or_bool(compute)) compute = default_dtype();
    result = compute;
  } else if (def.result == PointwiseDef::Result::boolean) {
    result = kBool;
  }
  if (is_complex(compute)) [[unlikely]] {
    r.types.compute = compute;
    return r;
  }
  if (host_numbers) [[unlikely]]
    take_host_numbers(call, r, key, numbers);
  if (forced_result) {
    check_castable(result, *forced_result, op.name);
    result = *forced_result;
  }
  r.types = {compute, result};
  uint32_t folded = 0;  // bits of parameters that are 1, or the code of the constant number
  if (const int i = def.constant_number; i >= 0 && numbers >> i & 1)
    folded = small_number_code(number_at(call[i]).to_double());
  for (int k = 0; k < def.n_params; ++k) {
    const Scalar s = call[def.n_inputs + k].scalar();
    // Among booleans any number stands for whether it is zero, as in x.masked_fill(mask, 1).
    if (!def.truncates && s.category() > category_of(compute) && !s.is_boolean()) [[unlikely]] {
      const std::string& name = schema_of(op).args[def.n_inputs + k].name;
      ARETE_CHECK(compute == kBool && (s.is_integral() || name != "alpha"),
                  TypeError(op.name, "For integral input tensors, argument " + name +
                                         " must not be a floating point number."));
    }
    if (is_integer(compute) || s.is_complex()) check_holds(compute, s, call.name());
    if (s == Scalar(1)) folded |= 1u << k;
  }
  key = (key << kDTypeBits | uint64_t(compute)) << kDTypeBits | uint64_t(result);
  key = key << kParamBits | folded;
  PointwiseDef::Cache& cache = *def.cache;
  r.variant = cache.find(key);
  if (!r.variant) [[unlikely]] {
    ARETE_ASSERT(def.n_inputs <= kMostInputs && def.n_params <= kParamBits);
    // Gradients of an operator's own count its numbers as parameters.
    ARETE_ASSERT(def.constant_number < 0 || (def.n_params == 0 && !def.gradient));
    auto fresh = std::make_unique<Variant>();
    fresh->key = key;
    fresh->compute = compute;
    fresh->program = build(def, call, r.types, numbers, folded);
    for (int i = 0; i < def.n_inputs; ++i)
      if ((numbers >> i & 1) && !(i == def.constant_number && folded))
        fresh->number_inputs.push_back(i);
    const std::lock_guard lock(cache.mutex);
    r.variant = cache.find(key);
    if (!r.variant) {
      fresh->next = cache.first.load(std::memory_order_relaxed);
      r.variant = fresh.release();
      cache.first.store(r.variant, std::memory_order_release);
    }
  }
  const auto param_types = r.variant->program->params();
  size_t p = 0;
  for (int i : r.variant->number_inputs) {
    if (def.exact_numbers >> i & 1 && is_integer(compute) && call[i].kind() == Arg::Kind::scalar)
      check_holds(compute, call[i].scalar(), call.name());
    const Scalar s = number_at(call[i]);
    r.params.push_back(literal(
        rounds_to_half(def, r.types.compute, r.types.result, i) ? among_halves(s, compute) : s,
        param_types[p++]));
  }
  for (int k = 0; k < def.n_params; ++k) {
    if (folded >> k & 1) continue;
    const Scalar s = call[def.n_inputs + k].scalar();
    const bool rounds = rounds_to_half(def, r.types.compute, r.types.result, def.n_inputs + k);
    r.params.push_back(literal(rounds ? among_halves(s, compute) : s, param_types[p++]));
  }
  return r;
}

Shape broadcast_all(std::span<const Tensor> inputs, const char* name) {
  Shape space(inputs[0].sizes());
  for (size_t i = 1; i < inputs.size(); ++i) {
    const IntList s = inputs[i].sizes();
    if (s.size() == space.size() && std::equal(s.begin(), s.end(), space.begin())) continue;
    space = broadcast_shapes(space, s, name);
  }
  return space;
}

Device device_of(std::span<const Tensor> inputs, const char* name) {
  const Device d = inputs[0].device();
  for (size_t i = 1; i < inputs.size(); ++i) check_same_device(name, d, 0, inputs[i].device(), i);
  return d;
}

bool has_sizes(const Tensor& t, IntList sizes) {
  return t.sizes().size() == sizes.size() &&
         std::equal(sizes.begin(), sizes.end(), t.sizes().begin());
}

}  // namespace

Tensor allocate_like(std::span<const Tensor> inputs, const Shape& space, DType dtype,
                     Device device) {
  for (const Tensor& t : inputs) {
    if (t.is_contiguous()) {
      if (has_sizes(t, space)) break;
      continue;
    }
    // All alike: its own strides, also of dimensions of size 1.
    const bool alike = std::ranges::all_of(inputs, [&](const Tensor& other) {
      return has_sizes(other, space) && std::ranges::equal(other.strides(), t.strides());
    });
    return empty_tensor(
        OutputSpec{space, dtype, alike ? strides_like(t) : strides_like(inputs, space), device});
  }
  return empty_tensor(space, dtype, device);
}

void execute(const expr::Program& program, std::span<const Tensor> inputs,
             std::span<const Tensor> outputs, std::span<const Literal> params) {
  if (outputs[0].is_meta()) {
    for (const Tensor& t : inputs) check_not_sparse(modes().current_op, t);
    return;
  }
  SmallVector<prim::View, 6> in, out;
  for (const Tensor& t : inputs) in.push_back(view_of(t));
  for (const Tensor& t : outputs) out.push_back(view_of(t));
  target(outputs[0].device())
      .pointwise({&program, {in.data(), in.size()}, {out.data(), out.size()}, params});
}

namespace {

bool has_differentiable_output(const Application& a) {
  return std::ranges::any_of(a.program->outputs(),
                             [](const auto& o) { return is_differentiable(o.dtype); });
}

void set_histories(const IntrusivePtr<ProgramNode>& node, Results& outputs) {
  node->save_outputs({outputs.data(), outputs.size()});
  for (size_t i = 0; i < outputs.size(); ++i)
    if (is_differentiable(outputs[i].dtype())) set_history(outputs[i], node, uint32_t(i));
}

// apply() of batched tensors, by itself: it would slow down the others.
[[gnu::cold, gnu::noinline]] void apply_batched(const Application& a, uint64_t level,
                                                Results& outputs) {
  modes().current_op = a.name;
  const Shape space = broadcast_all(a.inputs, a.name);
  device_of(a.inputs, a.name);
  IntrusivePtr<ProgramNode> node;
  if (has_differentiable_output(a) && a.needs_history() && vmaps::is_recorded_at(level, a.inputs))
    node = IntrusivePtr<ProgramNode>(new ProgramNode(a, space));
  outputs = vmaps::run_program(a, level);
  if (node) set_histories(node, outputs);
}

}  // namespace

void apply(const Application& a, Results& outputs) {
  if (vmaps::may_be()) [[unlikely]]
    if (const uint64_t level = vmaps::level_of(a.inputs)) return apply_batched(a, level, outputs);
  modes().current_op = a.name;
  const Shape space = broadcast_all(a.inputs, a.name);
  const Device device = device_of(a.inputs, a.name);
  IntrusivePtr<ProgramNode> node;
  if (has_differentiable_output(a) && a.needs_history())
    node = IntrusivePtr<ProgramNode>(new ProgramNode(a, space));
  if (outputs.empty())
    for (const auto& o : a.program->outputs())
      outputs.push_back(allocate_like(a.inputs, space, o.dtype, device));
  execute(*a.program, a.inputs, {outputs.data(), outputs.size()}, a.params);
  if (node) set_histories(node, outputs);
}

std::shared_ptr<PointwiseDef::Cache> make_pointwise_cache() {
  return std::make_shared<PointwiseDef::Cache>();
}

Results call_pointwise(const Call& call) {
  const Resolved r = resolve(call);
  if (!r.variant) [[unlikely]]
    return call_complex(call, r.types.compute);
  Results outputs;
  apply(r.application(), outputs);
  return outputs;
}

Tensor call_pointwise_one(const Call& call) { return std::move(call_pointwise(call)[0]); }

// The history of a complex tensor whose parts were computed: its gradient's parts are theirs.
namespace {
class JoinedParts final : public Node {
 public:
  JoinedParts(const char* name, const Results& parts) : name_(name) {
    for (const Tensor& t : parts) edges.push_back(gradient_edge(t));
  }
  std::string name() const override { return name_; }
  TensorList backward(const TensorList& grads, uint64_t) override { return parts_of(grads[0]); }

 private:
  const char* name_;
};
}  // namespace

Results call_on_parts(const Call& parts, std::span<const Tensor> like) {
  const Resolved r = resolve(parts);
  const std::span<const Tensor> inputs{r.inputs.data(), r.inputs.size()};
  const bool is_pair = r.variant->program->outputs().size() == 2;
  Results outputs;
  Tensor joined;
  if (is_pair && vmaps::may_be() && vmaps::level_of(inputs)) {
    apply(r.application(), outputs);
    return {complex(outputs[0], outputs[1])};
  }
  if (is_pair) {
    joined = allocate_like(like, broadcast_all(inputs, parts.name()), complex_of(r.types.result),
                           device_of(inputs, parts.name()));
    for (int part = 0; part < 2; ++part) outputs.push_back(part_of(joined, part));
  }
  apply(r.application(), outputs);
  if (!is_pair) return outputs;
  if (outputs[0].requires_grad()) {
    const IntrusivePtr<Node> node(new JoinedParts(parts.name(), outputs));
    node->outputs.push_back({Shape(joined.sizes()), joined.dtype(), joined.device()});
    set_history(joined, node, 0);
  }
  return {joined};
}

namespace {

Tensor plain_copy(const Tensor& t) {
  const Tensor copy = empty_tensor(t.sizes(), t.dtype(), t.device());
  target(t.device()).copy({view_of(copy), view_of(t)});
  return copy;
}

// Another view of the memory of what is written would see half-written values.
bool shares_memory(const Tensor& t, const Tensor& written) {
  return t.impl() != written.impl() && t.storage() == written.storage() &&
         t.layout() != written.layout();
}

// Runs a resolved call into `self`, from a copy of what shares its memory.
void write_into(const Resolved& r, Tensor& self) {
  const auto is_hidden = [&](const Tensor& t) { return shares_memory(t, self); };
  std::span<const Tensor> inputs{r.inputs.data(), r.inputs.size()};
  // Whole numbers that are rounded, say, are what they were.
  if (inputs.size() == 1 && inputs[0].impl() == self.impl() &&
      r.variant->program == expr::conversion(self.dtype(), self.dtype()))
    return self.bump_version();
  if (vmaps::may_be()) [[unlikely]] {
    const uint64_t level = std::max(vmaps::level_of(inputs), vmaps::level_of({&self, 1}));
    if (level) {
      vmaps::run_pointwise_in_place(self, r.application(), level);
      return self.bump_version();
    }
  }
  Tensors safe;
  if (!self.is_meta() && std::ranges::any_of(inputs, is_hidden)) [[unlikely]] {
    for (const Tensor& t : inputs) safe.push_back(is_hidden(t) ? plain_copy(t) : t);
    inputs = {safe.data(), safe.size()};
  }
  execute(*r.variant->program, inputs, {&self, 1}, {r.params.data(), r.params.size()});
  self.bump_version();
}

}  // namespace

bool call_pointwise_into(const Call& call, Tensor& self, bool record) {
  const DType dtype = self.dtype();
  const Resolved r = resolve(call, &dtype);
  if (!r.variant) return false;
  const std::span<const Tensor> inputs{r.inputs.data(), r.inputs.size()};
  const Shape space = broadcast_all(inputs, call.name());
  check_same_device(call.name(), self.device(), 0, device_of(inputs, call.name()), 0);
  check_result(self, space, dtype, call.op.name);
  IntrusivePtr<ProgramNode> node;
  if (record && r.application().needs_history() && is_differentiable(dtype))
    node = IntrusivePtr<ProgramNode>(new ProgramNode(r.application(), space, &self));
  write_into(r, self);
  if (node) {
    node->save_outputs({&self, 1});
    rebase_history(self, node);
  }
  return true;
}

bool call_pointwise_out(const Call& call, Tensor& out, void (*fit)(Tensor&, IntList, const char*)) {
  const DType dtype = out.dtype();
  if (is_complex(dtype)) return false;
  const Resolved r = resolve(call, &dtype);
  if (!r.variant || r.variant->program->outputs().size() != 1) return false;
  // Integers wrap in their own dtype before they are converted to another.
  if (r.types.compute != dtype && is_integer(r.types.compute) &&
      r.def->result == PointwiseDef::Result::promote)
    return false;
  const std::span<const Tensor> inputs{r.inputs.data(), r.inputs.size()};
  check_same_device(call.name(), device_of(inputs, call.name()), 0, out.device(), inputs.size());
  fit(out, broadcast_all(inputs, call.name()), call.name());
  write_into(r, out);
  return true;
}

std::optional<PreparedCall> prepare_pointwise(const Call& call, const Tensor* self) {
  const DType dtype = self ? self->dtype() : kFloat32;
  if (vmaps::may_be() && vmaps::level_of(call)) return {};
  Resolved r = resolve(call, self ? &dtype : nullptr);
  if (!r.variant || r.variant->program->outputs().size() != 1) return {};
  const std::span<const Tensor> inputs{r.inputs.data(), r.inputs.size()};
  const Shape space = broadcast_all(inputs, call.name());
  const Device device = device_of(inputs, call.name());
  PreparedCall p{r.variant->program, {}, std::move(r.params), {}};
  if (self) {
    check_same_device(call.name(), self->device(), 0, device, 0);
    check_result(*self, space, dtype, call.op.name);
    if (std::ranges::any_of(inputs, [&](const Tensor& t) { return shares_memory(t, *self); }))
      return {};
    p.out = *self;
  } else {
    p.out = allocate_like(inputs, space, p.program->outputs()[0].dtype, device);
  }
  p.inputs = std::move(r.inputs);
  return p;
}

}  // namespace arete::ops
