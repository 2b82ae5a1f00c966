// Records of special functions: relatives of the error function and of the gamma function.
#include "arete/ops/special.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "arete/expr/program_cache.h"
#include "arete/ops/creation.h"
#include "arete/ops/special_family.h"
#include "arete/ops/vmap_rules_internal.h"

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
                              .pointwise(special_unary(expr::ndtr, nullptr, /*wide=*/true));

const OpRecord& log_ndtr_op =
    define("special_log_ndtr(Tensor self) -> Tensor")
        .doc("log of the probability that a normal variable is below x, exact in both tails.")
        .pointwise(special_unary(expr::log_ndtr, [](Value x, Value) {
          const Value left = std::sqrt(2 / kPi) / expr::erfcx(x * (-1 / std::numbers::sqrt2));
          const Value right = exp(x * x * -0.5) / (std::sqrt(2 * kPi) * expr::ndtr(x));
          return where(x > 0.0, right, left);  // where erfcx is beyond all numbers
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

const OpRecord& zeta_op =
    define("special_zeta(Tensor self, Tensor other) -> Tensor")
        .doc("Hurwitz zeta: the sum of (other + k)^-self over k >= 0. No gradient for self.")
        .pointwise(special_def(
            2, in_f64([](Values v) { return std::vector{expr::hurwitz_zeta(v[0], v[1])}; }),
            in_f64([](Values v) {
              const Value slope = -(v[0] * expr::hurwitz_zeta(v[0] + 1, v[1]));
              return std::vector{constant_like(v[0], 0.0), v[3] * slope};
            })))
        .no_derivative(1, "zeta");

const expr::Program& polygamma_program(int64_t n, DType in, DType out) {
  static auto* const cache = new expr::ProgramCache;
  return cache->get(uint64_t(n) << 10 | uint64_t(in) << 5 | uint64_t(out), {in}, {}, {out},
                    [=](Values v) {
                      const Value x = cast(v[0], expr::Type::f64);
                      const expr::SinglePrecision digits(out != kFloat64);
                      const Value y = n == 0 ? digamma(x) : expr::polygamma(int(n), x);
                      return std::vector{cast(y, expr::compute_type(out))};
                    });
}

const OpRecord& polygamma_op =
    define("polygamma(int n, Tensor self) -> Tensor")
        .converts_out()
        .doc("The n-th derivative of digamma.")
        .batched(vmaps::elementwise)
        .infer([](const Call& c, OutputSpecs& out) {
          const int64_t n = c.integer(0);
          const Tensor& x = c.tensor(1);
          ARETE_CHECK(
              n >= 0,
              ValueError(c.name(), "polygamma(n, x) does not support negative n.").argument("n"));
          ARETE_CHECK(
              n < 1000,
              ValueError(c.name(), "n is too large").argument("n").expected("an order below 1000"));
          ARETE_CHECK(!is_complex(x.dtype()),
                      NotImplementedError(c.name(), "\"polygamma\" not implemented for '" +
                                                        std::string(name_of(x.dtype())) + "'"));
          const DType t = is_floating(x.dtype()) ? x.dtype() : default_dtype();
          out.push_back({Shape(x.sizes()), t});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const prim::View in = view_of(c.tensor(1)), to = view_of(out[0]);
          p.pointwise(
              {&polygamma_program(c.integer(0), in.dtype, to.dtype), {&in, 1}, {&to, 1}, {}});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              return {g.grad().mul(polygamma(g.integer(0) + 1, g.input(0)))};
            },
            1);

// count terms of the sum of lgamma(x - j / 2), from j = first on.
const expr::Program& lgamma_sum_program(DType t, int count) {
  static auto* const cache = new expr::ProgramCache;
  const expr::Type compute = expr::work_type(t);
  return cache->get(pack_key({int(t), count}), {t}, {compute}, {t}, [count](Values v) {
    Value sum = lgamma(v[0] - v[1] * 0.5);
    for (int j = 1; j < count; ++j) sum = sum + lgamma(v[0] - (v[1] + double(j)) * 0.5);
    return std::vector{sum};
  });
}

const OpRecord& mvlgamma_op =
    define("mvlgamma(Tensor self, int p) -> Tensor")
        .doc("log of the multivariate gamma function of dimension p.")
        .compose([](const Call& c) -> Results {
          const int64_t p = c.integer(1);
          ARETE_CHECK(p >= 1,
                      ValueError(c.name(), "p has to be greater than or equal to 1").argument("p"));
          const Tensor& self = c.tensor(0);
          const Tensor x = is_integral_or_bool(self.dtype()) ? self.to(default_dtype()) : self;
          Tensor sum;
          for (int64_t first = 0; first < p; first += 8) {
            const expr::Program& part =
                lgamma_sum_program(x.dtype(), int(std::min<int64_t>(8, p - first)));
            const Tensor terms = apply_program(part.shared_from_this(), {&x, 1},
                                               {{Scalar(double(first))}}, c.name())[0];
            sum = sum.defined() ? sum.add(terms) : terms;
          }
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
                     }));
}

const OpRecord& igamma_op =
    define("igamma(Tensor self, Tensor other) -> Tensor")
        .doc("Regularized lower incomplete gamma function P(self, other). No gradient for self.")
        .pointwise(igamma_def(false))
        .no_derivative(1, "igamma: input")
        .in_place();

const OpRecord& igammac_op =
    define("igammac(Tensor self, Tensor other) -> Tensor")
        .doc("Regularized upper incomplete gamma function Q(self, other). No gradient for self.")
        .pointwise(igamma_def(true))
        .no_derivative(1, "igammac: input")
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
