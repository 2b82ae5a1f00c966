#include "arete/optim/sparse_adam.h"

#include <cmath>

#include "arete/ops/sparse.h"
#include "arete/optim/update_internal.h"

namespace arete::optim {

template class TypedOptimizer<SparseAdamOptions>;

void SparseAdamOptions::check() const {
  ARETE_CHECK(lr.value() > 0,
              ValueError("SparseAdam", "Invalid learning rate: " + std::to_string(lr.value())));
  ARETE_CHECK(eps.value() > 0,
              ValueError("SparseAdam", "Invalid epsilon value: " + std::to_string(eps.value())));
}

void SparseAdamOptions::check_parameter(const Tensor& param) {
  ARETE_CHECK(
      !is_sparse(param),
      ValueError("SparseAdam", "Sparse params: SparseAdam requires dense parameter tensors"));
}

void SparseAdam::update(const ParamGroup&, Batch&) {
  throw NotImplementedError("SparseAdam",
                            "SparseAdam does not support dense gradients, please consider Adam "
                            "instead");
}

void SparseAdam::update_sparse(size_t gi, size_t pi, const Tensor& given) {
  const Tensor gradient = ops::coalesce(given);
  enum : size_t { step, exp_avg, exp_avg_sq };
  const ParamGroup& group = param_groups()[gi];
  const double t = begin_update(gi, pi, step), beta1 = group.get("beta1"),
               beta2 = group.get("beta2");
  const Tensor g = ops::elements_of(gradient);
  // The new average, of these rows alone.
  const auto moved = [&](size_t key, const Tensor& towards, double rate) {
    const Tensor average = state(gi, pi, key), old = ops::at_places(average, gradient);
    const Tensor change = towards.sub(old).mul(rate);
    ops::add_at_places(average, gradient, change);
    return change.add(old);
  };
  const Tensor mean = moved(exp_avg, g, 1 - beta1), square = moved(exp_avg_sq, g.mul(g), 1 - beta2);
  const double size = group.lr() * std::sqrt(1 - std::pow(beta2, t)) / (1 - std::pow(beta1, t));
  const Tensor change = mean.div(square.sqrt().add(group.get("eps"))).mul(-size);
  ops::add_at_places(group.params[pi], gradient, change);
}

}  // namespace arete::optim
