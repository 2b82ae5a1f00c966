#include "arete/distributions/distribution.h"

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
  return has_rsample() ? rsample(sizes) : draw(sizes);
}
Tensor Distribution::draw(IntList) const { ARETE_BUG("a distribution without a way to draw"); }
Tensor Distribution::rsample(IntList) const {
  throw NotImplementedError(name(), "draws of this distribution have no gradient: use sample()");
}
Tensor Distribution::entropy() const {
  throw NotImplementedError(name(), "the entropy of this distribution has no closed form");
}
Tensor Distribution::stddev() const { return variance().sqrt(); }

Normal::Normal(const Tensor& loc_in, const Tensor& scale_in) : loc(loc_in), scale(scale_in) {
  broadcast(loc, scale, "Normal");
  batch_ = Shape(loc.sizes());
}
Tensor Normal::rsample(IntList sizes) const {
  return loc + scale * randn(extended(sizes), loc.options());
}
Tensor Normal::log_prob(const Tensor& value) const {
  const Tensor z = (value - loc) / scale;
  return -0.5 * z * z - scale.log() - kHalfLog2Pi;
}
Tensor Normal::entropy() const { return scale.log() + (0.5 + kHalfLog2Pi); }
Tensor Normal::variance() const { return scale * scale; }

Laplace::Laplace(const Tensor& loc_in, const Tensor& scale_in) : loc(loc_in), scale(scale_in) {
  broadcast(loc, scale, "Laplace");
  batch_ = Shape(loc.sizes());
}
Tensor Laplace::rsample(IntList sizes) const {
  const Shape all = extended(sizes);
  return loc + scale * (exponential_numbers(loc, all) - exponential_numbers(loc, all));
}
Tensor Laplace::log_prob(const Tensor& value) const {
  return -(value - loc).abs() / scale - (2 * scale).log();
}
Tensor Laplace::entropy() const { return (2 * scale).log() + 1; }
Tensor Laplace::variance() const { return 2 * scale * scale; }

Cauchy::Cauchy(const Tensor& loc_in, const Tensor& scale_in) : loc(loc_in), scale(scale_in) {
  broadcast(loc, scale, "Cauchy");
  batch_ = Shape(loc.sizes());
}
Tensor Cauchy::rsample(IntList sizes) const {
  return loc + scale * ((rand(extended(sizes), loc.options()) - 0.5) * kPi).tan();
}
Tensor Cauchy::log_prob(const Tensor& value) const {
  const Tensor z = (value - loc) / scale;
  return -(z * z).log1p() - scale.log() - std::log(kPi);
}
Tensor Cauchy::entropy() const { return (4 * kPi * scale).log(); }
Tensor Cauchy::mean() const { return undefined_numbers(loc); }
Tensor Cauchy::variance() const { return undefined_numbers(loc); }

Gumbel::Gumbel(const Tensor& loc_in, const Tensor& scale_in) : loc(loc_in), scale(scale_in) {
  broadcast(loc, scale, "Gumbel");
  batch_ = Shape(loc.sizes());
}
Tensor Gumbel::rsample(IntList sizes) const {
  const Tensor e = exponential_numbers(loc, extended(sizes));
  return loc - scale * e.clamp(std::numeric_limits<float>::min(), kInfinity).log();
}
Tensor Gumbel::log_prob(const Tensor& value) const {
  const Tensor z = (value - loc) / scale;
  return -z - (-z).exp() - scale.log();
}
Tensor Gumbel::entropy() const { return scale.log() + (1 + kEuler); }
Tensor Gumbel::mean() const { return loc + scale * kEuler; }
Tensor Gumbel::variance() const { return scale * scale * (kPi * kPi / 6); }

LogNormal::LogNormal(const Tensor& loc_in, const Tensor& scale_in) : loc(loc_in), scale(scale_in) {
  broadcast(loc, scale, "LogNormal");
  batch_ = Shape(loc.sizes());
}
Tensor LogNormal::rsample(IntList sizes) const { return Normal(loc, scale).rsample(sizes).exp(); }
Tensor LogNormal::log_prob(const Tensor& value) const {
  const Tensor x = value.log();
  return Normal(loc, scale).log_prob(x) - x;
}
Tensor LogNormal::entropy() const { return Normal(loc, scale).entropy() + loc; }
Tensor LogNormal::mean() const { return (loc + 0.5 * scale * scale).exp(); }
Tensor LogNormal::variance() const {
  const Tensor v = scale * scale;
  return v.expm1() * (2 * loc + v).exp();
}

HalfNormal::HalfNormal(const Tensor& scale_in) : scale(scale_in) {
  check_floating(scale, "HalfNormal");
  batch_ = Shape(scale.sizes());
}
Tensor HalfNormal::rsample(IntList sizes) const {
  return (scale * randn(extended(sizes), scale.options())).abs();
}
Tensor HalfNormal::log_prob(const Tensor& value) const {
  const Tensor z = value / scale;
  return where(value < 0, -kInfinity,
               -0.5 * z * z - scale.log() - (kHalfLog2Pi - std::numbers::ln2));
}
Tensor HalfNormal::entropy() const { return scale.log() + (0.5 + kHalfLog2Pi - std::numbers::ln2); }
Tensor HalfNormal::mean() const { return scale * std::sqrt(2 / kPi); }
Tensor HalfNormal::variance() const { return scale * scale * (1 - 2 / kPi); }

Uniform::Uniform(const Tensor& low_in, const Tensor& high_in) : low(low_in), high(high_in) {
  broadcast(low, high, "Uniform");
  batch_ = Shape(low.sizes());
}
Tensor Uniform::rsample(IntList sizes) const {
  return low + (high - low) * rand(extended(sizes), low.options());
}
Tensor Uniform::log_prob(const Tensor& value) const {
  return where(logical_and(value >= low, value < high), -(high - low).log(), -kInfinity);
}
Tensor Uniform::entropy() const { return (high - low).log(); }
Tensor Uniform::mean() const { return (low + high) / 2; }
Tensor Uniform::variance() const { return (high - low) * (high - low) / 12; }

Exponential::Exponential(const Tensor& rate_in) : rate(rate_in) {
  check_floating(rate, "Exponential");
  batch_ = Shape(rate.sizes());
}
Tensor Exponential::rsample(IntList sizes) const {
  return exponential_numbers(rate, extended(sizes)) / rate;
}
Tensor Exponential::log_prob(const Tensor& value) const {
  return where(value < 0, -kInfinity, rate.log() - rate * value);
}
Tensor Exponential::entropy() const { return 1 - rate.log(); }
Tensor Exponential::mean() const { return 1 / rate; }
Tensor Exponential::variance() const { return 1 / (rate * rate); }

Bernoulli::Bernoulli(const Tensor& probs_in) : probs(probs_in) {
  check_floating(probs, "Bernoulli");
  const Tensor p = probs.clamp(epsilon_of(probs.dtype()), 1 - epsilon_of(probs.dtype()));
  logits = p.log() - (-p).log1p();
  batch_ = Shape(probs.sizes());
}
Bernoulli Bernoulli::from_logits(const Tensor& logits) {
  check_floating(logits, "Bernoulli");
  Bernoulli b(sigmoid(logits));
  b.logits = logits;
  return b;
}
Tensor Bernoulli::draw(IntList sizes) const { return bernoulli(probs.expand(extended(sizes))); }
// x log p + (1 - x) log(1 - p)
Tensor Bernoulli::log_prob(const Tensor& value) const {
  return value.to(logits.dtype()) * logits - softplus(logits);
}
Tensor Bernoulli::entropy() const { return softplus(logits) - probs * logits; }
Tensor Bernoulli::variance() const { return probs * (1 - probs); }

Geometric::Geometric(const Tensor& probs_in) : probs(probs_in) {
  check_floating(probs, "Geometric");
  batch_ = Shape(probs.sizes());
}
Tensor Geometric::draw(IntList sizes) const {
  return (-exponential_numbers(probs, extended(sizes)) / (-probs).log1p()).floor();
}
Tensor Geometric::log_prob(const Tensor& value) const {
  return special_xlog1py(value.to(probs.dtype()), -probs) + probs.log();
}
Tensor Geometric::entropy() const { return Bernoulli(probs).entropy() / probs; }
Tensor Geometric::mean() const { return 1 / probs - 1; }
Tensor Geometric::variance() const { return (1 / probs - 1) / probs; }

Poisson::Poisson(const Tensor& rate_in) : rate(rate_in) {
  check_floating(rate, "Poisson");
  batch_ = Shape(rate.sizes());
}
Tensor Poisson::draw(IntList sizes) const { return poisson(rate.expand(extended(sizes))); }
Tensor Poisson::log_prob(const Tensor& value) const {
  const Tensor x = value.to(rate.dtype());
  return xlogy(x, rate) - rate - (x + 1).lgamma();
}

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
Tensor Categorical::draw(IntList sizes) const {
  int64_t n = 1;
  for (const int64_t s : sizes) n *= s;
  const Shape all = extended(sizes);
  if (numel_of(all) == 0) return empty(all, TensorOptions(kInt64, probs.device()));
  const Tensor rows = probs.detach().reshape({-1, probs.size(-1)});
  return multinomial(rows, n, true).t().reshape(all);
}
Tensor Categorical::log_prob(const Tensor& value) const {
  const Tensor index = value.to(kInt64).unsqueeze(-1);
  const std::vector<Tensor> both = broadcast_tensors({index, logits});
  return both[1].gather(-1, both[0].narrow(-1, 0, 1)).squeeze(-1);
}
Tensor Categorical::entropy() const { return -(probs * logits).sum({-1}); }
Tensor Categorical::mean() const { return undefined_numbers(logits.select(-1, 0)); }
Tensor Categorical::variance() const { return mean(); }

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
Tensor MultivariateNormal::rsample(IntList sizes) const {
  const Tensor noise = randn(extended(sizes), loc.options());
  return loc + matmul(scale_tril, noise.unsqueeze(-1)).squeeze(-1);
}
Tensor MultivariateNormal::log_prob(const Tensor& value) const {
  const Tensor apart = (value - loc).unsqueeze(-1);
  Shape square(apart.sizes());
  square[square.size() - 1] = event_[0];
  const Tensor z = linalg::solve_triangular(scale_tril.expand(square), apart, false).squeeze(-1);
  return -0.5 * (z * z).sum({-1}) - diagonal_of(scale_tril).log().sum({-1}) -
         kHalfLog2Pi * double(event_[0]);
}
Tensor MultivariateNormal::entropy() const {
  return diagonal_of(scale_tril).log().sum({-1}) + (0.5 + kHalfLog2Pi) * double(event_[0]);
}
Tensor MultivariateNormal::variance() const { return (scale_tril * scale_tril).sum({-1}); }

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
