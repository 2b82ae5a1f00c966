#include "arete/ops/program_node.h"

#include <algorithm>

#include "arete/core/modes.h"
#include "arete/core/tracing.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"

namespace arete::ops {

using expr::Derivative;
using expr::DerivativeInput;
using expr::Value;

namespace {
size_t position_in(const Variant* variant, size_t i) {
  if (variant)
    for (int number : variant->number_inputs) i += size_t(number) <= i;
  return i;
}
}  // namespace

size_t Application::position(size_t i) const { return position_in(variant, i); }

bool Application::is_differentiable_at(size_t i) const {
  if (!is_differentiable(inputs[i].dtype())) return false;
  return !(def && def->non_differentiable >> position(i) & 1);
}

bool Application::needs_history() const {
  if (!modes().grad_enabled) return false;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].requires_grad() && is_differentiable_at(i)) return true;
  return false;
}

ProgramNode::ProgramNode(const Application& a, IntList space, const Tensor* overwritten)
    : name_(a.name),
      record_(a.call ? &a.call->op : nullptr),
      program_(a.program),
      variant_(a.variant),
      def_(a.def),
      params_(a.params),
      space_(space) {
  for (size_t i = 0; i < a.inputs.size(); ++i) {
    Edge e;
    if (a.inputs[i].requires_grad() && a.is_differentiable_at(i)) e = gradient_edge(a.inputs[i]);
    const bool refused = def_ && def_->refused_gradients >> a.position(i) & 1;
    if (e) (refused ? refused_ : wanted_) |= 1u << i;
    edges.push_back(std::move(e));
    input_sizes_.push_back(Shape(a.inputs[i].sizes()));
    input_dtypes_.push_back(a.inputs[i].dtype());
  }
  if (!wanted_) return;
  if (def_ && def_->gradient) gradient_ = &def_->gradient;
  if (overwritten && def_ && def_->in_place_gradient &&
      std::ranges::none_of(params_, [](expr::Literal p) { return p.f < 0; }))
    gradient_ = &def_->in_place_gradient;
  derivative_ = &derivative(wanted_);
  for (const DerivativeInput& d : derivative_->inputs) {
    if (d.from != DerivativeInput::From::input) {
      saved_.push_back(SavedTensor());
      continue;
    }
    // What an in-place call is about to write over is kept as a copy.
    const Tensor& t = a.inputs[d.index];
    const bool lost = overwritten && t.storage() == overwritten->storage();
    saved_.push_back(SavedTensor(lost ? t.clone() : t, false));
  }
}

void ProgramNode::save_outputs(std::span<const Tensor> results) {
  for (const Tensor& t : results) outputs.push_back({Shape(t.sizes()), t.dtype(), t.device()});
  for (size_t k = 0; k < saved_.size(); ++k) {
    const DerivativeInput& d = derivative_->inputs[k];
    if (d.from == DerivativeInput::From::output) saved_[k] = SavedTensor(results[d.index], true);
  }
}

TensorList ProgramNode::backward(const TensorList& grads, uint64_t needed) {
  if (refused_ & uint32_t(needed))
    throw NotImplementedError(
        name_, std::string("the derivative for '") + def_->no_derivative + "' is not implemented.");
  TensorList result(edges.size());
  const uint32_t wanted = wanted_ & uint32_t(needed);
  if (!wanted) return result;
  const auto value_of = [&](const DerivativeInput& in) {
    if (in.from == DerivativeInput::From::grad) {
      const Tensor& g = grads[in.index];
      return g.defined() ? g
                         : zeros(outputs[in.index].sizes,
                                 TensorOptions(outputs[in.index].dtype, outputs[in.index].device));
    }
    const auto kept = std::ranges::find(derivative_->inputs, in);
    ARETE_ASSERT(kept != derivative_->inputs.end());
    const SavedTensor& saved = saved_[size_t(kept - derivative_->inputs.begin())];
    return saved.unpack(this, uint32_t(in.index), name_);
  };
  // Gradients that are an input as it stands need no kernel.
  const Derivative& whole = wanted == wanted_ ? *derivative_ : derivative(wanted);
  uint32_t computed = 0;
  size_t out = 0;
  for (size_t i = 0; i < edges.size(); ++i) {
    if (!(wanted >> i & 1)) continue;
    const auto& o = whole.program->outputs()[out++];
    const auto& instruction = whole.program->code()[o.value];
    if (instruction.op == expr::Op::input && whole.program->inputs()[instruction.index] == o.dtype)
      result[i] = sum_to_size(value_of(whole.inputs[instruction.index]), input_sizes_[i]);
    else
      computed |= 1u << i;
  }
  if (!computed) return result;
  const Derivative& d = computed == wanted ? whole : derivative(computed);
  SmallVector<Tensor, 3> inputs;
  for (const DerivativeInput& in : d.inputs) inputs.push_back(value_of(in));
  const Results values = run_derivative(d.program, {inputs.data(), inputs.size()});
  out = 0;
  for (size_t i = 0; i < edges.size(); ++i)
    if (computed >> i & 1) result[i] = sum_to_size(values[out++], input_sizes_[i]);
  return result;
}

void ProgramNode::release_saved() {
  for (SavedTensor& s : saved_) s.reset();
}

std::vector<SavedValue> ProgramNode::saved() {
  std::vector<SavedValue> all;
  for (size_t k = 0; k < saved_.size(); ++k) {
    const DerivativeInput& d = derivative_->inputs[k];
    if (d.from == DerivativeInput::From::grad) continue;
    const size_t i = size_t(d.index);
    all.push_back({d.from == DerivativeInput::From::output ? result_name(record_, i, outputs.size())
                   : record_ ? schema_of(*record_).args[position_in(variant_, i)].name
                             : "input" + std::to_string(i),
                   saved_[k].unpack(this, uint32_t(i), name_)});
  }
  return all;
}

Results ProgramNode::run_derivative(const expr::ProgramPtr& program,
                                    std::span<const Tensor> inputs) {
  const std::span<const expr::Literal> params{params_.data(), params_.size()};
  if (inputs.empty()) {
    Results r;
    for (const auto& o : program->outputs())
      r.push_back(empty_tensor(space_, o.dtype, outputs[0].device));
    execute(*program, {}, {r.data(), r.size()}, params);
    return r;
  }
  // A smaller space would do where only numbers and broadcast inputs remain: the gradient is
  // constant along the other dimensions, but its sum is not, so use the whole one.
  SmallVector<Tensor, 3> full;
  if (std::ranges::none_of(
          inputs, [&](const Tensor& t) { return std::ranges::equal(t.sizes(), space_); })) {
    full = SmallVector<Tensor, 3>(inputs);
    full[0] = full[0].expand(space_);
    inputs = {full.data(), full.size()};
  }
  return call_derivative(name_, [&](const char* name) {
    return call_program({name, program, inputs, params});
  });
}

// With respect to `wanted`, some of wanted_: it reads some of what the whole reads.
const Derivative& ProgramNode::derivative(uint32_t wanted) {
  if (!gradient_) return program_->derivative(wanted_, wanted);
  const PointwiseDef::Cache::Variant::Own key{gradient_, wanted};
  const std::lock_guard lock(variant_->mutex);
  for (const auto& [own, d] : variant_->overridden)
    if (own == key) return *d;
  variant_->overridden.emplace_back(key, std::make_unique<Derivative>(override(wanted)));
  return *variant_->overridden.back().second;
}

// Traces the record's own gradient; the second time with the inputs it turned out to use.
Derivative ProgramNode::override(uint32_t wanted) {
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
    const std::vector<Value> adjoints = (*gradient_)(values);
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

}  // namespace arete::ops
