// Adam and its relatives.
#pragma once

#include <vector>

#include "arete/optim/optimizer.h"

namespace arete::optim {

/// The decay rates of the two running means.
struct Betas {
  double beta1 = 0.9, beta2 = 0.999;
};

struct AdamOptions {
  double lr = 1e-3;
  Betas betas = {};
  double eps = 1e-8;
  double weight_decay = 0;  ///< added to the gradient as weight_decay * parameter
  bool amsgrad = false;     ///< divides by the largest second moment so far
  bool maximize = false;
  bool master_weights = false;  ///< f32 copies of parameters in half types, see Optimizer
};
Settings settings_of(const AdamOptions& options);

/// m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2,
/// p -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps).
/// State: step, exp_avg, exp_avg_sq, max_exp_avg_sq (amsgrad).
class Adam : public TypedOptimizer<AdamOptions> {
 public:
  explicit Adam(std::vector<Tensor> params, const AdamOptions& options = {})
      : Adam(std::vector<Group<AdamOptions>>{{std::move(params), options}}) {}
  explicit Adam(std::vector<Group<AdamOptions>> groups);

 protected:
  void update(const ParamGroup& group, Batch& batch) override;
  bool uses_state(const ParamGroup& group, size_t slot) const override;
};

struct AdamWOptions {
  double lr = 1e-3;
  Betas betas = {};
  double eps = 1e-8;
  double weight_decay = 1e-2;  ///< parameters shrink by lr * weight_decay, whatever the gradient
  bool amsgrad = false;
  bool maximize = false;
  bool master_weights = false;  ///< f32 copies of parameters in half types, see Optimizer
};
Settings settings_of(const AdamWOptions& options);

/// Adam with decoupled weight decay: p *= 1 - lr * weight_decay before the update.
class AdamW : public TypedOptimizer<AdamWOptions> {
 public:
  explicit AdamW(std::vector<Tensor> params, const AdamWOptions& options = {})
      : AdamW(std::vector<Group<AdamWOptions>>{{std::move(params), options}}) {}
  explicit AdamW(std::vector<Group<AdamWOptions>> groups);

 protected:
  void update(const ParamGroup& group, Batch& batch) override;
  bool uses_state(const ParamGroup& group, size_t slot) const override;
};

struct LionOptions {
  double lr = 1e-4;
  Betas betas = {0.9, 0.99};
  double weight_decay = 0;  ///< decoupled, as in AdamW
  bool maximize = false;
};
Settings settings_of(const LionOptions& options);

/// p *= 1 - lr * weight_decay, p -= lr * sign(b1 m + (1 - b1) g), m = b2 m + (1 - b2) g.
/// State: exp_avg.
class Lion : public TypedOptimizer<LionOptions> {
 public:
  explicit Lion(std::vector<Tensor> params, const LionOptions& options = {})
      : Lion(std::vector<Group<LionOptions>>{{std::move(params), options}}) {}
  explicit Lion(std::vector<Group<LionOptions>> groups);

 protected:
  void update(const ParamGroup& group, Batch& batch) override;
};

}  // namespace arete::optim
