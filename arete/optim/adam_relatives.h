// Optimizers that change one thing about Adam.
#pragma once

#include <utility>
#include <vector>

#include "arete/optim/adam.h"
#include "arete/optim/optimizer.h"

namespace arete::optim {

struct NAdamOptions {
  double lr = 2e-3;
  Betas betas = {};
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum_decay = 4e-3;         ///< how fast the first decay rate reaches beta1
  bool decoupled_weight_decay = false;  ///< as in AdamW
  bool maximize = false;
};
Settings settings_of(const NAdamOptions& options);

/// Adam with Nesterov's momentum (Dozat 2016): the mean is looked at one step ahead. With
/// u_t = b1 (1 - 0.96^(t psi) / 2) and U_t = u_1 ... u_t, p -= lr * ((1 - u_t) / (1 - U_t) * g +
/// u_{t+1} / (1 - U_{t+1}) * m) / (sqrt(v / (1 - b2^t)) + eps).
/// State: step, mu_product (a number), exp_avg, exp_avg_sq.
class NAdam : public TypedOptimizer<NAdamOptions> {
 public:
  explicit NAdam(std::vector<Tensor> params, const NAdamOptions& options = {})
      : NAdam(std::vector<Group<NAdamOptions>>{{std::move(params), options}}) {}
  explicit NAdam(std::vector<Group<NAdamOptions>> groups);

 protected:
  void update(const ParamGroup& group, Batch& batch) override;
  double initial_number(const ParamGroup& group, size_t number) const override;
};

struct RAdamOptions {
  double lr = 1e-3;
  Betas betas = {};
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled_weight_decay = false;  ///< as in AdamW
  bool maximize = false;
};
Settings settings_of(const RAdamOptions& options);

/// Rectified Adam (Liu et al. 2020): as long as too few gradients were seen to trust the second
/// moment the step follows the mean alone; then it is scaled by how far it may be trusted.
/// State: step, exp_avg, exp_avg_sq.
class RAdam : public TypedOptimizer<RAdamOptions> {
 public:
  explicit RAdam(std::vector<Tensor> params, const RAdamOptions& options = {})
      : RAdam(std::vector<Group<RAdamOptions>>{{std::move(params), options}}) {}
  explicit RAdam(std::vector<Group<RAdamOptions>> groups);

 protected:
  void update(const ParamGroup& group, Batch& batch) override;
};

struct AdamaxOptions {
  double lr = 2e-3;
  Betas betas = {};
  double eps = 1e-8;
  double weight_decay = 0;
  bool maximize = false;
};
Settings settings_of(const AdamaxOptions& options);

/// Adam by the largest gradient instead of the mean square (Kingma and Ba 2015):
/// u = max(b2 u, |g| + eps), p -= lr / (1 - b1^t) * m / u. State: step, exp_avg, exp_inf.
class Adamax : public TypedOptimizer<AdamaxOptions> {
 public:
  explicit Adamax(std::vector<Tensor> params, const AdamaxOptions& options = {})
      : Adamax(std::vector<Group<AdamaxOptions>>{{std::move(params), options}}) {}
  explicit Adamax(std::vector<Group<AdamaxOptions>> groups);

 protected:
  void update(const ParamGroup& group, Batch& batch) override;
};

}  // namespace arete::optim
