#include "arete/optim/optimizer.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "arete/core/cuda.h"
#include "arete/core/modes.h"
#include "arete/core/tracing.h"
#include "arete/ops/call.h"
#include "arete/ops/complex.h"
#include "arete/ops/creation.h"
#include "arete/optim/state_internal.h"
#include "arete/optim/update_internal.h"
#include "arete/prim/backend.h"

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
  setting(name);  // reports it if there is none
  *find(name) = std::move(value);
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

// ---- state

double read_number(const Tensor& t) {
  if (t.dtype() == kFloat32 && t.device().is_cpu()) return *static_cast<float*>(t.data_ptr());
  return t.item<double>();
}

void write_number(const Tensor& t, double value) {
  if (t.dtype() == kFloat32 && t.device().is_cpu())
    *static_cast<float*>(t.data_ptr()) = float(value);
  else if (!t.is_meta())
    Tensor(t.detach()).fill_(value);
  t.bump_version();
}

DType number_dtype_of_state() { return default_dtype() == kFloat64 ? kFloat64 : kFloat32; }

const Tensor& Optimizer::state(size_t group, size_t param, size_t key) const {
  return slots_[group][param].state[key];
}

void Optimizer::put_state(size_t group, size_t param, size_t key, Tensor value) {
  Slot& slot = slots_[group][param];
  slot.state[key] = std::move(value);
  // What nobody sees belongs to what was there before.
  for (size_t k = 0; k < keys_.size(); ++k)
    if (!keys_[k].shown) slot.state[k] = Tensor();
}

std::vector<std::pair<size_t, size_t>> Optimizer::take_new_state() {
  return std::exchange(new_state_, {});
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

uint32_t Optimizer::keys_in_use(const ParamGroup& group) const {
  uint32_t keys = group.flag("master_weights") ? 1u << master_key() : 0;
  for (size_t key = 0; key < master_key(); ++key) keys |= uint32_t(uses_state(group, key)) << key;
  return keys;
}

uint32_t Optimizer::keys_in_use(uint32_t of_group, const Tensor& param) const {
  uint32_t keys = size_of(param.dtype()) < 4 ? of_group & 1u << master_key() : 0;
  for (size_t key = 0; key < master_key(); ++key)
    if (of_group >> key & 1 && has_state(param, key)) keys |= 1u << key;
  return keys;
}

Tensor Optimizer::made_state(const ParamGroup& group, const Tensor& param, const Slot& slot,
                             size_t key, Device place) const {
  const StateKey& k = keys_[key];
  if (key == master_key()) return param.detach().to(kFloat32);
  double value = initial_state(group, key);
  if (!k.is_tensor()) {
    if (k.kind == StateKey::count && !k.shown)  // there is something already: it is not the first
      for (size_t other = 0; other < keys_.size(); ++other)
        if (keys_[other].shown && slot.state[other].defined()) value = 1;
    return full({}, value, {number_dtype_of_state(), place});
  }
  const Tensor& master = slot.state[master_key()];
  Tensor made = new_tensor(key, master.defined() ? master : param.detach());
  if (value == 0) return made;
  if (is_complex(made.dtype()))
    view_as_real(made).fill_(value);
  else
    made.fill_(value);
  return made;
}

// Zeros in the memory order of what it belongs to.
Tensor Optimizer::new_tensor(size_t key, const Tensor& like) const {
  return keys_[key].kind == StateKey::part
             ? zeros(state_sizes(like, key), {like.dtype(), like.device()})
             : zeros_like(like);
}

namespace {
bool same_sizes(const Tensor& a, const Tensor& b) {
  const IntList x = a.sizes(), y = b.sizes();
  if (x.size() != y.size()) return false;
  for (size_t d = 0; d < x.size(); ++d)
    if (x[d] != y[d]) return false;
  return true;
}
}  // namespace

// Whether a part of the state is there and can be used as it is: others may have put it there, or
// changed the parameter. ValueError or TypeError if it can never be.
bool Optimizer::is_ready(const Tensor& param, const Tensor& t, size_t key, bool masters,
                         Device place) const {
  if (!t.defined()) return false;
  const StateKey& k = keys_[key];
  if (!k.is_tensor()) {
    ARETE_CHECK(t.numel() == 1 && t.is_floating_point(),
                TypeError(name_, "`state_steps` argument must contain a list of singleton tensors")
                    .got("'" + std::string(k.name) + "' is " + ops::describe(t)));
    return t.device() == place;
  }
  const DType dtype = masters ? kFloat32 : param.dtype();
  const bool fits =
      t.dtype() == dtype && t.device() == param.device() &&
      (k.kind == StateKey::part ? std::ranges::equal(t.sizes(), state_sizes(param, key))
                                : same_sizes(t, param));
  ARETE_CHECK(
      fits,
      ValueError(name_, "the state '" + std::string(k.name) + "' does not fit to its parameter")
          .got(ops::describe(t))
          .expected("one of " + std::string(name_of(dtype)) + " for " + ops::describe(param)));
  return true;
}

// ---- the step

// What one call of step() knows, of the group at hand and of all.
struct Optimizer::Step {
  Tensor found_inf, inverse_scale;
  std::optional<double> found_on_host;
  std::vector<std::pair<Device, bool>> recorded;
  std::vector<std::pair<const Tensor*, Slot*>> mastered;
  // Of the group.
  bool capturable = false, resident = false, history = false;
  uint32_t keys = 0;
  std::vector<Device> settings;  // where those are that are tensors

  // Of a scaler, for updates with counts on the host.
  bool is_left_out() {
    if (!found_inf.defined()) return false;
    if (!found_on_host) found_on_host = found_inf.item<double>();
    return *found_on_host != 0;
  }
  // Whether what a GPU does becomes part of a graph.
  bool is_recorded(Device device) {
    if (!device.is_cuda()) return false;
    for (const auto& [d, is] : recorded)
      if (d == device) return is;
    return recorded.emplace_back(device, prim::backend_for(device).is_capturing()).second;
  }
};

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

// Makes what is missing, and moves counts and numbers to where they are needed.
void Optimizer::complete(size_t gi, size_t pi, uint32_t keys, bool on_device, bool recorded) {
  const ParamGroup& group = groups_[gi];
  const Tensor& param = group.params[pi];
  Slot& slot = slots_[gi][pi];
  const bool masters = keys >> master_key() & 1;
  const Device place = on_device ? param.device() : kCPU;
  if (!masters) slot.state[master_key()] = Tensor();
  bool ready = true;
  for (size_t key = 0; key < keys_.size(); ++key)
    if (keys >> key & 1) ready = is_ready(param, slot.state[key], key, masters, place) && ready;
  if (ready) return;

  bool any = false, changed = false;
  for (size_t key = 0; key < keys_.size(); ++key)
    any = any || (keys_[key].shown && slot.state[key].defined());
  const auto make = [&](size_t key) {
    Tensor& t = slot.state[key];
    const StateKey& k = keys_[key];
    if (!(keys >> key & 1) || is_ready(param, t, key, masters, place)) return;
    ARETE_CHECK(t.defined() || !any || k.is_tensor() || !k.shown,
                ValueError(name_, "the state of a parameter has no '" + std::string(k.name) + "'")
                    .got(ops::describe(param)));
    ARETE_CHECK(!recorded,
                DeviceError(name_,
                            "CUDA graph capture of step() would make the optimizer's state "
                            "inside the graph, where each replay makes it anew")
                    .got("no '" + std::string(k.name) + "' there yet for " + ops::describe(param))
                    .hint("run one step before the capture"));
    t = t.defined() ? full({}, read_number(t), {t.dtype(), place})
                    : made_state(group, param, slot, key, place);
    changed = changed || k.shown;
  };
  make(master_key());  // the others are like it
  for (size_t key = 0; key < master_key(); ++key) make(key);
  if (changed) new_state_.emplace_back(gi, pi);
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

// Note [Steps inside graphs]
// A CUDA graph replays what the device was given, and nothing that the host did. So a step that is
// recorded has its counts and numbers on the device (Note [Steps on the device]), and reads the
// settings of its group from a page in device memory. The graph runs a function before each replay
// that writes the page if settings have changed since, with one launch. Several graphs, and steps
// outside, share the page of a group. What a replay could not follow is an error before it runs: a
// flag that has changed, or another tensor in the place of one that the graph writes or reads.

namespace {

// The page's values: settings that are numbers, or tensors elsewhere.
std::vector<double> page_values(const ParamGroup& group, Device device) {
  std::vector<double> values;
  for (const auto& [name, setting] : group.options()) {
    if (setting.is_fixed()) continue;
    const Tensor& t = setting.tensor();
    values.push_back(t.defined() && t.device() == device ? 0 : setting.value());
  }
  return values;
}

}  // namespace

// What a recorded step depends on besides the values of settings: flags, and tensors.
std::vector<uint64_t> Optimizer::fixed_parts(size_t gi, const std::vector<size_t>& params,
                                             Device device, std::vector<std::string>* names) const {
  const ParamGroup& group = groups_[gi];
  std::vector<uint64_t> parts;
  for (const auto& [name, setting] : group.options()) {
    const Tensor& t = setting.tensor();
    const bool is_read = t.defined() && t.device() == device;
    if (!setting.is_fixed() && !is_read) continue;
    parts.push_back(is_read ? uintptr_t(t.impl()) : std::bit_cast<uint64_t>(setting.value()));
    if (names) names->push_back("the setting '" + name + "'");
  }
  const uint32_t of_group = keys_in_use(group);
  for (size_t pi : params) {
    const uint32_t keys = keys_in_use(of_group, group.params[pi]);
    for (size_t key = 0; key < keys_.size(); ++key) {
      if (!(keys >> key & 1)) continue;
      parts.push_back(uintptr_t(slots_[gi][pi].state[key].impl()));
      if (names)
        names->push_back("the state '" + std::string(keys_[key].name) + "' of a parameter");
    }
  }
  return parts;
}

void Optimizer::prepare_page(size_t gi, Batch& batch, Step& step) {
  const Device device = batch.kind_.device;
  const auto same = [&](const PageOfGroup& p) { return p.group == gi && p.device == device; };
  auto page = std::ranges::find_if(pages_, same);
  const std::vector<double> values = page_values(groups_[gi], device);
  if (page == pages_.end())
    page = pages_.insert(pages_.end(), {gi, device, std::make_shared<Page>(values.size(), device)});
  batch.page_ = page->page.get();
  if (!step.is_recorded(device)) return page->page->write(values, *programs_);

  cuda::GraphCapture* const capture = cuda::GraphCapture::current(device.index);
  ARETE_CHECK(capture, DeviceError(name_,
                                   "step() can be recorded into a cuda::Graph only: others "
                                   "do not hand over its settings before they replay it"));
  std::vector<size_t> params;
  for (const Batch::Item& item : batch.items_) params.push_back(item.number);
  if (on_record) on_record(*capture);
  capture->before_replay([self = std::weak_ptr(self_), name = std::string(name_), gi, device,
                          page = page->page, parts = fixed_parts(gi, params, device), params] {
    const std::shared_ptr<Optimizer*> alive = self.lock();
    ARETE_CHECK(alive, DeviceError("replay", "the optimizer " + name +
                                                 " whose step() the graph replays is no more")
                           .hint("keep it as long as the graph"));
    Optimizer& o = **alive;
    const bool is_there = gi < o.groups_.size() && o.groups_[gi].params.size() > params.back();
    if (!is_there || o.fixed_parts(gi, params, device) != parts) {
      std::vector<std::string> names{"the parameters"};
      size_t what = 0;
      if (is_there) {
        names.clear();
        const std::vector<uint64_t> now = o.fixed_parts(gi, params, device, &names);
        const auto [was, is] = std::ranges::mismatch(parts, now);
        what = std::min(size_t(is - now.begin()), names.size() - 1);
      }
      throw DeviceError("replay", names[what] + " of the optimizer " + name +
                                      " has changed since its step() was recorded")
          .hint("write into tensors in place, or record the graph again");
    }
    page->write(page_values(o.groups_[gi], device), *o.programs_);
  });
}

}  // namespace arete::optim
