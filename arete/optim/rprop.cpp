#include "arete/optim/rprop.h"

#include <string>

#include "arete/optim/check_internal.h"
#include "arete/optim/update_internal.h"

namespace arete::optim {

using expr::Value;

Settings settings_of(const RpropOptions& o) {
  check_not_negative("Rprop", {{"learning rate", o.lr}});
  ARETE_CHECK(0 < o.eta_minus && o.eta_minus < 1 && 1 < o.eta_plus,
              ValueError("Rprop", "Invalid eta values: " + std::to_string(o.eta_minus) + ", " +
                                      std::to_string(o.eta_plus))
                  .expected("one in (0, 1) and one above 1"));
  ARETE_CHECK(o.step_min <= o.step_max,
              ValueError("Rprop", "the limits of step sizes must be in order"));
  return {{"lr", o.lr},
          {"eta_minus", o.eta_minus},
          {"eta_plus", o.eta_plus},
          {"step_min", o.step_min},
          {"step_max", o.step_max},
          {"maximize", double(o.maximize)}};
}

Rprop::Rprop(std::vector<Group<RpropOptions>> groups)
    : TypedOptimizer("Rprop", {"prev", "step_size"}, std::move(groups)) {}

double Rprop::initial_state(const ParamGroup& group, size_t slot) const {
  return slot == 1 ? group.lr() : 0;
}

void Rprop::update(const ParamGroup& group, Batch& batch) {
  const bool maximize = group.flag("maximize");
  const auto rule = [=](const Operands& v) -> std::vector<Value> {
    const std::span<const Value> n = v.numbers;
    const Value raw = maximize ? -v.grad : v.grad, agreement = raw * v.state[0];
    const Value turned = agreement < 0.0;
    const Value factor = where(turned, n[0], where(agreement > 0.0, n[1], 1.0));
    const Value size = min(max(v.state[1] * factor, n[2]), n[3]);
    const Value g = where(turned, 0.0, raw);
    return {v.param - sign(g) * size, g, size};
  };
  batch.run(uint32_t(maximize), rule,
            {group.get("eta_minus"), group.get("eta_plus"), group.get("step_min"),
             group.get("step_max")});
}

}  // namespace arete::optim
