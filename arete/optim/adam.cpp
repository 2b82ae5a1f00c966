#include "arete/optim/adam.h"

#include "arete/optim/update_internal.h"

namespace arete::optim {

template class TypedOptimizer<AdamOptions>;
template class TypedOptimizer<AdamWOptions>;
template class TypedOptimizer<LionOptions>;

namespace {

template <class Batch>
void update_adam(const ParamGroup& group, Batch& batch) {
  const bool amsgrad = group.flag("amsgrad");
  const Descent descent(group, batch);
  const auto numbers = [descent](const auto& given) -> ComputedFrom<decltype(given)> {
    const auto b1 = given["beta1"], b2 = given["beta2"];
    return {{descent.decay(given), 1.0 - b1, b2, 1.0 - b2, given["eps"],
             given["lr"] / (1.0 - power(b1, given.t)), sqrt(1.0 - power(b2, given.t))},
            {}};
  };
  const auto rule = [=](const Operands& v) -> std::vector<Value> {
    const Value w1 = v.numbers[1], b2 = v.numbers[2], w2 = v.numbers[3], eps = v.numbers[4],
                step_size = v.numbers[5], correction2 = v.numbers[6];
    const auto [start, g] = descent.start(v, v.numbers[0]);
    const Value m = v.state[0] + w1 * (g - v.state[0]);
    const Value second = b2 * v.state[1] + w2 * g * g;
    const Value largest = amsgrad ? max(v.state[2], second) : second;
    const Value p = start - step_size * m / (sqrt(largest) / correction2 + eps);
    if (amsgrad) return {p, m, second, largest};
    return {p, m, second};
  };
  batch.run(variant_of(descent, {amsgrad}), numbers, rule);
}

}  // namespace

void Adam::update(const ParamGroup& group, Batch& batch) { update_adam(group, batch); }
void AdamW::update(const ParamGroup& group, Batch& batch) { update_adam(group, batch); }

void Lion::update(const ParamGroup& group, Batch& batch) {
  const bool maximize = group.flag("maximize");
  const auto numbers = [](const auto& given) -> ComputedFrom<decltype(given)> {
    const auto lr = given["lr"], b1 = given["beta1"], b2 = given["beta2"];
    return {{lr, 1.0 - unfused(lr * given["weight_decay"]), b1, 1.0 - b1, b2, 1.0 - b2}, {}};
  };
  const auto rule = [=](const Operands& v) -> std::vector<Value> {
    const std::span<const Value> n = v.numbers;
    const Value g = maximize ? -v.grad : v.grad, m = v.state[0];
    const Value direction = sign(n[2] * m + n[3] * g);
    return {v.param * n[1] - n[0] * direction, n[4] * m + n[5] * g};
  };
  batch.run(variant_of({maximize}), numbers, rule);
}

}  // namespace arete::optim
