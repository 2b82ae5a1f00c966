// Records of special functions: relatives of the error function and of the gamma function.
#include "arete/ops/special.h"

#include <cmath>
#include <numbers>

#include "arete/ops/creation.h"
#include "arete/ops/special_family.h"

namespace arete {
namespace ops {

using expr::Value;
using Values = std::span<const Value>;
using Result = PointwiseDef::Result;

namespace {

constexpr double kPi = std::numbers::pi;

double ndtr(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }
double ndtri_reference(double p) {
  double low = -40, high = 40;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (ndtr(middle) < p ? low : high) = middle;
  }
  return (low + high) / 2;
}
double erfcx_reference(double x) {
  const long double wide = x;
  return double(std::exp(wide * wide) * std::erfc(wide));
}

// Many terms and the first corrections of Euler and Maclaurin.
double zeta_reference(double s, double q) {
  constexpr int kTerms = 4000;
  long double sum = 0;
  for (int k = kTerms - 1; k >= 0; --k) sum += std::pow((long double)q + k, -(long double)s);
  const long double w = (long double)q + kTerms, p = std::pow(w, -(long double)s);
  return double(sum + p * w / (s - 1) + p / 2 + p * s / (12 * w));
}

// The power series in long double, which has digits to spare for moderate x.
double igamma_reference(double a, double x, bool upper) {
  long double term = 1, sum = 1;
  for (int k = 1; k < 2000 && term > 1e-22L * sum; ++k) sum += term *= (long double)x / (a + k);
  const long double p = sum * std::exp((long double)a * std::log((long double)x) - x -
                                       std::lgamma((long double)a + 1));
  return double(upper ? 1 - p : p);
}

const OpRecord& entr_op =
    define("special_entr(Tensor self) -> Tensor")
        .doc("-x log(x), 0 at 0, -inf for negative x.")
        .pointwise(special_def(
            1,
            [](Values v) {
              const Value x = v[0];
              return std::vector{
                  where(x == 0, constant_like(x, 0.0), where(x < 0, -HUGE_VAL, -(x * log(x))))};
            },
            [](Values v) { return std::vector{where(v[0] < 0, NAN, -(v[2] * (log(v[0]) + 1)))}; }))
        .samples([](SampleMaker& m) {
          auto all = unary_samples(0.1, 3)(m);
          Tensor edges = m.make({3});
          edges.detach().copy_(tensor({-1.0, 0.0, 2.0}));
          all.push_back({{edges.detach()}, "edges"});
          return all;
        })
        .reference(reference1([](double v) {
          return v > 0 ? -v * std::log(v) : v == 0 ? 0 : -HUGE_VAL;
        }));

const OpRecord& erfcx_op =
    define("special_erfcx(Tensor self) -> Tensor")
        .doc("exp(x^2) erfc(x), without overflow for large x.")
        .pointwise(special_unary(
            expr::erfcx, [](Value x, Value y) { return 2 * x * y - 2 * std::numbers::inv_sqrtpi; }))
        .samples(unary_samples(-2, 6))
        .reference(reference1(erfcx_reference));

const OpRecord& ndtr_op = define("special_ndtr(Tensor self) -> Tensor")
                              .doc("The probability that a normal variable is below x.")
                              .pointwise(special_unary(expr::ndtr))
                              .samples(unary_samples(-4, 4))
                              .reference(reference1(ndtr));

const OpRecord& log_ndtr_op =
    define("special_log_ndtr(Tensor self) -> Tensor")
        .doc("log of the probability that a normal variable is below x, exact in both tails.")
        .pointwise(special_unary(expr::log_ndtr,
                                 [](Value x, Value) {
                                   return std::sqrt(2 / kPi) /
                                          expr::erfcx(x * (-1 / std::numbers::sqrt2));
                                 }))
        .samples(unary_samples(-6, 3))
        .reference(reference1([](double v) {
          return double(std::log(std::erfc(-(long double)v / std::sqrt(2.0L)) / 2));
        }));

const OpRecord& ndtri_op =
    define("special_ndtri(Tensor self) -> Tensor")
        .doc("The value below which a normal variable is with probability x.")
        .pointwise(special_unary(
            expr::ndtri, [](Value, Value y) { return exp(y * y * 0.5) * std::sqrt(2 * kPi); }))
        .samples(unary_samples(0.02, 0.98))
        .reference(reference1(ndtri_reference));

const OpRecord& xlog1py_op =
    define("special_xlog1py(Tensor self, Tensor other) -> Tensor")
        .doc("self * log1p(other), 0 where self is 0.")
        .pointwise(special_def(2,
                               [](Values v) {
                                 const Value a = v[0], b = v[1], zero = a == 0;
                                 return std::vector{
                                     where(is_nan(b), b,
                                           where(zero, 0.0, a * log1p(where(zero, 0.0, b))))};
                               }))
        .gradient([](std::span<const Value> v) {
          // self's slope is log(1 + other) where self is 0, too.
          const Value none = (v[0] == 0.0) & (v[1] <= -1.0);
          return std::vector{v[3] * where(none, 0.0, log1p(where(none, 0.0, v[1]))),
                             v[3] * v[0] / (v[1] + 1.0)};
        })
        .samples(binary_samples(0.5, 2, -0.5, 2))
        .errors(binary_errors())
        .reference(reference2([](double a, double b) { return a == 0 ? 0 : a * std::log1p(b); }));

// ---- gamma function

const OpRecord& trigamma_op =
    define("trigamma(Tensor self) -> Tensor")
        .doc("The derivative of digamma: polygamma(1, x).")
        .pointwise(special_unary(expr::trigamma))
        .samples(unary_samples(0.5, 6))
        .reference(reference1([](double x) { return zeta_reference(2, x); }));

std::vector<Sample> zeta_samples(SampleMaker& m) {
  return {{{m.make({2, 3}, 1.5, 6).detach(), m.make({2, 3}, 0.6, 4)}, "equal shapes"},
          {{m.make({2, 1}, 1.5, 6).detach(), m.make({4}, 0.6, 4)}, "broadcast"},
          {{Scalar(3.0), m.make({4}, 0.6, 4)}, "a number"},
          {{Scalar(4.0), m.make({4}, -40.7, -40.3)}, "far below 0"},
          {{m.make({}, 2, 4).detach(), m.make({}, 0.6, 4)}, "0-d"},
          {{m.make({0}, 2, 4).detach(), m.make({0}, 0.6, 4)}, "empty"}};
}

const OpRecord& zeta_op =
    define("special_zeta(Tensor self, Tensor other) -> Tensor")
        .doc("Hurwitz zeta: the sum of (other + k)^-self over k >= 0. No gradient for self.")
        .pointwise(special_def(
            2, in_f64([](Values v) { return std::vector{expr::hurwitz_zeta(v[0], v[1])}; }),
            in_f64([](Values v) {
              const Value slope = -(v[0] * expr::hurwitz_zeta(v[0] + 1, v[1]));
              return std::vector{constant_like(v[0], 0.0), v[3] * slope};
            }),
            1))
        .samples(zeta_samples)
        .reference(reference2(zeta_reference));

const OpRecord& polygamma_op =
    define("polygamma(int n, Tensor self) -> Tensor")
        .doc("The n-th derivative of digamma.")
        .compose([](const Call& c) -> Results {
          const int64_t n = c.integer(0);
          ARETE_CHECK(
              n >= 0,
              ValueError(c.name(), "polygamma(n, x) does not support negative n.").argument("n"));
          if (n == 0) return {digamma(c.tensor(1))};
          if (n == 1) return {call(trigamma_op, {c.tensor(1)})};
          const double factor = (n % 2 ? 1 : -1) * std::tgamma(double(n) + 1);
          return {call(zeta_op, {double(n) + 1, c.tensor(1)}).mul(Scalar(factor))};
        })
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{0, m.make({2, 3}, 0.8, 5)}, "digamma"},
                                     {{1, m.make({2, 3}, 0.8, 5)}, "trigamma"},
                                     {{2, m.make_strided({3, 4}, 0.8, 5)}, "second"},
                                     {{3, m.make({}, 0.8, 5)}, "third"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{{{-1, m.make({2})},
                                           ErrorKind::value,
                                           "polygamma(n, x) does not support negative n."}};
        })
        .reference([](const Call& c) {
          const int64_t n = c.integer(0);
          return std::vector<Tensor>{build_tensor(c.tensor(1).sizes(), [&](const Shape& i) {
            const double x = at(c.tensor(1), i);
            // digamma(x) = digamma(x + 1000) - sum 1 / (x + k).
            if (n == 0) {
              long double shift = 0;
              for (int k = 999; k >= 0; --k) shift += 1 / ((long double)x + k);
              const long double y = (long double)x + 1000, r = 1 / (y * y);
              return double(std::log(y) - 1 / (2 * y) - r / 12 + r * r / 120 - shift);
            }
            return (n % 2 ? 1 : -1) * std::tgamma(double(n) + 1) * zeta_reference(double(n) + 1, x);
          })};
        });

const OpRecord& mvlgamma_op =
    define("mvlgamma(Tensor self, int p) -> Tensor")
        .doc("log of the multivariate gamma function of dimension p.")
        .compose([](const Call& c) -> Results {
          const int64_t p = c.integer(1);
          ARETE_CHECK(p >= 1,
                      ValueError(c.name(), "p has to be greater than or equal to 1").argument("p"));
          Tensor sum = lgamma(c.tensor(0));
          for (int64_t j = 1; j < p; ++j)
            sum = sum.add(lgamma(c.tensor(0).sub(Scalar(double(j) / 2))));
          return {sum.add(Scalar(double(p * (p - 1)) / 4 * std::log(kPi)))};
        })
        .in_place()
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3}, 0.5, 5), 1}, "one"},
                                     {{m.make({2, 3}, 1.6, 5), 3}, "three"},
                                     {{m.make({}, 2.5, 5), 4}, "0-d"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({2}), 0}, ErrorKind::value, "p has to be greater than or equal to 1"}};
        })
        .reference([](const Call& c) {
          const double p = double(c.integer(1));
          return std::vector<Tensor>{build_tensor(c.tensor(0).sizes(), [&](const Shape& i) {
            double s = p * (p - 1) / 4 * std::log(kPi);
            for (int j = 0; j < int(p); ++j) s += std::lgamma(at(c.tensor(0), i) - j / 2.0);
            return s;
          })};
        });

std::vector<Sample> igamma_samples(SampleMaker& m) {
  return {{{m.make({2, 3}, 0.3, 5).detach(), m.make({2, 3}, 0.1, 7)}, "small"},
          {{m.make({2, 1}, 8, 14).detach(), m.make({5}, 6, 16)}, "broadcast, larger"},
          {{Scalar(2.5), m.make({4}, 0.6, 4)}, "a number"},
          {{m.make({}, 1, 4).detach(), m.make({}, 0.6, 4)}, "0-d"},
          {{m.make({0}, 1, 4).detach(), m.make({0}, 0.6, 4)}, "empty"}};
}

// The derivative in x is +- x^(a - 1) exp(-x) / gamma(a).
PointwiseDef igamma_def(bool upper) {
  return special_def(2, in_f64([upper](Values v) {
                       const expr::IncompleteGamma g = expr::incomplete_gamma(v[0], v[1]);
                       return std::vector{upper ? g.upper : g.lower};
                     }),
                     in_f64([upper](Values v) {
                       const Value a = v[0], x = v[1];
                       const Value slope = exp((a - 1) * log(x) - x - lgamma(a));
                       return std::vector{constant_like(a, 0.0), v[3] * (upper ? -slope : slope)};
                     }),
                     1);
}

const OpRecord& igamma_op =
    define("igamma(Tensor self, Tensor other) -> Tensor")
        .doc("Regularized lower incomplete gamma function P(self, other). No gradient for self.")
        .pointwise(igamma_def(false))
        .in_place()
        .samples(igamma_samples)
        .errors(binary_errors())
        .reference(reference2([](double a, double x) { return igamma_reference(a, x, false); }));

const OpRecord& igammac_op =
    define("igammac(Tensor self, Tensor other) -> Tensor")
        .doc("Regularized upper incomplete gamma function Q(self, other). No gradient for self.")
        .pointwise(igamma_def(true))
        .in_place()
        .samples(igamma_samples)
        .errors(binary_errors())
        .reference(reference2([](double a, double x) { return igamma_reference(a, x, true); }));

}  // namespace
}  // namespace ops

#define ARETE_DEFINE_SPECIAL(name, record) \
  Tensor name(const Tensor& self) { return ops::call(ops::record, {self}); }
ARETE_DEFINE_SPECIAL(special_entr, entr_op)
ARETE_DEFINE_SPECIAL(special_erfcx, erfcx_op)
ARETE_DEFINE_SPECIAL(special_ndtr, ndtr_op)
ARETE_DEFINE_SPECIAL(special_log_ndtr, log_ndtr_op)
ARETE_DEFINE_SPECIAL(special_ndtri, ndtri_op)
#undef ARETE_DEFINE_SPECIAL
#define ARETE_DEFINE_SPECIAL(name, record)               \
  Tensor name(const Tensor& self, const Tensor& other) { \
    return ops::call(ops::record, {self, other});        \
  }
ARETE_DEFINE_SPECIAL(special_xlog1py, xlog1py_op)
ARETE_DEFINE_SPECIAL(special_zeta, zeta_op)
ARETE_DEFINE_SPECIAL(igamma, igamma_op)
ARETE_DEFINE_SPECIAL(igammac, igammac_op)
#undef ARETE_DEFINE_SPECIAL
Tensor polygamma(int64_t n, const Tensor& self) { return ops::call(ops::polygamma_op, {n, self}); }
Tensor mvlgamma(const Tensor& self, int64_t p) { return ops::call(ops::mvlgamma_op, {self, p}); }

}  // namespace arete

ARETE_FAMILY(special)
