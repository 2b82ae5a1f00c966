#include "arete/optim/sgd.h"

#include "arete/optim/update_internal.h"

namespace arete::optim {

void SGDOptions::check() const {
  ARETE_CHECK(!nesterov || (momentum > 0 && dampening == 0),
              ValueError("SGD", "Nesterov momentum requires a momentum and zero dampening"));
}

// Only with dampening the first buffer, which is the gradient, is not what the rule makes of zeros:
// then the count is of use.
bool SGD::uses_state(const ParamGroup& group, size_t key) const {
  return group.setting("momentum").may_count() &&
         (key == 1 || group.setting("dampening").may_count());
}

void SGD::update(const ParamGroup& group, Batch& batch) {
  const bool with_momentum = group.setting("momentum").may_count(),
             with_decay = batch.counts(group, "weight_decay"), nesterov = group.flag("nesterov"),
             maximize = group.flag("maximize"), dampened = uses_state(group, 0);
  const auto numbers = [dampened](const auto& given) -> ComputedFrom<decltype(given)> {
    const auto mu = given["momentum"], fresh = 1.0 - given["dampening"];
    const auto is_first = given.t == 1.0;
    return {{given["lr"], given["weight_decay"], mu,
             dampened ? where(is_first, constant_like(mu, 0), mu) : mu,
             dampened ? where(is_first, constant_like(mu, 1), fresh) : constant_like(mu, 1)},
            {}};
  };
  const auto rule = [=](const Operands& v) -> std::vector<Value> {
    const Value lr = v.numbers[0], decay = v.numbers[1], mu = v.numbers[2];
    const Value g = effective_gradient(v, maximize, with_decay, decay);
    if (!with_momentum) return {v.param - lr * g};
    const Value old = v.numbers[3], fresh = v.numbers[4];
    const Value buffer = old * v.state[0] + (dampened ? fresh * g : g);
    const Value step = nesterov ? g + mu * buffer : buffer;
    return {v.param - lr * step, buffer};
  };
  batch.run(variant_of({with_momentum, with_decay, nesterov, maximize, dampened}), numbers, rule);
}

}  // namespace arete::optim
