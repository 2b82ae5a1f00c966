// One update of many tensors by one program.
#pragma once

#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "arete/expr/value.h"
#include "arete/optim/optimizer.h"
#include "arete/prim/view.h"

namespace arete::optim {

using expr::Value;

// Note [Numbers of an update]
// What a step is computed with beside tensors (step sizes, bias corrections, decays) follows from
// the number t of the update, the settings of the group and a few numbers of the state. Each
// optimizer has one generic lambda for it, from Given<T> to Computed<T>. Where the counts are on
// the host it runs with doubles, and its results are run-time parameters of the update's program.
// Where they are on the device (Note [Steps on the device]) it is traced into a program of f64
// values, and the update reads the results in memory. The formulas and their order are the same.

/// What such a lambda is given. T is double or expr::Value.
template <class T>
struct Given {
  using Number = T;
  T t;  // 1 for the first update
  std::span<const std::pair<std::string, Setting>> names;
  std::span<const T> settings;
  std::span<const T> state;      // numbers of the state before the update
  std::span<const T> constants;  // of the batch
  const T& operator[](std::string_view name) const {
    for (size_t i = 0; i < names.size(); ++i)
      if (names[i].first == name) return settings[i];
    ARETE_BUG("an update asks for a setting that is none of its options");
  }
};
/// What it computes: numbers for the rule, and those of the state after the update.
template <class T>
struct Computed {
  std::vector<T> update, state;
};
template <class G>  // the type of such a lambda's argument
using ComputedFrom = Computed<typename std::remove_cvref_t<G>::Number>;
struct NumbersRule {
  std::function<Computed<double>(const Given<double>&)> host;
  std::function<Computed<Value>(const Given<Value>&)> device;
  template <class F>
  NumbersRule(F f) : host(f), device(f) {}
};

// For these lambdas: expr has the same functions for values.
inline double where(bool condition, double a, double b) { return condition ? a : b; }
inline double sqrt(double x) { return std::sqrt(x); }
inline double pow(double x, double y) { return std::pow(x, y); }
inline double floor(double x) { return std::floor(x); }
inline double max(double a, double b) { return a < b ? b : a; }
inline double min(double a, double b) { return b < a ? b : a; }
inline double constant_like(double, double value) { return value; }
/// A product that stays one, and is not merged into the sum that it is a part of, as devices do:
/// what an optimizer without counts computes on the host before a step is recorded, and on the
/// device after it, is the same to the last bit.
inline double unfused(double product) { return product; }
inline Value unfused(Value product) {
  return expr::min(product, std::numeric_limits<double>::infinity());
}
/// base^t for a count t, by repeated squaring: products alone, which the host and every device
/// round in the same way.
template <class T>
T power(T base, T t) {
  T result = constant_like(base, 1.0);
  for (int bit = 0; bit < 24; ++bit) {  // counts are f32 and end there
    const T half = floor(t * 0.5);
    result = where(t - half * 2.0 > 0.5, result * base, result);
    base = base * base;
    t = half;
  }
  return result;
}

/// What an update rule computes with: one element of each tensor, and the numbers of this step.
struct Operands {
  Value param, grad;
  std::span<const Value> state;  // the tensors in use, in the order of the keys
  std::span<const Value> numbers;
};
/// What settings make of parameter and gradient before an optimizer's own rule: `maximize`, and
/// weight decay, which is part of the gradient or, by choice of the group, decoupled from it.
struct Descent {
  template <class Batch>
  Descent(const ParamGroup& group, const Batch& batch)
      : maximize(group.flag("maximize")),
        decays(batch.counts(group, "weight_decay")),
        decoupled(group.flag("decoupled_weight_decay")) {}
  bool maximize, decays, decoupled;
  /// What of the parameter is added to the gradient, or what the parameter is multiplied by.
  template <class G>
  auto decay(const G& given) const {
    const auto decay = given["weight_decay"];
    return decoupled ? 1.0 - unfused(given["lr"] * decay) : decay;
  }
  /// The parameter and the gradient to descend on.
  std::pair<Value, Value> start(const Operands& v, Value decay) const {
    const Value p = v.param, g = maximize ? -v.grad : v.grad;
    if (!decays) return {p, g};
    return decoupled ? std::pair(p * decay, g) : std::pair(p, g + decay * p);
  }
};
/// The new parameter and the new state, in order.
using Rule = std::function<std::vector<Value>(const Operands&)>;

/// Packs the structural choices of a rule into the number that tells its variants apart.
inline uint32_t variant_of(std::initializer_list<bool> choices) {
  uint32_t v = 0;
  for (bool c : choices) v = v << 1 | uint32_t(c);
  return v;
}
inline uint32_t variant_of(const Descent& d, std::initializer_list<bool> choices = {}) {
  return variant_of(choices) << 3 | variant_of({d.maximize, d.decays, d.decoupled});
}

/// All that parameters of one batch have in common.
struct Optimizer::Kind {
  bool on_device = false, masters = false, compares = false;
  uint32_t keys = 0;     // of the state in use
  uint32_t numbers = 0;  // dtypes of count and numbers
  DType param, grad;
  Device device;
  double steps = 0;               // with counts on the host: updates so far,
  SmallVector<double, 2> values;  // and the numbers of the state
  bool operator==(const Kind& other) const;
};

class Optimizer::Batch {
 public:
  struct Item {
    Tensor param, grad;
    Slot* slot;
    size_t number;  // in its group
  };
  const std::vector<Item>& items() const { return items_; }
  const Tensor& state(const Item& item, size_t key) const { return item.slot->state[key]; }
  /// Whether a number of the settings takes part. On the device one that is 0 does, too: another
  /// one may stand there when a recorded step is replayed.
  bool counts(const ParamGroup& group, std::string_view name) const {
    return kind_.on_device || history_ || group.setting(name).may_count();
  }

  /// Computes this step's numbers, before anything else. `variant` tells lambdas apart that
  /// capture something.
  void compute(uint32_t variant, const NumbersRule& numbers,
               std::initializer_list<double> constants = {});
  /// Runs `rule` over all tensors of the batch. Rules of one optimizer with equal variants must be
  /// the same.
  void update(uint32_t variant, const Rule& rule);
  void run(uint32_t variant, const NumbersRule& numbers, const Rule& rule) {
    compute(variant, numbers);
    update(variant, rule);
  }

  /// What a program has beside its operands.
  struct Beside {
    std::span<const Value> numbers;
    Value factor;       // of the gradient; no value: it is as it should be
    Value takes_place;  // whether the update does; no value: it does
    Value kept(Value fresh, Value old) const {
      return takes_place.builder() ? expr::where(takes_place, fresh, old) : fresh;
    }
  };
  /// A program over all items, for rules that are more than one pass; operate(item, inputs,
  /// outputs) gives its operands, and `what` tells it apart from other programs of the optimizer
  /// (it begins with a number of kOwnPasses or more).
  using Body = std::function<std::vector<Value>(std::span<const Value>, const Beside&)>;
  using Operate =
      std::function<void(const Item&, std::vector<prim::View>&, std::vector<prim::View>&)>;
  static constexpr uint32_t kOwnPasses = 100;
  void pass(std::initializer_list<uint32_t> what, const Operate& operate, const Body& body);
  /// Multiplies the gradients by what they still have to be multiplied by, in place. For rules
  /// that read them in other ways than update() does.
  void unscale();
  /// A tensor as an operand; complex numbers as pairs of real ones.
  prim::View view(const Tensor& t);
  /// The same of a parameter that is about to be written.
  prim::View parameter(const Item& item);
  /// What the parameters' elements are computed in.
  DType number_dtype() const;
  Device device() const { return kind_.device; }

 private:
  friend class Optimizer;
  Batch(Optimizer& optimizer, size_t group, const Kind& kind, const Step& step);
  bool has_factor() const { return unscales_ || found_inf_.defined(); }
  expr::ProgramPtr numbers_program(uint32_t variant, const NumbersRule& numbers,
                                   std::span<const DType> inputs, size_t n_constants) const;
  void compute_on_host(const NumbersRule& numbers, std::span<const double> constants);
  void compute_on_device(uint32_t variant, const NumbersRule& numbers,
                         std::span<const double> constants);
  void compute_with_history(uint32_t variant, const NumbersRule& numbers,
                            std::span<const double> constants);
  void update_with_history(uint32_t variant, const Rule& rule);
  const Storage* late_gradients() const;
  std::vector<Value> in_place(const Rule& rule, std::span<const Value> operands,
                              const Beside& beside) const;
  /// Writes what the host counts.
  void finish();

  Kind kind_;
  const ParamGroup* group_;
  const char* name_;
  Programs* programs_;
  Page* page_ = nullptr;
  std::vector<Item> items_;
  std::vector<size_t> tensors_;  // keys of the tensors of the state that are in use,
  std::vector<size_t> moving_;   // of count and numbers,
  bool counts_ = false;          // whether the count is among them,
  size_t master_;                // and of the masters
  bool history_;                 // is recorded
  std::vector<double> values_;   // numbers of the state, of the next step after compute()
  // Of a scaler. On the host it has been asked whether the update takes place.
  bool unscales_;
  double inverse_ = 1;
  Tensor found_inf_, inverse_scale_;
  // Of this step, from compute(). With a scaler the numbers begin with the factor of the gradient.
  std::vector<double> literals_;
  Tensor rows_;
  size_t n_row_ = 0;
  std::vector<std::vector<Tensor>> with_history_;
  std::deque<Tensor> parts_;  // views of complex tensors
};

}  // namespace arete::optim
