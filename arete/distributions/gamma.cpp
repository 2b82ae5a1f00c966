#include "arete/distributions/gamma.h"

#include <algorithm>
#include <cmath>

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

Tensor positive(const Tensor& t, DType dtype) {
  return t.clamp(std::numeric_limits<float>::min(), kInfinity).to(dtype);
}

}  // namespace

Tensor log_gamma_draws(const Tensor& concentration, const Shape& sizes) {
  const bool wide = concentration.dtype() == kFloat64;  // halves have few digits
  return log_gamma_numbers(concentration.to(wide ? kFloat64 : kFloat32).expand(sizes));
}

Gamma::Gamma(const Tensor& concentration_in, const Tensor& rate_in)
    : concentration(concentration_in), rate(rate_in) {
  broadcast(concentration, rate, "Gamma");
  batch_ = Shape(rate.sizes());
}
constinit const Formulas<Gamma> Gamma::formulas = {
    .name = "Gamma",
    .has_rsample = false,
    .draw =
        [](const Gamma& d, const Shape& all) {
          return positive(log_gamma_draws(d.concentration, all).exp() / d.rate, d.rate.dtype());
        },
    .log_prob =
        [](const Gamma& d, const Tensor& value) {
          return d.concentration * d.rate.log() + xlogy(d.concentration - 1, value) -
                 d.rate * value - d.concentration.lgamma();
        },
    .entropy =
        [](const Gamma& d) {
          return d.concentration - d.rate.log() + d.concentration.lgamma() +
                 (1 - d.concentration) * d.concentration.digamma();
        },
    .mean = [](const Gamma& d) { return d.concentration / d.rate; },
    .variance = [](const Gamma& d) { return d.concentration / (d.rate * d.rate); }};

Chi2::Chi2(const Tensor& df_in) : Gamma(df_in / 2, full({}, 0.5, df_in.options())), df(df_in) {}

Dirichlet::Dirichlet(const Tensor& concentration_in) : concentration(concentration_in) {
  check_floating(concentration, "Dirichlet");
  ARETE_CHECK(concentration.dim() >= 1,
              ValueError("Dirichlet", "the parameter has a dimension of classes"));
  batch_ = Shape(concentration.sizes().subspan(0, size_t(concentration.dim()) - 1));
  event_ = Shape{concentration.size(-1)};
}
constinit const Formulas<Dirichlet> Dirichlet::formulas = {
    .name = "Dirichlet",
    .has_rsample = false,
    .draw =
        [](const Dirichlet& d, const Shape& all) {
          return positive(softmax(log_gamma_draws(d.concentration, all), -1),
                          d.concentration.dtype());
        },
    .log_prob =
        [](const Dirichlet& d, const Tensor& value) {
          return (xlogy(d.concentration - 1, value) - d.concentration.lgamma()).sum({-1}) +
                 d.concentration.sum({-1}).lgamma();
        },
    .entropy =
        [](const Dirichlet& d) {
          const Tensor &c = d.concentration, total = c.sum({-1});
          return (c.lgamma() - (c - 1) * c.digamma()).sum({-1}) - total.lgamma() +
                 (total - double(c.size(-1))) * total.digamma();
        },
    .mean = [](const Dirichlet& d) { return d.concentration / d.concentration.sum({-1}, true); },
    .variance =
        [](const Dirichlet& d) {
          const Tensor m = d.mean();
          return m * (1 - m) / (d.concentration.sum({-1}, true) + 1);
        }};

Beta::Beta(const Tensor& concentration1_in, const Tensor& concentration0_in)
    : concentration1(concentration1_in), concentration0(concentration0_in) {
  broadcast(concentration1, concentration0, "Beta");
  batch_ = Shape(concentration1.sizes());
}
Dirichlet Beta::of_two() const { return Dirichlet(stack({concentration1, concentration0}, -1)); }
constinit const Formulas<Beta> Beta::formulas = {
    .name = "Beta",
    .has_rsample = false,
    .draw =
        [](const Beta& d, const Shape& all) {
          Shape both = all;
          both.push_back(2);
          return Dirichlet::formulas.draw(d.of_two(), both).select(-1, 0);
        },
    .log_prob =
        [](const Beta& d, const Tensor& value) {
          const Tensor &a = d.concentration1, &b = d.concentration0;
          return xlogy(a - 1, value) + special_xlog1py(b - 1, -value) + (a + b).lgamma() -
                 a.lgamma() - b.lgamma();
        },
    .entropy = [](const Beta& d) { return d.of_two().entropy(); },
    .mean = [](const Beta& d) { return d.concentration1 / (d.concentration1 + d.concentration0); },
    .variance = [](const Beta& d) { return d.of_two().variance().select(-1, 0); }};

StudentT::StudentT(const Tensor& df_in, const Tensor& loc_in, const Tensor& scale_in)
    : df(df_in), loc(loc_in), scale(scale_in) {
  broadcast(df, loc, "StudentT");
  broadcast(loc, scale, "StudentT");
  broadcast(df, scale, "StudentT");
  batch_ = Shape(loc.sizes());
}
constinit const Formulas<StudentT> StudentT::formulas = {
    .name = "StudentT",
    .has_rsample = false,
    .draw =
        [](const StudentT& d, const Shape& all) {
          const Tensor half = d.df / 2;
          const Tensor spread = ((half.log() - log_gamma_draws(half, all)) / 2).exp();
          return d.loc + d.scale * randn(all, d.loc.options()) * spread.to(d.loc.dtype());
        },
    .log_prob =
        [](const StudentT& d, const Tensor& value) {
          const Tensor z = (value - d.loc) / d.scale, half = d.df / 2;
          return (half + 0.5).lgamma() - half.lgamma() - 0.5 * (kPi * d.df).log() - d.scale.log() -
                 (half + 0.5) * (z * z / d.df).log1p();
        },
    .entropy =
        [](const StudentT& d) {
          const Tensor half = d.df / 2;
          const Tensor beta = half.lgamma() + std::lgamma(0.5) - (half + 0.5).lgamma();
          return (half + 0.5) * ((half + 0.5).digamma() - half.digamma()) + 0.5 * d.df.log() +
                 beta + d.scale.log();
        },
    .mean = [](const StudentT& d) { return where(d.df > 1, d.loc, kNan); },
    .variance =
        [](const StudentT& d) {
          const Tensor finite = d.scale * d.scale * d.df / (d.df - 2);
          return where(d.df > 2, finite, where(d.df > 1, full_like(d.df, kInfinity), kNan));
        }};

NegativeBinomial::NegativeBinomial(const Tensor& total_count_in, const Tensor& probs_in)
    : total_count(total_count_in), probs(probs_in) {
  broadcast(total_count, probs, "NegativeBinomial");
  batch_ = Shape(probs.sizes());
}
constinit const Formulas<NegativeBinomial> NegativeBinomial::formulas = {
    .name = "NegativeBinomial",
    .has_rsample = false,
    .draw =
        [](const NegativeBinomial& d, const Shape& all) {
          const Tensor rate = Gamma::formulas.draw(Gamma(d.total_count, 1 / d.probs - 1), all);
          return poisson(where(d.total_count > 0, rate, 0.0));
        },
    .log_prob =
        [](const NegativeBinomial& d, const Tensor& value) {
          const Tensor x = value.to(d.probs.dtype()), &n = d.total_count;
          return special_xlog1py(n, -d.probs) + xlogy(x, d.probs) +
                 where(n + x == 0, 0.0, (n + x).lgamma() - n.lgamma() - (x + 1).lgamma());
        },
    .entropy = nullptr,
    .mean = [](const NegativeBinomial& d) { return d.total_count * d.probs / (1 - d.probs); },
    .variance = [](const NegativeBinomial& d) { return d.mean() / (1 - d.probs); }};

}  // namespace arete::distributions
