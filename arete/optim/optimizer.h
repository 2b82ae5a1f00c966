// What all optimizers share: parameter groups, state, the update of many tensors at once.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arete/amp/grad_scaler.h"
#include "arete/core/tensor.h"

namespace arete::optim {

/// Everything an optimizer or scheduler needs to go on later: tensors and numbers by name.
/// To a file: `tensors` as a safetensors file, `numbers` as strings of 17 digits in its metadata
/// (numbers_to_text and numbers_from_text convert).
struct State {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, double> numbers;
};
/// Exact texts of numbers, and back (ValueError naming the key of what is no number).
std::map<std::string, std::string> numbers_to_text(const std::map<std::string, double>& numbers);
std::map<std::string, double> numbers_from_text(const std::map<std::string, std::string>& texts);

/// Settings of a parameter group by name ("lr", "momentum", "beta1", ...; flags are 0 or 1).
using Settings = std::vector<std::pair<std::string_view, double>>;

/// Parameters that are updated with the same settings.
class ParamGroup {
 public:
  ParamGroup(std::vector<Tensor> parameters, const Settings& settings);
  std::vector<Tensor> params;

  /// A setting; ValueError naming those there are if there is none of this name.
  double get(std::string_view name) const;
  bool has(std::string_view name) const;
  /// Sets an existing setting, or with `add` a new one.
  void set(std::string_view name, double value, bool add = false);
  bool flag(std::string_view name) const { return get(name) != 0; }
  double lr() const { return get("lr"); }
  void set_lr(double value) { set("lr", value); }
  const std::vector<std::pair<std::string, double>>& settings() const { return settings_; }

 private:
  std::vector<std::pair<std::string, double>> settings_;
};

/// Parameters and typed options for one group: `optim::SGD({{net.body.parameters(), {.lr = 0.01}},
/// {net.head.parameters(), {.lr = 0.1}}})`.
template <class Options>
struct Group {
  std::vector<Tensor> params;
  Options options{};
};

/// Base class. step() updates every parameter that has a gradient, without history, in one pass
/// over memory per group: one expression program (see expr/value.h) over all tensors. Reading a
/// setting anew at each step never compiles anything again.
///
/// Groups with the setting master_weights keep an f32 copy of each parameter in f16 or bf16, and
/// their state in f32: updates too small for the parameter's own precision add up there. What
/// others write to a parameter counts: where it is not its copy, rounded, the copy is taken from
/// it.
class Optimizer : public amp::Scalable {
 public:
  ~Optimizer() override;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// One update from the gradients that are there; parameters without one are left alone.
  virtual void step();
  /// Calls `closure` (with history), which computes the loss and its gradients, then updates.
  virtual Tensor step(const std::function<Tensor()>& closure);
  /// The same for amp::GradScaler: with inverse_scale the gradients are multiplied by it in place
  /// on the way, and where found_inf is not 0 nothing else changes, all in the one pass; no one
  /// waits for the device, unless the optimizer keeps numbers on the host that depend on it (NAdam,
  /// ASGD).
  void step_scaled(const Tensor& found_inf, const Tensor& inverse_scale) override;
  std::vector<Tensor> scaled_parameters() const override;
  bool may_unscale_half() const override;
  /// Forgets the gradients, or sets them to zero.
  void zero_grad(bool set_to_none = true);

  std::vector<ParamGroup>& param_groups() { return groups_; }
  const std::vector<ParamGroup>& param_groups() const { return groups_; }
  /// The learning rate of group 0, and the same rate for all groups.
  double lr() const { return groups_.front().lr(); }
  void set_lr(double value);

  /// "state.<index>.<name>" for each parameter's state (index over all groups in order; "step" is a
  /// number, the others are tensors; master_param is the f32 copy),
  /// "param_groups.<index>.<setting>" and "param_groups.<index>.params" (how many). Tensors share
  /// memory with the optimizer's state.
  virtual State state_dict() const;
  /// Copies the state; tensors take dtype and device of their parameter. An element of a
  /// master_param is used if the parameter's is equal to its rounding; else the parameter's (see
  /// Note [Masters of parameters that others write]). One ValueError names what does not fit
  /// (number of groups or parameters, shapes, unknown names); nothing is changed then.
  virtual void load_state_dict(const State& state);

 protected:
  /// The names of each parameter's state: tensors of its shape, and numbers.
  Optimizer(const char* name, std::vector<std::string_view> state_names,
            std::vector<std::string_view> number_names = {});
  /// Adds parameters with settings; ValueError for an empty list, non-leaves, or parameters that
  /// are in a group already.
  void add_group(std::vector<Tensor> params, const Settings& settings);

  /// Parameters of one group that take the same program and numbers (see update_internal.h).
  class Batch;
  /// Updates one batch by calling batch.run().
  virtual void update(const ParamGroup& group, Batch& batch) = 0;
  /// Whether a slot of state (an index into state_names) is used under these settings.
  virtual bool uses_state(const ParamGroup&, size_t) const { return true; }
  /// Initial value of a state slot.
  virtual double initial_state(const ParamGroup&, size_t) const { return 0; }
  /// The same of a number of the state.
  virtual double initial_number(const ParamGroup&, size_t) const { return 0; }

 private:
  struct Slot {                 // of one parameter
    int64_t step = 0;           // updates so far, with those that a scaler left out
    Tensor skipped;             // 0-d, f64: how many those were; undefined if there are none
    Tensor master;              // the parameter in f32, with master_weights
    Tensor left;                // shows the parameter's memory as the last step with it found it
    uint64_t left_writes = 0;   // and so many writes that memory had then
    std::vector<Tensor> state;  // one per name; undefined until used
    std::vector<double> numbers;
  };
  struct Programs;

  bool keeps_master(const ParamGroup& group, const Tensor& param) const;
  void step_all(const Tensor& found_inf, const Tensor& inverse_scale);

  const char* name_;
  std::vector<std::string_view> state_names_, number_names_;
  std::vector<ParamGroup> groups_;
  std::vector<std::vector<Slot>> slots_;  // [group][parameter]
  std::unique_ptr<Programs> programs_;
};

/// An optimizer whose groups have options of one type; `Settings settings_of(const Options&)`
/// checks them and gives their names.
template <class Options>
class TypedOptimizer : public Optimizer {
 public:
  void add_param_group(std::vector<Tensor> params, const Options& options) {
    add_group(std::move(params), settings_of(options));
  }

 protected:
  TypedOptimizer(const char* name, std::vector<std::string_view> state_names,
                 std::vector<Group<Options>> groups,
                 std::vector<std::string_view> number_names = {})
      : Optimizer(name, std::move(state_names), std::move(number_names)) {
    for (Group<Options>& g : groups) add_param_group(std::move(g.params), g.options);
  }
};

}  // namespace arete::optim
