#include "arete/optim/asgd.h"

#include "arete/optim/update_internal.h"

namespace arete::optim {

double ASGD::initial_state(const ParamGroup& group, size_t key) const {
  return key == 1 ? group.lr() : key == 2 ? 1 : 0;
}

void ASGD::update(const ParamGroup& group, Batch& batch) {
  const bool with_decay = batch.counts(group, "weight_decay"), maximize = group.flag("maximize");
  const auto numbers = [](const auto& given) -> ComputedFrom<decltype(given)> {
    const auto lr = given["lr"], lambd = given["lambd"], t = given.t;
    const auto eta = given.state[0], mu = given.state[1];
    return {{given["weight_decay"], 1.0 - lambd * eta, eta, mu},
            {lr / pow(1.0 + lambd * lr * t, given["alpha"]), 1.0 / max(1.0, t - given["t0"])}};
  };
  const auto rule = [=](const Operands& v) -> std::vector<Value> {
    const std::span<const Value> n = v.numbers;
    const Value g = effective_gradient(v, maximize, with_decay, n[0]), mu = n[3];
    const Value p = v.param * n[1] - n[2] * g;
    return {p, where(mu == 1.0, p, v.state[0] + mu * (p - v.state[0]))};
  };
  batch.run(variant_of({with_decay, maximize}), numbers, rule);
}

}  // namespace arete::optim
