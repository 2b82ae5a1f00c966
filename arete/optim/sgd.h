// Stochastic gradient descent.
#pragma once

#include <vector>

#include "arete/optim/optimizer.h"

namespace arete::optim {

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;      ///< added to the gradient as weight_decay * parameter
  bool nesterov = false;        ///< needs momentum > 0 and dampening 0
  bool maximize = false;        ///< climbs instead
  bool master_weights = false;  ///< f32 copies of parameters in half types, see Optimizer
};
/// Checks the options (ValueError) and names them.
Settings settings_of(const SGDOptions& options);

/// p -= lr * g, or with momentum v = momentum * v + (1 - dampening) * g (v = g at first) and
/// p -= lr * v (nesterov: lr * (g + momentum * v)). State: momentum_buffer.
class SGD : public TypedOptimizer<SGDOptions> {
 public:
  explicit SGD(std::vector<Tensor> params, const SGDOptions& options = {})
      : SGD(std::vector<Group<SGDOptions>>{{std::move(params), options}}) {}
  explicit SGD(std::vector<Group<SGDOptions>> groups);

 protected:
  void update(const ParamGroup& group, Batch& batch) override;
  bool uses_state(const ParamGroup& group, size_t slot) const override;
};

}  // namespace arete::optim
