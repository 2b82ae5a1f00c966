#include "arete/optim/asgd.h"

#include "arete/optim/update_internal.h"

namespace arete::optim {

template class TypedOptimizer<ASGDOptions>;

void ASGD::update(const ParamGroup& group, Batch& batch) {
  const Descent descent(group, batch);
  const auto numbers = [descent](const auto& given) -> ComputedFrom<decltype(given)> {
    const auto lr = given["lr"], lambd = given["lambd"], t = given.t;
    const auto eta = given.state[0], mu = given.state[1];
    return {{descent.decay(given), 1.0 - lambd * eta, eta, mu},
            {lr / pow(1.0 + lambd * lr * t, given["alpha"]), 1.0 / max(1.0, t - given["t0"])}};
  };
  const auto rule = [=](const Operands& v) -> std::vector<Value> {
    const std::span<const Value> n = v.numbers;
    const auto [start, g] = descent.start(v, n[0]);
    const Value mu = n[3], p = start * n[1] - n[2] * g;
    return {p, where(mu == 1.0, p, v.state[0] + mu * (p - v.state[0]))};
  };
  batch.run(variant_of(descent), numbers, rule);
}

}  // namespace arete::optim
