#include "arete/optim/asgd.h"

#include <algorithm>
#include <cmath>

#include "arete/optim/check_internal.h"
#include "arete/optim/update_internal.h"

namespace arete::optim {

using expr::Value;

Settings settings_of(const ASGDOptions& o) {
  check_not_negative("ASGD", {{"learning rate", o.lr}, {"weight_decay", o.weight_decay}});
  return {{"lr", o.lr},
          {"lambd", o.lambd},
          {"alpha", o.alpha},
          {"t0", o.t0},
          {"weight_decay", o.weight_decay},
          {"maximize", double(o.maximize)}};
}

ASGD::ASGD(std::vector<Group<ASGDOptions>> groups)
    : TypedOptimizer("ASGD", {"ax"}, std::move(groups), {"eta", "mu"}) {}

double ASGD::initial_number(const ParamGroup& group, size_t number) const {
  return number == 0 ? group.lr() : 1;
}

void ASGD::update(const ParamGroup& group, Batch& batch) {
  const double lr = group.lr(), lambd = group.get("lambd"), decay = group.get("weight_decay");
  const double eta = batch.numbers[0], mu = batch.numbers[1], t = double(batch.step);
  const bool with_decay = decay != 0, maximize = group.flag("maximize"), averages = mu != 1;
  const auto rule = [=](const Operands& v) -> std::vector<Value> {
    const std::span<const Value> n = v.numbers;
    const Value g = effective_gradient(v, maximize, with_decay, n[0]);
    const Value p = v.param * n[1] - n[2] * g;
    return {p, averages ? v.state[0] + n[3] * (p - v.state[0]) : p};
  };
  batch.run(uint32_t(with_decay) | uint32_t(maximize) << 1 | uint32_t(averages) << 2, rule,
            {decay, 1 - lambd * eta, eta, mu});
  batch.numbers = {lr / std::pow(1 + lambd * lr * t, group.get("alpha")),
                   1 / std::max(1.0, t - group.get("t0"))};
}

}  // namespace arete::optim
