#include "arete/optim/optimizer.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "arete/core/cuda.h"
#include "arete/core/modes.h"
#include "arete/core/tracing.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/in_place.h"
#include "arete/ops/work.h"
#include "arete/optim/update_internal.h"
#include "arete/prim/backend.h"

namespace arete::optim {

using expr::Value;

// Programs already traced, by variant and dtypes.
struct Optimizer::Programs {
  std::unordered_map<uint64_t, expr::ProgramPtr> traced;
};

// ---- groups

ParamGroup::ParamGroup(std::vector<Tensor> parameters, const Settings& settings)
    : params(std::move(parameters)) {
  for (const auto& [name, value] : settings) settings_.emplace_back(name, value);
}

bool ParamGroup::has(std::string_view name) const {
  return std::any_of(settings_.begin(), settings_.end(),
                     [&](const auto& s) { return s.first == name; });
}

double ParamGroup::get(std::string_view name) const {
  for (const auto& [key, value] : settings_)
    if (key == name) return value;
  std::string there;
  for (const auto& [key, value] : settings_) there += (there.empty() ? "" : ", ") + key;
  throw ValueError("ParamGroup", "there is no setting of this name")
      .got(name)
      .expected("one of: " + there);
}

void ParamGroup::set(std::string_view name, double value, bool add) {
  for (auto& [key, old] : settings_)
    if (key == name) {
      old = value;
      return;
    }
  if (!add) get(name);  // reports it
  settings_.emplace_back(name, value);
}

// ---- the optimizer

Optimizer::Optimizer(const char* name, std::vector<std::string_view> state_names,
                     std::vector<std::string_view> number_names)
    : name_(name),
      state_names_(std::move(state_names)),
      number_names_(std::move(number_names)),
      programs_(std::make_unique<Programs>()) {}
Optimizer::~Optimizer() = default;

void Optimizer::add_group(std::vector<Tensor> params, const Settings& settings) {
  ARETE_CHECK(!params.empty(), ValueError(name_, "optimizer got an empty parameter list"));
  std::vector<const TensorImpl*> seen;
  for (const ParamGroup& g : groups_)
    for (const Tensor& p : g.params) seen.push_back(p.impl());
  for (const Tensor& p : params) {
    ARETE_CHECK(p.defined(), ValueError(name_, "a parameter is an undefined tensor"));
    ARETE_CHECK(p.is_leaf(), AutogradError(name_, "can't optimize a non-leaf Tensor")
                                 .got(ops::describe(p))
                                 .hint("detach() it, or optimize what it was computed from"));
    ARETE_CHECK(p.is_floating_point(),
                TypeError(name_, "parameters must have a floating dtype").got(ops::describe(p)));
    ARETE_CHECK(std::find(seen.begin(), seen.end(), p.impl()) == seen.end(),
                ValueError(name_,
                           "some parameters appear in more than one parameter group, or "
                           "twice in one")
                    .got(ops::describe(p)));
    seen.push_back(p.impl());
  }
  slots_.emplace_back(params.size());
  groups_.emplace_back(std::move(params), settings);
}

void Optimizer::set_lr(double value) {
  for (ParamGroup& g : groups_) g.set_lr(value);
}

void Optimizer::zero_grad(bool set_to_none) {
  // Not of kind optimizer: what is taken here is for gradients, not for an optimizer's state.
  const tracing::RangeScope traced(tracing::RangeKind::user, [&] {
    return "Optimizer.zero_grad#" + std::string(name_) + ".zero_grad";
  });
  const NoGradGuard no_grad;
  for (const ParamGroup& g : groups_)
    for (const Tensor& p : g.params) {
      Tensor grad = p.grad();
      if (!grad.defined()) continue;
      if (set_to_none)
        p.set_grad(Tensor());
      else
        p.set_grad(zeros_like(grad));
    }
}

Tensor Optimizer::step(const std::function<Tensor()>& closure) {
  Tensor loss;
  {
    const EnableGradGuard grad;
    loss = closure();
  }
  step();
  return loss;
}

void Optimizer::step() { step_all({}, {}); }

void Optimizer::step_scaled(const Tensor& found_inf, const Tensor& inverse_scale) {
  if (number_names_.empty() || !found_inf.defined()) return step_all(found_inf, inverse_scale);
  // Numbers of the state go on only where the update takes place, which the host must know.
  if (found_inf.item<double>() == 0) return step_all({}, inverse_scale);
  if (!inverse_scale.defined()) return;
  const NoGradGuard no_grad;
  for (const Tensor& p : scaled_parameters())
    if (const Tensor grad = p.grad(); grad.defined())
      grad.detach().mul_(inverse_scale.to(grad.device(), true));
}

std::vector<Tensor> Optimizer::scaled_parameters() const {
  std::vector<Tensor> all;
  for (const ParamGroup& g : groups_) all.insert(all.end(), g.params.begin(), g.params.end());
  return all;
}

bool Optimizer::may_unscale_half() const {
  return std::all_of(groups_.begin(), groups_.end(), [](const ParamGroup& g) {
    return g.has("master_weights") && g.flag("master_weights");
  });
}

// Note [Masters of parameters that others write]
// Between two steps a program may write to a parameter: load_state_dict of a module, an average, a
// clip, x.data = y. A parameter is its master, rounded; so where it is not, somebody wrote, and
// there the update begins at the parameter. Elements that are equal keep their master, which has
// more digits, and so a write to a few elements, or to a neighbour in the same storage, costs the
// rest nothing. Comparing takes reading the parameter, which the update does not need to do
// otherwise: it is done only if the storage is not the one, or not in the version, that the last
// step left. A recorded graph cannot ask for versions when it is replayed, so it always compares;
// so do updates that may be left out, which read the parameter anyway, and stay one batch. A loaded
// state has seen no step: it compares, too, and in whatever order a program loads the parameters
// and the optimizer's state, a master is used where the parameter is its rounding.

bool Optimizer::keeps_master(const ParamGroup& group, const Tensor& param) const {
  return size_of(param.dtype()) < 4 && group.has("master_weights") && group.flag("master_weights");
}

void Optimizer::step_all(const Tensor& found_inf, const Tensor& inverse_scale) {
  const tracing::RangeScope traced(tracing::RangeKind::optimizer, [&] {
    return "Optimizer.step#" + std::string(name_) + ".step";
  });
  const NoGradGuard no_grad;
  std::optional<bool> recorded;  // whether what GPUs do becomes part of a graph
  std::vector<std::pair<const Tensor*, Slot*>> mastered;
  for (size_t gi = 0; gi < groups_.size(); ++gi) {
    const ParamGroup& group = groups_[gi];
    std::vector<size_t> used;
    for (size_t s = 0; s < state_names_.size(); ++s)
      if (uses_state(group, s)) used.push_back(s);
    // Usually all of them are one batch; parameters that missed some updates, or differ in dtype or
    // device, take others.
    std::vector<Batch> batches;
    for (size_t pi = 0; pi < group.params.size(); ++pi) {
      const Tensor& p = group.params[pi];
      Tensor grad = p.grad();
      if (!grad.defined()) continue;
      if (inverse_scale.defined() && !grad.layout().is_dense())  // elements may share memory
        p.set_grad(grad = grad.clone());
      ARETE_CHECK(std::ranges::equal(grad.sizes(), p.sizes()) && grad.device() == p.device(),
                  ValueError(name_, "a gradient must have its parameter's shape and device")
                      .got(ops::describe(grad))
                      .expected(ops::describe(p)));
      Slot& slot = slots_[gi][pi];
      slot.state.resize(state_names_.size());
      for (size_t n = slot.numbers.size(); n < number_names_.size(); ++n)
        slot.numbers.push_back(initial_number(group, n));
      const bool masters = keeps_master(group, p);
      bool compares = false;
      if (masters) {
        if (p.device().is_cuda() && !recorded) recorded = cuda::is_current_stream_capturing();
        const bool replayed = modes().word & Modes::kCapture || (p.device().is_cuda() && *recorded);
        const bool reads_it =
            found_inf.defined() || inverse_scale.defined() || slot.skipped.defined();
        const bool same_memory = slot.left.defined() && slot.left.storage() == p.storage() &&
                                 slot.left.layout() == p.layout();
        if (slot.master.defined())
          compares =
              replayed || reads_it || !same_memory || slot.left_writes != p.storage()->writes();
        else
          slot.master = p.detach().to(kFloat32);
        if (!same_memory) slot.left = p.detach();
        mastered.emplace_back(&p, &slot);
      } else {
        slot.master = slot.left = Tensor();
      }
      bool fresh = false;
      for (size_t s : used)
        if (!slot.state[s].defined()) {
          slot.state[s] = full_like(masters ? slot.master : p, initial_state(group, s));
          fresh = true;
        }
      const auto fits = [&](const Batch& b) {
        const Batch::Item& first = b.items_.front();
        return b.step == slot.step + 1 && b.fresh == fresh && b.masters_ == masters &&
               b.compares_ == compares && b.numbers == slot.numbers &&
               first.slot->skipped.impl() == slot.skipped.impl() &&
               first.param.dtype() == p.dtype() && first.grad.dtype() == grad.dtype() &&
               first.param.device() == p.device();
      };
      auto batch = std::find_if(batches.begin(), batches.end(), fits);
      if (batch == batches.end()) {
        batches.emplace_back();
        batch = batches.end() - 1;
        batch->step = slot.step + 1;
        batch->fresh = fresh;
        batch->numbers = slot.numbers;
        batch->used_ = used;
        batch->masters_ = masters;
        batch->compares_ = compares;
        if (found_inf.defined()) batch->found_inf_ = found_inf.to(p.device(), true);
        if (inverse_scale.defined()) batch->inverse_scale_ = inverse_scale.to(p.device(), true);
        batch->programs_ = programs_.get();
        batch->name_ = name_;
      }
      batch->items_.push_back({p, grad, &slot});
    }
    for (Batch& batch : batches) {
      update(group, batch);
      for (const Batch::Item& item : batch.items_) item.slot->numbers = batch.numbers;
    }
  }
  // After all updates: parameters may share a storage.
  for (const auto& [p, slot] : mastered) slot->left_writes = p->storage()->writes();
}

// Note [Updates that may be left out]
// Under a GradScaler only the device knows whether this update takes place, and so how many there
// were. A small program, run once for a batch, computes from the device's count of updates left out
// what depends on the number of updates (bias corrections, ...), and one number that says both:
// what gradients are multiplied by, with a minus for "leave everything else as it is". The program
// of the update reads these as tensors of one element, and writes the gradients that it multiplied:
// after a step they are unscaled, whether it took place or not.

std::vector<Tensor> Optimizer::Batch::numbers_on_device(std::initializer_list<double> numbers,
                                                        const ByStep& by_step, expr::Type type) {
  const DType dtype = type == expr::Type::f64 ? kFloat64 : kFloat32;
  const Tensor& param = items_.front().param;
  const auto one = [&](double value, DType t) {
    return full({}, Scalar(value), {t, param.device()});
  };
  Tensor skipped = items_.front().slot->skipped;
  if (!skipped.defined()) skipped = one(0, kFloat64);
  const std::vector<Tensor> inputs{skipped, found_inf_.defined() ? found_inf_ : one(0, kFloat32),
                                   inverse_scale_.defined() ? inverse_scale_ : one(1, kFloat32)};
  expr::ProgramPtr& program = programs_->traced[uint64_t(1) << 63 | uint64_t(dtype)];
  if (!program) {
    const auto body = [&](std::span<const Value> v) {
      const Value found = v[1] != 0.0, t = v[3] - v[0];
      const Value inverse = expr::cast(v[2], expr::Type::f64);
      std::vector<Value> out{v[0] + where(found, 1.0, v[0] * 0.0), where(found, -inverse, inverse)};
      if (by_step.device)
        for (const Value& n : by_step.device(t, v.subspan(4))) out.push_back(n);
      for (size_t i = 1; i < out.size(); ++i) out[i] = expr::cast(out[i], type);
      return out;
    };
    const DType types[] = {kFloat64, kFloat32, kFloat32};
    const std::vector<expr::Type> params(1 + numbers.size(), expr::Type::f64);
    const std::vector<double> values(numbers);
    std::vector<DType> outs{kFloat64, dtype};
    if (by_step.host) outs.resize(2 + by_step.host(1, values).size(), dtype);
    program = expr::trace(body, types, params, outs);
  }
  std::vector<Scalar> scalars{Scalar(double(step))};
  scalars.insert(scalars.end(), numbers.begin(), numbers.end());
  const ops::Results r = ops::apply_program(program, inputs, scalars, "optimizer_step");
  for (const Item& item : items_) item.slot->skipped = r[0];
  return {r.begin() + 1, r.end()};
}

// Inputs: parameter, gradient, master, state, and with on_device numbers of one element. Outputs:
// parameter, master, state, and the gradient if it is unscaled.
expr::ProgramPtr& Optimizer::Batch::program(uint32_t variant, const Rule& rule, size_t n_numbers,
                                            size_t n_uniform, bool on_device) {
  const Item& first = items_.front();
  const DType dtype = first.param.dtype(), grad_dtype = first.grad.dtype();
  const DType state_dtype = masters_ ? kFloat32 : dtype;
  const expr::Type type = dtype == kFloat64 ? expr::Type::f64 : expr::Type::f32;
  const bool unscales = inverse_scale_.defined();
  const uint64_t key = uint64_t(variant) << 20 | uint64_t(unscales) << 19 |
                       uint64_t(compares_) << 18 | uint64_t(on_device) << 17 |
                       uint64_t(masters_) << 16 | uint64_t(dtype) << 8 | uint64_t(grad_dtype);
  expr::ProgramPtr& result = programs_->traced[key];
  if (result) return result;
  const size_t n_state = used_.size(), n_outputs = 1 + n_state;
  std::vector<DType> inputs{dtype, grad_dtype}, outputs{dtype};
  if (masters_) {
    inputs.push_back(kFloat32);
    outputs.push_back(kFloat32);
  }
  inputs.insert(inputs.end(), n_state, state_dtype);
  outputs.insert(outputs.end(), n_state, state_dtype);
  if (unscales) outputs.push_back(grad_dtype);
  inputs.insert(inputs.end(), n_uniform, type == expr::Type::f64 ? kFloat64 : kFloat32);
  const std::vector<expr::Type> params(n_numbers, type);
  result = expr::trace(
      [&](std::span<const Value> v) {
        const Value* next = v.data();
        Value param = *next++, grad = expr::cast(*next++, type);
        const Value old_param = param;
        if (masters_) param = *next++;
        if (compares_)
          param = where(old_param != param.builder()->round_to(param, dtype), old_param, param);
        const std::span<const Value> state(next, n_state);
        next += n_state;
        Value factor;
        std::vector<Value> by_step;
        if (on_device) {
          factor = *next++;
          by_step.assign(next, next + n_uniform - 1);
          next += n_uniform - 1;
          grad = grad * abs(factor);
        }
        std::vector<Value> numbers(next, next + n_numbers);
        numbers.insert(numbers.end(), by_step.begin(), by_step.end());
        std::vector<Value> fresh = rule({param, grad, state, numbers});
        if (on_device) {
          // Gradients that overflowed have left their mark in all of the new values.
          const Value takes_place = factor > 0.0;
          for (size_t i = 0; i < n_outputs; ++i)
            fresh[i] = where(takes_place, fresh[i], i == 0 ? param : state[i - 1]);
        }
        if (masters_) {
          const Value rounded = on_device ? where(factor > 0.0, fresh[0], old_param) : fresh[0];
          fresh.insert(fresh.begin(), rounded);
        }
        if (unscales) fresh.push_back(grad);
        return fresh;
      },
      inputs, params, outputs);
  return result;
}

void Optimizer::Batch::run(uint32_t variant, const Rule& rule,
                           std::initializer_list<double> numbers, const ByStep& by_step) {
  const Item& first = items_.front();
  const expr::Type type = first.param.dtype() == kFloat64 ? expr::Type::f64 : expr::Type::f32;
  const bool on_device =
      found_inf_.defined() || inverse_scale_.defined() || first.slot->skipped.defined();
  std::vector<double> values(numbers);
  std::vector<Tensor> uniform;
  if (on_device) {
    uniform = numbers_on_device(numbers, by_step, type);
  } else if (by_step.host) {
    const std::vector<double> more = by_step.host(double(step), values);
    values.insert(values.end(), more.begin(), more.end());
  }
  const expr::ProgramPtr& update = program(variant, rule, values.size(), uniform.size(), on_device);

  std::vector<prim::View> inputs, outputs;
  inputs.reserve(items_.size() * update->inputs().size());
  outputs.reserve(items_.size() * update->outputs().size());
  int64_t n_tensors = 0;
  for (const Item& item : items_) {
    ops::check_in_place(item.param, name_, false);
    if (item.param.numel() == 0) continue;
    ++n_tensors;
    inputs.push_back(ops::view_of(item.param));
    inputs.push_back(ops::view_of(item.grad));
    outputs.push_back(ops::view_of(item.param));
    if (masters_) {
      inputs.push_back(ops::view_of(item.slot->master));
      outputs.push_back(ops::view_of(item.slot->master));
    }
    for (size_t s : used_) {
      inputs.push_back(ops::view_of(item.slot->state[s]));
      outputs.push_back(ops::view_of(item.slot->state[s]));
    }
    if (inverse_scale_.defined()) outputs.push_back(ops::view_of(item.grad));
    for (const Tensor& u : uniform) inputs.push_back(ops::view_of(u));
  }
  std::vector<expr::Literal> params;
  for (double n : values) params.push_back({.f = n});
  if (n_tensors > 0 && !first.param.is_meta()) {
    prim::Primitives& target = modes().word & Modes::kCapture
                                   ? *modes().recorder
                                   : prim::backend_for(first.param.device());
    tracing::RangeScope traced(tracing::RangeKind::program, std::string_view("optimizer_update"));
    traced.set_work([&] { return ops::work_of(*update, inputs, outputs, first.param.device()); });
    target.multi_pointwise({.program = update.get(),
                            .n_tensors = n_tensors,
                            .inputs = inputs,
                            .outputs = outputs,
                            .params = params});
  }
  for (const Item& item : items_) {
    item.param.bump_version();
    if (masters_) item.slot->master.bump_version();
    for (size_t s : used_) item.slot->state[s].bump_version();
    if (inverse_scale_.defined()) item.grad.bump_version();
    item.slot->step = step;
  }
}

// ---- saving and loading

namespace {
constexpr const char* kMaster = "master_param";
}

State Optimizer::state_dict() const {
  State result;
  size_t index = 0;
  for (size_t gi = 0; gi < groups_.size(); ++gi) {
    const std::string group = "param_groups." + std::to_string(gi) + ".";
    result.numbers[group + "params"] = double(groups_[gi].params.size());
    for (const auto& [name, value] : groups_[gi].settings()) result.numbers[group + name] = value;
    for (const Slot& slot : slots_[gi]) {
      const std::string prefix = "state." + std::to_string(index++) + ".";
      if (slot.step == 0) continue;
      const double skipped = slot.skipped.defined() ? slot.skipped.item<double>() : 0;
      result.numbers[prefix + "step"] = double(slot.step) - skipped;
      for (size_t n = 0; n < number_names_.size(); ++n)
        result.numbers[prefix + std::string(number_names_[n])] = slot.numbers[n];
      if (slot.master.defined()) result.tensors[prefix + kMaster] = slot.master.detach();
      for (size_t s = 0; s < slot.state.size(); ++s)
        if (slot.state[s].defined())
          result.tensors[prefix + std::string(state_names_[s])] = slot.state[s].detach();
    }
  }
  return result;
}

void Optimizer::load_state_dict(const State& state) {
  std::string problems;
  std::map<std::string, double> numbers = state.numbers;  // what is left over is unexpected
  std::map<std::string, Tensor> tensors = state.tensors;
  const auto take = [&](const std::string& key) -> std::optional<double> {
    const auto node = numbers.extract(key);
    if (node.empty()) return {};
    return node.mapped();
  };
  std::vector<ParamGroup> groups = groups_;
  std::vector<std::vector<Slot>> slots;
  size_t index = 0;
  for (size_t gi = 0; gi < groups.size(); ++gi) {
    const std::string prefix = "param_groups." + std::to_string(gi) + ".";
    ParamGroup& group = groups[gi];
    const std::optional<double> count = take(prefix + "params");
    if (!count)
      problems += " parameter group " + std::to_string(gi) + " is missing.";
    else if (*count != double(group.params.size()))
      problems += " parameter group " + std::to_string(gi) + " has " +
                  std::to_string(group.params.size()) + " parameters, the state " +
                  std::to_string(int64_t(*count)) + ".";
    std::vector<std::string> names;
    for (auto it = numbers.lower_bound(prefix);
         it != numbers.end() && it->first.starts_with(prefix); ++it)
      names.push_back(it->first.substr(prefix.size()));
    for (const std::string& name : names) group.set(name, *take(prefix + name), true);
    slots.emplace_back(group.params.size());
    for (size_t pi = 0; pi < group.params.size(); ++pi) {
      const std::string key = "state." + std::to_string(index++) + ".";
      const std::optional<double> step = take(key + "step");
      if (!step) continue;
      Slot& slot = slots[gi][pi];
      slot.step = int64_t(*step);
      for (std::string_view n : number_names_) {
        const std::optional<double> number = take(key + std::string(n));
        if (!number) problems += " " + key + std::string(n) + " is missing.";
        slot.numbers.push_back(number.value_or(0));
      }
      slot.state.resize(state_names_.size());
      for (size_t s = 0; s < state_names_.size(); ++s) {
        const std::string name = key + std::string(state_names_[s]);
        const auto node = tensors.extract(name);
        if (node.empty()) {
          if (uses_state(group, s)) problems += " " + name + " is missing.";
        } else if (!std::ranges::equal(node.mapped().sizes(), group.params[pi].sizes())) {
          problems += " size mismatch for " + name + ": the parameter has shape " +
                      to_string(group.params[pi].sizes()) + ", the state " +
                      to_string(node.mapped().sizes()) + ".";
        } else {
          slot.state[s] = node.mapped();
        }
      }
      // Without one, it is made of the parameter.
      if (const auto node = tensors.extract(key + kMaster); !node.empty()) {
        if (!keeps_master(group, group.params[pi]))
          problems += " unexpected tensor " + key + kMaster + ".";
        else if (!std::ranges::equal(node.mapped().sizes(), group.params[pi].sizes()))
          problems += " size mismatch for " + key + kMaster + ".";
        else
          slot.master = node.mapped();
      }
    }
  }
  for (const auto& [key, value] : numbers) problems += " unexpected number " + key + ".";
  for (const auto& [key, value] : tensors) problems += " unexpected tensor " + key + ".";
  ARETE_CHECK(problems.empty(),
              ValueError("load_state_dict", std::string("Error(s) in loading state_dict for ") +
                                                name_ + ":" + problems));
  const NoGradGuard no_grad;
  for (size_t gi = 0; gi < groups.size(); ++gi)
    for (size_t pi = 0; pi < groups[gi].params.size(); ++pi) {
      const Tensor& p = groups[gi].params[pi];
      Slot& slot = slots[gi][pi];
      const bool masters = keeps_master(groups[gi], p);
      if (masters && slot.step > 0)
        slot.master = p.detach().to(kFloat32).copy_(slot.master.defined() ? slot.master : p);
      for (Tensor& t : slot.state)
        if (t.defined())
          t = zeros_like(masters && slot.master.defined() ? slot.master : p).copy_(t);
    }
  groups_ = std::move(groups);
  slots_ = std::move(slots);
}

}  // namespace arete::optim
