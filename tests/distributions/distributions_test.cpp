// Each distribution is held to what defines it: densities that sum to 1, moments and entropies that
// follow from them, and draws that follow them. Densities at a few points are SciPy's.
#include <gtest/gtest.h>

#include <cmath>

#include "arete/autograd/engine.h"
#include "arete/core/generator.h"
#include "arete/distributions/counts.h"
#include "arete/distributions/distribution.h"
#include "arete/distributions/gamma.h"
#include "arete/distributions/tails.h"
#include "arete/distributions/transforms.h"
#include "arete/ops/creation.h"
#include "arete/ops/matmul.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/random.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "tests/support/errors.h"

namespace arete::distributions {
namespace {

Tensor d(std::vector<double> v) { return tensor(v, kFloat64); }

struct Case {
  std::shared_ptr<Distribution> p, q;
  double from, to;  // where the mass is
  bool discrete = false;
};
template <class D, class... Args>
std::shared_ptr<Distribution> make(Args... args) {
  return std::make_shared<D>(d(args)...);
}
using V = std::vector<double>;

std::vector<Case> cases() {
  return {
      {make<Normal>(V{0.5, -1}, V{0.7, 2}), make<Normal>(V{0, 1}, V{1.5, 3}), -30, 30},
      {make<Laplace>(V{0.5, -1}, V{0.7, 1}), make<Laplace>(V{0, 1}, V{1.5, 2}), -60, 60},
      {make<Gumbel>(V{0.5, -1}, V{0.7, 1}), nullptr, -10, 60},
      {make<LogNormal>(V{0.2, -1}, V{0.3, 0.5}), make<LogNormal>(V{0.1, 0}, V{0.5, 0.7}), 1e-9, 60},
      {make<HalfNormal>(V{0.7, 2}), nullptr, 0, 30},
      {make<Uniform>(V{0, -1}, V{2, 3}), make<Uniform>(V{-1, -2}, V{2, 4}), -2, 4},
      {make<Exponential>(V{0.7, 2}), make<Exponential>(V{1, 0.5}), 0, 80},
      {make<Bernoulli>(V{0.3, 0.8}), make<Bernoulli>(V{0.5, 0.6}), 0, 1, true},
      {make<Geometric>(V{0.3, 0.8}), make<Geometric>(V{0.5, 0.6}), 0, 200, true},
      {make<Poisson>(V{0.3, 6}), make<Poisson>(V{0.5, 5}), 0, 60, true},
      {make<Binomial>(V{70, 70}, V{0.3, 0.8}), nullptr, 0, 70, true},
      {make<Gamma>(V{2.5, 4}, V{0.7, 2}), make<Gamma>(V{3, 2}, V{1, 0.5}), 0, 80},
      {make<Chi2>(V{4, 5}), make<Gamma>(V{3, 2}, V{1, 0.5}), 0, 120},
      {make<Beta>(V{2.5, 4}, V{3, 2}), make<Beta>(V{2, 1.5}, V{1, 2}), 0, 1},
      {make<StudentT>(V{8, 12}, V{0.5, -1}, V{0.7, 2}), nullptr, -100, 100},
      {make<NegativeBinomial>(V{2.5, 4}, V{0.3, 0.6}), nullptr, 0, 200, true},
      {make<Pareto>(V{1, 1}, V{9, 12}), make<Pareto>(V{0.8, 1}, V{5, 7}), 1, 30},
      {make<Weibull>(V{0.7, 2}, V{1.5, 3}), nullptr, 0, 40},
  };
}

TEST(Distributions, DensitiesGiveMassMomentsEntropyAndDivergence) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.p->name());
    const int64_t n = c.discrete ? int64_t(c.to - c.from) + 1 : 20'000;
    const double width = c.discrete ? 1 : (c.to - c.from) / double(n);
    const Tensor x = ((arange(n, kFloat64) + (c.discrete ? 0 : 0.5)) * width + c.from).unsqueeze(1);
    const Tensor log_p = c.p->log_prob(x), p = log_p.exp() * width;
    const auto expect = [](const Tensor& a, const Tensor& b, double tolerance) {
      EXPECT_TRUE(allclose(a, b, tolerance, tolerance)) << a.to_string() << b.to_string();
    };
    // x log x is 0 at 0.
    const Tensor log_or_0 = where(p > 0, log_p, 0.0);
    expect(p.sum({0}), ones({2}, kFloat64), 1e-4);
    expect((p * x).sum({0}), c.p->mean(), 1e-3);
    expect((p * (x - c.p->mean()).pow(2)).sum({0}), c.p->variance(), 2e-3);
    const std::string name = c.p->name();
    if (name != "Poisson" && name != "NegativeBinomial")
      expect(-(p * log_or_0).sum({0}), c.p->entropy(), 1e-3);
    else
      EXPECT_THROW(c.p->entropy(), NotImplementedError);
    if (c.q)
      expect((p * (log_or_0 - where(p > 0, c.q->log_prob(x), 0.0))).sum({0}),
             kl_divergence(*c.p, *c.q), 2e-3);
    else
      EXPECT_THROW(kl_divergence(*c.p, *c.p), NotImplementedError);
  }
}

TEST(Distributions, DrawsFollowThem) {
  manual_seed(11);
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.p->name());
    const Tensor x = c.p->sample({40'000});
    EXPECT_EQ(x.dtype(), kFloat64);
    EXPECT_EQ(x.size(1), 2);
    const Tensor error = c.p->stddev() / std::sqrt(40'000.0);
    EXPECT_LT(((x.mean({0}) - c.p->mean()) / error).abs().max().item<double>(), 5);
    EXPECT_TRUE(allclose(x.var({0}), c.p->variance(), 0.1, 0.01));
    EXPECT_TRUE(c.p->log_prob(x).isfinite().all().item<bool>());
    EXPECT_FALSE(x.requires_grad());
    if (!c.p->has_rsample()) {
      EXPECT_THROW(c.p->rsample(), NotImplementedError);
    }
  }
}

TEST(Distributions, DrawsAreDifferentiable) {
  Tensor loc = d({0.5}).requires_grad_(), scale = d({2}).requires_grad_();
  manual_seed(3);
  const Tensor x = Normal(loc, scale).rsample({1000});
  x.sum().backward();
  EXPECT_NEAR(loc.grad().item<double>(), 1000, 1e-6);
  EXPECT_NEAR(scale.grad().item<double>(), ((x - loc) / scale).sum().item<double>(), 1e-6);
  Tensor rate = d({2}).requires_grad_();
  const Tensor e = Exponential(rate).rsample({10});
  e.sum().backward();
  EXPECT_NEAR(rate.grad().item<double>(), -(e.sum() / 2).item<double>(), 1e-9);
}

TEST(Distributions, KnownDensities) {
  const auto at = [](const Distribution& p, double x) { return p.log_prob(d({x})).item<double>(); };
  EXPECT_NEAR(at(Normal(d({1}), d({2})), 0), -1.7370857137646178, 1e-12);
  EXPECT_NEAR(at(Cauchy(d({1}), d({2})), 0), -2.061020617723555, 1e-12);
  EXPECT_NEAR(at(Gumbel(d({1}), d({2})), 0), -1.8418684512600735, 1e-12);
  EXPECT_NEAR(at(Poisson(d({3})), 2), -1.4959226032237254, 1e-12);
  EXPECT_EQ(at(Uniform(d({0}), d({1})), 1), -INFINITY);
  EXPECT_EQ(at(Exponential(d({1})), -1), -INFINITY);
  EXPECT_TRUE(std::isnan(Cauchy(d({1}), d({2})).mean().item<double>()));
  EXPECT_NEAR(Cauchy(d({1}), d({2})).entropy().item<double>(), std::log(8 * M_PI), 1e-12);
  const Bernoulli b = Bernoulli::from_logits(d({-50}));
  EXPECT_NEAR(at(b, 1), -50, 1e-9);
}

TEST(Distributions, GammaFamily) {
  const auto at = [](const Distribution& p, double x) { return p.log_prob(d({x})).item<double>(); };
  EXPECT_NEAR(at(Gamma(d({3}), d({2})), 1.5), 3 * std::log(2) + 2 * std::log(1.5) - 3 - std::log(2),
              1e-12);
  EXPECT_NEAR(at(StudentT(d({3}), d({0}), d({1})), 2), std::log(6 * std::sqrt(3) / (49 * M_PI)),
              1e-12);
  EXPECT_NEAR(at(HalfCauchy(d({2})), 2), std::log(1 / (2 * M_PI)), 1e-12);
  EXPECT_EQ(at(Pareto(d({2}), d({1})), 1), -INFINITY);
  EXPECT_TRUE(std::isinf(HalfCauchy(d({2})).mean().item<double>()));
  EXPECT_TRUE(std::isnan(StudentT(d({1}), d({0}), d({1})).mean().item<double>()));
  EXPECT_TRUE(std::isinf(StudentT(d({2}), d({0}), d({1})).variance().item<double>()));
  manual_seed(4);
  const Dirichlet p(d({0.5, 1, 2.5, 4, 1, 1}).view({2, 3})), q(d({1, 2, 1}));
  const Tensor x = p.sample({40'000});
  EXPECT_EQ(to_string(x.sizes()), "[40000, 2, 3]");
  EXPECT_TRUE(allclose(x.sum({-1}), ones({40'000, 2}, kFloat64)));
  EXPECT_TRUE(allclose(x.mean({0}), p.mean(), 0.0, 0.01));
  EXPECT_TRUE(allclose(x.var({0}), p.variance(), 0.05, 0.001));
  EXPECT_TRUE(allclose(-p.log_prob(x).mean({0}), p.entropy(), 0.0, 0.04));
  EXPECT_TRUE(allclose((p.log_prob(x) - q.log_prob(x)).mean({0}), kl_divergence(p, q), 0.03, 0.02));
  // Small concentrations do not underflow, halves are drawn in f32, and nothing is asked of no
  // draws.
  const Tensor tiny = Gamma(full({1000}, 1e-4), ones({})).sample();
  EXPECT_TRUE(tiny.log().isfinite().all().item<bool>());
  EXPECT_EQ(Gamma(ones({4}, kBFloat16), ones({4}, kBFloat16)).sample().dtype(), kBFloat16);
  EXPECT_EQ(Gamma(ones({0}), ones({})).sample({3}).numel(), 0);
  EXPECT_TRUE(Gamma(full({2}, -1.0), ones({})).sample().isnan().all().item<bool>());
  EXPECT_EQ(NegativeBinomial(d({0}), d({0.3})).sample().item<double>(), 0);
  EXPECT_EQ(at(NegativeBinomial(d({0}), d({0.3})), 0), 0);
  EXPECT_THROW(Dirichlet(full({}, 1.0)), ValueError);
  EXPECT_THROW(Gamma(tensor(std::vector<int64_t>{1}), ones({})), TypeError);
  EXPECT_THROW(Gamma(ones({2}), ones({})).rsample(), NotImplementedError);
  Tensor scale = d({2}).requires_grad_();
  HalfCauchy(scale).rsample({10}).sum().backward();
  EXPECT_GT(scale.grad().item<double>(), 0);
}

TEST(Distributions, Counts) {
  const auto at = [](const Distribution& p, double x) { return p.log_prob(d({x})).item<double>(); };
  EXPECT_NEAR(at(Binomial(d({5}), d({0.3})), 2), std::log(10 * 0.09 * 0.343), 1e-12);
  EXPECT_NEAR(at(Binomial::from_logits(d({3}), d({-50})), 1), std::log(3) - 50, 1e-9);
  EXPECT_EQ(Binomial(d({4, 9}), d({0, 1})).sample({3}).to_vector<double>(), V({0, 9, 0, 9, 0, 9}));
  EXPECT_THROW(Binomial(d({4, 9}), d({0.5, 0.5})).entropy(), NotImplementedError);
  EXPECT_EQ(Binomial(tensor(std::vector<int64_t>{1000}), full({1}, 0.5)).sample().dtype(),
            kFloat32);
  manual_seed(6);
  const Multinomial p(50, d({1, 2, 1, 0, 3, 1}).view({2, 3}));
  const Tensor x = p.sample({20'000});
  EXPECT_EQ(to_string(x.sizes()), "[20000, 2, 3]");
  EXPECT_TRUE(equal(x.sum({-1}), full({20'000, 2}, 50.0, kFloat64)));
  EXPECT_TRUE(allclose(x.mean({0}), p.mean(), 0.0, 0.2));
  EXPECT_TRUE(allclose(x.var({0}), p.variance(), 0.05, 0.01));
  EXPECT_TRUE(allclose(-p.log_prob(x).mean({0}), p.entropy(), 0.0, 0.04));
  // Of two classes it is binomial.
  const Multinomial two(5, d({0.3, 0.7}));
  EXPECT_NEAR(two.log_prob(d({2, 3})).item<double>(), at(Binomial(d({5}), d({0.3})), 2), 1e-12);
  EXPECT_NEAR(two.entropy().item<double>(), Binomial(d({5}), d({0.3})).entropy().item<double>(),
              1e-12);
  EXPECT_THROW(Multinomial(-1, d({1, 1})), ValueError);
}

TEST(Distributions, TransformsOfNormalNumbers) {
  const Tensor loc = d({0.5, -1}), scale = d({0.7, 2}), x = d({-1.5, -0.2, 0.4, 2}).view({2, 2});
  const std::vector<Transform> transforms{
      ExpTransform(),           AffineTransform(loc, -scale),
      SigmoidTransform(),       TanhTransform(),
      SoftplusTransform(),      ExpTransform().inv(),
      PowerTransform(d({1.5})), ComposeTransform({TanhTransform(), ExpTransform()})};
  for (const Transform& t : transforms) {
    const bool positive = &t >= &transforms[5] && &t <= &transforms[6];
    Tensor in = (positive ? x.exp() : x.clone()).detach().requires_grad_();
    const Tensor y = t(in);
    EXPECT_TRUE(allclose(t.inverse(y), in, 1e-9, 1e-9));
    EXPECT_TRUE(allclose(t.inv()(y), in, 1e-9, 1e-9));
    const Tensor slope = t.log_abs_det_jacobian(in, y).detach();
    EXPECT_TRUE(allclose(-t.inv().log_abs_det_jacobian(y, in), slope));
    y.sum().backward();
    EXPECT_TRUE(allclose(in.grad().abs().log(), slope, 1e-9, 1e-9));
  }
  const auto base = std::make_shared<Normal>(zeros({2}, kFloat64), ones({2}, kFloat64));
  const TransformedDistribution p(base, {AffineTransform(loc, scale), ExpTransform()});
  const LogNormal q(loc, scale);
  EXPECT_TRUE(allclose(p.log_prob(x.exp()), q.log_prob(x.exp())));
  EXPECT_EQ(p.batch_shape(), Shape{2});
  EXPECT_TRUE(p.has_rsample());
  manual_seed(7);
  const Tensor draws = p.sample({3});
  manual_seed(7);
  EXPECT_TRUE(allclose(draws, q.sample({3})));
  EXPECT_THROW(p.mean(), NotImplementedError);
  EXPECT_THROW(p.entropy(), NotImplementedError);
  // The slopes of an event are added up.
  const TransformedDistribution events(std::make_shared<Independent>(base, 1), {ExpTransform()});
  EXPECT_TRUE(
      allclose(events.log_prob(x.exp()),
               TransformedDistribution(base, {ExpTransform()}).log_prob(x.exp()).sum({-1})));
  Tensor moved = d({1}).requires_grad_();
  const auto unit = std::make_shared<Normal>(d({0}), d({1}));
  TransformedDistribution(unit, {AffineTransform(moved, d({2}))}).rsample({10}).sum().backward();
  EXPECT_NEAR(moved.grad().item<double>(), 10, 1e-9);
  // One number for all of three would be no draws of three.
  EXPECT_THROW(TransformedDistribution(std::make_shared<Normal>(d({0}), d({1})),
                                       {AffineTransform(d({0, 1, 2}), d({1}))})
                   .sample(),
               ValueError);
  EXPECT_THROW(
      TransformedDistribution(std::make_shared<Poisson>(d({1})), {ExpTransform()}).rsample(),
      NotImplementedError);
}

TEST(Distributions, Categories) {
  const Categorical c(d({1, 2, 1, 0, 3, 1}).view({2, 3}));
  EXPECT_TRUE(allclose(c.log_prob(tensor(std::vector<int64_t>{1, 1})).exp(), d({0.5, 0.75})));
  EXPECT_TRUE(allclose(
      c.log_prob(tensor(std::vector<int64_t>{0, 1, 2}).unsqueeze(1)).exp().sum({0}), d({1, 1})));
  const double h = 0.5 * std::log(4) + 0.5 * std::log(2);
  EXPECT_NEAR(c.entropy().to_vector<double>()[0], h, 1e-9);
  manual_seed(2);
  const Tensor x = c.sample({40'000, 2});
  EXPECT_EQ(to_string(x.sizes()), "[40000, 2, 2]");
  EXPECT_EQ(x.dtype(), kInt64);
  for (int64_t k = 0; k < 3; ++k)
    EXPECT_TRUE(allclose((x == k).to(kFloat64).mean({0, 1}), c.probs.select(1, k), 0.0, 0.02));
  const Categorical other = Categorical::from_logits(d({0, 0, 0}));
  EXPECT_NEAR(kl_divergence(Categorical(d({1, 2, 1})), other).item<double>(), std::log(3) - h,
              1e-9);
  EXPECT_THROW(Categorical(tensor(std::vector<int64_t>{1, 2})), TypeError);
}

TEST(Distributions, SeveralDimensions) {
  const Tensor root = d({2, 0, 0.5, 1}).view({2, 2}), loc = d({1, -1});
  const Tensor covariance = matmul(root, root.t());
  const auto p = MultivariateNormal::from_covariance(loc, covariance);
  EXPECT_TRUE(allclose(p.scale_tril, root));
  EXPECT_TRUE(allclose(p.variance(), d({4, 1.25})));
  // Of a diagonal it is what independent numbers are.
  const MultivariateNormal diagonal(loc, d({2, 0, 0, 3}).view({2, 2}));
  const Independent apart(std::make_shared<Normal>(loc, d({2, 3})), 1);
  const Tensor x = d({0.3, 0.4, 5, -2}).view({2, 2});
  EXPECT_TRUE(allclose(diagonal.log_prob(x), apart.log_prob(x)));
  EXPECT_TRUE(allclose(diagonal.entropy(), apart.entropy()));
  EXPECT_EQ(apart.event_shape(), Shape{2});
  manual_seed(5);
  const Tensor draws = p.sample({100'000});
  const Tensor centred = draws - loc;
  EXPECT_TRUE(allclose(matmul(centred.t(), centred) / 100'000, covariance, 0.03, 0.03));
  const double expected = (p.log_prob(draws) - diagonal.log_prob(draws)).mean().item<double>();
  EXPECT_NEAR(kl_divergence(p, diagonal).item<double>(), expected, 0.02);
  EXPECT_NEAR(-p.log_prob(draws).mean().item<double>(), p.entropy().item<double>(), 0.02);
  EXPECT_THROW(MultivariateNormal(loc, d({1, 2, 3, 4})), ValueError);
  EXPECT_THROW(Independent(std::make_shared<Normal>(loc, loc), 2), ValueError);
}

}  // namespace
}  // namespace arete::distributions
