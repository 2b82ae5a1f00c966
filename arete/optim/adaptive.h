// Optimizers that scale each element's step by its past gradients.
#pragma once

#include "arete/optim/optimizer.h"

namespace arete::optim {

struct RMSpropOptions {
  Setting lr = 1e-2;
  Setting alpha = 0.99;  ///< decay rate of the mean square
  Setting eps = 1e-8;
  Setting weight_decay = 0;
  Setting momentum = 0;
  bool centered = false;    ///< divides by the standard deviation instead
  bool capturable = false;  ///< for CUDA graphs, see Optimizer
  bool maximize = false;
  bool differentiable = false;  ///< records history, see Optimizer

  static constexpr const char* kOptimizer = "RMSprop";
  static constexpr StateKey kState[] = {{"step", StateKey::count},
                                        {"square_avg"},
                                        {.name = "momentum_buffer", .used_with = {"momentum"}},
                                        {.name = "grad_avg", .used_with = {"centered"}}};
  static void fields(auto& visit, auto& o) {
    visit("lr", o.lr, is_learning_rate);
    visit("alpha", o.alpha, not_negative("Invalid alpha value: "));
    visit("eps", o.eps, not_negative("Invalid epsilon value: "));
    visit("weight_decay", o.weight_decay, is_weight_decay);
    visit("momentum", o.momentum, not_negative("Invalid momentum value: "));
    visit("centered", o.centered);
    visit("capturable", o.capturable);
    visit.python("foreach");
    visit("maximize", o.maximize);
    visit("differentiable", o.differentiable);
  }
};

extern template class TypedOptimizer<RMSpropOptions>;

/// v = a v + (1 - a) g^2, p -= lr * g / (sqrt(v) + eps), through a momentum buffer if momentum > 0.
/// State: step, square_avg, momentum_buffer, grad_avg (centered).
class RMSprop : public TypedOptimizer<RMSpropOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;

 protected:
  void update(const ParamGroup& group, Batch& batch) override;
};

struct AdagradOptions {
  Setting lr = 1e-2;
  Setting lr_decay = 0;  ///< the rate at update t is lr / (1 + (t - 1) lr_decay)
  Setting weight_decay = 0;
  Setting initial_accumulator_value = 0;
  Setting eps = 1e-10;
  bool maximize = false;
  bool differentiable = false;  ///< records history, see Optimizer
  bool capturable = false;      ///< for CUDA graphs, see Optimizer

  static constexpr const char* kOptimizer = "Adagrad";
  static constexpr StateKey kState[] = {
      {"step", StateKey::count}, {.name = "sum", .first_setting = "initial_accumulator_value"}};
  static void fields(auto& visit, auto& o) {
    visit("lr", o.lr, is_learning_rate);
    visit("lr_decay", o.lr_decay, not_negative("Invalid lr_decay value: "));
    visit("weight_decay", o.weight_decay, is_weight_decay);
    visit("initial_accumulator_value", o.initial_accumulator_value,
          not_negative("Invalid initial_accumulator_value value: "));
    visit("eps", o.eps, not_negative("Invalid epsilon value: "));
    visit.python("foreach");
    visit.keywords();
    visit("maximize", o.maximize);
    visit("differentiable", o.differentiable);
    visit.python("fused");
    visit.own("capturable", o.capturable);
  }
};

extern template class TypedOptimizer<AdagradOptions>;

/// s += g^2, p -= lr_t * g / (sqrt(s) + eps). State: step, sum.
class Adagrad : public TypedOptimizer<AdagradOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;

 protected:
  void update(const ParamGroup& group, Batch& batch) override;
  void update_sparse(size_t group, size_t param, const Tensor& gradient) override;
};

struct AdadeltaOptions {
  Setting lr = 1.0;
  Setting rho = 0.9;
  Setting eps = 1e-6;
  Setting weight_decay = 0;
  bool capturable = false;  ///< for CUDA graphs, see Optimizer
  bool maximize = false;
  bool differentiable = false;  ///< records history, see Optimizer

  static constexpr const char* kOptimizer = "Adadelta";
  static constexpr StateKey kState[] = {{"step", StateKey::count}, {"square_avg"}, {"acc_delta"}};
  static void fields(auto& visit, auto& o) {
    visit("lr", o.lr, is_learning_rate);
    visit("rho", o.rho, Check{Check::up_to_one, "Invalid rho value: "});
    visit("eps", o.eps, not_negative("Invalid epsilon value: "));
    visit("weight_decay", o.weight_decay, is_weight_decay);
    visit.python("foreach");
    visit.keywords();
    visit("capturable", o.capturable);
    visit("maximize", o.maximize);
    visit("differentiable", o.differentiable);
  }
};

extern template class TypedOptimizer<AdadeltaOptions>;

/// v = rho v + (1 - rho) g^2, d = g sqrt(u + eps) / sqrt(v + eps), u = rho u + (1 - rho) d^2,
/// p -= lr d. State: step, square_avg (v), acc_delta (u).
class Adadelta : public TypedOptimizer<AdadeltaOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;

 protected:
  void update(const ParamGroup& group, Batch& batch) override;
};

}  // namespace arete::optim
