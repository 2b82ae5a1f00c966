// Adaptive steps whose memory grows with the sides of a matrix.
#pragma once

#include <optional>

#include "arete/optim/optimizer.h"

namespace arete::optim {

struct AdafactorOptions {
  Setting lr = 1e-2;                ///< the step is no larger, relative to the parameter
  Setting beta2_decay = -0.8;       ///< means of squares take in new ones with weight t^beta2_decay
  std::optional<double> eps1 = {};  ///< the least mean of squares; the dtype's epsilon if not given
  Setting eps2 = 1e-3;              ///< the least size of a parameter that steps are measured by
  Setting d = 1.0;                  ///< the largest root mean square of an update
  Setting weight_decay = 0.0;       ///< decoupled, as in AdamW
  bool maximize = false;
  bool capturable = false;  ///< for CUDA graphs, see Optimizer

  static constexpr const char* kOptimizer = "Adafactor";
  static constexpr StateKey kState[] = {{"step", StateKey::count},
                                        {"row_var", StateKey::part},
                                        {"col_var", StateKey::part},
                                        {"variance"}};
  static void fields(auto& visit, auto& o) {
    visit("lr", o.lr, not_negative("Learning rate should be >= 0 but is: "));
    visit("beta2_decay", o.beta2_decay,
          Check{Check::not_positive, "beta2_decay should be <= 0 but is: "});
    visit.tuple("eps", member("eps1", o.eps1, not_negative("epsilon1 should be >= 0 but is: ")),
                member("eps2", o.eps2, not_negative("epsilon2 should be >= 0 but is: ")));
    visit("d", o.d, Check{Check::at_least_one, "Clipping threshold d should be >= 1 but is: "});
    visit("weight_decay", o.weight_decay, not_negative("weight_decay should be >= 0 but is: "));
    visit.keywords();
    visit.python("foreach");
    visit("maximize", o.maximize);
    visit.own("capturable", o.capturable);
  }
  static void check_parameter(const Tensor& param);
};

extern template class TypedOptimizer<AdafactorOptions>;

/// Adafactor (Shazeer and Stern 2018): of the mean of squared gradients of a matrix only the means
/// of rows and columns are kept, whose product stands for it; an update whose root mean square
/// exceeds d is scaled down to it, and the step is relative to the parameter's size. State: step,
/// row_var and col_var of what has two dimensions or more, variance of the others.
class Adafactor : public TypedOptimizer<AdafactorOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;

 protected:
  void update(const ParamGroup& group, Batch& batch) override;
  bool has_state(const Tensor& param, size_t key) const override;
  Shape state_sizes(const Tensor& param, size_t key) const override;
};

}  // namespace arete::optim
