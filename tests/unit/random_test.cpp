// Random operators: distributions by their moments (fixed seeds; bounds are six standard errors),
// streams by reproducibility.
#include "arete/ops/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>

#include "arete/core/thread_generator.h"
#include "arete/ops/creation.h"
#include "arete/ops/shape.h"

namespace arete {
namespace {

// The mean of n values with standard deviation `deviation` lies within this of its expectation.
double error_of_mean(double deviation, size_t n) { return 6 * deviation / std::sqrt(double(n)); }

void expect_mean(const std::vector<double>& v, double mean, double deviation) {
  const double sum = std::accumulate(v.begin(), v.end(), 0.0);
  EXPECT_NEAR(sum / double(v.size()), mean, error_of_mean(deviation, v.size()));
}
// Mean and variance; `kurtosis` (fourth moment over squared variance) bounds the variance's error.
void expect_moments(const std::vector<double>& v, double mean, double deviation, double kurtosis) {
  expect_mean(v, mean, deviation);
  std::vector<double> squares;
  for (double x : v) squares.push_back((x - mean) * (x - mean));
  const double variance = deviation * deviation;
  expect_mean(squares, variance, variance * std::sqrt(kurtosis - 1));
}

TEST(Random, Uniform) {
  Generator g(1);
  for (DType t : {kFloat32, kFloat64, kFloat16, kBFloat16}) {
    const auto v = rand({100, 200}, t, &g).to_vector<double>();
    if (!is_reduced_float(t)) expect_moments(v, 0.5, std::sqrt(1.0 / 12), 1.8);
    EXPECT_GE(*std::min_element(v.begin(), v.end()), 0);
    EXPECT_LT(*std::max_element(v.begin(), v.end()), 1) << name_of(t);
  }
}

TEST(Random, AThreadMayHaveADefaultGeneratorOfItsOwn) {
  manual_seed(5);
  const auto alone = rand({4}).to_vector<float>(), after = rand({4}).to_vector<float>();
  manual_seed(5);
  EXPECT_EQ(rand({4}).to_vector<float>(), alone);
  Generator own(8), same(8);
  std::vector<float> drawn, seeded;
  std::thread([&] {
    EXPECT_EQ(set_thread_generator(&own), nullptr);
    EXPECT_EQ(&default_generator(), &own);
    drawn = rand({4}).to_vector<float>();
    manual_seed(5);
    seeded = rand({4}).to_vector<float>();
    EXPECT_EQ(set_thread_generator(nullptr), &own);
    EXPECT_NE(&default_generator(), &own);
  }).join();
  EXPECT_EQ(drawn, rand({4}, {}, &same).to_vector<float>());
  EXPECT_EQ(seeded, alone);
  EXPECT_EQ(rand({4}).to_vector<float>(), after);  // as if there had been no thread
}

TEST(Random, Normal) {
  Generator g(2);
  expect_moments(randn({20000}, kFloat32, &g).to_vector<double>(), 0, 1, 3);
  expect_moments(randn({20000}, kFloat64, &g).to_vector<double>(), 0, 1, 3);
  expect_moments(normal(3, 0.5, {20000}, {}, &g).to_vector<double>(), 3, 0.5, 3);
}

TEST(Random, NormalWithAMeanForEachElement) {
  Generator g(3);
  const Tensor mean = tensor({-100.0, 100.0}), std = tensor({{1.0}, {2.0}});
  const Tensor v = normal(mean.expand({20000, 2, 2}), std, &g);
  EXPECT_EQ(to_string(v.sizes()), "[20000, 2, 2]");
  for (int64_t i : {0, 1})
    for (int64_t j : {0, 1})
      expect_moments(v.select(1, i).select(1, j).to_vector<double>(), j ? 100 : -100, i ? 2 : 1, 3);
  for (bool number : {false, true}) {  // the parameters have a gradient, which is 0
    const Tensor m = tensor({1.0}, TensorOptions().requires_grad());
    const Tensor drawn = number ? normal(m, 2.0) : normal(m, m);
    EXPECT_TRUE(drawn.requires_grad());
    drawn.sum().backward();
    ASSERT_TRUE(m.grad().defined());
    EXPECT_EQ(m.grad().item<double>(), 0);
  }
  const Tensor rate = tensor({1.0, 30.0}, TensorOptions().requires_grad());
  poisson(rate).sum().backward();
  ASSERT_TRUE(rate.grad().defined());
  EXPECT_EQ(rate.grad().abs().max().item<double>(), 0);
  EXPECT_THROW(poisson(tensor({-1.0, NAN})), ValueError);
}

TEST(Random, Geometric) {
  Generator g(31);
  Tensor t = empty({20000}, kInt64);
  const double p = 0.3;
  const auto v = geometric_(t, p, &g).to_vector<double>();
  EXPECT_EQ(*std::min_element(v.begin(), v.end()), 1);
  // The fourth moment of a geometric distribution: kurtosis 9 + p^2 / (1 - p).
  expect_moments(v, 1 / p, std::sqrt(1 - p) / p, 9 + p * p / (1 - p));
  t = empty({20000}, kFloat32);
  expect_moments(geometric_(t, p, &g).to_vector<double>(), 1 / p, std::sqrt(1 - p) / p,
                 9 + p * p / (1 - p));
}

TEST(Random, Cauchy) {
  // No moments: half of the numbers are within sigma of the median, on each side a quarter.
  Generator g(32);
  Tensor t = empty({20000}, kFloat64);
  std::vector<double> below, inside;
  for (double x : cauchy_(t, 3, 2, &g).to_vector<double>()) {
    below.push_back(x < 3);
    inside.push_back(x > 1 && x < 5);
  }
  expect_mean(below, 0.5, 0.5);
  expect_mean(inside, 0.5, 0.5);
  // In f32 as in f64: finite, and with the distribution's tails.
  std::vector<double> far;
  Tensor narrow = empty({40000}, kFloat32);
  for (double x : cauchy_(narrow, 0, 1, &g).to_vector<double>()) {
    ASSERT_TRUE(std::isfinite(x));
    far.push_back(std::fabs(x) > 20);
  }
  const double p = 1 - 2 / M_PI * std::atan(20.0);
  expect_mean(far, p, std::sqrt(p * (1 - p)));
}

TEST(Random, LogNormal) {
  Generator g(33);
  Tensor t = empty({20000}, kFloat32);
  std::vector<double> v = log_normal_(t, 0.5, 1.5, &g).to_vector<double>();
  for (double& x : v) x = std::log(x);
  expect_moments(v, 0.5, 1.5, 3);
}

TEST(Random, Poisson) {
  Generator g(34);
  // By sums and by the incomplete gamma function; the kurtosis is 3 + 1 / rate.
  for (double rate : {0.5, 9.9, 10.0, 37.5, 4000.0, 1e6}) {
    SCOPED_TRACE(rate);
    const auto v = poisson(full({20000}, Scalar(rate), kFloat64), &g).to_vector<double>();
    for (double x : v) ASSERT_EQ(x, std::floor(x));
    expect_moments(v, rate, std::sqrt(rate), 3 + 1 / rate);
  }
  // Frequencies of a rate on either side.
  for (double rate : {3.0, 10.0, 12.0}) {
    SCOPED_TRACE(rate);
    std::vector<double> count(40, 0);
    for (double x : poisson(full({40000}, Scalar(rate)), &g).to_vector<double>())
      if (x < 40) ++count[size_t(x)];
    double p = std::exp(-rate);
    for (size_t k = 0; k < count.size(); ++k) {
      EXPECT_NEAR(count[k] / 40000, p, error_of_mean(std::sqrt(p * (1 - p)), 40000) + 1e-4) << k;
      p *= rate / double(k + 1);
    }
  }
  EXPECT_EQ(poisson(zeros({3})).to_vector<double>(), (std::vector<double>{0, 0, 0}));
  EXPECT_TRUE(std::isnan(poisson(tensor({NAN})).item<double>()));
}

TEST(Random, Integers) {
  Generator g(4);
  const Tensor t = randint(-2, 3, {20000}, {}, &g);
  EXPECT_EQ(t.dtype(), kInt64);
  std::vector<double> count(5, 0);
  for (int64_t v : t.to_vector<int64_t>()) {
    ASSERT_TRUE(v >= -2 && v < 3);
    ++count[size_t(v + 2)];
  }
  for (double c : count) EXPECT_NEAR(c / 20000, 0.2, error_of_mean(std::sqrt(0.2 * 0.8), 20000));
}

TEST(Random, Permutations) {
  Generator g(5);
  for (const int64_t n : {1000, 1 << 16, 70000}) {  // keys of 32 bits, and of more
    auto p = randperm(n, {}, &g).to_vector<int64_t>();
    double ascents = 0, in_place = 0;
    for (int64_t i = 1; i < n; ++i) ascents += p[size_t(i)] > p[size_t(i) - 1];
    for (int64_t i = 0; i < n; ++i) in_place += p[size_t(i)] == i;
    // Of a random order half ascend, with a variance of n / 12, and one is where it was.
    EXPECT_NEAR(ascents / double(n), 0.5, error_of_mean(std::sqrt(1.0 / 12), n));
    EXPECT_LT(in_place, 10);
    std::sort(p.begin(), p.end());
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(p[size_t(i)], i);
  }
  // Every element is equally often first.
  std::vector<double> first(4, 0);
  for (int k = 0; k < 4000; ++k) ++first[size_t(randperm(4, {}, &g).to_vector<int64_t>()[0])];
  for (double c : first) EXPECT_NEAR(c / 4000, 0.25, error_of_mean(std::sqrt(0.25 * 0.75), 4000));
}

TEST(Random, Bernoulli) {
  Generator g(6);
  const Tensor p = tensor({0.0, 0.25, 1.0}, kFloat64).expand({20000, 3});
  const Tensor v = bernoulli(p, &g);
  EXPECT_EQ(v.select(1, 0).to_vector<double>(), std::vector<double>(20000, 0));
  EXPECT_EQ(v.select(1, 2).to_vector<double>(), std::vector<double>(20000, 1));
  expect_mean(v.select(1, 1).to_vector<double>(), 0.25, std::sqrt(0.25 * 0.75));
  expect_mean(bernoulli(empty({20000}), 0.75, &g).to_vector<double>(), 0.75,
              std::sqrt(0.25 * 0.75));
}

TEST(Random, Exponential) {
  Generator g(7);
  Tensor t = empty({20000});
  exponential_(t, 2, &g);
  const auto v = t.to_vector<double>();
  EXPECT_GT(*std::min_element(v.begin(), v.end()), 0);
  expect_moments(v, 0.5, 0.5, 9);
}

TEST(Random, MultinomialFollowsTheWeights) {
  Generator g(8);
  const Tensor w = tensor({0.0, 1.0, 3.0, 0.0, 6.0});
  const auto v = multinomial(w.expand({3, 5}), 10000, true, &g).to_vector<int64_t>();
  std::vector<double> count(5, 0);
  for (int64_t i : v) ++count[size_t(i)];
  const double n = double(v.size());
  for (size_t i = 0; i < 5; ++i) {
    const double p = std::vector<double>{0, 0.1, 0.3, 0, 0.6}[i];
    EXPECT_NEAR(count[i] / n, p, error_of_mean(std::sqrt(p * (1 - p)), v.size())) << i;
  }
  std::vector<double> first(5, 0);
  for (int k = 0; k < 4000; ++k) ++first[size_t(multinomial(w, 1, false, &g).item<int64_t>())];
  for (size_t i = 0; i < 5; ++i) {
    const double p = std::vector<double>{0, 0.1, 0.3, 0, 0.6}[i];
    EXPECT_NEAR(first[i] / 4000, p, error_of_mean(std::sqrt(p * (1 - p)), 4000)) << i;
  }
}

TEST(Random, MultinomialWithoutReplacementDrawsEachOnce) {
  Generator g(9);
  for (int k = 0; k < 100; ++k) {
    auto v = multinomial(tensor({1.0, 0.0, 5.0, 2.0}), 3, false, &g).to_vector<int64_t>();
    std::sort(v.begin(), v.end());
    EXPECT_EQ(v, (std::vector<int64_t>{0, 2, 3}));
  }
}

TEST(Random, MultinomialChecksWeights) {
  EXPECT_THROW(multinomial(tensor({1.0, -1.0}), 1), ValueError);
  EXPECT_THROW(multinomial(tensor({1.0, std::nan("")}), 1), ValueError);
  EXPECT_THROW(multinomial(tensor({0.0, 0.0}), 1), ValueError);
}

TEST(Random, SeedsRepeatAndCallsDoNot) {
  manual_seed(42);
  const auto a = rand({100}).to_vector<float>(), b = rand({100}).to_vector<float>();
  manual_seed(42);
  EXPECT_EQ(rand({100}).to_vector<float>(), a);
  EXPECT_EQ(rand({100}).to_vector<float>(), b);
  EXPECT_NE(a, b);
}

TEST(Random, StridesDoNotChangeTheNumbers) {
  Tensor strided = empty({3, 5}).t(), plain = empty({5, 3});
  Generator g(10), h(10);
  uniform_(strided, 0, 1, &g);
  uniform_(plain, 0, 1, &h);
  EXPECT_EQ(strided.to_vector<float>(), plain.to_vector<float>());
}

TEST(Random, MetaDrawsNothing) {
  Generator g(11);
  const Generator::State before = g.state();
  EXPECT_TRUE(rand({3}, kMeta, &g).is_meta());
  EXPECT_EQ(g.state(), before);
}

TEST(Random, InPlaceOnWhatRequiresGradNeedsNoGrad) {
  Tensor x = zeros({2}, TensorOptions().requires_grad());
  EXPECT_THROW(x.uniform_(), AutogradError);
}

}  // namespace
}  // namespace arete
