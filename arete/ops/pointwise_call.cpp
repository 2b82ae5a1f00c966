#include "arete/ops/pointwise_call.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>

#include "arete/core/modes.h"
#include "arete/core/tracing.h"
#include "arete/ops/complex_internal.h"
#include "arete/ops/creation.h"
#include "arete/ops/filling.h"
#include "arete/ops/in_place.h"
#include "arete/ops/program_arguments.h"
#include "arete/ops/target.h"
#include "arete/ops/window_util.h"
#include "arete/ops/work.h"

namespace arete::ops {

using expr::Derivative;
using expr::DerivativeInput;
using expr::Literal;
using expr::ProgramPtr;
using expr::Value;

namespace {

using Tensors = SmallVector<Tensor, 3>;
using Literals = SmallVector<Literal, 4>;

}  // namespace

// Note [Variants of a pointwise record]
// A record's lambda is traced once for each combination of input dtypes, of inputs given as plain
// numbers (these become run-time parameters, so no tensor is made for the 2 in x * 2), of result
// dtype, and of parameters that are exactly 1 (these are folded, so add without alpha has no
// multiplication). The combination is packed in a 64-bit key.
struct PointwiseDef::Cache {
  struct Variant {
    uint64_t key;
    ProgramPtr program;
    // Derivatives of records that override the symbolic one, by wanted mask.
    std::mutex mutex;
    std::vector<std::pair<uint32_t, std::unique_ptr<Derivative>>> overridden;
    std::vector<int> number_inputs;  // which definition inputs are numbers
    DType compute;
    Variant* next = nullptr;
  };
  std::atomic<Variant*> first{nullptr};
  std::mutex mutex;
  ~Cache() {
    for (Variant* v = first.load(); v;) {
      Variant* next = v->next;
      delete v;
      v = next;
    }
  }
  Variant* find(uint64_t key) const {
    for (Variant* v = first.load(std::memory_order_acquire); v; v = v->next)
      if (v->key == key) return v;
    return nullptr;
  }
};

namespace {

using Variant = PointwiseDef::Cache::Variant;

// The fields of a variant's key: for each input its dtype or, of a number, its category; the
// computation's and the result's dtype; the parameters that are folded.
constexpr int kDTypeBits = 4, kInputBits = 5, kParamBits = 8;
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
  const OpRecord* op;
  const PointwiseDef* def;
  Variant* variant = nullptr;  // none: the call is one of complex numbers (types.compute)
  Tensors inputs;              // tensors only, in order
  Literals params;             // numbers among the inputs first, then the record's parameters
  PointwiseTypes types;
};

// Widens `current` by a number's category, as PyTorch does for Python numbers.
DType widen(DType current, bool any_tensor, const Scalar& s) {
  if (!any_tensor) return s.dtype();
  if (category_of(current) >= s.category()) return current;
  return s.is_integral() ? kInt64 : s.dtype();
}

// PyTorch's rule: tensors with dimensions decide; 0-d tensors and then numbers only where their
// category is higher.
DType promoted_type(const Call& call, int n) {
  bool have_dim = false, have_zero = false;
  DType dim_type = kBool, zero_type = kBool;
  for (int i = 0; i < n; ++i) {
    const Arg& a = call[i];
    if (a.kind() != Arg::Kind::tensor) continue;
    const Tensor& t = a.tensor();
    if (t.dim() > 0) {
      dim_type = have_dim ? (dim_type == t.dtype() ? dim_type : promote_types(dim_type, t.dtype()))
                          : t.dtype();
      have_dim = true;
    } else {
      zero_type = have_zero ? promote_types(zero_type, t.dtype()) : t.dtype();
      have_zero = true;
    }
  }
  DType result = have_dim ? dim_type : zero_type;
  if (have_dim && have_zero && category_of(zero_type) > category_of(dim_type))
    result = promote_types(dim_type, zero_type);
  for (int i = 0; i < n; ++i)
    if (call[i].kind() != Arg::Kind::tensor)
      result = widen(result, have_dim || have_zero, call[i].scalar());
  return result;
}

// `numbers`: bit i: input i is a number.
ProgramPtr build(const PointwiseDef& def, const Call& call, const PointwiseTypes& types,
                 uint32_t numbers, uint32_t folded_params) {
  expr::Builder b;
  const expr::Type compute = expr::compute_type(types.compute);
  std::vector<Value> values(def.n_inputs + def.n_params);
  for (int i = 0; i < def.n_inputs; ++i)
    if (!(numbers >> i & 1)) values[i] = b.input(call[i].tensor().dtype());
  for (int i = 0; i < def.n_inputs; ++i) {
    if (numbers >> i & 1)
      values[i] = b.param(compute);
    else if (def.compute_promoted)
      values[i] = b.cast(values[i], compute);
  }
  for (int k = 0; k < def.n_params; ++k)
    values[def.n_inputs + k] =
        folded_params >> k & 1 ? b.constant(compute, int64_t(1)) : b.param(compute);
  std::vector<Value> outputs = def.definition(values);
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

// Sorts out which of the inputs are such numbers; key and r.inputs are made anew.
void take_host_numbers(const Call& call, Resolved& r, uint64_t& key, uint32_t& numbers) {
  const Device device = device_beside_numbers(call, r.def->n_inputs);
  if (device.is_cpu()) return;
  key = 0;
  r.inputs.clear();
  for (int i = 0; i < r.def->n_inputs; ++i) {
    const Arg& a = call[i];
    const bool tensor = a.kind() == Arg::Kind::tensor, host = tensor && is_host_number(a.tensor());
    if (host && a.tensor().requires_grad() && modes().grad_enabled) {
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
  DType compute = all_same && call[0].kind() == Arg::Kind::tensor && def.compute_promoted
                      ? first
                      : promoted_type(call, def.n_inputs);
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
  uint32_t folded = 0;
  for (int k = 0; k < def.n_params; ++k) {
    const Scalar s = call[def.n_inputs + k].scalar();
    // Values that are written lose their fractions, other numbers beside integers are integers; and
    // among booleans any stands for whether it is zero, as in x.masked_fill(mask, 1).
    if (s.category() > category_of(compute) && !s.is_boolean()) [[unlikely]] {
      const std::string& name = schema_of(op).args[def.n_inputs + k].name;
      const bool written = name == "value" || name == "threshold";
      ARETE_CHECK(written || (compute == kBool && (s.is_integral() || name != "alpha")),
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
    auto fresh = std::make_unique<Variant>();
    fresh->key = key;
    fresh->compute = compute;
    fresh->program = build(def, call, r.types, numbers, folded);
    for (int i = 0; i < def.n_inputs; ++i)
      if (numbers >> i & 1) fresh->number_inputs.push_back(i);
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
  for (int i : r.variant->number_inputs)
    r.params.push_back(literal(number_at(call[i]), param_types[p++]));
  for (int k = 0; k < def.n_params; ++k)
    if (!(folded >> k & 1))
      r.params.push_back(literal(call[def.n_inputs + k].scalar(), param_types[p++]));
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

void check_same_device(Device a, Device b, const char* name) {
  ARETE_CHECK(a == b, DeviceError(name,
                                  "Expected all tensors to be on the same device, but found at "
                                  "least two devices, " +
                                      a.to_string() + " and " + b.to_string() + "!")
                          .hint("move one of them with .to(device)"));
}

Device device_of(std::span<const Tensor> inputs, const char* name) {
  const Device d = inputs[0].device();
  for (size_t i = 1; i < inputs.size(); ++i) check_same_device(d, inputs[i].device(), name);
  return d;
}

bool has_sizes(const Tensor& t, IntList sizes) {
  return t.sizes().size() == sizes.size() &&
         std::equal(sizes.begin(), sizes.end(), t.sizes().begin());
}

// Whether the strides shrink from dimension to dimension: row-major, perhaps with gaps.
bool is_in_row_order(const Layout& l) {
  int64_t next = 1;
  for (int d = l.rank() - 1; d >= 0; --d) {
    if (l.sizes[d] == 1) continue;
    if (l.strides[d] < next) return false;
    next = l.strides[d];
  }
  return true;
}

// The result has the memory order of the first input of its shape that says one: that is dense, or
// has gaps in row-major or channels-last order.
Tensor allocate_like(std::span<const Tensor> inputs, const Shape& space, DType dtype,
                     Device device) {
  for (const Tensor& t : inputs) {
    if (!has_sizes(t, space)) continue;
    if (t.is_contiguous() || is_in_row_order(t.layout())) break;
    if (auto strides = strides_like(t))
      return empty_tensor(OutputSpec{space, dtype, device, std::move(strides)});
  }
  return empty_tensor(space, dtype, device);
}

void execute(const expr::Program& program, std::span<const Tensor> inputs,
             std::span<const Tensor> outputs, std::span<const Literal> params) {
  if (outputs[0].is_meta()) return;
  SmallVector<prim::View, 6> in, out;
  for (const Tensor& t : inputs) in.push_back(view_of(t));
  for (const Tensor& t : outputs) out.push_back(view_of(t));
  target(outputs[0].device())
      .pointwise({&program, {in.data(), in.size()}, {out.data(), out.size()}, params});
}

// Which of the definition's inputs tensor `i` of a call is: numbers among them are no tensors.
size_t definition_input(const Variant* variant, size_t i) {
  if (variant)
    for (int number : variant->number_inputs) i += size_t(number) <= i;
  return i;
}

// The history of a program's application.
class ProgramNode final : public Node {
 public:
  ProgramNode(const char* name, ProgramPtr program, Variant* variant, const PointwiseDef* def,
              std::span<const Tensor> inputs, std::span<const Literal> params, IntList space,
              const Tensor* overwritten = nullptr)
      : name_(name),
        program_(std::move(program)),
        variant_(variant),
        def_(def),
        params_(params.begin(), params.end()),
        space_(space) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      Edge e;
      const bool differentiable =
          is_differentiable(inputs[i].dtype()) &&
          !(def && def->non_differentiable >> definition_input(variant_, i) & 1);
      if (differentiable && inputs[i].requires_grad()) e = gradient_edge(inputs[i]);
      if (e) wanted_ |= 1u << i;
      edges.push_back(std::move(e));
      input_sizes_.push_back(Shape(inputs[i].sizes()));
      input_dtypes_.push_back(inputs[i].dtype());
    }
    derivative_ = &derivative(wanted_);
    for (const DerivativeInput& d : derivative_->inputs) {
      if (d.from != DerivativeInput::From::input) {
        saved_.push_back(SavedTensor());
        continue;
      }
      // What an in-place call is about to write over is kept as a copy.
      const Tensor& t = inputs[d.index];
      const bool lost = overwritten && t.storage() == overwritten->storage();
      saved_.push_back(SavedTensor(lost ? t.clone() : t, false));
    }
  }

  void save_outputs(std::span<const Tensor> results) {
    for (const Tensor& t : results) outputs.push_back({Shape(t.sizes()), t.dtype(), t.device()});
    for (size_t k = 0; k < saved_.size(); ++k) {
      const DerivativeInput& d = derivative_->inputs[k];
      if (d.from == DerivativeInput::From::output) saved_[k] = SavedTensor(results[d.index], true);
    }
  }

  std::string name() const override { return name_; }

  TensorList backward(const TensorList& grads, uint64_t needed) override {
    TensorList result(edges.size());
    const uint32_t wanted = wanted_ & uint32_t(needed);
    if (!wanted) return result;
    const Derivative& d = wanted == wanted_ ? *derivative_ : derivative(wanted);
    Tensors inputs;
    for (const DerivativeInput& in : d.inputs) {
      if (in.from == DerivativeInput::From::grad) {
        const Tensor& g = grads[in.index];
        inputs.push_back(
            g.defined() ? g
                        : zeros(outputs[in.index].sizes,
                                TensorOptions(outputs[in.index].dtype, outputs[in.index].device)));
      } else {
        const auto kept = std::ranges::find(derivative_->inputs, in);
        ARETE_ASSERT(kept != derivative_->inputs.end());
        const SavedTensor& saved = saved_[size_t(kept - derivative_->inputs.begin())];
        ARETE_CHECK(!released_ || saved.defined(), freed());
        inputs.push_back(saved.unpack(this, uint32_t(in.index), name_));
      }
    }
    // Outputs that are an input as it stands need no kernel.
    Results values;
    size_t out = 0;
    for (size_t i = 0; i < edges.size(); ++i) {
      if (!(wanted >> i & 1)) continue;
      const auto& o = d.program->outputs()[out];
      const auto& instruction = d.program->code()[o.value];
      const bool is_input =
          instruction.op == expr::Op::input && d.program->inputs()[instruction.index] == o.dtype;
      if (!is_input && values.empty()) values = run_derivative(d.program, inputs);
      result[i] = sum_to_size(is_input ? inputs[instruction.index] : values[out], input_sizes_[i]);
      ++out;
    }
    return result;
  }

  void release_saved() override {
    released_ = true;
    for (SavedTensor& s : saved_) s.reset();
  }

 private:
  AutogradError freed() const {
    return AutogradError(name_,
                         "Trying to backward through the graph a second time (or directly "
                         "access saved tensors after they have already been freed)")
        .hint("pass retain_graph=true to the first backward call");
  }

  Results run_derivative(const ProgramPtr& program, const Tensors& inputs) {
    const std::span<const Literal> params{params_.data(), params_.size()};
    if (!inputs.empty()) {
      // A smaller space would do where only numbers and broadcast inputs remain: the gradient is
      // constant along the other dimensions, but its sum is not, so use the whole one.
      Tensors full = inputs;
      if (std::ranges::none_of(full, [&](const Tensor& t) { return has_sizes(t, space_); }))
        full[0] = full[0].expand(space_);
      return apply_literals(program, {full.data(), full.size()}, params, name_);
    }
    Results r;
    for (const auto& o : program->outputs())
      r.push_back(empty_tensor(space_, o.dtype, outputs[0].device));
    execute(*program, {}, {r.data(), r.size()}, params);
    return r;
  }

  // With respect to `wanted`, some of wanted_: it reads some of what the whole reads.
  const Derivative& derivative(uint32_t wanted) {
    if (!def_ || !def_->gradient) return program_->derivative(wanted_, wanted);
    const std::lock_guard lock(variant_->mutex);
    for (const auto& [mask, d] : variant_->overridden)
      if (mask == wanted) return *d;
    variant_->overridden.emplace_back(wanted, std::make_unique<Derivative>(override(wanted)));
    return *variant_->overridden.back().second;
  }

  // Traces the record's own gradient; the second time with the inputs it turned out to use.
  Derivative override(uint32_t wanted) {
    std::vector<DerivativeInput> all;
    const size_t n = input_dtypes_.size(), m = program_->outputs().size();
    for (size_t i = 0; i < n; ++i) all.push_back({DerivativeInput::From::input, int(i)});
    for (size_t i = 0; i < m; ++i) all.push_back({DerivativeInput::From::output, int(i)});
    for (size_t i = 0; i < m; ++i) all.push_back({DerivativeInput::From::grad, int(i)});
    std::vector<bool> used(all.size(), true);
    Derivative d;
    for (int pass = 0; pass < 2; ++pass) {
      expr::Builder b;
      const expr::Type compute = expr::compute_type(variant_->compute);
      std::vector<Value> values(def_->n_inputs + 2 * m + def_->n_params);
      std::vector<int> position;  // of tensor input i among the definition's inputs
      for (int i = 0; i < def_->n_inputs; ++i)
        if (std::find(variant_->number_inputs.begin(), variant_->number_inputs.end(), i) ==
            variant_->number_inputs.end())
          position.push_back(i);
      d.inputs.clear();
      for (size_t k = 0; k < all.size(); ++k) {
        const DType t = all[k].from == DerivativeInput::From::input
                            ? input_dtypes_[all[k].index]
                            : program_->outputs()[all[k].index].dtype;
        const size_t at = k < n ? size_t(position[k]) : size_t(def_->n_inputs) + (k - n);
        if (!used[k]) {
          values[at] = b.constant(compute, int64_t(0));
          continue;
        }
        d.inputs.push_back(all[k]);
        values[at] = b.cast(b.input(t), compute);
      }
      for (int i : variant_->number_inputs) values[i] = b.param(compute);
      const uint32_t folded = uint32_t(variant_->key & 0xff);
      for (int k = 0; k < def_->n_params; ++k)
        values[def_->n_inputs + 2 * m + k] =
            folded >> k & 1 ? b.constant(compute, int64_t(1)) : b.param(compute);
      const std::vector<Value> adjoints = def_->gradient(values);
      std::vector<Value> outs;
      std::vector<DType> dtypes;
      for (size_t i = 0; i < n; ++i) {
        if (!(wanted >> i & 1)) continue;
        outs.push_back(b.cast(adjoints[position[i]], expr::compute_type(input_dtypes_[i])));
        dtypes.push_back(input_dtypes_[i]);
      }
      d.program = b.build(outs, dtypes);
      if (pass == 0) {
        std::vector<bool> seen(all.size(), false);
        for (const auto& instruction : d.program->code())
          if (instruction.op == expr::Op::input) seen[instruction.index] = true;
        used = seen;
      }
    }
    return d;
  }

  static Results apply_literals(const ProgramPtr& program, std::span<const Tensor> inputs,
                                std::span<const Literal> params, const char* name);

  const char* name_;
  ProgramPtr program_;
  Variant* variant_;
  const PointwiseDef* def_;
  Literals params_;
  Shape space_;
  uint32_t wanted_ = 0;
  const Derivative* derivative_ = nullptr;
  SmallVector<SavedTensor, 3> saved_;
  SmallVector<Shape, 2> input_sizes_;
  SmallVector<DType, 4> input_dtypes_;
  bool released_ = false;
};

bool any_requires_grad(std::span<const Tensor> inputs, const Variant* variant,
                       const PointwiseDef* def) {
  if (!modes().grad_enabled) return false;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].requires_grad() &&
        !(def && def->non_differentiable >> definition_input(variant, i) & 1))
      return true;
  return false;
}

// Runs a program on tensors and records it. `outputs` may hold memory for the results.
void apply(const ProgramPtr& program, Variant* variant, const PointwiseDef* def,
           std::span<const Tensor> inputs, std::span<const Literal> params, const char* name,
           Results& outputs) {
  modes().current_op = name;
  const Shape space = broadcast_all(inputs, name);
  const Device device = device_of(inputs, name);
  IntrusivePtr<ProgramNode> node;
  bool differentiable = false;
  for (const auto& o : program->outputs())
    differentiable = differentiable || is_differentiable(o.dtype);
  if (differentiable && any_requires_grad(inputs, variant, def))
    node = IntrusivePtr<ProgramNode>(
        new ProgramNode(name, program, variant, def, inputs, params, space));
  if (outputs.empty())
    for (const auto& o : program->outputs())
      outputs.push_back(allocate_like(inputs, space, o.dtype, device));
  execute(*program, inputs, {outputs.data(), outputs.size()}, params);
  if (node) {
    node->save_outputs({outputs.data(), outputs.size()});
    for (size_t i = 0; i < outputs.size(); ++i)
      if (is_differentiable(outputs[i].dtype())) set_history(outputs[i], node, uint32_t(i));
  }
}

tracing::Work work_on(const expr::Program& program, std::span<const Tensor> inputs,
                      std::span<const Tensor> outputs) {
  SmallVector<prim::View, 4> in, out;
  for (const Tensor& t : inputs) in.push_back(view_of(t));
  for (const Tensor& t : outputs) out.push_back(view_of(t));
  return work_of(program, {in.data(), in.size()}, {out.data(), out.size()},
                 outputs.empty() ? Device() : outputs[0].device());
}

Results ProgramNode::apply_literals(const ProgramPtr& program, std::span<const Tensor> inputs,
                                    std::span<const Literal> params, const char* name) {
  tracing::RangeScope traced(tracing::RangeKind::program,
                             [&] { return std::string(name) + "_backward"; });
  Results outputs;
  apply(program, nullptr, nullptr, inputs, params, name, outputs);
  traced.set_work([&] { return work_on(*program, inputs, {outputs.data(), outputs.size()}); });
  return outputs;
}

}  // namespace

std::shared_ptr<PointwiseDef::Cache> make_pointwise_cache() {
  return std::make_shared<PointwiseDef::Cache>();
}

Results call_pointwise(const Call& call) {
  const Resolved r = resolve(call);
  if (!r.variant) [[unlikely]]
    return call_complex(call, r.types.compute);
  Results outputs;
  apply(r.variant->program, r.variant, r.def, {r.inputs.data(), r.inputs.size()},
        {r.params.data(), r.params.size()}, call.name(), outputs);
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
  if (is_pair) {
    joined = allocate_like(like, broadcast_all(inputs, parts.name()), complex_of(r.types.result),
                           device_of(inputs, parts.name()));
    for (int part = 0; part < 2; ++part) outputs.push_back(part_of(joined, part));
  }
  apply(r.variant->program, r.variant, r.def, inputs, {r.params.data(), r.params.size()},
        parts.name(), outputs);
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

// Runs a resolved call into `self`. Another view of self's memory would see half-written values: a
// copy of it is read.
void write_into(const Resolved& r, Tensor& self) {
  const auto is_hidden = [&](const Tensor& t) {
    return t.storage() == self.storage() && t.layout() != self.layout();
  };
  std::span<const Tensor> inputs{r.inputs.data(), r.inputs.size()};
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
  check_same_device(device_of(inputs, call.name()), self.device(), call.name());
  check_result(self, space, dtype, call.op.name);
  IntrusivePtr<ProgramNode> node;
  if (record && any_requires_grad(inputs, r.variant, r.def) && is_differentiable(dtype))
    node = IntrusivePtr<ProgramNode>(
        new ProgramNode(call.name(), r.variant->program, r.variant, r.def, inputs,
                        {r.params.data(), r.params.size()}, space, &self));
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
  check_same_device(device_of(inputs, call.name()), out.device(), call.name());
  fit(out, broadcast_all(inputs, call.name()), call.name());
  write_into(r, out);
  return true;
}

Results apply_program(const ProgramPtr& program, std::span<const Tensor> inputs,
                      std::span<const Scalar> params, const char* name) {
  const Literals literals =
      program_arguments(program->inputs(), program->params(), inputs, params, name);
  tracing::RangeScope traced(tracing::RangeKind::program, std::string_view(name));
  Results outputs;
  apply(program, nullptr, nullptr, inputs, {literals.data(), literals.size()}, name, outputs);
  traced.set_work([&] { return work_on(*program, inputs, {outputs.data(), outputs.size()}); });
  return outputs;
}

}  // namespace arete::ops
