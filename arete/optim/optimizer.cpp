#include "arete/optim/optimizer.h"

#include <algorithm>
#include <unordered_map>

#include "arete/core/modes.h"
#include "arete/core/tracing.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/in_place.h"
#include "arete/ops/work.h"
#include "arete/optim/update_internal.h"
#include "arete/prim/backend.h"

namespace arete::optim {

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

Optimizer::Optimizer(const char* name, std::vector<std::string_view> state_names)
    : name_(name), state_names_(std::move(state_names)), programs_(std::make_unique<Programs>()) {}
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

void Optimizer::step() {
  const tracing::RangeScope traced(tracing::RangeKind::optimizer, [&] {
    return "Optimizer.step#" + std::string(name_) + ".step";
  });
  const NoGradGuard no_grad;
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
      const Tensor grad = p.grad();
      if (!grad.defined()) continue;
      ARETE_CHECK(std::ranges::equal(grad.sizes(), p.sizes()) && grad.device() == p.device(),
                  ValueError(name_, "a gradient must have its parameter's shape and device")
                      .got(ops::describe(grad))
                      .expected(ops::describe(p)));
      Slot& slot = slots_[gi][pi];
      slot.state.resize(state_names_.size());
      bool fresh = false;
      for (size_t s : used)
        if (!slot.state[s].defined()) {
          slot.state[s] = full_like(p, initial_state(group, s));
          fresh = true;
        }
      const auto fits = [&](const Batch& b) {
        const Batch::Item& first = b.items_.front();
        return b.step == slot.step + 1 && b.fresh == fresh && first.param.dtype() == p.dtype() &&
               first.grad.dtype() == grad.dtype() && first.param.device() == p.device();
      };
      auto batch = std::find_if(batches.begin(), batches.end(), fits);
      if (batch == batches.end()) {
        batches.emplace_back();
        batch = batches.end() - 1;
        batch->step = slot.step + 1;
        batch->fresh = fresh;
        batch->used_ = used;
        batch->programs_ = programs_.get();
        batch->name_ = name_;
      }
      batch->items_.push_back({p, grad, &slot});
    }
    for (Batch& batch : batches) update(group, batch);
  }
}

void Optimizer::Batch::run(uint32_t variant, const Rule& rule,
                           std::initializer_list<double> numbers) {
  const Item& first = items_.front();
  const DType dtype = first.param.dtype(), grad_dtype = first.grad.dtype();
  const expr::Type type = dtype == kFloat64 ? expr::Type::f64 : expr::Type::f32;
  const uint64_t key = uint64_t(variant) << 16 | uint64_t(dtype) << 8 | uint64_t(grad_dtype);
  expr::ProgramPtr& program = programs_->traced[key];
  const size_t n_state = used_.size();
  if (!program) {
    std::vector<DType> inputs{dtype, grad_dtype}, outputs{dtype};
    inputs.insert(inputs.end(), n_state, dtype);
    outputs.insert(outputs.end(), n_state, dtype);
    const std::vector<expr::Type> params(numbers.size(), type);
    program = expr::trace(
        [&](std::span<const expr::Value> v) {
          return rule(
              {v[0], expr::cast(v[1], type), v.subspan(2, n_state), v.subspan(2 + n_state)});
        },
        inputs, params, outputs);
  }

  std::vector<prim::View> inputs, outputs;
  inputs.reserve(items_.size() * (2 + n_state));
  outputs.reserve(items_.size() * (1 + n_state));
  int64_t n_tensors = 0;
  for (const Item& item : items_) {
    ops::check_in_place(item.param, name_, false);
    if (item.param.numel() == 0) continue;
    ++n_tensors;
    inputs.push_back(ops::view_of(item.param));
    inputs.push_back(ops::view_of(item.grad));
    outputs.push_back(ops::view_of(item.param));
    for (size_t s : used_) {
      inputs.push_back(ops::view_of(item.slot->state[s]));
      outputs.push_back(ops::view_of(item.slot->state[s]));
    }
  }
  std::vector<expr::Literal> params;
  for (double n : numbers) params.push_back({.f = n});
  if (n_tensors > 0 && !first.param.is_meta()) {
    prim::Primitives& target = modes().word & Modes::kCapture
                                   ? *modes().recorder
                                   : prim::backend_for(first.param.device());
    tracing::RangeScope traced(tracing::RangeKind::program, std::string_view("optimizer_update"));
    traced.set_work([&] { return ops::work_of(*program, inputs, outputs, first.param.device()); });
    target.multi_pointwise({.program = program.get(),
                            .n_tensors = n_tensors,
                            .inputs = inputs,
                            .outputs = outputs,
                            .params = params});
  }
  for (const Item& item : items_) {
    item.param.storage()->bump_version();
    for (size_t s : used_) item.slot->state[s].storage()->bump_version();
    item.slot->step = step;
  }
}

// ---- saving and loading

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
      result.numbers[prefix + "step"] = double(slot.step);
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
    }
  }
  for (const auto& [key, value] : numbers) problems += " unexpected number " + key + ".";
  for (const auto& [key, value] : tensors) problems += " unexpected tensor " + key + ".";
  ARETE_CHECK(problems.empty(),
              ValueError("load_state_dict", std::string("Error(s) in loading state_dict for ") +
                                                name_ + ":" + problems));
  const NoGradGuard no_grad;
  for (size_t gi = 0; gi < groups.size(); ++gi)
    for (size_t pi = 0; pi < groups[gi].params.size(); ++pi)
      for (Tensor& t : slots[gi][pi].state)
        if (t.defined()) t = zeros_like(groups[gi].params[pi]).copy_(t);
  groups_ = std::move(groups);
  slots_ = std::move(slots);
}

}  // namespace arete::optim
