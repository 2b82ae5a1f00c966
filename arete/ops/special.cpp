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
            [](Values v) { return std::vector{where(v[0] < 0, NAN, -(v[2] * (log(v[0]) + 1)))}; }));

const OpRecord& erfcx_op = define("special_erfcx(Tensor self) -> Tensor")
                               .doc("exp(x^2) erfc(x), without overflow for large x.")
                               .pointwise(special_unary(expr::erfcx, [](Value x, Value y) {
                                 return 2 * x * y - 2 * std::numbers::inv_sqrtpi;
                               }));

const OpRecord& ndtr_op = define("special_ndtr(Tensor self) -> Tensor")
                              .doc("The probability that a normal variable is below x.")
                              .pointwise(special_unary(expr::ndtr));

const OpRecord& log_ndtr_op =
    define("special_log_ndtr(Tensor self) -> Tensor")
        .doc("log of the probability that a normal variable is below x, exact in both tails.")
        .pointwise(special_unary(expr::log_ndtr, [](Value x, Value) {
          return std::sqrt(2 / kPi) / expr::erfcx(x * (-1 / std::numbers::sqrt2));
        }));

const OpRecord& ndtri_op =
    define("special_ndtri(Tensor self) -> Tensor")
        .doc("The value below which a normal variable is with probability x.")
        .pointwise(special_unary(
            expr::ndtri, [](Value, Value y) { return exp(y * y * 0.5) * std::sqrt(2 * kPi); }));

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
        });

// ---- gamma function

const OpRecord& trigamma_op = define("trigamma(Tensor self) -> Tensor")
                                  .surface(Surface::internal)
                                  .doc("The derivative of digamma: polygamma(1, x).")
                                  .pointwise(special_unary(expr::trigamma));

const OpRecord& zeta_op =
    define("special_zeta(Tensor self, Tensor other) -> Tensor")
        .doc("Hurwitz zeta: the sum of (other + k)^-self over k >= 0. No gradient for self.")
        .pointwise(special_def(
            2, in_f64([](Values v) { return std::vector{expr::hurwitz_zeta(v[0], v[1])}; }),
            in_f64([](Values v) {
              const Value slope = -(v[0] * expr::hurwitz_zeta(v[0] + 1, v[1]));
              return std::vector{constant_like(v[0], 0.0), v[3] * slope};
            }),
            1));

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
        .in_place();

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
        .in_place();

const OpRecord& igammac_op =
    define("igammac(Tensor self, Tensor other) -> Tensor")
        .doc("Regularized upper incomplete gamma function Q(self, other). No gradient for self.")
        .pointwise(igamma_def(true))
        .in_place();

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
