#include "arete/optim/sgd.h"

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

}  // namespace arete::optim
