#include "arete/optim/adaptive.h"

#include "arete/ops/sparse.h"
#include "arete/optim/update_internal.h"

namespace arete::optim {

template class TypedOptimizer<RMSpropOptions>;
template class TypedOptimizer<AdagradOptions>;
template class TypedOptimizer<AdadeltaOptions>;

void RMSprop::update(const ParamGroup& group, Batch& batch) {
  const bool with_momentum = group.setting("momentum").may_count(),
             centered = group.flag("centered");
  const Descent descent(group, batch);
  const auto numbers = [descent](const auto& given) -> ComputedFrom<decltype(given)> {
    const auto alpha = given["alpha"];
    return {
        {given["lr"], alpha, 1.0 - alpha, given["eps"], descent.decay(given), given["momentum"]},
        {}};
  };
  const auto rule = [=](const Operands& v) -> std::vector<Value> {
    const Value lr = v.numbers[0], a = v.numbers[1], b = v.numbers[2], eps = v.numbers[3],
                decay = v.numbers[4], mu = v.numbers[5];
    const auto [p, g] = descent.start(v, decay);
    std::vector<Value> out{p, a * v.state[0] + b * g * g};
    Value mean_square = out[1], mean;
    if (centered) {
      const Value old = v.state[with_momentum ? 2 : 1];
      mean = old + b * (g - old);
      mean_square = mean_square - mean * mean;
    }
    Value step = g / (sqrt(mean_square) + eps);
    if (with_momentum) {
      step = mu * v.state[1] + step;
      out.push_back(step);
    }
    if (centered) out.push_back(mean);
    out[0] = p - lr * step;
    return out;
  };
  batch.run(variant_of(descent, {with_momentum, centered}), numbers, rule);
}

void Adagrad::update(const ParamGroup& group, Batch& batch) {
  const Descent descent(group, batch);
  const auto numbers = [descent](const auto& given) -> ComputedFrom<decltype(given)> {
    const auto rate = given["lr"] / (1.0 + (given.t - 1.0) * given["lr_decay"]);
    return {{rate, given["eps"], descent.decay(given)}, {}};
  };
  const auto rule = [=](const Operands& v) -> std::vector<Value> {
    const auto [p, g] = descent.start(v, v.numbers[2]);
    const Value sum = v.state[0] + g * g;
    return {p - v.numbers[0] * g / (sqrt(sum) + v.numbers[1]), sum};
  };
  batch.run(variant_of(descent), numbers, rule);
}

void Adagrad::update_sparse(size_t gi, size_t pi, const Tensor& given) {
  constexpr size_t kStep = 0, kSum = 1;
  check_without_decay(gi);
  const Tensor gradient = ops::coalesce(given);
  const ParamGroup& group = param_groups()[gi];
  const double t = begin_update(gi, pi, kStep),
               rate = group.lr() / (1 + (t - 1) * group.get("lr_decay"));
  const Tensor g = ops::elements_of(gradient), sum = state(gi, pi, kSum);
  ops::add_at_places(sum, gradient, g.mul(g));
  const Tensor root = ops::at_places(sum, gradient).sqrt().add(group.get("eps"));
  ops::add_at_places(group.params[pi], gradient, g.div(root), -rate);
}

void Adadelta::update(const ParamGroup& group, Batch& batch) {
  const Descent descent(group, batch);
  const auto numbers = [descent](const auto& given) -> ComputedFrom<decltype(given)> {
    const auto rho = given["rho"];
    return {{given["lr"], rho, 1.0 - rho, given["eps"], descent.decay(given)}, {}};
  };
  const auto rule = [=](const Operands& v) -> std::vector<Value> {
    const Value rho = v.numbers[1], rest = v.numbers[2], eps = v.numbers[3];
    const auto [p, g] = descent.start(v, v.numbers[4]);
    const Value square = rho * v.state[0] + rest * g * g;
    const Value delta = sqrt(v.state[1] + eps) / sqrt(square + eps) * g;
    return {p - v.numbers[0] * delta, square, rho * v.state[1] + rest * delta * delta};
  };
  batch.run(variant_of(descent), numbers, rule);
}

}  // namespace arete::optim
