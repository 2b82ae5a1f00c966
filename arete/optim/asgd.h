// Gradient descent that averages its way.
#pragma once

#include "arete/optim/optimizer.h"

namespace arete::optim {

struct ASGDOptions {
  Setting lr = 1e-2;
  Setting lambd = 1e-4;  ///< decay
  Setting alpha = 0.75;  ///< power of the rate's decay
  Setting t0 = 1e6;      ///< the update after which averaging begins
  Setting weight_decay = 0;
  bool maximize = false;
  bool differentiable = false;  ///< records history, see Optimizer
  bool capturable = false;      ///< for CUDA graphs, see Optimizer

  static constexpr const char* kOptimizer = "ASGD";
  static constexpr StateKey kState[] = {
      {"step", StateKey::count, true},
      {.name = "eta", .kind = StateKey::number, .resident = true, .first_setting = "lr"},
      {.name = "mu", .kind = StateKey::number, .resident = true, .first = 1},
      {"ax"}};
  static void fields(auto& visit, auto& o) {
    visit("lr", o.lr, is_learning_rate);
    visit("lambd", o.lambd);
    visit("alpha", o.alpha);
    visit("t0", o.t0);
    visit("weight_decay", o.weight_decay, is_weight_decay);
    visit.python("foreach");
    visit("maximize", o.maximize);
    visit("differentiable", o.differentiable);
    visit("capturable", o.capturable);
  }
};

extern template class TypedOptimizer<ASGDOptions>;

/// Averaged stochastic gradient descent (Polyak and Juditsky 1992): p *= 1 - lambd eta, p -= eta g,
/// ax += mu (p - ax), then eta = lr / (1 + lambd lr t)^alpha, mu = 1 / max(1, t - t0). The average
/// is in the state. State: step, eta, mu (numbers, on the parameter's device), ax.
class ASGD : public TypedOptimizer<ASGDOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;

 protected:
  void update(const ParamGroup& group, Batch& batch) override;
};

}  // namespace arete::optim
