// What optimizers keep for each parameter: made, looked at, saved, loaded.
#include <algorithm>
#include <charconv>
#include <optional>

#include "arete/core/modes.h"
#include "arete/ops/call.h"
#include "arete/ops/complex.h"
#include "arete/ops/creation.h"
#include "arete/optim/state_internal.h"

namespace arete::optim {

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
  for (size_t key = 0; key < master_key(); ++key) {
    const auto takes_part = [&](std::string_view setting) {
      return setting.empty() || group.setting(setting).may_count();
    };
    keys |= uint32_t(std::ranges::all_of(keys_[key].used_with, takes_part)) << key;
  }
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
  double value = k.first_setting.empty() ? k.first : group.get(k.first_setting);
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

// ---- saving and loading

std::map<std::string, std::string> numbers_to_text(const std::map<std::string, double>& numbers) {
  std::map<std::string, std::string> texts;
  for (const auto& [key, value] : numbers) {
    char buffer[64];  // the shortest text that reads back as the same number
    texts[key] = std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
  }
  return texts;
}

std::map<std::string, double> numbers_from_text(const std::map<std::string, std::string>& texts) {
  std::map<std::string, double> numbers;
  for (const auto& [key, text] : texts) {
    double value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    ARETE_CHECK(error == std::errc() && stop == end,
                ValueError("numbers_from_text", "the value of '" + key + "' is not a number")
                    .got("\"" + text.substr(0, 40) + "\""));
    numbers[key] = value;
  }
  return numbers;
}

State Optimizer::state_dict() const {
  State result;
  size_t index = 0;
  for (size_t gi = 0; gi < groups_.size(); ++gi) {
    const std::string group = "param_groups." + std::to_string(gi) + ".";
    result.numbers[group + "params"] = double(groups_[gi].params.size());
    for (const auto& [name, setting] : groups_[gi].settings())
      result.numbers[group + name] = setting.value();
    for (const Slot& slot : slots_[gi]) {
      const std::string prefix = "state." + std::to_string(index++) + ".";
      for (size_t key = 0; key < keys_.size(); ++key) {
        const Tensor& t = slot.state[key];
        if (!t.defined()) continue;
        const std::string name = prefix + std::string(keys_[key].name);
        if (keys_[key].is_tensor())
          result.tensors[name] = t.detach();
        else
          result.numbers[name] = read_number(t);
      }
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
  const NoGradGuard no_grad;
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
    for (const std::string& name : names) {
      const double value = *take(prefix + name);
      // A tensor that somebody gave is written once all is known to fit.
      if (!group.has(name) || !group.setting(name).tensor().defined()) group.set(name, value, true);
    }
    slots.emplace_back(group.params.size());
    const uint32_t of_group = keys_in_use(group);
    for (size_t pi = 0; pi < group.params.size(); ++pi) {
      const Tensor& param = group.params[pi];
      Slot& slot = slots[gi][pi];
      slot.state.resize(keys_.size());
      const std::string of_param = "state." + std::to_string(index++) + ".";
      const uint32_t keys = keys_in_use(of_group, param);
      const auto has_some = [&](const auto& values) {
        const auto it = values.lower_bound(of_param);
        return it != values.end() && it->first.starts_with(of_param);
      };
      if (!has_some(numbers) && !has_some(tensors)) continue;
      const bool masters = keys >> master_key() & 1;
      for (size_t key = 0; key < keys_.size(); ++key) {
        const StateKey& k = keys_[key];
        const bool is_used = keys >> key & 1;
        const std::string name = of_param + std::string(k.name);
        if (!k.is_tensor()) {
          const std::optional<double> number = take(name);
          const bool there = group.flag("capturable") || k.resident;
          if (number && is_used)
            slot.state[key] =
                full({}, *number, {number_dtype_of_state(), there ? param.device() : kCPU});
          else if (is_used && k.shown)
            problems += " " + name + " is missing.";
          continue;
        }
        const auto node = tensors.extract(name);
        const bool is_master = key == master_key();
        if (node.empty()) {
          // Without one, the master is made of the parameter.
          if (is_used && !is_master) problems += " " + name + " is missing.";
          continue;
        }
        const Shape sizes =
            k.kind == StateKey::part ? state_sizes(param, key) : Shape(param.sizes());
        if (is_master && !masters)
          problems += " unexpected tensor " + name + ".";
        else if (!std::ranges::equal(node.mapped().sizes(), sizes))
          problems += " size mismatch for " + name + ": the parameter's is " + to_string(sizes) +
                      ", the state has " + to_string(node.mapped().sizes()) + ".";
        else if (problems.empty())
          slot.state[key] = node.mapped();
      }
    }
  }
  // Counts of optimizers that need none.
  std::erase_if(numbers, [](const auto& n) {
    return n.first.starts_with("state.") && n.first.ends_with(".step");
  });
  for (const auto& [key, value] : numbers) problems += " unexpected number " + key + ".";
  for (const auto& [key, value] : tensors) problems += " unexpected tensor " + key + ".";
  ARETE_CHECK(problems.empty(),
              ValueError("load_state_dict", std::string("Error(s) in loading state_dict for ") +
                                                name_ + ":" + problems));
  for (size_t gi = 0; gi < groups.size(); ++gi) {
    const uint32_t of_group = keys_in_use(groups[gi]);
    for (size_t pi = 0; pi < groups[gi].params.size(); ++pi) {
      const Tensor& p = groups[gi].params[pi];
      const bool masters = keys_in_use(of_group, p) >> master_key() & 1;
      const Tensor like = masters ? p.detach().to(kFloat32) : p.detach();
      for (size_t key = 0; key < keys_.size(); ++key)
        if (Tensor& t = slots[gi][pi].state[key]; t.defined() && keys_[key].is_tensor())
          t = new_tensor(key, like).copy_(t);
      const auto made = [](const Tensor& t) { return t.defined(); };
      if (Tensor& master = slots[gi][pi].state[master_key()];
          masters && !master.defined() && std::ranges::any_of(slots[gi][pi].state, made))
        master = like;
    }
    for (const auto& [name, setting] : groups[gi].settings()) {
      const auto saved = state.numbers.find("param_groups." + std::to_string(gi) + "." + name);
      if (setting.tensor().defined() && saved != state.numbers.end())
        groups[gi].set(name, saved->second);
    }
  }
  groups_ = std::move(groups);
  slots_ = std::move(slots);
}

}  // namespace arete::optim
