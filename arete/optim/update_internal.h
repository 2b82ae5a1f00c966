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
/// The new parameter and the new state, in order.
using Rule = std::function<std::vector<expr::Value>(const Operands&)>;

class Optimizer::Batch {
 public:
  /// The number of this update: 1 for the first.
  int64_t step = 1;
  /// The state was made just now.
  bool fresh = true;

  /// Runs `rule` over all tensors of the batch. `variant` tells the rule's structural choices
  /// apart: rules of one optimizer with equal variants must be the same. `numbers` are run-time
  /// parameters of the program.
  void run(uint32_t variant, const Rule& rule, std::initializer_list<double> numbers);

 private:
  friend class Optimizer;
  struct Item {
    Tensor param, grad;
    Slot* slot;
  };
  std::vector<Item> items_;
  std::vector<size_t> used_;  // state slots
  Programs* programs_ = nullptr;
  const char* name_ = nullptr;
};

}  // namespace arete::optim
