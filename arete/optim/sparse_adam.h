// Adam for tables of which a step uses few rows.
#pragma once

#include "arete/optim/adam.h"

namespace arete::optim {

struct SparseAdamOptions {
  Setting lr = 1e-3;
  Betas betas = {};
  Setting eps = 1e-8;
  bool maximize = false;  ///< climbs instead

  static constexpr const char* kOptimizer = "SparseAdam";
  static constexpr StateKey kState[] = {{"step", StateKey::count}, {"exp_avg"}, {"exp_avg_sq"}};
  static void fields(auto& visit, auto& o) {
    visit("lr", o.lr, is_learning_rate);
    visit_betas(visit, o.betas);
    visit("eps", o.eps, is_epsilon);
    visit("maximize", o.maximize);
  }
  void check() const;
  static void check_parameter(const Tensor& param);
};

extern template class TypedOptimizer<SparseAdamOptions>;

/// Adam for sparse gradients: rows that a step does not use keep their values and averages, and
/// cost nothing. Dense gradients are refused (NotImplementedError). State: step, exp_avg,
/// exp_avg_sq.
class SparseAdam : public TypedOptimizer<SparseAdamOptions> {
 public:
  using TypedOptimizer::TypedOptimizer;

 protected:
  void update(const ParamGroup& group, Batch& batch) override;
  void update_sparse(size_t group, size_t param, const Tensor& gradient) override;
};

}  // namespace arete::optim
