#include "arete/optim/optimizer.h"

#include <algorithm>

#include "arete/core/modes.h"
#include "arete/core/tracing.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/sparse.h"
#include "arete/ops/target.h"
#include "arete/optim/state_internal.h"
#include "arete/optim/update_internal.h"

namespace arete::optim {

// ---- groups

ParamGroup::ParamGroup(std::vector<Tensor> parameters, Settings settings)
    : params(std::move(parameters)), options_(settings.size()) {
  settings_.reserve(settings.size());
  for (auto& [name, value] : settings) settings_.emplace_back(name, std::move(value));
}

Setting* ParamGroup::find(std::string_view name) {
  for (auto& [key, setting] : settings_)
    if (key == name) return &setting;
  return nullptr;
}

bool ParamGroup::has(std::string_view name) const {
  return const_cast<ParamGroup*>(this)->find(name) != nullptr;
}

const Setting& ParamGroup::setting(std::string_view name) const {
  if (const Setting* s = const_cast<ParamGroup*>(this)->find(name)) return *s;
  std::string there;
  for (const auto& [key, value] : settings_) there += (there.empty() ? "" : ", ") + key;
  throw ValueError("ParamGroup", "there is no setting of this name")
      .got(name)
      .expected("one of: " + there);
}

bool ParamGroup::flag(std::string_view name) const {
  const Setting* s = const_cast<ParamGroup*>(this)->find(name);
  return s && s->value() != 0;
}

void ParamGroup::set(std::string_view name, double value, bool add) {
  if (Setting* s = find(name)) {
    s->set(value);
  } else {
    if (!add) setting(name);  // reports it
    settings_.emplace_back(name, value);
  }
}

void ParamGroup::replace(std::string_view name, Setting value) {
  const bool fixed = setting(name).is_fixed();  // reports it if there is none
  *find(name) = fixed ? Setting::fixed(std::move(value)) : std::move(value);
}

// ---- the optimizer

Optimizer::Optimizer(const char* name, std::span<const StateKey> keys)
    : name_(name),
      keys_(keys.begin(), keys.end()),
      programs_(std::make_unique<Programs>()),
      self_(std::make_shared<Optimizer*>(this)) {
  keys_.push_back({"master_param"});
}
Optimizer::~Optimizer() = default;

void Optimizer::add_group(std::vector<Tensor> params, Settings settings) {
  ARETE_CHECK(!params.empty(), ValueError(name_, "optimizer got an empty parameter list"));
  const bool with_history = ParamGroup({}, settings).flag("differentiable");
  std::vector<const TensorImpl*> seen;
  for (const ParamGroup& g : groups_)
    for (const Tensor& p : g.params) seen.push_back(p.impl());
  for (const Tensor& p : params) {
    ARETE_CHECK(p.defined(), ValueError(name_, "a parameter is an undefined tensor"));
    ARETE_CHECK(p.is_leaf() || with_history || p.impl()->autograd->retains_grad,
                AutogradError(name_, "can't optimize a non-leaf Tensor")
                    .got(ops::describe(p))
                    .hint("detach() it, or optimize what it was computed from"));
    ARETE_CHECK(
        p.is_floating_point() || is_complex(p.dtype()),
        TypeError(name_, "parameters must have a floating or complex dtype").got(ops::describe(p)));
    ARETE_CHECK(std::find(seen.begin(), seen.end(), p.impl()) == seen.end(),
                ValueError(name_,
                           "some parameters appear in more than one parameter group, or "
                           "twice in one")
                    .got(ops::describe(p)));
    seen.push_back(p.impl());
  }
  put_group(groups_.size(), std::move(params), std::move(settings));
}

void Optimizer::put_group(size_t group, std::vector<Tensor> params, Settings settings) {
  ARETE_ASSERT(group <= groups_.size());
  ParamGroup fresh(std::move(params), std::move(settings));
  std::vector<Slot> slots(fresh.params.size());
  for (Slot& s : slots) s.state.resize(keys_.size());
  if (group == groups_.size()) {
    groups_.push_back(std::move(fresh));
    slots_.push_back(std::move(slots));
  } else {
    groups_[group] = std::move(fresh);
    slots_[group] = std::move(slots);
  }
}

void Optimizer::drop_groups(size_t keep) {
  while (groups_.size() > keep) {
    groups_.pop_back();
    slots_.pop_back();
  }
}

void Optimizer::set_lr(double value) {
  for (ParamGroup& g : groups_) g.set_lr(value);
}

void Optimizer::zero_grad(bool set_to_none) {
  // Not of kind optimizer: what is taken here is for gradients, not for an optimizer's state.
  const tracing::RangeScope traced(tracing::RangeKind::user, [&] {
    return "Optimizer.zero_grad#" + std::string(name_) + ".zero_grad";
  });
  for (const ParamGroup& g : groups_) optim::zero_grad(g.params, set_to_none);
}

void zero_grad(std::span<const Tensor> params, bool set_to_none) {
  const NoGradGuard no_grad;
  for (const Tensor& p : params) {
    Tensor grad = p.grad();
    if (!grad.defined()) continue;
    if (set_to_none) {
      p.set_grad(Tensor());
    } else if (const SparseParts* const parts = sparse_parts(grad)) {
      const Tensor &where = parts->indices, &values = parts->values;
      Shape none(values.sizes());
      none[0] = 0;
      replace_parts(
          grad, {zeros({where.size(0), 0}, where.options()), zeros(none, values.options()), true});
    } else if (!grad.layout().is_dense()) {  // elements may share memory
      p.set_grad(zeros_like(grad));
    } else {
      if (grad.requires_grad() && !grad.is_view())
        grad.detach_();
      else if (grad.requires_grad())
        p.set_grad(grad = grad.detach());
      grad.zero_();
    }
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
  step_all(found_inf, inverse_scale);
}

std::vector<Tensor> Optimizer::scaled_parameters() const {
  std::vector<Tensor> all;
  for (const ParamGroup& g : groups_) all.insert(all.end(), g.params.begin(), g.params.end());
  return all;
}

bool Optimizer::may_unscale_half() const {
  return std::all_of(groups_.begin(), groups_.end(),
                     [](const ParamGroup& g) { return g.flag("master_weights"); });
}

// ---- the step

bool Optimizer::Step::is_left_out() {
  if (!found_inf.defined()) return false;
  if (!found_on_host) found_on_host = found_inf.item<double>();
  return *found_on_host != 0;
}

bool Optimizer::Step::is_recorded(Device device) {
  if (!device.is_cuda()) return false;
  for (const auto& [d, is] : recorded)
    if (d == device) return is;
  return recorded.emplace_back(device, ops::is_capturing(device)).second;
}

// Where the counts are decides: see Note [Steps on the device]. Optimizers that do not count go the
// way that needs no waiting.
bool Optimizer::steps_on_device(const Tensor& param, const Slot& slot, uint32_t keys,
                                Step& step) const {
  if (step.capturable || modes().word & Modes::kCapture) return true;
  const Device device = param.device();
  if (device.is_cpu() || device.is_meta()) return false;
  bool counts = false;
  for (size_t key = 0; key < master_key(); ++key) {
    if (!(keys >> key & 1) || keys_[key].is_tensor()) continue;
    const Tensor& t = slot.state[key];
    if (t.defined() ? !t.device().is_cpu() : step.resident || keys_[key].resident) return true;
    counts = true;
  }
  if (step.is_recorded(device)) {
    ARETE_CHECK(
        !counts,
        DeviceError(name_, "Attempting CUDA graph capture of step() for an instance of " +
                               std::string(name_) + " but param_groups' capturable is False.")
            .hint("the counts of its updates are on the host, where no replay moves them "
                  "on: make the optimizer with capturable=True"));
    return true;
  }
  if (step.found_inf.defined() && !step.found_inf.device().is_cpu()) return true;
  return !counts && std::ranges::find(step.settings, device) != step.settings.end();
}

bool Optimizer::Kind::operator==(const Kind& o) const {
  return on_device == o.on_device && masters == o.masters && compares == o.compares &&
         keys == o.keys && numbers == o.numbers && param == o.param && grad == o.grad &&
         device == o.device && steps == o.steps && std::ranges::equal(values, o.values);
}

// All that decides which parameters can be in one batch.
Optimizer::Kind Optimizer::kind_of(const Tensor& param, Slot& slot, DType grad, bool on_device,
                                   uint32_t keys, Step& step) const {
  Kind kind{.on_device = on_device,
            .masters = bool(keys >> master_key() & 1),
            .keys = keys,
            .param = param.dtype(),
            .grad = grad,
            .device = param.device()};
  const bool recorded = step.is_recorded(param.device());
  if (kind.masters) {
    const bool same_memory = slot.left.defined() && slot.left.storage() == param.storage() &&
                             slot.left.layout() == param.layout();
    const bool always =
        recorded || modes().word & Modes::kCapture || (on_device && step.found_inf.defined());
    kind.compares = slot.state[master_key()].defined() &&
                    (always || !same_memory || slot.left_writes != param.storage()->writes());
    if (!same_memory) slot.left = param.detach();
    step.mastered.emplace_back(&param, &slot);
  } else if (slot.left.defined()) {
    slot.left = Tensor();
  }
  for (size_t key = 0; key < master_key(); ++key) {
    if (!(keys >> key & 1) || keys_[key].is_tensor()) continue;
    const Tensor& t = slot.state[key];
    ARETE_ASSERT(kind.numbers >> 24 == 0);  // room for four
    kind.numbers = kind.numbers << 8 | uint32_t(t.dtype());
    if (on_device || step.history) continue;
    if (keys_[key].kind == StateKey::count)
      kind.steps = read_number(t);
    else
      kind.values.push_back(read_number(t));
  }
  return kind;
}

Optimizer::Batch::Batch(Optimizer& optimizer, size_t group, const Kind& kind, const Step& step)
    : kind_(kind),
      group_(&optimizer.groups_[group]),
      name_(optimizer.name_),
      programs_(optimizer.programs_.get()),
      master_(optimizer.master_key()),
      history_(step.history),
      values_(kind.values.begin(), kind.values.end()),
      unscales_(step.inverse_scale.defined()) {
  for (size_t key = 0; key < master_; ++key) {
    if (!(kind.keys >> key & 1)) continue;
    const StateKey& k = optimizer.keys_[key];
    (k.is_tensor() ? tensors_ : moving_).push_back(key);
    counts_ = counts_ || k.kind == StateKey::count;
  }
  if (!kind.on_device) {
    if (unscales_) inverse_ = step.inverse_scale.item<double>();
    return;
  }
  if (unscales_) inverse_scale_ = step.inverse_scale.to(kind.device, true);
  if (step.found_inf.defined()) found_inf_ = step.found_inf.to(kind.device, true);
}

void Optimizer::step_group(size_t gi, Step& step) {
  const ParamGroup& group = groups_[gi];
  step.capturable = group.flag("capturable");
  step.resident = group.flag("fused");
  step.history = group.flag("differentiable");
  step.keys = keys_in_use(group);
  step.settings.clear();
  for (const auto& [name, setting] : group.options())
    if (setting.tensor().defined()) step.settings.push_back(setting.tensor().device());
  const EnableGradGuard history(step.history);
  // Usually all of them are one batch; parameters that missed some updates, or differ in dtype or
  // device, take others.
  std::vector<Batch> batches;
  for (size_t pi = 0; pi < group.params.size(); ++pi) {
    const Tensor& p = group.params[pi];
    Tensor grad = p.grad();
    if (!grad.defined()) continue;
    if (is_sparse(grad)) {
      step_sparse(gi, pi, std::move(grad), step);
      continue;
    }
    if (step.inverse_scale.defined() && !grad.layout().is_dense())  // elements may share memory
      p.set_grad(grad = grad.clone());
    ARETE_CHECK(std::ranges::equal(grad.sizes(), p.sizes()) && grad.device() == p.device(),
                ValueError(name_, "a gradient must have its parameter's shape and device")
                    .got(ops::describe(grad))
                    .expected(ops::describe(p)));
    Slot& slot = slots_[gi][pi];
    const uint32_t keys = keys_in_use(step.keys, p);
    const bool counts_there = steps_on_device(p, slot, keys, step);
    const bool on_device = counts_there && !step.history;
    ARETE_CHECK(!step.history || !step.is_recorded(p.device()),
                DeviceError(name_,
                            "a step with differentiable=True cannot be captured into a CUDA "
                            "graph: its history is the host's"));
    if (!on_device && step.is_left_out()) {
      const NoGradGuard no_grad;
      if (step.inverse_scale.defined())
        grad.detach().mul_(step.inverse_scale.to(grad.device(), true));
      continue;
    }
    complete(gi, pi, keys, counts_there, step.is_recorded(p.device()));
    const Kind kind = kind_of(p, slot, grad.dtype(), on_device, keys, step);
    auto batch = std::ranges::find_if(batches, [&](const Batch& b) { return b.kind_ == kind; });
    if (batch == batches.end()) {
      batches.push_back(Batch(*this, gi, kind, step));
      batch = batches.end() - 1;
      batch->items_.reserve(group.params.size());
    }
    batch->items_.push_back({p, std::move(grad), &slot, pi});
  }
  for (Batch& batch : batches) {
    if (batch.kind_.on_device) prepare_page(gi, batch, step);
    update(group, batch);
    batch.finish();
  }
}

void Optimizer::step_sparse(size_t gi, size_t pi, Tensor grad, Step& step) {
  const ParamGroup& group = groups_[gi];
  const Tensor& p = group.params[pi];
  const NoGradGuard no_grad;
  ARETE_CHECK(std::ranges::equal(grad.sizes(), p.sizes()) && device_of_elements(grad) == p.device(),
              ValueError(name_, "a gradient must have its parameter's shape and device")
                  .got(ops::describe(grad))
                  .expected(ops::describe(p)));
  ARETE_CHECK(!step.history && !group.flag("master_weights"),
              NotImplementedError(name_,
                                  "a group with differentiable or master_weights takes no "
                                  "sparse gradients"));
  if (step.inverse_scale.defined()) {
    const Tensor values = ops::elements_of(grad);
    p.set_grad(grad = ops::with_values(
                   grad, values.mul(step.inverse_scale.to(values.device(), values.dtype()))));
  }
  if (step.is_left_out()) return;
  if (group.flag("maximize")) grad = ops::with_values(grad, ops::elements_of(grad).neg());
  update_sparse(gi, pi, grad);
}

void Optimizer::update_sparse(size_t, size_t, const Tensor&) {
  const std::string_view name = name_;
  throw NotImplementedError(name_, std::string(name) + " does not support sparse gradients" +
                                       (name.starts_with("Adam") && name != "Adamax"
                                            ? ", please consider SparseAdam instead"
                                            : ""));
}

void Optimizer::check_without_decay(size_t group) const {
  ARETE_CHECK(
      groups_[group].get("weight_decay") == 0,
      NotImplementedError(name_, "weight_decay option is not compatible with sparse gradients"));
}

double Optimizer::begin_update(size_t gi, size_t pi, size_t count_key) {
  const ParamGroup& group = groups_[gi];
  const Tensor& p = group.params[pi];
  Step step;
  step.capturable = group.flag("capturable");
  step.resident = group.flag("fused");
  const uint32_t keys = keys_in_use(keys_in_use(group), p);
  complete(gi, pi, keys, steps_on_device(p, slots_[gi][pi], keys, step), false);
  const Tensor& count = slots_[gi][pi].state[count_key];
  const double t = read_number(count) + 1;
  write_number(count, t);
  return t;
}

void Optimizer::renew_state(size_t group, size_t param, size_t key, Tensor value) {
  slots_[group][param].state[key] = std::move(value);
  new_state_.emplace_back(group, param);
}

void Optimizer::step_all(const Tensor& found_inf, const Tensor& inverse_scale) {
  const tracing::RangeScope traced(tracing::RangeKind::optimizer, [&] {
    return "Optimizer.step#" + std::string(name_) + ".step";
  });
  Step step{.found_inf = found_inf, .inverse_scale = inverse_scale};
  for (size_t gi = 0; gi < groups_.size(); ++gi) step_group(gi, step);
  // After all updates: parameters may share a storage.
  for (const auto& [p, slot] : step.mastered) slot->left_writes = p->storage()->writes();
}

void Optimizer::make_state() {
  Step step;
  const NoGradGuard no_grad;
  for (size_t gi = 0; gi < groups_.size(); ++gi) {
    step.capturable = groups_[gi].flag("capturable");
    step.resident = groups_[gi].flag("fused");
    for (size_t pi = 0; pi < groups_[gi].params.size(); ++pi) {
      const Tensor& p = groups_[gi].params[pi];
      const uint32_t keys = keys_in_use(keys_in_use(groups_[gi]), p);
      const bool on_device = steps_on_device(p, slots_[gi][pi], keys, step);
      complete(gi, pi, keys, on_device, step.is_recorded(p.device()));
    }
  }
}

}  // namespace arete::optim
