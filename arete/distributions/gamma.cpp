#include "arete/distributions/gamma.h"

#include <algorithm>

#include "arete/distributions/distribution_internal.h"
#include "arete/ops/numeric.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/ops/softmax.h"
#include "arete/ops/special.h"

namespace arete::distributions {

namespace {

// Logarithms of gamma numbers of rate 1, which small concentrations do not underflow, by Marsaglia
// and Tsang's method: cubes of shifted normal numbers, of which some are drawn again. On a GPU each
// round waits for it. For a below 1 it is one of a + 1 times a power of a uniform number, 1 / a.
Tensor log_gamma_numbers(const Tensor& concentration) {
  const Tensor a = concentration.detach().contiguous();
  const Tensor small = a < 1;
  const Tensor d = where(small, a + 1, a) - 1.0 / 3, c = (9 * d).rsqrt();
  Tensor result = full_like(a, kNan), left = logical_and(a > 0, a < kInfinity);
  while (left.any().item<bool>()) {
    const Tensor z = randn(a.sizes(), a.options()), y = c * z;  // (1 + y)^3 d is the number
    const Tensor log_v = 3 * y.clamp(-1 + epsilon_of(a.dtype()), kInfinity).log1p();
    const Tensor bound = z * z / 2 + d * (log_v - y * (3 + y * (3 + y)));
    const Tensor below = rand(a.sizes(), a.options()).log() < bound;
    const Tensor taken = logical_and(left, logical_and(y > -1, below));
    result = where(taken, d.log() + log_v, result);
    left = logical_and(left, logical_not(taken));
  }
  return where(small, result - exponential_numbers(a, Shape(a.sizes())) / a, result);
}

// The draws of log_gamma_numbers() have few digits in halves: in f32 at least.
Tensor log_gamma_draws(const Tensor& concentration, const Shape& sizes) {
  const bool wide = concentration.dtype() == kFloat64;
  return log_gamma_numbers(concentration.to(wide ? kFloat64 : kFloat32).expand(sizes));
}

Tensor positive(const Tensor& t, DType dtype) {
  return t.clamp(std::numeric_limits<float>::min(), kInfinity).to(dtype);
}

}  // namespace

Gamma::Gamma(const Tensor& concentration_in, const Tensor& rate_in)
    : concentration(concentration_in), rate(rate_in) {
  broadcast(concentration, rate, "Gamma");
  batch_ = Shape(rate.sizes());
}
Tensor Gamma::draw(IntList sizes) const {
  const Tensor x = log_gamma_draws(concentration, extended(sizes));
  return positive(x.exp() / rate, rate.dtype());
}
Tensor Gamma::log_prob(const Tensor& value) const {
  return concentration * rate.log() + xlogy(concentration - 1, value) - rate * value -
         concentration.lgamma();
}
Tensor Gamma::entropy() const {
  return concentration - rate.log() + concentration.lgamma() +
         (1 - concentration) * concentration.digamma();
}
Tensor Gamma::mean() const { return concentration / rate; }
Tensor Gamma::variance() const { return concentration / (rate * rate); }

Chi2::Chi2(const Tensor& df_in) : Gamma(df_in / 2, full({}, 0.5, df_in.options())), df(df_in) {}

Dirichlet::Dirichlet(const Tensor& concentration_in) : concentration(concentration_in) {
  check_floating(concentration, "Dirichlet");
  ARETE_CHECK(concentration.dim() >= 1,
              ValueError("Dirichlet", "the parameter has a dimension of classes"));
  batch_ = Shape(concentration.sizes().subspan(0, size_t(concentration.dim()) - 1));
  event_ = Shape{concentration.size(-1)};
}
Tensor Dirichlet::draw(IntList sizes) const {
  const Tensor x = log_gamma_draws(concentration, extended(sizes));
  return positive(softmax(x, -1), concentration.dtype());
}
Tensor Dirichlet::log_prob(const Tensor& value) const {
  return (xlogy(concentration - 1, value) - concentration.lgamma()).sum({-1}) +
         concentration.sum({-1}).lgamma();
}
Tensor Dirichlet::entropy() const {
  const Tensor total = concentration.sum({-1});
  return (concentration.lgamma() - (concentration - 1) * concentration.digamma()).sum({-1}) -
         total.lgamma() + (total - double(event_[0])) * total.digamma();
}
Tensor Dirichlet::mean() const { return concentration / concentration.sum({-1}, true); }
Tensor Dirichlet::variance() const {
  const Tensor m = mean();
  return m * (1 - m) / (concentration.sum({-1}, true) + 1);
}

Beta::Beta(const Tensor& concentration1_in, const Tensor& concentration0_in)
    : concentration1(concentration1_in), concentration0(concentration0_in) {
  broadcast(concentration1, concentration0, "Beta");
  batch_ = Shape(concentration1.sizes());
}
Dirichlet Beta::of_two() const { return Dirichlet(stack({concentration1, concentration0}, -1)); }
Tensor Beta::draw(IntList sizes) const { return of_two().sample(sizes).select(-1, 0); }
Tensor Beta::log_prob(const Tensor& value) const {
  return xlogy(concentration1 - 1, value) + special_xlog1py(concentration0 - 1, -value) +
         (concentration1 + concentration0).lgamma() - concentration1.lgamma() -
         concentration0.lgamma();
}
Tensor Beta::entropy() const { return of_two().entropy(); }
Tensor Beta::mean() const { return concentration1 / (concentration1 + concentration0); }
Tensor Beta::variance() const { return of_two().variance().select(-1, 0); }

StudentT::StudentT(const Tensor& df_in, const Tensor& loc_in, const Tensor& scale_in)
    : df(df_in), loc(loc_in), scale(scale_in) {
  broadcast(df, loc, "StudentT");
  broadcast(loc, scale, "StudentT");
  broadcast(df, scale, "StudentT");
  batch_ = Shape(loc.sizes());
}
Tensor StudentT::draw(IntList sizes) const {
  const Shape all = extended(sizes);
  const Tensor half = df / 2;
  const Tensor spread = ((half.log() - log_gamma_draws(half, all)) / 2).exp().to(loc.dtype());
  return loc + scale * randn(all, loc.options()) * spread;
}
Tensor StudentT::log_prob(const Tensor& value) const {
  const Tensor z = (value - loc) / scale, half = df / 2;
  return (half + 0.5).lgamma() - half.lgamma() - 0.5 * (kPi * df).log() - scale.log() -
         (half + 0.5) * (z * z / df).log1p();
}
Tensor StudentT::entropy() const {
  const Tensor half = df / 2;
  const Tensor beta = half.lgamma() + std::lgamma(0.5) - (half + 0.5).lgamma();
  return (half + 0.5) * ((half + 0.5).digamma() - half.digamma()) + 0.5 * df.log() + beta +
         scale.log();
}
Tensor StudentT::mean() const { return where(df > 1, loc, kNan); }
Tensor StudentT::variance() const {
  const Tensor finite = scale * scale * df / (df - 2);
  return where(df > 2, finite, where(df > 1, full_like(df, kInfinity), kNan));
}

NegativeBinomial::NegativeBinomial(const Tensor& total_count_in, const Tensor& probs_in)
    : total_count(total_count_in), probs(probs_in) {
  broadcast(total_count, probs, "NegativeBinomial");
  batch_ = Shape(probs.sizes());
}
Tensor NegativeBinomial::draw(IntList sizes) const {
  const Tensor rate = Gamma(total_count, 1 / probs - 1).sample(sizes);
  return poisson(where(total_count > 0, rate, 0.0));
}
Tensor NegativeBinomial::log_prob(const Tensor& value) const {
  const Tensor x = value.to(probs.dtype());
  return special_xlog1py(total_count, -probs) + xlogy(x, probs) +
         where(total_count + x == 0, 0.0,
               (total_count + x).lgamma() - total_count.lgamma() - (x + 1).lgamma());
}
Tensor NegativeBinomial::mean() const { return total_count * probs / (1 - probs); }
Tensor NegativeBinomial::variance() const { return mean() / (1 - probs); }

}  // namespace arete::distributions
