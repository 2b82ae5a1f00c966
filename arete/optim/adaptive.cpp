#include "arete/optim/adaptive.h"

#include "arete/optim/check_internal.h"
#include "arete/optim/update_internal.h"

namespace arete::optim {

using expr::Value;

Settings settings_of(const RMSpropOptions& o) {
  check_not_negative("RMSprop", {{"learning rate", o.lr},
                                 {"epsilon", o.eps},
                                 {"momentum", o.momentum},
                                 {"weight_decay", o.weight_decay},
                                 {"alpha", o.alpha}});
  return {{"lr", o.lr},
          {"alpha", o.alpha},
          {"eps", o.eps},
          {"weight_decay", o.weight_decay},
          {"momentum", o.momentum},
          {"centered", double(o.centered)},
          {"maximize", double(o.maximize)}};
}

RMSprop::RMSprop(std::vector<Group<RMSpropOptions>> groups)
    : TypedOptimizer("RMSprop", {"square_avg", "momentum_buffer", "grad_avg"}, std::move(groups)) {}

bool RMSprop::uses_state(const ParamGroup& group, size_t slot) const {
  return slot == 0 || (slot == 1 ? group.get("momentum") > 0 : group.flag("centered"));
}

void RMSprop::update(const ParamGroup& group, Batch& batch) {
  const double alpha = group.get("alpha"), decay = group.get("weight_decay"),
               momentum = group.get("momentum");
  const bool with_momentum = momentum > 0, with_decay = decay != 0;
  const bool centered = group.flag("centered"), maximize = group.flag("maximize");
  const auto rule = [=](const Operands& v) -> std::vector<Value> {
    const Value lr = v.numbers[0], a = v.numbers[1], b = v.numbers[2], eps = v.numbers[3],
                wd = v.numbers[4], mu = v.numbers[5];
    const Value g = effective_gradient(v, maximize, with_decay, wd);
    std::vector<Value> out{v.param, a * v.state[0] + b * g * g};
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
    out[0] = v.param - lr * step;
    return out;
  };
  batch.run(uint32_t(with_momentum) | uint32_t(with_decay) << 1 | uint32_t(centered) << 2 |
                uint32_t(maximize) << 3,
            rule, {group.lr(), alpha, 1 - alpha, group.get("eps"), decay, momentum});
}

Settings settings_of(const AdagradOptions& o) {
  check_not_negative("Adagrad", {{"learning rate", o.lr},
                                 {"lr_decay", o.lr_decay},
                                 {"weight_decay", o.weight_decay},
                                 {"initial_accumulator_value", o.initial_accumulator_value},
                                 {"epsilon", o.eps}});
  return {{"lr", o.lr},
          {"lr_decay", o.lr_decay},
          {"weight_decay", o.weight_decay},
          {"initial_accumulator_value", o.initial_accumulator_value},
          {"eps", o.eps},
          {"maximize", double(o.maximize)}};
}

Adagrad::Adagrad(std::vector<Group<AdagradOptions>> groups)
    : TypedOptimizer("Adagrad", {"sum"}, std::move(groups)) {}

double Adagrad::initial_state(const ParamGroup& group, size_t) const {
  return group.get("initial_accumulator_value");
}

void Adagrad::update(const ParamGroup& group, Batch& batch) {
  const double decay = group.get("weight_decay");
  const bool with_decay = decay != 0, maximize = group.flag("maximize");
  const auto rule = [=](const Operands& v) -> std::vector<Value> {
    const Value g = effective_gradient(v, maximize, with_decay, v.numbers[2]);
    const Value sum = v.state[0] + g * g;
    return {v.param - v.numbers[4] * g / (sqrt(sum) + v.numbers[1]), sum};
  };
  const ByStep rate = [](auto t, auto n) { return std::vector{n[0] / (1.0 + (t - 1.0) * n[3])}; };
  batch.run(uint32_t(with_decay) | uint32_t(maximize) << 1, rule,
            {group.lr(), group.get("eps"), decay, group.get("lr_decay")}, rate);
}

Settings settings_of(const AdadeltaOptions& o) {
  check_not_negative(
      "Adadelta", {{"learning rate", o.lr}, {"epsilon", o.eps}, {"weight_decay", o.weight_decay}});
  ARETE_CHECK(o.rho >= 0 && o.rho <= 1,
              ValueError("Adadelta", "Invalid rho value: " + std::to_string(o.rho))
                  .expected("a number in [0, 1]"));
  return {{"lr", o.lr},
          {"rho", o.rho},
          {"eps", o.eps},
          {"weight_decay", o.weight_decay},
          {"maximize", double(o.maximize)}};
}

Adadelta::Adadelta(std::vector<Group<AdadeltaOptions>> groups)
    : TypedOptimizer("Adadelta", {"square_avg", "acc_delta"}, std::move(groups)) {}

void Adadelta::update(const ParamGroup& group, Batch& batch) {
  const double rho = group.get("rho"), decay = group.get("weight_decay");
  const bool with_decay = decay != 0, maximize = group.flag("maximize");
  const auto rule = [=](const Operands& v) -> std::vector<Value> {
    const Value rho_ = v.numbers[1], rest = v.numbers[2], eps = v.numbers[3];
    const Value g = effective_gradient(v, maximize, with_decay, v.numbers[4]);
    const Value square = rho_ * v.state[0] + rest * g * g;
    const Value delta = sqrt(v.state[1] + eps) / sqrt(square + eps) * g;
    return {v.param - v.numbers[0] * delta, square, rho_ * v.state[1] + rest * delta * delta};
  };
  batch.run(uint32_t(with_decay) | uint32_t(maximize) << 1, rule,
            {group.lr(), rho, 1 - rho, group.get("eps"), decay});
}

}  // namespace arete::optim
