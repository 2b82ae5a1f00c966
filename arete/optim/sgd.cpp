#include "arete/optim/sgd.h"

#include "arete/ops/sparse.h"
#include "arete/optim/update_internal.h"

namespace arete::optim {

template class TypedOptimizer<SGDOptions>;

void SGDOptions::check() const {
  ARETE_CHECK(!nesterov || (momentum > 0 && dampening == 0),
              ValueError("SGD", "Nesterov momentum requires a momentum and zero dampening"));
}

void SGD::update(const ParamGroup& group, Batch& batch) {
  const bool with_momentum = group.setting("momentum").may_count(),
             nesterov = group.flag("nesterov"),
             dampened = with_momentum && group.setting("dampening").may_count();
  const Descent descent(group, batch);
  const auto numbers = [descent, dampened](const auto& given) -> ComputedFrom<decltype(given)> {
    const auto mu = given["momentum"], fresh = 1.0 - given["dampening"];
    const auto is_first = given.t == 1.0;
    return {{given["lr"], descent.decay(given), mu,
             dampened ? where(is_first, constant_like(mu, 0), mu) : mu,
             dampened ? where(is_first, constant_like(mu, 1), fresh) : constant_like(mu, 1)},
            {}};
  };
  const auto rule = [=](const Operands& v) -> std::vector<Value> {
    const Value lr = v.numbers[0], decay = v.numbers[1], mu = v.numbers[2];
    const auto [p, g] = descent.start(v, decay);
    if (!with_momentum) return {p - lr * g};
    const Value old = v.numbers[3], fresh = v.numbers[4];
    const Value buffer = old * v.state[0] + (dampened ? fresh * g : g);
    const Value step = nesterov ? g + mu * buffer : buffer;
    return {p - lr * step, buffer};
  };
  batch.run(variant_of(descent, {with_momentum, nesterov, dampened}), numbers, rule);
}

void SGD::update_sparse(size_t gi, size_t pi, const Tensor& gradient) {
  constexpr size_t kBuffer = 1;
  check_without_decay(gi);
  const ParamGroup& group = param_groups()[gi];
  const double lr = group.lr(), mu = group.get("momentum");
  Tensor step = gradient;
  if (mu != 0) {
    const double fresh = 1 - group.get("dampening");
    Tensor old = state(gi, pi, kBuffer);
    if (old.defined() && !is_sparse(old)) {  // of dense gradients before: it stays dense
      old.mul_(mu);
      ops::add_at_places(old, gradient, ops::elements_of(gradient), fresh);
      Tensor p = group.params[pi];
      if (group.flag("nesterov")) ops::add_at_places(p, gradient, ops::elements_of(gradient), -lr);
      p.add_(old, group.flag("nesterov") ? -lr * mu : -lr);
      return;
    }
    step = ops::coalesce(gradient);
    const auto times = [](const Tensor& t, double factor) {
      return ops::with_values(t, ops::elements_of(t).mul(factor));
    };
    // The first buffer is the gradient; the gradient may be written to later.
    Tensor buffer = times(step, 1);
    if (old.defined()) buffer = ops::coalesce(ops::sum_of(times(old, mu), times(step, fresh)));
    renew_state(gi, pi, kBuffer, buffer);
    step = group.flag("nesterov") ? ops::sum_of(step, times(buffer, mu)) : buffer;
  }
  ops::add_at_places(group.params[pi], step, ops::elements_of(step), -lr);
}

}  // namespace arete::optim
