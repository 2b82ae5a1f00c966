// Optimizers that scale each element's step by its past gradients.
#pragma once

#include <vector>

#include "arete/optim/optimizer.h"

namespace arete::optim {

struct RMSpropOptions {
  double lr = 1e-2;
  double alpha = 0.99;  ///< decay rate of the mean square
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;  ///< divides by the standard deviation instead
  bool maximize = false;
};
Settings settings_of(const RMSpropOptions& options);

/// v = a v + (1 - a) g^2, p -= lr * g / (sqrt(v) + eps), through a momentum buffer if momentum > 0.
/// State: square_avg, momentum_buffer, grad_avg (centered).
class RMSprop : public TypedOptimizer<RMSpropOptions> {
 public:
  explicit RMSprop(std::vector<Tensor> params, const RMSpropOptions& options = {})
      : RMSprop(std::vector<Group<RMSpropOptions>>{{std::move(params), options}}) {}
  explicit RMSprop(std::vector<Group<RMSpropOptions>> groups);

 protected:
  void update(const ParamGroup& group, Batch& batch) override;
  bool uses_state(const ParamGroup& group, size_t slot) const override;
};

struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0;  ///< the rate at update t is lr / (1 + (t - 1) lr_decay)
  double weight_decay = 0;
  double initial_accumulator_value = 0;
  double eps = 1e-10;
  bool maximize = false;
};
Settings settings_of(const AdagradOptions& options);

/// s += g^2, p -= lr_t * g / (sqrt(s) + eps). State: sum.
class Adagrad : public TypedOptimizer<AdagradOptions> {
 public:
  explicit Adagrad(std::vector<Tensor> params, const AdagradOptions& options = {})
      : Adagrad(std::vector<Group<AdagradOptions>>{{std::move(params), options}}) {}
  explicit Adagrad(std::vector<Group<AdagradOptions>> groups);

 protected:
  void update(const ParamGroup& group, Batch& batch) override;
  double initial_state(const ParamGroup& group, size_t slot) const override;
};

struct AdadeltaOptions {
  double lr = 1.0;
  double rho = 0.9;
  double eps = 1e-6;
  double weight_decay = 0;
  bool maximize = false;
};
Settings settings_of(const AdadeltaOptions& options);

/// v = rho v + (1 - rho) g^2, d = g sqrt(u + eps) / sqrt(v + eps), u = rho u + (1 - rho) d^2,
/// p -= lr d. State: square_avg (v), acc_delta (u).
class Adadelta : public TypedOptimizer<AdadeltaOptions> {
 public:
  explicit Adadelta(std::vector<Tensor> params, const AdadeltaOptions& options = {})
      : Adadelta(std::vector<Group<AdadeltaOptions>>{{std::move(params), options}}) {}
  explicit Adadelta(std::vector<Group<AdadeltaOptions>> groups);

 protected:
  void update(const ParamGroup& group, Batch& batch) override;
};

}  // namespace arete::optim
