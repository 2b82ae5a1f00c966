#include "arete/optim/adam_relatives.h"

#include "arete/optim/update_internal.h"

namespace arete::optim {

template class TypedOptimizer<NAdamOptions>;
template class TypedOptimizer<RAdamOptions>;
template class TypedOptimizer<AdamaxOptions>;

void NAdam::update(const ParamGroup& group, Batch& batch) {
  const Descent descent(group, batch);
  const auto numbers = [descent](const auto& given) -> ComputedFrom<decltype(given)> {
    const auto lr = given["lr"], b1 = given["beta1"], b2 = given["beta2"],
               psi = given["momentum_decay"], t = given.t;
    const auto base = constant_like(t, 0.96);
    const auto mu = b1 * (1.0 - 0.5 * pow(base, t * psi)),
               mu_next = b1 * (1.0 - 0.5 * pow(base, (t + 1.0) * psi)),
               product = given.state[0] * mu;
    return {{descent.decay(given), 1.0 - b1, b2, 1.0 - b2, 1.0 - power(b2, t), given["eps"],
             lr * (1.0 - mu) / (1.0 - product), lr * mu_next / (1.0 - product * mu_next)},
            {product}};
  };
  const auto rule = [=](const Operands& v) -> std::vector<Value> {
    const std::span<const Value> n = v.numbers;
    const auto [p, g] = descent.start(v, n[0]);
    const Value m = v.state[0] + n[1] * (g - v.state[0]);
    const Value second = n[2] * v.state[1] + n[3] * g * g;
    const Value scale = sqrt(second / n[4]) + n[5];
    return {p - n[6] * (g / scale) - n[7] * (m / scale), m, second};
  };
  batch.run(variant_of(descent), numbers, rule);
}

void RAdam::update(const ParamGroup& group, Batch& batch) {
  const Descent descent(group, batch);
  // The rate without bias, and the rectification of the second moment: 0 while its variance is not
  // tractable.
  const auto numbers = [descent](const auto& given) -> ComputedFrom<decltype(given)> {
    const auto b1 = given["beta1"], b2 = given["beta2"], t = given.t;
    const auto b2_t = power(b2, t), correction = 1.0 - b2_t;
    const auto rho_end = 2.0 / (1.0 - b2) - 1.0;
    const auto rho = rho_end - 2.0 * t * b2_t / correction;
    const auto rectified = sqrt((rho - 4.0) * (rho - 2.0) * rho_end * correction /
                                ((rho_end - 4.0) * (rho_end - 2.0) * rho));
    return {
        {descent.decay(given), 1.0 - b1, b2, 1.0 - b2, given["eps"],
         given["lr"] / (1.0 - power(b1, t)), where(rho > 5.0, rectified, constant_like(rho, 0))},
        {}};
  };
  const auto rule = [=](const Operands& v) -> std::vector<Value> {
    const std::span<const Value> n = v.numbers;
    const Value rate = n[5], trust = n[6];
    const auto [p, g] = descent.start(v, n[0]);
    const Value m = v.state[0] + n[1] * (g - v.state[0]);
    const Value second = n[2] * v.state[1] + n[3] * g * g;
    const Value step = where(trust > 0.0, m * trust / (sqrt(second) + n[4]), m);
    return {p - rate * step, m, second};
  };
  batch.run(variant_of(descent), numbers, rule);
}

void Adamax::update(const ParamGroup& group, Batch& batch) {
  const Descent descent(group, batch);
  const auto numbers = [descent](const auto& given) -> ComputedFrom<decltype(given)> {
    const auto b1 = given["beta1"];
    return {{descent.decay(given), 1.0 - b1, given["beta2"], given["eps"],
             given["lr"] / (1.0 - power(b1, given.t))},
            {}};
  };
  const auto rule = [=](const Operands& v) -> std::vector<Value> {
    const std::span<const Value> n = v.numbers;
    const auto [p, g] = descent.start(v, n[0]);
    const Value m = v.state[0] + n[1] * (g - v.state[0]);
    const Value largest = max(n[2] * v.state[1], abs(g) + n[3]);
    return {p - n[4] * m / largest, m, largest};
  };
  batch.run(variant_of(descent), numbers, rule);
}

}  // namespace arete::optim
