// Resilient propagation: steps that follow the signs of the gradient.
#pragma once

#include <utility>
#include <vector>

#include "arete/optim/optimizer.h"

namespace arete::optim {

struct RpropOptions {
  double lr = 1e-2;                        ///< the first step size
  double eta_minus = 0.5, eta_plus = 1.2;  ///< what step sizes are multiplied by
  double step_min = 1e-6, step_max = 50;   ///< the limits of step sizes
  bool maximize = false;
};
Settings settings_of(const RpropOptions& options);

/// Each element has a step size, which grows where the gradient keeps its sign and shrinks, without
/// a step, where it changes it (Riedmiller and Braun 1993). For gradients of the whole data.
/// State: step, prev (the last gradient), step_size.
class Rprop : public TypedOptimizer<RpropOptions> {
 public:
  explicit Rprop(std::vector<Tensor> params, const RpropOptions& options = {})
      : Rprop(std::vector<Group<RpropOptions>>{{std::move(params), options}}) {}
  explicit Rprop(std::vector<Group<RpropOptions>> groups);

 protected:
  void update(const ParamGroup& group, Batch& batch) override;
  double initial_state(const ParamGroup& group, size_t slot) const override;
};

}  // namespace arete::optim
