#include "arete/optim/adam_relatives.h"

#include <cmath>

#include "arete/optim/check_internal.h"
#include "arete/optim/update_internal.h"

namespace arete::optim {

using expr::Value;

namespace {

Settings common_settings(const char* name, double lr, const Betas& betas, double eps, double decay,
                         bool maximize) {
  check_not_negative(name, {{"learning rate", lr}, {"epsilon", eps}, {"weight_decay", decay}});
  check_fraction(name, {{"beta1", betas.beta1}, {"beta2", betas.beta2}});
  return {{"lr", lr},   {"beta1", betas.beta1},  {"beta2", betas.beta2},
          {"eps", eps}, {"weight_decay", decay}, {"maximize", double(maximize)}};
}

// Weight decay as a number of the program: what the parameter is multiplied by, or what of it is
// added to the gradient.
struct Decay {
  explicit Decay(const ParamGroup& group)
      : decoupled(group.flag("decoupled_weight_decay")),
        on(group.get("weight_decay") != 0),
        number(decoupled ? 1 - group.lr() * group.get("weight_decay") : group.get("weight_decay")) {
  }
  uint32_t variant() const { return uint32_t(on) | uint32_t(decoupled) << 1; }
  bool decoupled, on;
  double number;
};

}  // namespace

Settings settings_of(const NAdamOptions& o) {
  Settings s = common_settings("NAdam", o.lr, o.betas, o.eps, o.weight_decay, o.maximize);
  check_not_negative("NAdam", {{"momentum_decay", o.momentum_decay}});
  s.emplace_back("momentum_decay", o.momentum_decay);
  s.emplace_back("decoupled_weight_decay", double(o.decoupled_weight_decay));
  return s;
}

NAdam::NAdam(std::vector<Group<NAdamOptions>> groups)
    : TypedOptimizer("NAdam", {"exp_avg", "exp_avg_sq"}, std::move(groups), {"mu_product"}) {}

double NAdam::initial_number(const ParamGroup&, size_t) const { return 1; }

void NAdam::update(const ParamGroup& group, Batch& batch) {
  const double lr = group.lr(), beta1 = group.get("beta1"), beta2 = group.get("beta2");
  const double psi = group.get("momentum_decay"), t = double(batch.step);
  const auto mu_at = [&](double step) { return beta1 * (1 - 0.5 * std::pow(0.96, step * psi)); };
  const double mu = mu_at(t), mu_next = mu_at(t + 1), product = batch.numbers[0] * mu;
  batch.numbers[0] = product;
  const Decay decay(group);
  const bool maximize = group.flag("maximize");
  const auto rule = [=](const Operands& v) -> std::vector<Value> {
    const std::span<const Value> n = v.numbers;
    Value p = v.param, g = maximize ? -v.grad : v.grad;
    if (decay.on && decay.decoupled) p = p * n[0];
    if (decay.on && !decay.decoupled) g = g + n[0] * p;
    const Value m = v.state[0] + n[1] * (g - v.state[0]);
    const Value second = n[2] * v.state[1] + n[3] * g * g;
    const Value scale = sqrt(second / n[4]) + n[5];
    return {p - n[6] * (g / scale) - n[7] * (m / scale), m, second};
  };
  batch.run(decay.variant() | uint32_t(maximize) << 2, rule,
            {decay.number, 1 - beta1, beta2, 1 - beta2, 1 - std::pow(beta2, t), group.get("eps"),
             lr * (1 - mu) / (1 - product), lr * mu_next / (1 - product * mu_next)});
}

Settings settings_of(const RAdamOptions& o) {
  Settings s = common_settings("RAdam", o.lr, o.betas, o.eps, o.weight_decay, o.maximize);
  s.emplace_back("decoupled_weight_decay", double(o.decoupled_weight_decay));
  return s;
}

RAdam::RAdam(std::vector<Group<RAdamOptions>> groups)
    : TypedOptimizer("RAdam", {"exp_avg", "exp_avg_sq"}, std::move(groups)) {}

void RAdam::update(const ParamGroup& group, Batch& batch) {
  const double beta1 = group.get("beta1"), beta2 = group.get("beta2");
  const Decay decay(group);
  const bool maximize = group.flag("maximize");
  const auto rule = [=](const Operands& v) -> std::vector<Value> {
    const std::span<const Value> n = v.numbers;
    const Value rate = n[7], trust = n[8];
    Value p = v.param, g = maximize ? -v.grad : v.grad;
    if (decay.on && decay.decoupled) p = p * n[6];
    if (decay.on && !decay.decoupled) g = g + n[6] * p;
    const Value m = v.state[0] + n[3] * (g - v.state[0]);
    const Value second = n[2] * v.state[1] + n[4] * g * g;
    const Value step = where(trust > 0.0, m * trust / (sqrt(second) + n[5]), m);
    return {p - rate * step, m, second};
  };
  // The rate without bias, and the rectification of the second moment: 0 while its variance is not
  // tractable.
  const ByStep trust = [](auto t, auto n) {
    using std::pow, std::sqrt;
    const auto power = pow(n[2], t), correction = 1.0 - power;
    const auto rho_end = 2.0 / (1.0 - n[2]) - 1.0;
    const auto rho = rho_end - 2.0 * t * power / correction;
    const auto rectified = sqrt((rho - 4.0) * (rho - 2.0) * rho_end * correction /
                                ((rho_end - 4.0) * (rho_end - 2.0) * rho));
    return std::vector{n[0] / (1.0 - pow(n[1], t)), where(rho > 5.0, rectified, rho * 0.0)};
  };
  batch.run(decay.variant() | uint32_t(maximize) << 2, rule,
            {group.lr(), beta1, beta2, 1 - beta1, 1 - beta2, group.get("eps"), decay.number},
            trust);
}

Settings settings_of(const AdamaxOptions& o) {
  return common_settings("Adamax", o.lr, o.betas, o.eps, o.weight_decay, o.maximize);
}

Adamax::Adamax(std::vector<Group<AdamaxOptions>> groups)
    : TypedOptimizer("Adamax", {"exp_avg", "exp_inf"}, std::move(groups)) {}

void Adamax::update(const ParamGroup& group, Batch& batch) {
  const double beta1 = group.get("beta1"), decay = group.get("weight_decay");
  const bool with_decay = decay != 0, maximize = group.flag("maximize");
  const auto rule = [=](const Operands& v) -> std::vector<Value> {
    const std::span<const Value> n = v.numbers;
    const Value g = effective_gradient(v, maximize, with_decay, n[5]);
    const Value m = v.state[0] + n[3] * (g - v.state[0]);
    const Value largest = max(n[2] * v.state[1], abs(g) + n[4]);
    return {v.param - n[6] * m / largest, m, largest};
  };
  const ByStep rate = [](auto t, auto n) {
    using std::pow;
    return std::vector{n[0] / (1.0 - pow(n[1], t))};
  };
  batch.run(uint32_t(with_decay) | uint32_t(maximize) << 1, rule,
            {group.lr(), beta1, group.get("beta2"), 1 - beta1, group.get("eps"), decay}, rate);
}

}  // namespace arete::optim
