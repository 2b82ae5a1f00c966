// Resilient propagation: steps that follow the signs of the gradient.
#pragma once

#include "arete/optim/optimizer.h"

namespace arete::optim {

struct RpropOptions {
  Setting lr = 1e-2;                        ///< the first step size
  Setting eta_minus = 0.5, eta_plus = 1.2;  ///< what step sizes are multiplied by
  Setting step_min = 1e-6, step_max = 50;   ///< the limits of step sizes
  bool capturable = false;                  ///< for CUDA graphs, see Optimizer
  bool maximize = false;
  bool differentiable = false;  ///< records history, see Optimizer

  static constexpr const char* kOptimizer = "Rprop";
  static constexpr StateKey kState[] = {
      {"step", StateKey::count}, {"prev"}, {.name = "step_size", .first_setting = "lr"}};
  static void fields(auto& visit, auto& o) {
    visit("lr", o.lr, is_learning_rate);
    visit.tuple("etas", member("eta_minus", o.eta_minus), member("eta_plus", o.eta_plus));
    visit.tuple("step_sizes", member("step_min", o.step_min), member("step_max", o.step_max));
    visit.keywords();
    visit("capturable", o.capturable);
    visit.python("foreach");
    visit("maximize", o.maximize);
    visit("differentiable", o.differentiable);
  }
  void check() const;
};

extern template class TypedOptimizer<RpropOptions>;

/// Each element has a step size, which grows where the gradient keeps its sign and shrinks, without
/// a step, where it changes it (Riedmiller and Braun 1993). For gradients of the whole data.
/// State: step, prev (the last gradient), step_size.
class Rprop : public TypedOptimizer<RpropOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;

 protected:
  void update(const ParamGroup& group, Batch& batch) override;
};

}  // namespace arete::optim
