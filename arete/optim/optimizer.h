// What all optimizers share: parameter groups, state, the update of many tensors at once.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arete/amp/grad_scaler.h"
#include "arete/core/tensor.h"
#include "arete/optim/options.h"

namespace arete::cuda {
class GraphCapture;
}

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

/// Parameters that are updated with the same settings.
class ParamGroup {
 public:
  ParamGroup(std::vector<Tensor> parameters, Settings settings);
  std::vector<Tensor> params;

  /// A setting; ValueError naming those there are if there is none of this name.
  const Setting& setting(std::string_view name) const;
  double get(std::string_view name) const { return setting(name).value(); }
  bool has(std::string_view name) const;
  /// Sets an existing setting, or with `add` a new one. A tensor is written.
  void set(std::string_view name, double value, bool add = false);
  /// Puts another number or tensor in the place of an existing setting.
  void replace(std::string_view name, Setting value);
  /// Whether there is a setting of this name that is not 0.
  bool flag(std::string_view name) const;
  double lr() const { return get("lr"); }
  void set_lr(double value) { set("lr", value); }
  /// Those of the optimizer's options first.
  std::span<const std::pair<std::string, Setting>> settings() const { return settings_; }
  std::span<const std::pair<std::string, Setting>> options() const {
    return settings().first(options_);
  }

 private:
  Setting* find(std::string_view name);
  std::vector<std::pair<std::string, Setting>> settings_;
  size_t options_;  // how many of them are options
};

/// Parameters and typed options for one group: `optim::SGD({{net.body.parameters(), {.lr = 0.01}},
/// {net.head.parameters(), {.lr = 0.1}}})`.
template <class Options>
struct Group {
  std::vector<Tensor> params;
  Options options{};
};

/// What an optimizer keeps for each parameter under one name.
struct StateKey {
  enum Kind : uint8_t {
    count,   ///< of the updates so far
    number,  ///< another one that the updates move on
    tensor,  ///< as large as the parameter
    part,    ///< a tensor of other sizes (Optimizer::state_sizes)
  };
  std::string_view name;
  Kind kind = tensor;
  /// Of counts and numbers: they are where the parameter is in any case.
  bool resident = false;
  /// False for what is of use to the optimizer alone.
  bool shown = true;
  /// It is there if none of these settings is a number that is 0.
  std::array<std::string_view, 2> used_with = {};
  /// What it, or each of its elements, is at first: a setting, or else a number.
  std::string_view first_setting = {};
  double first = 0;
  bool is_tensor() const { return kind >= tensor; }
};

/// Forgets the gradients of parameters, or sets them to zero in place.
void zero_grad(std::span<const Tensor> params, bool set_to_none = true);

/// Base class. step() updates every parameter that has a gradient, without history, in one pass
/// over memory per group: one expression program (see expr/value.h) over all tensors. Reading a
/// setting anew at each step never compiles anything again.
///
/// Groups with the setting master_weights keep an f32 copy of each parameter in f16 or bf16, and
/// their state in f32: updates too small for the parameter's own precision add up there. What
/// others write to a parameter counts: where it is not its copy, rounded, the copy is taken from
/// it.
///
/// A step can be recorded into a CUDA graph if the counts of the updates are on the device: in
/// groups with the setting `capturable`. Replays go on counting, and read the settings as they are
/// then (see Note [Steps inside graphs]).
///
/// Sparse gradients (Note [Sparse tensors]) are for SGD, Adagrad and SparseAdam, which touch their
/// rows alone (and wait for the device, but for SGD without momentum, to know how many there are);
/// LBFGS makes them dense, and the others refuse them (NotImplementedError).
///
/// With the setting `differentiable` the step records history: parameters and state become
/// functions of what they were, of the gradients and of settings that are tensors.
class Optimizer : public amp::Scalable {
 public:
  ~Optimizer() override;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  const char* name() const { return name_; }
  /// One update from the gradients that are there; parameters without one are left alone.
  virtual void step();
  /// Calls `closure` (with history), which computes the loss and its gradients, then updates.
  virtual Tensor step(const std::function<Tensor()>& closure);
  /// The same for amp::GradScaler: with inverse_scale the gradients are multiplied by it in place
  /// on the way, and where found_inf is not 0 nothing else changes, all in the one pass; no one
  /// waits for the device.
  void step_scaled(const Tensor& found_inf, const Tensor& inverse_scale) override;
  std::vector<Tensor> scaled_parameters() const override;
  bool may_unscale_half() const override;
  /// Forgets the gradients, or sets them to zero in place.
  void zero_grad(bool set_to_none = true);

  std::vector<ParamGroup>& param_groups() { return groups_; }
  const std::vector<ParamGroup>& param_groups() const { return groups_; }
  /// The learning rate of group 0, and the same rate for all groups.
  double lr() const { return groups_.front().lr(); }
  void set_lr(double value);

  /// "state.<index>.<name>" for each parameter's state (index over all groups in order; counts and
  /// numbers are numbers, the others are tensors; master_param is the f32 copy),
  /// "param_groups.<index>.<setting>" and "param_groups.<index>.params" (how many). Tensors share
  /// memory with the optimizer's state.
  virtual State state_dict() const;
  /// Copies the state; tensors take dtype and device of their parameter. An element of a
  /// master_param is used if the parameter's is equal to its rounding; else the parameter's (see
  /// Note [Masters of parameters that others write]). One ValueError names what does not fit
  /// (number of groups or parameters, shapes, unknown names); nothing is changed then.
  virtual void load_state_dict(const State& state);

  // ---- for those who keep groups and state themselves, as the Python binding does

  /// What there is for each parameter, in order; the last one is master_param.
  std::span<const StateKey> state_keys() const { return keys_; }
  /// A tensor of a parameter's state; undefined if it has not been made.
  const Tensor& state(size_t group, size_t param, size_t key) const;
  /// Puts another tensor there; undefined: it is made anew when it is needed.
  void put_state(size_t group, size_t param, size_t key, Tensor value);
  /// Makes what is not there yet, as the first step does.
  void make_state();
  /// Group and number of the parameters whose state has got other tensors since the last call.
  std::vector<std::pair<size_t, size_t>> take_new_state();
  /// Replaces parameters of a group, or adds a group; nothing is checked. Their state is forgotten.
  void put_group(size_t group, std::vector<Tensor> params, Settings settings);
  void drop_groups(size_t keep);
  /// Which keys the settings of a group need: bit k stands for key k.
  uint32_t state_in_use(size_t group) const { return keys_in_use(groups_[group]); }
  /// Called when a step becomes part of a graph, before the optimizer has its own function run
  /// before replays.
  std::function<void(cuda::GraphCapture&)> on_record;

 protected:
  Optimizer(const char* name, std::span<const StateKey> keys);
  /// Adds parameters with settings; ValueError for an empty list, non-leaves, or parameters that
  /// are in a group already.
  void add_group(std::vector<Tensor> params, Settings settings);

  /// Parameters of one group that take the same program (see update_internal.h).
  class Batch;
  /// Updates one batch.
  virtual void update(const ParamGroup& group, Batch& batch) = 0;
  /// Updates one parameter from a sparse gradient with the sign to descend on.
  virtual void update_sparse(size_t group, size_t param, const Tensor& gradient);
  /// NotImplementedError for weight decay, which would reach all rows.
  void check_without_decay(size_t group) const;
  /// Makes what a parameter's state lacks, and moves a count on, whose new value it returns.
  double begin_update(size_t group, size_t param, size_t count_key);
  /// Puts another tensor into a parameter's state, as take_new_state() will tell.
  void renew_state(size_t group, size_t param, size_t key, Tensor value);
  /// Whether a part of the state (an index into state_keys()) is there for this parameter.
  virtual bool has_state(const Tensor& /*param*/, size_t /*key*/) const { return true; }
  /// The sizes of a part.
  virtual Shape state_sizes(const Tensor& param, size_t /*key*/) const {
    return Shape(param.sizes());
  }

 private:
  struct Slot {                 // of one parameter
    std::vector<Tensor> state;  // one per key; undefined until made
    Tensor left;                // shows the parameter's memory as the last step with it found it
    uint64_t left_writes = 0;   // and so many writes that memory had then
  };
  struct Programs;
  struct Page;
  struct PageOfGroup {
    size_t group;
    Device device;
    std::shared_ptr<Page> page;
  };
  struct Step;
  struct Kind;
  struct Part;

  size_t master_key() const { return keys_.size() - 1; }
  uint32_t keys_in_use(const ParamGroup& group) const;
  uint32_t keys_in_use(uint32_t of_group, const Tensor& param) const;
  Tensor made_state(const ParamGroup& group, const Tensor& param, const Slot& slot, size_t key,
                    Device place) const;
  Tensor new_tensor(size_t key, const Tensor& like) const;
  bool is_ready(const Tensor& param, const Tensor& t, size_t key, bool masters, Device place) const;
  void complete(size_t group, size_t param, uint32_t keys, bool on_device, bool recorded);
  bool steps_on_device(const Tensor& param, const Slot& slot, uint32_t keys, Step& step) const;
  Kind kind_of(const Tensor& param, Slot& slot, DType grad, bool on_device, uint32_t keys,
               Step& step) const;
  void step_all(const Tensor& found_inf, const Tensor& inverse_scale);
  void step_group(size_t group, Step& step);
  void step_sparse(size_t group, size_t param, Tensor gradient, Step& step);
  void prepare_page(size_t group, Batch& batch, Step& step);
  template <class F>
  void visit_parts(size_t group, const std::vector<size_t>& params, Device device, F&& f) const;
  std::string changed_part(size_t group, const std::vector<size_t>& params, Device device,
                           const std::vector<Part>& recorded) const;

  const char* name_;
  std::vector<StateKey> keys_;
  std::vector<ParamGroup> groups_;
  std::vector<std::vector<Slot>> slots_;  // [group][parameter]
  std::vector<std::pair<size_t, size_t>> new_state_;
  std::vector<PageOfGroup> pages_;
  std::unique_ptr<Programs> programs_;
  std::shared_ptr<Optimizer*> self_;  // what recorded steps know it by
};

/// An optimizer whose groups have options of one type, which describe themselves (see Note [Fields
/// of options]) and give it its name and keys. The library's are instantiated in it, not in every
/// program.
template <class OptionsType>
class TypedOptimizer : public Optimizer {
 public:
  using Options = OptionsType;
  explicit TypedOptimizer(std::vector<Tensor> params, const Options& options = {})
      : TypedOptimizer(std::vector<Group<Options>>{{std::move(params), options}}) {}
  explicit TypedOptimizer(std::vector<Group<Options>> groups)
      : Optimizer(Options::kOptimizer, Options::kState) {
    for (Group<Options>& g : groups) add_param_group(std::move(g.params), g.options);
  }
  void add_param_group(std::vector<Tensor> params, const Options& options) {
    if constexpr (requires { Options::check_parameter(params[0]); })
      for (const Tensor& p : params) Options::check_parameter(p);
    add_group(std::move(params), settings_of(options));
  }
};

}  // namespace arete::optim
