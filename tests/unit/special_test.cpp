// Edges of special functions and of the arithmetic beside them, where samples do not go.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "arete/arete.h"

namespace arete {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

template <class F>
double one(F f, double x) {
  return f(tensor(x, kFloat64)).template item<double>();
}
template <class F>
double two(F f, double x, double y) {
  return f(tensor(x, kFloat64), tensor(y, kFloat64)).template item<double>();
}

TEST(Special, ErrorFunctionEdges) {
  EXPECT_EQ(one(special_erfcx, kInfinite), 0);
  EXPECT_EQ(one(special_erfcx, -kInfinite), kInfinite);
  EXPECT_NEAR(one(special_erfcx, 1e8), 1 / (1e8 * std::sqrt(M_PI)), 1e-24);
  EXPECT_EQ(one(special_ndtri, 0), -kInfinite);
  EXPECT_EQ(one(special_ndtri, 1), kInfinite);
  EXPECT_TRUE(std::isnan(one(special_ndtri, 1.5)));
  EXPECT_EQ(one(special_log_ndtr, kInfinite), 0);
  EXPECT_EQ(two(special_xlog1py, 0, -1), 0);
  EXPECT_TRUE(std::isnan(two(special_xlog1py, 0, kNaN)));
}

TEST(Special, GammaEdges) {
  EXPECT_EQ(two(special_zeta, 1, 2), kInfinite);
  EXPECT_TRUE(std::isnan(two(special_zeta, 0.5, 2)));
  EXPECT_EQ(two(special_zeta, 2, -3), kInfinite);
  EXPECT_EQ(two(special_zeta, 1e300, 1), 1);
  EXPECT_NEAR(two(special_zeta, 2, 1), M_PI * M_PI / 6, 1e-15);
  EXPECT_EQ(two(igamma, 0, 1), 1);
  EXPECT_TRUE(std::isnan(two(igamma, 0, 0)));
  EXPECT_EQ(two(igamma, 2, 0), 0);
  EXPECT_EQ(two(igamma, 2, kInfinite), 1);
  EXPECT_EQ(two(igammac, kInfinite, 2), 1);
  EXPECT_TRUE(std::isnan(two(igamma, -1, 2)));
  EXPECT_EQ(two(igamma, 1e300, 1e299), 0);
  EXPECT_EQ(two(igammac, 1e300, 1e301), 0);
  // P and Q of a large number meet near one half.
  EXPECT_NEAR(two(igamma, 1e6, 1e6), 0.50013298076087, 1e-13);
  // So large that the integrand's factors lose half of their digits.
  EXPECT_NEAR(two(igamma, 1e10, 1e10), 0.5000013298076014, 1e-15);
  EXPECT_NEAR(two(igamma, 1e20, 1e20), 0.500000000013298, 1e-15);
  EXPECT_NEAR(two(igammac, 1e12, 1e12 + 1e6), 0.1586552539314167, 1e-14);
  EXPECT_EQ(polygamma(1, tensor(-2.0, kFloat64)).item<double>(), kInfinite);
  EXPECT_NEAR(polygamma(2, tensor(-1001.2, kFloat64)).item<double>(), 247.047919409235, 1e-11);
  EXPECT_TRUE(std::isnan(two(special_zeta, 2.5, -1001.2)));
}

TEST(Special, BesselEdges) {
  EXPECT_DOUBLE_EQ(one(i0, 0), 1);
  EXPECT_EQ(one(special_i1, 0), 0);
  EXPECT_EQ(one(special_modified_bessel_k0, 0), kInfinite);
  EXPECT_EQ(one(special_modified_bessel_k1, 0), kInfinite);
  EXPECT_TRUE(std::isnan(one(special_modified_bessel_k0, -1)));
  EXPECT_EQ(one(special_bessel_y0, 0), -kInfinite);
  EXPECT_EQ(one(special_bessel_y1, 0), -kInfinite);
  EXPECT_TRUE(std::isnan(one(special_bessel_y0, -1)));
  EXPECT_EQ(one(special_spherical_bessel_j0, 0), 1);
  EXPECT_EQ(one(special_spherical_bessel_j0, kInfinite), 0);
  // The slopes of i1 and j1 at 0 are limits of quotients.
  for (const auto f : {special_i1, special_bessel_j1}) {
    Tensor x = tensor(0.0, TensorOptions(kFloat64)).requires_grad_();
    f(x).backward();
    EXPECT_NEAR(x.grad().item<double>(), 0.5, 1e-15);
  }
  // Those of i0 and j0 are x / 2 and -x / 2 there, whatever the forms for large numbers do.
  for (const auto& [f, slope] : {std::pair(&i0, 0.5), std::pair(&special_bessel_j0, -0.5)}) {
    const Tensor x = tensor(0.0, TensorOptions(kFloat64)).requires_grad_();
    const Tensor first = autograd::grad(f(x), x, true)[0];
    EXPECT_NEAR(autograd::grad(first, x)[0].item<double>(), slope, 1e-15);
  }
}

TEST(Special, PolynomialsEndWhereTheyOverflow) {
  const Tensor x = tensor({501.0, 0.5}, TensorOptions(kFloat64));
  const Tensor n = tensor({1e9, 2.0}, TensorOptions(kFloat64));
  const Tensor p = special_hermite_polynomial_h(x, n);
  EXPECT_TRUE(std::isnan(p[0].item<double>()));
  EXPECT_DOUBLE_EQ(p[1].item<double>(), -1);
}

TEST(Special, PolynomialsOfHighDegree) {
  const Tensor x = tensor({-0.7, 0.3, 1.0}, TensorOptions(kFloat64));
  const Tensor t = special_chebyshev_polynomial_t(x, tensor({40.0, 17.0, 100.0}));
  EXPECT_NEAR(t[0].item<double>(), std::cos(40 * std::acos(-0.7)), 1e-13);
  EXPECT_NEAR(t[1].item<double>(), std::cos(17 * std::acos(0.3)), 1e-13);
  EXPECT_NEAR(t[2].item<double>(), 1, 1e-13);
}

TEST(Special, PolynomialsOfManyDegreesSideBySide) {
  for (DType dtype : {kFloat32, kFloat64})
    for (int64_t count : {1, 9, 32, 103}) {
      const Tensor x = linspace(Scalar(-1.0), Scalar(2.0), count, dtype);
      Tensor degrees = linspace(Scalar(-2.5), Scalar(7.5), count, dtype);
      if (count > 1) degrees[count - 1].fill_(kNaN);
      const Tensor y = special_laguerre_polynomial_l(x, degrees);
      for (int64_t i = 0; i < count; ++i) {
        const double at = x[i].item<double>(), degree = degrees[i].item<double>();
        double p = degree > -1 ? 1 : 0, before = 0;
        for (int k = 0; k + 1 <= degree; ++k)
          before = std::exchange(p, ((2 * k + 1 - at) * p - k * before) / (k + 1));
        EXPECT_NEAR(y[i].item<double>(), p, dtype == kFloat32 ? 1e-4 : 1e-12) << degree;
      }
    }
}

TEST(Special, IntegersBecomeFloating) {
  EXPECT_EQ(i0(tensor({1, 2})).dtype(), kFloat32);
  EXPECT_EQ(special_legendre_polynomial_p(tensor({1, 2}), tensor({1, 2})).dtype(), kFloat32);
  EXPECT_EQ(median(tensor({4, 1, 3, 2})).dtype(), kInt64);
  EXPECT_EQ(median(tensor({4, 1, 3, 2})).item<int64_t>(), 2);
}

TEST(Numeric, FrexpIsExact) {
  const double smallest = std::numeric_limits<double>::denorm_min();
  for (double v : {smallest, -3 * smallest, 1e-310, 1e308, -1.0, 0.5, 0.0, kInfinite}) {
    const auto [mantissa, exponent] = frexp(tensor(v, kFloat64));
    int e = 0;
    EXPECT_EQ(mantissa.item<double>(), std::frexp(v, &e)) << v;
    if (std::isfinite(v)) {
      EXPECT_EQ(exponent.item<int64_t>(), e) << v;
    }
  }
}

TEST(Numeric, DivisorsOfTheWorstPair) {
  // Neighbouring Fibonacci numbers need the most steps.
  int64_t a = 1, b = 1;
  while (b < INT64_MAX / 2) {
    const int64_t c = a + b;
    a = b;
    b = c;
  }
  EXPECT_EQ(gcd(tensor(a, kInt64), tensor(b, kInt64)).item<int64_t>(), 1);
  EXPECT_EQ(gcd(tensor(b, kInt64), tensor(a, kInt64)).item<int64_t>(), 1);
  EXPECT_EQ(gcd(tensor(0), tensor(0)).item<int64_t>(), 0);
  EXPECT_EQ(lcm(tensor(0), tensor(5)).item<int64_t>(), 0);
}

TEST(Numeric, InfinityWinsOverNaNInHypot) {
  EXPECT_EQ(two([](const Tensor& a, const Tensor& b) { return hypot(a, b); }, kInfinite, kNaN),
            kInfinite);
}

}  // namespace
}  // namespace arete
