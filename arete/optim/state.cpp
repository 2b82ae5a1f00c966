// States as tensors and numbers by name, and numbers as texts that give the same numbers back.
#include <algorithm>
#include <charconv>
#include <optional>

#include "arete/core/modes.h"
#include "arete/ops/creation.h"
#include "arete/optim/state_internal.h"

namespace arete::optim {

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
