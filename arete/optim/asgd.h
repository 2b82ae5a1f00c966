// Gradient descent that averages its way.
#pragma once

#include <utility>
#include <vector>

#include "arete/optim/optimizer.h"

namespace arete::optim {

struct ASGDOptions {
  double lr = 1e-2;
  double lambd = 1e-4;  ///< decay
  double alpha = 0.75;  ///< power of the rate's decay
  double t0 = 1e6;      ///< the update after which averaging begins
  double weight_decay = 0;
  bool maximize = false;
};
Settings settings_of(const ASGDOptions& options);

/// Averaged stochastic gradient descent (Polyak and Juditsky 1992): p *= 1 - lambd eta, p -= eta g,
/// ax += mu (p - ax), then eta = lr / (1 + lambd lr t)^alpha, mu = 1 / max(1, t - t0). The average
/// is in the state. State: step, eta, mu (numbers), ax.
class ASGD : public TypedOptimizer<ASGDOptions> {
 public:
  explicit ASGD(std::vector<Tensor> params, const ASGDOptions& options = {})
      : ASGD(std::vector<Group<ASGDOptions>>{{std::move(params), options}}) {}
  explicit ASGD(std::vector<Group<ASGDOptions>> groups);

 protected:
  void update(const ParamGroup& group, Batch& batch) override;
  double initial_number(const ParamGroup& group, size_t number) const override;
};

}  // namespace arete::optim
