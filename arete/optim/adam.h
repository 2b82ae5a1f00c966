// Adam and its relatives.
#pragma once

#include "arete/optim/optimizer.h"

namespace arete::optim {

/// The decay rates of the two running means.
struct Betas {
  Setting beta1 = 0.9, beta2 = 0.999;
};
void visit_betas(auto& visit, auto& betas) {
  visit.tuple("betas",
              member("beta1", betas.beta1, fraction("Invalid beta parameter at index 0: ")),
              member("beta2", betas.beta2, fraction("Invalid beta parameter at index 1: ")));
}
constexpr Check is_epsilon = not_negative("Invalid epsilon value: ");

struct AdamOptions {
  Setting lr = 1e-3;
  Betas betas = {};
  Setting eps = 1e-8;
  Setting weight_decay = 0;  ///< added to the gradient as weight_decay * parameter
  bool amsgrad = false;      ///< divides by the largest second moment so far
  bool maximize = false;
  bool capturable = false;              ///< for CUDA graphs, see Optimizer
  bool differentiable = false;          ///< records history, see Optimizer
  bool decoupled_weight_decay = false;  ///< as in AdamW
  bool master_weights = false;          ///< f32 copies of parameters in half types, see Optimizer

  static constexpr const char* kOptimizer = "Adam";
  static constexpr StateKey kState[] = {{"step", StateKey::count},
                                        {"exp_avg"},
                                        {"exp_avg_sq"},
                                        {.name = "max_exp_avg_sq", .used_with = {"amsgrad"}}};
  static void fields(auto& visit, auto& o) {
    visit("lr", o.lr, is_learning_rate);
    visit_betas(visit, o.betas);
    visit("eps", o.eps, is_epsilon);
    visit("weight_decay", o.weight_decay, is_weight_decay);
    visit("amsgrad", o.amsgrad);
    visit.keywords();
    visit.python("foreach");
    visit("maximize", o.maximize);
    visit("capturable", o.capturable);
    visit("differentiable", o.differentiable);
    visit.python("fused");
    visit("decoupled_weight_decay", o.decoupled_weight_decay);
    visit.own("master_weights", o.master_weights);
  }
};

extern template class TypedOptimizer<AdamOptions>;

/// m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2,
/// p -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps).
/// State: step, exp_avg, exp_avg_sq, max_exp_avg_sq (amsgrad).
class Adam : public TypedOptimizer<AdamOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;

 protected:
  void update(const ParamGroup& group, Batch& batch) override;
};

struct AdamWOptions {
  Setting lr = 1e-3;
  Betas betas = {};
  Setting eps = 1e-8;
  Setting weight_decay = 1e-2;  ///< parameters shrink by lr * weight_decay, whatever the gradient
  bool amsgrad = false;
  bool maximize = false;
  bool capturable = false;      ///< for CUDA graphs, see Optimizer
  bool differentiable = false;  ///< records history, see Optimizer
  bool master_weights = false;  ///< f32 copies of parameters in half types, see Optimizer

  static constexpr const char* kOptimizer = "AdamW";
  static constexpr auto& kState = AdamOptions::kState;
  static void fields(auto& visit, auto& o) {
    visit("lr", o.lr, is_learning_rate);
    visit_betas(visit, o.betas);
    visit("eps", o.eps, is_epsilon);
    visit("weight_decay", o.weight_decay, is_weight_decay);
    visit("amsgrad", o.amsgrad);
    visit.keywords();
    visit("maximize", o.maximize);
    visit.python("foreach");
    visit("capturable", o.capturable);
    visit("differentiable", o.differentiable);
    visit.python("fused");
    visit.fixed("decoupled_weight_decay", true);
    visit.own("master_weights", o.master_weights);
  }
};

extern template class TypedOptimizer<AdamWOptions>;

/// Adam with decoupled weight decay: p *= 1 - lr * weight_decay before the update.
class AdamW : public TypedOptimizer<AdamWOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;

 protected:
  void update(const ParamGroup& group, Batch& batch) override;
};

struct LionOptions {
  Setting lr = 1e-4;
  Betas betas = {0.9, 0.99};
  Setting weight_decay = 0;  ///< decoupled, as in AdamW
  bool maximize = false;

  static constexpr const char* kOptimizer = "Lion";
  static constexpr StateKey kState[] = {{"exp_avg"}};
  static void fields(auto& visit, auto& o) {
    visit("lr", o.lr, is_learning_rate);
    visit_betas(visit, o.betas);
    visit("weight_decay", o.weight_decay, is_weight_decay);
    visit.keywords();
    visit("maximize", o.maximize);
  }
};

extern template class TypedOptimizer<LionOptions>;

/// p *= 1 - lr * weight_decay, p -= lr * sign(b1 m + (1 - b1) g), m = b2 m + (1 - b2) g.
/// State: exp_avg.
class Lion : public TypedOptimizer<LionOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;

 protected:
  void update(const ParamGroup& group, Batch& batch) override;
};

}  // namespace arete::optim
