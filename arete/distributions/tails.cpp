#include "arete/distributions/tails.h"

#include <cmath>

#include "arete/distributions/distribution_internal.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/special.h"

namespace arete::distributions {

HalfCauchy::HalfCauchy(const Tensor& scale_in) : scale(scale_in) {
  check_floating(scale, "HalfCauchy");
  batch_ = Shape(scale.sizes());
}
constinit const Formulas<HalfCauchy> HalfCauchy::formulas = {
    .name = "HalfCauchy",
    .has_rsample = true,
    .draw =
        [](const HalfCauchy& d, const Shape& all) {
          return d.scale * (rand(all, d.scale.options()) * (kPi / 2)).tan();
        },
    .log_prob =
        [](const HalfCauchy& d, const Tensor& value) {
          const Tensor z = value / d.scale;
          return where(value < 0, -kInfinity, std::log(2 / kPi) - d.scale.log() - (z * z).log1p());
        },
    .entropy = [](const HalfCauchy& d) { return (2 * kPi * d.scale).log(); },
    .mean = [](const HalfCauchy& d) { return full_like(d.scale, kInfinity); },
    .variance = [](const HalfCauchy& d) { return full_like(d.scale, kInfinity); }};

Pareto::Pareto(const Tensor& scale_in, const Tensor& alpha_in) : scale(scale_in), alpha(alpha_in) {
  broadcast(scale, alpha, "Pareto");
  batch_ = Shape(scale.sizes());
}
constinit const Formulas<Pareto> Pareto::formulas = {
    .name = "Pareto",
    .has_rsample = true,
    .draw =
        [](const Pareto& d, const Shape& all) {
          return d.scale * (exponential_numbers(d.alpha, all) / d.alpha).exp();
        },
    .log_prob =
        [](const Pareto& d, const Tensor& value) {
          return where(value < d.scale, -kInfinity,
                       d.alpha.log() + d.alpha * d.scale.log() - (d.alpha + 1) * value.log());
        },
    .entropy = [](const Pareto& d) { return (d.scale / d.alpha).log() + 1 + 1 / d.alpha; },
    .mean =
        [](const Pareto& d) {
          const Tensor a = d.alpha.clamp(1, kInfinity);
          return a * d.scale / (a - 1);
        },
    .variance =
        [](const Pareto& d) {
          const Tensor a = d.alpha.clamp(2, kInfinity);
          return d.scale * d.scale * a / ((a - 1) * (a - 1) * (a - 2));
        }};

Weibull::Weibull(const Tensor& scale_in, const Tensor& concentration_in)
    : scale(scale_in), concentration(concentration_in) {
  broadcast(scale, concentration, "Weibull");
  batch_ = Shape(scale.sizes());
}
constinit const Formulas<Weibull> Weibull::formulas = {
    .name = "Weibull",
    .has_rsample = true,
    .draw =
        [](const Weibull& d, const Shape& all) {
          return d.scale * exponential_numbers(d.scale, all).pow(1 / d.concentration);
        },
    .log_prob =
        [](const Weibull& d, const Tensor& value) {
          const Tensor part = value / d.scale;
          return where(value < 0, -kInfinity,
                       (d.concentration / d.scale).log() + (d.concentration - 1) * part.log() -
                           part.pow(d.concentration));
        },
    .entropy =
        [](const Weibull& d) {
          return kEuler * (1 - 1 / d.concentration) + (d.scale / d.concentration).log() + 1;
        },
    .mean = [](const Weibull& d) { return d.scale * (1 + 1 / d.concentration).lgamma().exp(); },
    .variance =
        [](const Weibull& d) {
          const Tensor root = 1 / d.concentration;
          return d.scale * d.scale *
                 ((1 + 2 * root).lgamma().exp() - (2 * (1 + root).lgamma()).exp());
        }};

}  // namespace arete::distributions
