// Optimizers that change one thing about Adam.
#pragma once

#include "arete/optim/adam.h"
#include "arete/optim/optimizer.h"

namespace arete::optim {

struct NAdamOptions {
  Setting lr = 2e-3;
  Betas betas = {};
  Setting eps = 1e-8;
  Setting weight_decay = 0;
  Setting momentum_decay = 4e-3;        ///< how fast the first decay rate reaches beta1
  bool decoupled_weight_decay = false;  ///< as in AdamW
  bool maximize = false;
  bool capturable = false;      ///< for CUDA graphs, see Optimizer
  bool differentiable = false;  ///< records history, see Optimizer

  static constexpr const char* kOptimizer = "NAdam";
  static constexpr StateKey kState[] = {
      {"step", StateKey::count},
      {.name = "mu_product", .kind = StateKey::number, .first = 1},
      {"exp_avg"},
      {"exp_avg_sq"}};
  static void fields(auto& visit, auto& o) {
    visit("lr", o.lr, is_learning_rate);
    visit_betas(visit, o.betas);
    visit("eps", o.eps, is_epsilon);
    visit("weight_decay", o.weight_decay, is_weight_decay);
    visit("momentum_decay", o.momentum_decay, not_negative("Invalid momentum_decay value: "));
    visit("decoupled_weight_decay", o.decoupled_weight_decay);
    visit.keywords();
    visit.python("foreach");
    visit("maximize", o.maximize);
    visit("capturable", o.capturable);
    visit("differentiable", o.differentiable);
  }
};

extern template class TypedOptimizer<NAdamOptions>;

/// Adam with Nesterov's momentum (Dozat 2016): the mean is looked at one step ahead. With
/// u_t = b1 (1 - 0.96^(t psi) / 2) and U_t = u_1 ... u_t, p -= lr * ((1 - u_t) / (1 - U_t) * g +
/// u_{t+1} / (1 - U_{t+1}) * m) / (sqrt(v / (1 - b2^t)) + eps).
/// State: step, mu_product (a number), exp_avg, exp_avg_sq.
class NAdam : public TypedOptimizer<NAdamOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;

 protected:
  void update(const ParamGroup& group, Batch& batch) override;
};

struct RAdamOptions {
  Setting lr = 1e-3;
  Betas betas = {};
  Setting eps = 1e-8;
  Setting weight_decay = 0;
  bool decoupled_weight_decay = false;  ///< as in AdamW
  bool maximize = false;
  bool capturable = false;      ///< for CUDA graphs, see Optimizer
  bool differentiable = false;  ///< records history, see Optimizer

  static constexpr const char* kOptimizer = "RAdam";
  static constexpr StateKey kState[] = {{"step", StateKey::count}, {"exp_avg"}, {"exp_avg_sq"}};
  static void fields(auto& visit, auto& o) {
    visit("lr", o.lr, is_learning_rate);
    visit_betas(visit, o.betas);
    visit("eps", o.eps, is_epsilon);
    visit("weight_decay", o.weight_decay, is_weight_decay);
    visit("decoupled_weight_decay", o.decoupled_weight_decay);
    visit.keywords();
    visit.python("foreach");
    visit("maximize", o.maximize);
    visit("capturable", o.capturable);
    visit("differentiable", o.differentiable);
  }
};

extern template class TypedOptimizer<RAdamOptions>;

/// Rectified Adam (Liu et al. 2020): as long as too few gradients were seen to trust the second
/// moment the step follows the mean alone; then it is scaled by how far it may be trusted.
/// State: step, exp_avg, exp_avg_sq.
class RAdam : public TypedOptimizer<RAdamOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;

 protected:
  void update(const ParamGroup& group, Batch& batch) override;
};

struct AdamaxOptions {
  Setting lr = 2e-3;
  Betas betas = {};
  Setting eps = 1e-8;
  Setting weight_decay = 0;
  bool maximize = false;
  bool differentiable = false;  ///< records history, see Optimizer
  bool capturable = false;      ///< for CUDA graphs, see Optimizer

  static constexpr const char* kOptimizer = "Adamax";
  static constexpr StateKey kState[] = {{"step", StateKey::count}, {"exp_avg"}, {"exp_inf"}};
  static void fields(auto& visit, auto& o) {
    visit("lr", o.lr, is_learning_rate);
    visit_betas(visit, o.betas);
    visit("eps", o.eps, is_epsilon);
    visit("weight_decay", o.weight_decay, is_weight_decay);
    visit.python("foreach");
    visit.keywords();
    visit("maximize", o.maximize);
    visit("differentiable", o.differentiable);
    visit("capturable", o.capturable);
  }
};

extern template class TypedOptimizer<AdamaxOptions>;

/// Adam by the largest gradient instead of the mean square (Kingma and Ba 2015):
/// u = max(b2 u, |g| + eps), p -= lr / (1 - b1^t) * m / u. State: step, exp_avg, exp_inf.
class Adamax : public TypedOptimizer<AdamaxOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;

 protected:
  void update(const ParamGroup& group, Batch& batch) override;
};

}  // namespace arete::optim
