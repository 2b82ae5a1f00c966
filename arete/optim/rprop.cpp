#include "arete/optim/rprop.h"

#include "arete/optim/update_internal.h"

namespace arete::optim {

template class TypedOptimizer<RpropOptions>;

void RpropOptions::check() const {
  ARETE_CHECK(
      0 < eta_minus && eta_minus < 1 && 1 < eta_plus,
      ValueError("Rprop", "Invalid eta values: " + eta_minus.text() + ", " + eta_plus.text())
          .expected("one in (0, 1) and one above 1"));
  ARETE_CHECK(step_min <= step_max,
              ValueError("Rprop", "the limits of step sizes must be in order"));
}

void Rprop::update(const ParamGroup& group, Batch& batch) {
  const bool maximize = group.flag("maximize");
  const auto numbers = [](const auto& given) -> ComputedFrom<decltype(given)> {
    return {{given["eta_minus"], given["eta_plus"], given["step_min"], given["step_max"]}, {}};
  };
  const auto rule = [=](const Operands& v) -> std::vector<Value> {
    const std::span<const Value> n = v.numbers;
    const Value raw = maximize ? -v.grad : v.grad, agreement = raw * v.state[0];
    const Value turned = agreement < 0.0;
    const Value factor = where(turned, n[0], where(agreement > 0.0, n[1], 1.0));
    const Value size = min(max(v.state[1] * factor, n[2]), n[3]);
    const Value g = where(turned, 0.0, raw);
    return {v.param - sign(g) * size, g, size};
  };
  batch.run(variant_of({maximize}), numbers, rule);
}

}  // namespace arete::optim
