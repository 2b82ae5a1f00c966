#include "arete/optim/adam_relatives.h"

#include "arete/optim/update_internal.h"

namespace arete::optim {

double NAdam::initial_state(const ParamGroup&, size_t key) const { return key == 1 ? 1 : 0; }

void NAdam::update(const ParamGroup& group, Batch& batch) {
  const bool maximize = group.flag("maximize");
  const Decay decay(group, batch);
  const auto numbers = [decay](const auto& given) -> ComputedFrom<decltype(given)> {
    const auto lr = given["lr"], b1 = given["beta1"], b2 = given["beta2"],
               psi = given["momentum_decay"], t = given.t;
    const auto base = constant_like(t, 0.96);
    const auto mu = b1 * (1.0 - 0.5 * pow(base, t * psi)),
               mu_next = b1 * (1.0 - 0.5 * pow(base, (t + 1.0) * psi)),
               product = given.state[0] * mu;
    return {{decay.number(given), 1.0 - b1, b2, 1.0 - b2, 1.0 - power(b2, t), given["eps"],
             lr * (1.0 - mu) / (1.0 - product), lr * mu_next / (1.0 - product * mu_next)},
            {product}};
  };
  const auto rule = [=](const Operands& v) -> std::vector<Value> {
    const std::span<const Value> n = v.numbers;
    Value p = v.param, g = maximize ? -v.grad : v.grad;
    decay.apply(p, g, n[0]);
    const Value m = v.state[0] + n[1] * (g - v.state[0]);
    const Value second = n[2] * v.state[1] + n[3] * g * g;
    const Value scale = sqrt(second / n[4]) + n[5];
    return {p - n[6] * (g / scale) - n[7] * (m / scale), m, second};
  };
  batch.run(variant_of({decay.on, decay.decoupled, maximize}), numbers, rule);
}

void RAdam::update(const ParamGroup& group, Batch& batch) {
  const bool maximize = group.flag("maximize");
  const Decay decay(group, batch);
  // The rate without bias, and the rectification of the second moment: 0 while its variance is not
  // tractable.
  const auto numbers = [decay](const auto& given) -> ComputedFrom<decltype(given)> {
    const auto b1 = given["beta1"], b2 = given["beta2"], t = given.t;
    const auto b2_t = power(b2, t), correction = 1.0 - b2_t;
    const auto rho_end = 2.0 / (1.0 - b2) - 1.0;
    const auto rho = rho_end - 2.0 * t * b2_t / correction;
    const auto rectified = sqrt((rho - 4.0) * (rho - 2.0) * rho_end * correction /
                                ((rho_end - 4.0) * (rho_end - 2.0) * rho));
    return {
        {decay.number(given), 1.0 - b1, b2, 1.0 - b2, given["eps"],
         given["lr"] / (1.0 - power(b1, t)), where(rho > 5.0, rectified, constant_like(rho, 0))},
        {}};
  };
  const auto rule = [=](const Operands& v) -> std::vector<Value> {
    const std::span<const Value> n = v.numbers;
    const Value rate = n[5], trust = n[6];
    Value p = v.param, g = maximize ? -v.grad : v.grad;
    decay.apply(p, g, n[0]);
    const Value m = v.state[0] + n[1] * (g - v.state[0]);
    const Value second = n[2] * v.state[1] + n[3] * g * g;
    const Value step = where(trust > 0.0, m * trust / (sqrt(second) + n[4]), m);
    return {p - rate * step, m, second};
  };
  batch.run(variant_of({decay.on, decay.decoupled, maximize}), numbers, rule);
}

void Adamax::update(const ParamGroup& group, Batch& batch) {
  const bool with_decay = batch.counts(group, "weight_decay"), maximize = group.flag("maximize");
  const auto numbers = [](const auto& given) -> ComputedFrom<decltype(given)> {
    const auto b1 = given["beta1"];
    return {{given["weight_decay"], 1.0 - b1, given["beta2"], given["eps"],
             given["lr"] / (1.0 - power(b1, given.t))},
            {}};
  };
  const auto rule = [=](const Operands& v) -> std::vector<Value> {
    const std::span<const Value> n = v.numbers;
    const Value g = effective_gradient(v, maximize, with_decay, n[0]);
    const Value m = v.state[0] + n[1] * (g - v.state[0]);
    const Value largest = max(n[2] * v.state[1], abs(g) + n[3]);
    return {v.param - n[4] * m / largest, m, largest};
  };
  batch.run(variant_of({with_decay, maximize}), numbers, rule);
}

}  // namespace arete::optim
