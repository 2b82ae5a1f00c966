#include "arete/distributions/distribution.h"

#include <cmath>

#include "arete/core/modes.h"
#include "arete/distributions/distribution_internal.h"
#include "arete/distributions/gamma.h"
#include "arete/distributions/tails.h"
#include "arete/ops/activation.h"
#include "arete/ops/index.h"
#include "arete/ops/linalg.h"
#include "arete/ops/matmul.h"
#include "arete/ops/numeric.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "arete/ops/softmax.h"
#include "arete/ops/special.h"

namespace arete::distributions {

namespace {

const double kHalfLog2Pi = 0.5 * std::log(2 * kPi);

Tensor undefined_numbers(const Tensor& like) { return full_like(like, kNan); }

Tensor log_of(const Tensor& probs) {
  check_floating(probs, "Categorical");
  // A class of probability 0 has a logarithm that products with 0 survive.
  return probs.clamp(std::numeric_limits<float>::min(), kInfinity).log();
}

Tensor diagonal_of(const Tensor& t) { return t.diagonal(0, -2, -1); }

}  // namespace

Shape Distribution::extended(IntList sizes) const {
  Shape all(sizes);
  for (const int64_t s : batch_) all.push_back(s);
  for (const int64_t s : event_) all.push_back(s);
  return all;
}

Tensor Distribution::sample(IntList sizes) const {
  const NoGradGuard no_grad;
  return draw(sizes);
}
Tensor Distribution::rsample(IntList sizes) const {
  if (!has_rsample()) refuse("draws of this distribution have no gradient: use sample()");
  return draw(sizes);
}
void Distribution::refuse(const char* what) const { throw NotImplementedError(name(), what); }
Tensor Distribution::stddev() const { return variance().sqrt(); }

Normal::Normal(const Tensor& loc_in, const Tensor& scale_in) : loc(loc_in), scale(scale_in) {
  broadcast(loc, scale, "Normal");
  batch_ = Shape(loc.sizes());
}
constinit const Formulas<Normal> Normal::formulas = {
    .name = "Normal",
    .has_rsample = true,
    .draw = [](const Normal& d,
               const Shape& all) { return d.loc + d.scale * randn(all, d.loc.options()); },
    .log_prob =
        [](const Normal& d, const Tensor& value) {
          const Tensor z = (value - d.loc) / d.scale;
          return -0.5 * z * z - d.scale.log() - kHalfLog2Pi;
        },
    .entropy = [](const Normal& d) { return d.scale.log() + (0.5 + kHalfLog2Pi); },
    .mean = [](const Normal& d) { return d.loc; },
    .variance = [](const Normal& d) { return d.scale * d.scale; }};

Laplace::Laplace(const Tensor& loc_in, const Tensor& scale_in) : loc(loc_in), scale(scale_in) {
  broadcast(loc, scale, "Laplace");
  batch_ = Shape(loc.sizes());
}
constinit const Formulas<Laplace> Laplace::formulas = {
    .name = "Laplace",
    .has_rsample = true,
    .draw =
        [](const Laplace& d, const Shape& all) {
          return d.loc +
                 d.scale * (exponential_numbers(d.loc, all) - exponential_numbers(d.loc, all));
        },
    .log_prob =
        [](const Laplace& d, const Tensor& value) {
          return -(value - d.loc).abs() / d.scale - (2 * d.scale).log();
        },
    .entropy = [](const Laplace& d) { return (2 * d.scale).log() + 1; },
    .mean = [](const Laplace& d) { return d.loc; },
    .variance = [](const Laplace& d) { return 2 * d.scale * d.scale; }};

Cauchy::Cauchy(const Tensor& loc_in, const Tensor& scale_in) : loc(loc_in), scale(scale_in) {
  broadcast(loc, scale, "Cauchy");
  batch_ = Shape(loc.sizes());
}
constinit const Formulas<Cauchy> Cauchy::formulas = {
    .name = "Cauchy",
    .has_rsample = true,
    .draw =
        [](const Cauchy& d, const Shape& all) {
          return d.loc + d.scale * ((rand(all, d.loc.options()) - 0.5) * kPi).tan();
        },
    .log_prob =
        [](const Cauchy& d, const Tensor& value) {
          const Tensor z = (value - d.loc) / d.scale;
          return -(z * z).log1p() - d.scale.log() - std::log(kPi);
        },
    .entropy = [](const Cauchy& d) { return (4 * kPi * d.scale).log(); },
    .mean = [](const Cauchy& d) { return undefined_numbers(d.loc); },
    .variance = [](const Cauchy& d) { return undefined_numbers(d.loc); }};

Gumbel::Gumbel(const Tensor& loc_in, const Tensor& scale_in) : loc(loc_in), scale(scale_in) {
  broadcast(loc, scale, "Gumbel");
  batch_ = Shape(loc.sizes());
}
constinit const Formulas<Gumbel> Gumbel::formulas = {
    .name = "Gumbel",
    .has_rsample = true,
    .draw =
        [](const Gumbel& d, const Shape& all) {
          const Tensor e = exponential_numbers(d.loc, all);
          return d.loc - d.scale * e.clamp(std::numeric_limits<float>::min(), kInfinity).log();
        },
    .log_prob =
        [](const Gumbel& d, const Tensor& value) {
          const Tensor z = (value - d.loc) / d.scale;
          return -z - (-z).exp() - d.scale.log();
        },
    .entropy = [](const Gumbel& d) { return d.scale.log() + (1 + kEuler); },
    .mean = [](const Gumbel& d) { return d.loc + d.scale * kEuler; },
    .variance = [](const Gumbel& d) { return d.scale * d.scale * (kPi * kPi / 6); }};

LogNormal::LogNormal(const Tensor& loc_in, const Tensor& scale_in) : loc(loc_in), scale(scale_in) {
  broadcast(loc, scale, "LogNormal");
  batch_ = Shape(loc.sizes());
}
constinit const Formulas<LogNormal> LogNormal::formulas = {
    .name = "LogNormal",
    .has_rsample = true,
    .draw = [](const LogNormal& d,
               const Shape& all) { return (d.loc + d.scale * randn(all, d.loc.options())).exp(); },
    .log_prob =
        [](const LogNormal& d, const Tensor& value) {
          const Tensor x = value.log();
          return Normal(d.loc, d.scale).log_prob(x) - x;
        },
    .entropy = [](const LogNormal& d) { return Normal(d.loc, d.scale).entropy() + d.loc; },
    .mean = [](const LogNormal& d) { return (d.loc + 0.5 * d.scale * d.scale).exp(); },
    .variance =
        [](const LogNormal& d) {
          const Tensor v = d.scale * d.scale;
          return v.expm1() * (2 * d.loc + v).exp();
        }};

HalfNormal::HalfNormal(const Tensor& scale_in) : scale(scale_in) {
  check_floating(scale, "HalfNormal");
  batch_ = Shape(scale.sizes());
}
constinit const Formulas<HalfNormal> HalfNormal::formulas = {
    .name = "HalfNormal",
    .has_rsample = true,
    .draw = [](const HalfNormal& d,
               const Shape& all) { return (d.scale * randn(all, d.scale.options())).abs(); },
    .log_prob =
        [](const HalfNormal& d, const Tensor& value) {
          const Tensor z = value / d.scale;
          return where(value < 0, -kInfinity,
                       -0.5 * z * z - d.scale.log() - (kHalfLog2Pi - std::numbers::ln2));
        },
    .entropy =
        [](const HalfNormal& d) { return d.scale.log() + (0.5 + kHalfLog2Pi - std::numbers::ln2); },
    .mean = [](const HalfNormal& d) { return d.scale * std::sqrt(2 / kPi); },
    .variance = [](const HalfNormal& d) { return d.scale * d.scale * (1 - 2 / kPi); }};

Uniform::Uniform(const Tensor& low_in, const Tensor& high_in) : low(low_in), high(high_in) {
  broadcast(low, high, "Uniform");
  batch_ = Shape(low.sizes());
}
constinit const Formulas<Uniform> Uniform::formulas = {
    .name = "Uniform",
    .has_rsample = true,
    .draw = [](const Uniform& d,
               const Shape& all) { return d.low + (d.high - d.low) * rand(all, d.low.options()); },
    .log_prob =
        [](const Uniform& d, const Tensor& value) {
          return where(logical_and(value >= d.low, value < d.high), -(d.high - d.low).log(),
                       -kInfinity);
        },
    .entropy = [](const Uniform& d) { return (d.high - d.low).log(); },
    .mean = [](const Uniform& d) { return (d.low + d.high) / 2; },
    .variance = [](const Uniform& d) { return (d.high - d.low) * (d.high - d.low) / 12; }};

Exponential::Exponential(const Tensor& rate_in) : rate(rate_in) {
  check_floating(rate, "Exponential");
  batch_ = Shape(rate.sizes());
}
constinit const Formulas<Exponential> Exponential::formulas = {
    .name = "Exponential",
    .has_rsample = true,
    .draw = [](const Exponential& d,
               const Shape& all) { return exponential_numbers(d.rate, all) / d.rate; },
    .log_prob =
        [](const Exponential& d, const Tensor& value) {
          return where(value < 0, -kInfinity, d.rate.log() - d.rate * value);
        },
    .entropy = [](const Exponential& d) { return 1 - d.rate.log(); },
    .mean = [](const Exponential& d) { return 1 / d.rate; },
    .variance = [](const Exponential& d) { return 1 / (d.rate * d.rate); }};

Bernoulli::Bernoulli(const Tensor& probs_in) : probs(probs_in) {
  check_floating(probs, "Bernoulli");
  logits = logits_of(probs);
  batch_ = Shape(probs.sizes());
}
Bernoulli Bernoulli::from_logits(const Tensor& logits) {
  check_floating(logits, "Bernoulli");
  Bernoulli b(sigmoid(logits));
  b.logits = logits;
  return b;
}
constinit const Formulas<Bernoulli> Bernoulli::formulas = {
    .name = "Bernoulli",
    .has_rsample = false,
    .draw = [](const Bernoulli& d, const Shape& all) { return bernoulli(d.probs.expand(all)); },
    // x log p + (1 - x) log(1 - p)
    .log_prob =
        [](const Bernoulli& d, const Tensor& value) {
          return value.to(d.logits.dtype()) * d.logits - softplus(d.logits);
        },
    .entropy = [](const Bernoulli& d) { return softplus(d.logits) - d.probs * d.logits; },
    .mean = [](const Bernoulli& d) { return d.probs; },
    .variance = [](const Bernoulli& d) { return d.probs * (1 - d.probs); }};

Geometric::Geometric(const Tensor& probs_in) : probs(probs_in) {
  check_floating(probs, "Geometric");
  batch_ = Shape(probs.sizes());
}
constinit const Formulas<Geometric> Geometric::formulas = {
    .name = "Geometric",
    .has_rsample = false,
    .draw =
        [](const Geometric& d, const Shape& all) {
          return (-exponential_numbers(d.probs, all) / (-d.probs).log1p()).floor();
        },
    .log_prob =
        [](const Geometric& d, const Tensor& value) {
          return special_xlog1py(value.to(d.probs.dtype()), -d.probs) + d.probs.log();
        },
    .entropy = [](const Geometric& d) { return Bernoulli(d.probs).entropy() / d.probs; },
    .mean = [](const Geometric& d) { return 1 / d.probs - 1; },
    .variance = [](const Geometric& d) { return (1 / d.probs - 1) / d.probs; }};

Poisson::Poisson(const Tensor& rate_in) : rate(rate_in) {
  check_floating(rate, "Poisson");
  batch_ = Shape(rate.sizes());
}
constinit const Formulas<Poisson> Poisson::formulas = {
    .name = "Poisson",
    .has_rsample = false,
    .draw = [](const Poisson& d, const Shape& all) { return poisson(d.rate.expand(all)); },
    .log_prob =
        [](const Poisson& d, const Tensor& value) {
          const Tensor x = value.to(d.rate.dtype());
          return xlogy(x, d.rate) - d.rate - (x + 1).lgamma();
        },
    .entropy = nullptr,
    .mean = [](const Poisson& d) { return d.rate; },
    .variance = [](const Poisson& d) { return d.rate; }};

Categorical::Categorical(const Tensor& probs_in) : Categorical(log_of(probs_in), FromLogits{}) {
  probs = probs_in / probs_in.sum({-1}, true);
}
Categorical::Categorical(const Tensor& logits_in, FromLogits) {
  check_floating(logits_in, "Categorical");
  ARETE_CHECK(logits_in.dim() >= 1 && logits_in.size(-1) >= 1,
              ValueError("Categorical", "the parameter has a dimension of classes"));
  logits = log_softmax(logits_in, -1);
  probs = logits.exp();
  batch_ = Shape(logits.sizes().subspan(0, size_t(logits.dim()) - 1));
}
Categorical Categorical::from_logits(const Tensor& logits) { return {logits, FromLogits{}}; }
constinit const Formulas<Categorical> Categorical::formulas = {
    .name = "Categorical",
    .has_rsample = false,
    .draw =
        [](const Categorical& d, const Shape& all) {
          if (numel_of(all) == 0) return empty(all, TensorOptions(kInt64, d.probs.device()));
          const Tensor rows = d.probs.detach().reshape({-1, d.probs.size(-1)});
          return multinomial(rows, numel_of(all) / rows.size(0), true).t().reshape(all);
        },
    .log_prob =
        [](const Categorical& d, const Tensor& value) {
          const Tensor index = value.to(kInt64).unsqueeze(-1);
          const std::vector<Tensor> both = broadcast_tensors({index, d.logits});
          return both[1].gather(-1, both[0].narrow(-1, 0, 1)).squeeze(-1);
        },
    .entropy = [](const Categorical& d) { return -(d.probs * d.logits).sum({-1}); },
    .mean = [](const Categorical& d) { return undefined_numbers(d.logits.select(-1, 0)); },
    .variance = [](const Categorical& d) { return undefined_numbers(d.logits.select(-1, 0)); }};

MultivariateNormal::MultivariateNormal(const Tensor& loc_in, const Tensor& scale_tril_in)
    : loc(loc_in), scale_tril(scale_tril_in) {
  check_floating(loc, name());
  check_floating(scale_tril, name());
  ARETE_CHECK(loc.dim() >= 1 && scale_tril.dim() >= 2 &&
                  scale_tril.size(-1) == scale_tril.size(-2) && loc.size(-1) == scale_tril.size(-1),
              ValueError(name(), "loc must be (..., d), the root of the covariance (..., d, d)")
                  .got(to_string(loc.sizes()) + " and " + to_string(scale_tril.sizes())));
  const std::vector<Tensor> both = broadcast_tensors({loc.unsqueeze(-1), scale_tril});
  loc = both[0].select(-1, 0);
  scale_tril = both[1];
  batch_ = Shape(loc.sizes().subspan(0, size_t(loc.dim()) - 1));
  event_ = Shape{loc.size(-1)};
}
MultivariateNormal MultivariateNormal::from_covariance(const Tensor& loc,
                                                       const Tensor& covariance) {
  return {loc, linalg::cholesky(covariance)};
}
constinit const Formulas<MultivariateNormal> MultivariateNormal::formulas = {
    .name = "MultivariateNormal",
    .has_rsample = true,
    .draw =
        [](const MultivariateNormal& d, const Shape& all) {
          const Tensor noise = randn(all, d.loc.options());
          return d.loc + matmul(d.scale_tril, noise.unsqueeze(-1)).squeeze(-1);
        },
    .log_prob =
        [](const MultivariateNormal& d, const Tensor& value) {
          const Tensor apart = (value - d.loc).unsqueeze(-1);
          const int64_t n = d.loc.size(-1);
          Shape square(apart.sizes());
          square[square.size() - 1] = n;
          const Tensor z =
              linalg::solve_triangular(d.scale_tril.expand(square), apart, false).squeeze(-1);
          return -0.5 * (z * z).sum({-1}) - diagonal_of(d.scale_tril).log().sum({-1}) -
                 kHalfLog2Pi * double(n);
        },
    .entropy =
        [](const MultivariateNormal& d) {
          return diagonal_of(d.scale_tril).log().sum({-1}) +
                 (0.5 + kHalfLog2Pi) * double(d.loc.size(-1));
        },
    .mean = [](const MultivariateNormal& d) { return d.loc; },
    .variance =
        [](const MultivariateNormal& d) { return (d.scale_tril * d.scale_tril).sum({-1}); }};

Independent::Independent(std::shared_ptr<const Distribution> base, int64_t dims)
    : base_(std::move(base)), dims_(dims) {
  ARETE_CHECK(base_ && dims >= 0 && size_t(dims) <= base_->batch_shape().size(),
              ValueError("Independent",
                         "expected a distribution with at least that many batch "
                         "dimensions")
                  .got(std::to_string(dims)));
  const Shape& of = base_->batch_shape();
  for (size_t d = 0; d < of.size(); ++d)
    (d < of.size() - size_t(dims) ? batch_ : event_).push_back(of[d]);
  for (const int64_t s : base_->event_shape()) event_.push_back(s);
}
Tensor Independent::sum(const Tensor& t) const {
  Tensor s = t;
  for (int64_t d = 0; d < dims_; ++d) s = s.sum({-1});
  return s;
}
Tensor Independent::log_prob(const Tensor& value) const { return sum(base_->log_prob(value)); }
Tensor Independent::entropy() const { return sum(base_->entropy()); }

namespace {
template <class D, class F>
bool both_are(const Distribution& p, const Distribution& q, Tensor& result, F&& f) {
  const auto* a = dynamic_cast<const D*>(&p);
  const auto* b = dynamic_cast<const D*>(&q);
  if (!a || !b) return false;
  result = f(*a, *b);
  return true;
}
Tensor normal_kl(const Tensor& loc_p, const Tensor& scale_p, const Tensor& loc_q,
                 const Tensor& scale_q) {
  const Tensor ratio = (scale_p / scale_q).pow(2), apart = ((loc_p - loc_q) / scale_q).pow(2);
  return 0.5 * (ratio + apart - 1 - ratio.log());
}
Tensor dirichlet_kl(const Tensor& a, const Tensor& b) {
  const Tensor total = a.sum({-1});
  const Tensor slopes = a.digamma() - total.digamma().unsqueeze(-1);
  return total.lgamma() - b.sum({-1}).lgamma() +
         ((a - b) * slopes - a.lgamma() + b.lgamma()).sum({-1});
}
}  // namespace

Tensor kl_divergence(const Distribution& p, const Distribution& q) {
  Tensor kl;
  const bool found =
      both_are<Normal>(
          p, q, kl, [](auto& a, auto& b) { return normal_kl(a.loc, a.scale, b.loc, b.scale); }) ||
      both_are<LogNormal>(
          p, q, kl, [](auto& a, auto& b) { return normal_kl(a.loc, a.scale, b.loc, b.scale); }) ||
      both_are<Laplace>(p, q, kl,
                        [](auto& a, auto& b) {
                          const Tensor ratio = a.scale / b.scale, apart = (a.loc - b.loc).abs();
                          return -ratio.log() + apart / b.scale + ratio * (-apart / a.scale).exp() -
                                 1;
                        }) ||
      both_are<Uniform>(p, q, kl,
                        [](auto& a, auto& b) {
                          return where(logical_and(b.low <= a.low, b.high >= a.high),
                                       ((b.high - b.low) / (a.high - a.low)).log(), kInfinity);
                        }) ||
      both_are<Exponential>(p, q, kl,
                            [](auto& a, auto& b) {
                              const Tensor ratio = b.rate / a.rate;
                              return ratio - 1 - ratio.log();
                            }) ||
      both_are<Bernoulli>(p, q, kl,
                          [](auto& a, auto& b) {
                            return a.probs * (a.logits - b.logits) - softplus(a.logits) +
                                   softplus(b.logits);
                          }) ||
      both_are<Geometric>(p, q, kl,
                          [](auto& a, auto& b) {
                            return -a.entropy() - (-b.probs).log1p() * a.mean() - b.probs.log();
                          }) ||
      both_are<Poisson>(p, q, kl,
                        [](auto& a, auto& b) {
                          return a.rate * (a.rate.log() - b.rate.log()) - (a.rate - b.rate);
                        }) ||
      both_are<Gamma>(p, q, kl,
                      [](auto& a, auto& b) {
                        const Tensor c = a.concentration, d = b.concentration;
                        return d * (a.rate / b.rate).log() + d.lgamma() - c.lgamma() +
                               (c - d) * c.digamma() + c * (b.rate / a.rate - 1);
                      }) ||
      both_are<Dirichlet>(
          p, q, kl,
          [](auto& a, auto& b) { return dirichlet_kl(a.concentration, b.concentration); }) ||
      both_are<Beta>(p, q, kl,
                     [](auto& a, auto& b) {
                       return dirichlet_kl(a.of_two().concentration, b.of_two().concentration);
                     }) ||
      both_are<Pareto>(p, q, kl,
                       [](auto& a, auto& b) {
                         const Tensor ratio = b.alpha / a.alpha;
                         return where(a.scale >= b.scale,
                                      b.alpha * (a.scale / b.scale).log() - ratio.log() + ratio - 1,
                                      kInfinity);
                       }) ||
      both_are<Categorical>(
          p, q, kl, [](auto& a, auto& b) { return (a.probs * (a.logits - b.logits)).sum({-1}); }) ||
      both_are<MultivariateNormal>(p, q, kl, [](auto& a, auto& b) {
        const Tensor root = linalg::solve_triangular(b.scale_tril, a.scale_tril, false);
        const Tensor apart =
            linalg::solve_triangular(b.scale_tril, (a.loc - b.loc).unsqueeze(-1), false);
        const auto log_det = [](const Tensor& t) { return diagonal_of(t).log().sum({-1}); };
        return log_det(b.scale_tril) - log_det(a.scale_tril) +
               0.5 * ((root * root).sum({-2, -1}) + (apart * apart).sum({-2, -1}) -
                      double(a.event_shape()[0]));
      });
  if (!found)
    throw NotImplementedError("kl_divergence", std::string("there is no closed form here for ") +
                                                   p.name() + " and " + q.name());
  return kl;
}

}  // namespace arete::distributions
