// Stochastic gradient descent.
#pragma once

#include "arete/optim/optimizer.h"

namespace arete::optim {

struct SGDOptions {
  Setting lr = 1e-3;
  Setting momentum = 0;
  Setting dampening = 0;
  Setting weight_decay = 0;     ///< added to the gradient as weight_decay * parameter
  bool nesterov = false;        ///< needs momentum > 0 and dampening 0
  bool maximize = false;        ///< climbs instead
  bool differentiable = false;  ///< records history, see Optimizer
  bool master_weights = false;  ///< f32 copies of parameters in half types, see Optimizer

  static constexpr const char* kOptimizer = "SGD";
  // Only with dampening the first buffer, which is the gradient, is not what the rule makes of
  // zeros: then the count is of use.
  static constexpr StateKey kState[] = {{.name = "step",
                                         .kind = StateKey::count,
                                         .resident = true,
                                         .shown = false,
                                         .used_with = {"momentum", "dampening"}},
                                        {.name = "momentum_buffer", .used_with = {"momentum"}}};
  static void fields(auto& visit, auto& o) {
    visit("lr", o.lr, is_learning_rate);
    visit("momentum", o.momentum, not_negative("Invalid momentum value: "));
    visit("dampening", o.dampening);
    visit("weight_decay", o.weight_decay, is_weight_decay);
    visit("nesterov", o.nesterov);
    visit.keywords();
    visit("maximize", o.maximize);
    visit.python("foreach");
    visit("differentiable", o.differentiable);
    visit.python("fused");
    visit.own("master_weights", o.master_weights);
  }
  void check() const;
};

extern template class TypedOptimizer<SGDOptions>;

/// p -= lr * g, or with momentum v = momentum * v + (1 - dampening) * g (v = g at first) and
/// p -= lr * v (nesterov: lr * (g + momentum * v)). State: momentum_buffer.
class SGD : public TypedOptimizer<SGDOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;

 protected:
  void update(const ParamGroup& group, Batch& batch) override;
  /// A buffer of sparse gradients is sparse itself, with the rows that were ever touched.
  void update_sparse(size_t group, size_t param, const Tensor& gradient) override;
};

}  // namespace arete::optim
