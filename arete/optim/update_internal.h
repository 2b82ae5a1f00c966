// One update of many tensors by one program.
#pragma once

#include <functional>
#include <initializer_list>
#include <vector>

#include "arete/expr/value.h"
#include "arete/optim/optimizer.h"

namespace arete::optim {

/// What an update rule computes with: one element of each tensor, and the numbers of this step.
struct Operands {
  expr::Value param, grad;
  std::span<const expr::Value> state;  // those in use, in the order of state_names
  std::span<const expr::Value> numbers;
};
/// The gradient to descend on, with weight decay added.
inline expr::Value effective_gradient(const Operands& v, bool maximize, bool with_decay,
                                      expr::Value decay) {
  const expr::Value g = maximize ? -v.grad : v.grad;
  return with_decay ? g + decay * v.param : g;
}
/// The new parameter and the new state, in order.
using Rule = std::function<std::vector<expr::Value>(const Operands&)>;

/// Numbers that depend on how many updates there were: made of a generic lambda (t, numbers) ->
/// std::vector, for doubles on the host, or for values in a program where only the device knows t
/// because a scaler may have left out updates. It captures nothing.
struct ByStep {
  std::function<std::vector<double>(double, std::span<const double>)> host;
  std::function<std::vector<expr::Value>(expr::Value, std::span<const expr::Value>)> device;
  ByStep() = default;
  template <class F>
  ByStep(F f) : host(f), device(f) {}
};
/// For such lambdas; expr has the same for values.
inline double where(bool condition, double a, double b) { return condition ? a : b; }

class Optimizer::Batch {
 public:
  /// The number of this update, 1 for the first, if none was left out.
  int64_t step = 1;
  /// The state was made just now.
  bool fresh = true;
  /// Those of the state, which are the same for the whole batch. update() puts the new ones here.
  std::vector<double> numbers;

  /// Runs `rule` over all tensors of the batch. `variant` tells the rule's structural choices
  /// apart: rules of one optimizer with equal variants must be the same. `numbers` are run-time
  /// parameters of the program; those of by_step, made from them, follow them in Operands::numbers.
  void run(uint32_t variant, const Rule& rule, std::initializer_list<double> numbers,
           const ByStep& by_step = {});

 private:
  friend class Optimizer;
  struct Item {
    Tensor param, grad;
    Slot* slot;
  };
  expr::ProgramPtr& program(uint32_t variant, const Rule& rule, size_t n_numbers, size_t n_uniform,
                            bool on_device);
  std::vector<Tensor> numbers_on_device(std::initializer_list<double> numbers,
                                        const ByStep& by_step, expr::Type type);

  std::vector<Item> items_;
  std::vector<size_t> used_;  // state slots
  bool masters_ = false;
  bool compares_ = false;  // masters with their parameters, which others may have written
  Tensor found_inf_, inverse_scale_;  // 0-d; undefined: 0 and 1
  Programs* programs_ = nullptr;
  const char* name_ = nullptr;
};

}  // namespace arete::optim
