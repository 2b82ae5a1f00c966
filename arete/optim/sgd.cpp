#include "arete/optim/sgd.h"

#include "arete/optim/check_internal.h"
#include "arete/optim/update_internal.h"

namespace arete::optim {

using expr::Value;

Settings settings_of(const SGDOptions& o) {
  check_not_negative(
      "SGD", {{"learning rate", o.lr}, {"momentum", o.momentum}, {"weight_decay", o.weight_decay}});
  ARETE_CHECK(!o.nesterov || (o.momentum > 0 && o.dampening == 0),
              ValueError("SGD", "Nesterov momentum requires a momentum and zero dampening"));
  return {{"lr", o.lr},
          {"momentum", o.momentum},
          {"dampening", o.dampening},
          {"weight_decay", o.weight_decay},
          {"nesterov", double(o.nesterov)},
          {"maximize", double(o.maximize)},
          {"master_weights", double(o.master_weights)}};
}

SGD::SGD(std::vector<Group<SGDOptions>> groups)
    : TypedOptimizer("SGD", {"momentum_buffer"}, std::move(groups)) {}

bool SGD::uses_state(const ParamGroup& group, size_t) const { return group.get("momentum") != 0; }

void SGD::update(const ParamGroup& group, Batch& batch) {
  const double momentum = group.get("momentum"), decay = group.get("weight_decay");
  const bool nesterov = group.flag("nesterov"), maximize = group.flag("maximize");
  const bool with_momentum = momentum != 0, with_decay = decay != 0;
  const auto rule = [=](const Operands& v) -> std::vector<Value> {
    const Value lr = v.numbers[0], wd = v.numbers[1], mu = v.numbers[2];
    Value g = maximize ? -v.grad : v.grad;
    if (with_decay) g = g + wd * v.param;
    if (!with_momentum) return {v.param - lr * g};
    const Value buffer = v.numbers[5] * v.state[0] + v.numbers[6] * g;
    const Value step = nesterov ? g + mu * buffer : buffer;
    return {v.param - lr * step, buffer};
  };
  // The first buffer is the gradient itself, undamped.
  const ByStep weights = [](auto t, auto n) {
    return std::vector{where(t == 1.0, n[3] * 0.0, n[3]), where(t == 1.0, n[4] * 0.0 + 1.0, n[4])};
  };
  const double old = batch.fresh ? 0 : momentum;
  const double fresh = batch.fresh ? 1 : 1 - group.get("dampening");
  batch.run(uint32_t(with_momentum) | uint32_t(with_decay) << 1 | uint32_t(nesterov) << 2 |
                uint32_t(maximize) << 3,
            rule, {group.lr(), decay, momentum, old, fresh}, weights);
}

}  // namespace arete::optim
