#include "arete/distributions/tails.h"

#include "arete/distributions/distribution_internal.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/special.h"

namespace arete::distributions {

HalfCauchy::HalfCauchy(const Tensor& scale_in) : scale(scale_in) {
  check_floating(scale, "HalfCauchy");
  batch_ = Shape(scale.sizes());
}
Tensor HalfCauchy::rsample(IntList sizes) const {
  return scale * (rand(extended(sizes), scale.options()) * (kPi / 2)).tan();
}
Tensor HalfCauchy::log_prob(const Tensor& value) const {
  const Tensor z = value / scale;
  return where(value < 0, -kInfinity, std::log(2 / kPi) - scale.log() - (z * z).log1p());
}
Tensor HalfCauchy::entropy() const { return (2 * kPi * scale).log(); }
Tensor HalfCauchy::mean() const { return full_like(scale, kInfinity); }
Tensor HalfCauchy::variance() const { return full_like(scale, kInfinity); }

Pareto::Pareto(const Tensor& scale_in, const Tensor& alpha_in) : scale(scale_in), alpha(alpha_in) {
  broadcast(scale, alpha, "Pareto");
  batch_ = Shape(scale.sizes());
}
Tensor Pareto::rsample(IntList sizes) const {
  return scale * (exponential_numbers(alpha, extended(sizes)) / alpha).exp();
}
Tensor Pareto::log_prob(const Tensor& value) const {
  return where(value < scale, -kInfinity,
               alpha.log() + alpha * scale.log() - (alpha + 1) * value.log());
}
Tensor Pareto::entropy() const { return (scale / alpha).log() + 1 + 1 / alpha; }
Tensor Pareto::mean() const {
  const Tensor a = alpha.clamp(1, kInfinity);
  return a * scale / (a - 1);
}
Tensor Pareto::variance() const {
  const Tensor a = alpha.clamp(2, kInfinity);
  return scale * scale * a / ((a - 1) * (a - 1) * (a - 2));
}

Weibull::Weibull(const Tensor& scale_in, const Tensor& concentration_in)
    : scale(scale_in), concentration(concentration_in) {
  broadcast(scale, concentration, "Weibull");
  batch_ = Shape(scale.sizes());
}
Tensor Weibull::rsample(IntList sizes) const {
  return scale * exponential_numbers(scale, extended(sizes)).pow(1 / concentration);
}
Tensor Weibull::log_prob(const Tensor& value) const {
  const Tensor part = value / scale;
  return where(
      value < 0, -kInfinity,
      (concentration / scale).log() + (concentration - 1) * part.log() - part.pow(concentration));
}
Tensor Weibull::entropy() const {
  return kEuler * (1 - 1 / concentration) + (scale / concentration).log() + 1;
}
Tensor Weibull::mean() const { return scale * (1 + 1 / concentration).lgamma().exp(); }
Tensor Weibull::variance() const {
  const Tensor root = 1 / concentration;
  return scale * scale * ((1 + 2 * root).lgamma().exp() - (2 * (1 + root).lgamma()).exp());
}

}  // namespace arete::distributions
