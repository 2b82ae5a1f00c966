#include "arete/optim/adam.h"

#include <cmath>

#include "arete/optim/check_internal.h"
#include "arete/optim/update_internal.h"

namespace arete::optim {

using expr::Value;

namespace {

void check_adam(const char* name, double lr, const Betas& betas, double eps, double decay) {
  check_not_negative(name, {{"learning rate", lr}, {"epsilon", eps}, {"weight_decay", decay}});
  check_fraction(name, {{"beta1", betas.beta1}, {"beta2", betas.beta2}});
}

// Options of Adam and AdamW have the same names and meanings but for the decay's.
template <class Options>
Settings adam_settings(const char* name, const Options& o) {
  check_adam(name, o.lr, o.betas, o.eps, o.weight_decay);
  return {{"lr", o.lr},
          {"beta1", o.betas.beta1},
          {"beta2", o.betas.beta2},
          {"eps", o.eps},
          {"weight_decay", o.weight_decay},
          {"amsgrad", double(o.amsgrad)},
          {"maximize", double(o.maximize)},
          {"master_weights", double(o.master_weights)}};
}

}  // namespace

Settings settings_of(const AdamOptions& o) { return adam_settings("Adam", o); }
Settings settings_of(const AdamWOptions& o) { return adam_settings("AdamW", o); }

namespace {

// What a step of Adam needs besides the batch.
struct AdamStep {
  double lr, beta1, beta2, eps, decay;
  bool amsgrad, maximize, decoupled;

  AdamStep(const ParamGroup& g, bool decoupled_decay)
      : lr(g.lr()),
        beta1(g.get("beta1")),
        beta2(g.get("beta2")),
        eps(g.get("eps")),
        decay(g.get("weight_decay")),
        amsgrad(g.flag("amsgrad")),
        maximize(g.flag("maximize")),
        decoupled(decoupled_decay) {}

  template <class Batch>
  void run(Batch& batch) const {
    const bool with_decay = decay != 0;
    const auto rule = [*this, with_decay](const Operands& v) -> std::vector<Value> {
      const Value w1 = v.numbers[2], b2 = v.numbers[3], w2 = v.numbers[4], e = v.numbers[5],
                  wd = v.numbers[6], step_size = v.numbers[7], correction2 = v.numbers[8];
      Value p = v.param, g = maximize ? -v.grad : v.grad;
      if (with_decay && decoupled) p = p * wd;
      if (with_decay && !decoupled) g = g + wd * p;
      const Value m = v.state[0] + w1 * (g - v.state[0]);
      const Value second = b2 * v.state[1] + w2 * g * g;
      const Value largest = amsgrad ? max(v.state[2], second) : second;
      p = p - step_size * m / (sqrt(largest) / correction2 + e);
      if (amsgrad) return {p, m, second, largest};
      return {p, m, second};
    };
    const ByStep corrections = [](auto t, auto n) {
      using std::pow, std::sqrt;
      return std::vector{n[0] / (1.0 - pow(n[1], t)), sqrt(1.0 - pow(n[3], t))};
    };
    batch.run(uint32_t(with_decay) | uint32_t(amsgrad) << 1 | uint32_t(maximize) << 2, rule,
              {lr, beta1, 1 - beta1, beta2, 1 - beta2, eps, decoupled ? 1 - lr * decay : decay},
              corrections);
  }
};

}  // namespace

Adam::Adam(std::vector<Group<AdamOptions>> groups)
    : TypedOptimizer("Adam", {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, std::move(groups)) {}
bool Adam::uses_state(const ParamGroup& group, size_t slot) const {
  return slot < 2 || group.flag("amsgrad");
}
void Adam::update(const ParamGroup& group, Batch& batch) { AdamStep(group, false).run(batch); }

AdamW::AdamW(std::vector<Group<AdamWOptions>> groups)
    : TypedOptimizer("AdamW", {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, std::move(groups)) {}
bool AdamW::uses_state(const ParamGroup& group, size_t slot) const {
  return slot < 2 || group.flag("amsgrad");
}
void AdamW::update(const ParamGroup& group, Batch& batch) { AdamStep(group, true).run(batch); }

Settings settings_of(const LionOptions& o) {
  check_adam("Lion", o.lr, o.betas, 0, o.weight_decay);
  return {{"lr", o.lr},
          {"beta1", o.betas.beta1},
          {"beta2", o.betas.beta2},
          {"weight_decay", o.weight_decay},
          {"maximize", double(o.maximize)}};
}

Lion::Lion(std::vector<Group<LionOptions>> groups)
    : TypedOptimizer("Lion", {"exp_avg"}, std::move(groups)) {}

void Lion::update(const ParamGroup& group, Batch& batch) {
  const double lr = group.lr(), beta1 = group.get("beta1"), beta2 = group.get("beta2");
  const bool maximize = group.flag("maximize");
  const auto rule = [=](const Operands& v) -> std::vector<Value> {
    const Value g = maximize ? -v.grad : v.grad, m = v.state[0];
    const Value direction = sign(v.numbers[2] * m + v.numbers[3] * g);
    return {v.param * v.numbers[1] - v.numbers[0] * direction, v.numbers[4] * m + v.numbers[5] * g};
  };
  batch.run(uint32_t(maximize), rule,
            {lr, 1 - lr * group.get("weight_decay"), beta1, 1 - beta1, beta2, 1 - beta2});
}

}  // namespace arete::optim
