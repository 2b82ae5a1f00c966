// Pointwise records of one input.
#include <cmath>
#include <limits>
#include <numbers>

#include "arete/core/modes.h"
#include "arete/ops/autocast.h"
#include "arete/ops/complex_form.h"
#include "arete/ops/complex_internal.h"
#include "arete/ops/pointwise_family.h"

namespace arete::ops {

using expr::Value;
using Values = std::span<const Value>;
using Result = PointwiseDef::Result;

namespace {

const std::vector<DType> kAllReal{kFloat32, kFloat64, kBFloat16, kFloat16, kInt32, kInt64};

const OpRecord& abs_op =
    define("abs(Tensor self) -> Tensor")
        .doc("|x|.")
        .unary([](Value x) { return abs(x); }, Result::promote)
        .complex(of_complex([](Complex z) { return abs(z); },
                            [](Values v) { return parts(sgn(complex_at(v, 0)) * v[3]); }))
        .dtypes(kAllReal);

const OpRecord& sign_op = define("sign(Tensor self) -> Tensor")
                              .doc("-1, 0 or 1.")
                              .unary([](Value x) { return sign(x); }, Result::promote)
                              .dtypes(kAllReal);

const OpRecord& sgn_op =
    define("sgn(Tensor self) -> Tensor")
        .doc("The sign; x / |x| for complex numbers, 0 for 0.")
        .unary([](Value x) { return sign(x); }, Result::promote)
        // The derivative is (g - y Re(conj(y) g)) / |z|: what lies across the ray, 0 at 0.
        .complex(of_complex([](Complex z) { return sgn(z); },
                            [](Values v) {
                              const Complex z = complex_at(v, 0), y = complex_at(v, 1);
                              const Complex g = complex_at(v, 2);
                              const Value size = abs(z), zero = size == 0.0;
                              const Value along = y.re * g.re + y.im * g.im;
                              const Complex across = g - y * along;
                              return parts(across * where(zero, 0.0, 1.0 / where(zero, 1.0, size)));
                            }))
        .dtypes(kAllReal);

const OpRecord& floor_op = define("floor(Tensor self) -> Tensor")
                               .doc("Rounds to -inf.")
                               .unary([](Value x) { return floor(x); }, Result::promote)
                               .dtypes(kAllReal);

const OpRecord& ceil_op = define("ceil(Tensor self) -> Tensor")
                              .doc("Rounds to +inf.")
                              .unary([](Value x) { return ceil(x); }, Result::promote)
                              .dtypes(kAllReal);

const OpRecord& trunc_op = define("trunc(Tensor self) -> Tensor")
                               .doc("Rounds to zero.")
                               .unary([](Value x) { return trunc(x); }, Result::promote)
                               .dtypes(kAllReal);

const OpRecord& round_op = define("round(Tensor self) -> Tensor")
                               .doc("Rounds to the nearest whole number, halves to even.")
                               .unary([](Value x) { return round(x); }, Result::promote)
                               .dtypes(kAllReal);

const OpRecord& frac_op = define("frac(Tensor self) -> Tensor")
                              .doc("The fractional part, with the sign of x.")
                              .unary([](Value x) { return x - trunc(x); }, Result::promote)
                              .dtypes(kAllReal);

const OpRecord& sqrt_op =
    define("sqrt(Tensor self) -> Tensor")
        .doc("Square root.")
        .unary([](Value x) { return sqrt(x); }, Result::floating)
        .complex(holomorphic([](Complex z) { return sqrt(z); },
                             [](Complex, Complex y) { return reciprocal(y) * 0.5; }));

const OpRecord& rsqrt_op =
    define("rsqrt(Tensor self) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("1 / sqrt(x).")
        .unary([](Value x) { return rsqrt(x); }, Result::floating)
        .complex(holomorphic([](Complex z) { return reciprocal(sqrt(z)); },
                             [](Complex, Complex y) { return y * y * y * -0.5; }));

const OpRecord& square_point_op =
    define("square_point(Tensor self) -> Tensor")
        .face("square_(Tensor self)")
        .doc("x * x of numbers.")
        .surface(Surface::internal)
        .unary(
            [](Value x) {
              ARETE_CHECK(x.type() != expr::Type::boolean,
                          TypeError("square",
                                    "result type int64 can't be cast to the desired "
                                    "output type bool"));
              return x * x;
            },
            Result::promote)
        .complex(of_complex([](Complex z) { return z * z; }))
        .dtypes(kAllReal);

const OpRecord& square_op =
    define("square(Tensor self) -> Tensor")
        .doc("x * x; of bool int64.")
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          return {x.dtype() == kBool ? x.to(kInt64) : call(square_point_op, {x})};
        })
        .in_place()
        .dtypes(kAllReal);

const OpRecord& reciprocal_op =
    define("reciprocal(Tensor self) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("1 / x.")
        .unary([](Value x) { return reciprocal(x); }, Result::floating)
        .complex(holomorphic([](Complex z) { return reciprocal(z); },
                             [](Complex, Complex y) { return -(y * y); }));

const OpRecord& exp_op = define("exp(Tensor self) -> Tensor")
                             .autocast(autocast_on_cuda(Autocast::f32))
                             .doc("e to the power x.")
                             .unary([](Value x) { return exp(x); }, Result::floating)
                             .complex(holomorphic([](Complex z) { return exp(z); },
                                                  [](Complex, Complex y) { return y; }));

const OpRecord& exp2_op =
    define("exp2(Tensor self) -> Tensor")
        .doc("2 to the power x.")
        .unary([](Value x) { return exp2(x); }, Result::floating)
        .complex(holomorphic([](Complex z) { return exp(z * std::numbers::ln2); },
                             [](Complex, Complex y) { return y * std::numbers::ln2; }));

const OpRecord& expm1_op = define("expm1(Tensor self) -> Tensor")
                               .autocast(autocast_on_cuda(Autocast::f32))
                               .doc("exp(x) - 1, exact near 0.")
                               .unary([](Value x) { return expm1(x); }, Result::floating)
                               .complex(holomorphic([](Complex z) { return expm1(z); },
                                                    [](Complex, Complex y) { return 1.0 + y; }));

const OpRecord& log_op =
    define("log(Tensor self) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("Natural logarithm.")
        .unary([](Value x) { return log(x); }, Result::floating)
        .complex(holomorphic([](Complex z) { return log(z); },
                             [](Complex z, Complex) { return reciprocal(z); }));

const OpRecord& log2_op =
    define("log2(Tensor self) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("Logarithm to base 2.")
        .unary([](Value x) { return log2(x); }, Result::floating)
        .complex(
            holomorphic([](Complex z) { return log(z) * std::numbers::log2e; },
                        [](Complex z, Complex) { return reciprocal(z) * std::numbers::log2e; }));

const OpRecord& log10_op =
    define("log10(Tensor self) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("Logarithm to base 10.")
        .unary([](Value x) { return log10(x); }, Result::floating)
        .complex(
            holomorphic([](Complex z) { return log(z) * std::numbers::log10e; },
                        [](Complex z, Complex) { return reciprocal(z) * std::numbers::log10e; }));

const OpRecord& log1p_op =
    define("log1p(Tensor self) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("log(1 + x), exact near 0.")
        .unary([](Value x) { return log1p(x); }, Result::floating)
        .complex(holomorphic([](Complex z) { return log1p(z); },
                             [](Complex z, Complex) { return reciprocal(1.0 + z); }));

const OpRecord& sin_op = define("sin(Tensor self) -> Tensor")
                             .doc("Sine of radians.")
                             .unary([](Value x) { return sin(x); }, Result::floating)
                             .complex(holomorphic([](Complex z) { return sin(z); },
                                                  [](Complex z, Complex) { return cos(z); }));

const OpRecord& cos_op = define("cos(Tensor self) -> Tensor")
                             .doc("Cosine of radians.")
                             .unary([](Value x) { return cos(x); }, Result::floating)
                             .complex(holomorphic([](Complex z) { return cos(z); },
                                                  [](Complex z, Complex) { return -sin(z); }));

const OpRecord& tan_op = define("tan(Tensor self) -> Tensor")
                             .autocast(autocast_on_cuda(Autocast::f32))
                             .doc("Tangent of radians.")
                             .unary([](Value x) { return tan(x); }, Result::floating)
                             .complex(holomorphic([](Complex z) { return tan(z); },
                                                  [](Complex, Complex y) { return 1.0 + y * y; }));

const OpRecord& asin_op =
    define("asin(Tensor self) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("Inverse sine.")
        .unary([](Value x) { return asin(x); }, Result::floating)
        .complex(holomorphic([](Complex z) { return asin(z); },
                             [](Complex z, Complex) { return reciprocal(sqrt(1.0 - z * z)); }));

const OpRecord& acos_op =
    define("acos(Tensor self) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("Inverse cosine.")
        .unary([](Value x) { return acos(x); }, Result::floating)
        .complex(holomorphic([](Complex z) { return acos(z); },
                             [](Complex z, Complex) { return -reciprocal(sqrt(1.0 - z * z)); }));

const OpRecord& atan_op =
    define("atan(Tensor self) -> Tensor")
        .doc("Inverse tangent.")
        .unary([](Value x) { return atan(x); }, Result::floating)
        .complex(holomorphic([](Complex z) { return atan(z); },
                             [](Complex z, Complex) { return reciprocal(1.0 + z * z); }));

const OpRecord& sinh_op = define("sinh(Tensor self) -> Tensor")
                              .autocast(autocast_on_cuda(Autocast::f32))
                              .doc("Hyperbolic sine.")
                              .unary([](Value x) { return sinh(x); }, Result::floating)
                              .complex(holomorphic([](Complex z) { return sinh(z); },
                                                   [](Complex z, Complex) { return cosh(z); }));

const OpRecord& cosh_op = define("cosh(Tensor self) -> Tensor")
                              .autocast(autocast_on_cuda(Autocast::f32))
                              .doc("Hyperbolic cosine.")
                              .unary([](Value x) { return cosh(x); }, Result::floating)
                              .complex(holomorphic([](Complex z) { return cosh(z); },
                                                   [](Complex z, Complex) { return sinh(z); }));

const OpRecord& tanh_op = define("tanh(Tensor self) -> Tensor")
                              .functional({"tanh(Tensor input)"})
                              .doc("Hyperbolic tangent.")
                              .unary([](Value x) { return tanh(x); }, Result::floating)
                              .complex(holomorphic([](Complex z) { return tanh(z); },
                                                   [](Complex, Complex y) { return 1.0 - y * y; }));

const OpRecord& asinh_op =
    define("asinh(Tensor self) -> Tensor")
        .doc("Inverse hyperbolic sine.")
        .unary([](Value x) { return asinh(x); }, Result::floating)
        .complex(holomorphic([](Complex z) { return asinh(z); },
                             [](Complex z, Complex) { return reciprocal(sqrt(1.0 + z * z)); }));

const OpRecord& acosh_op =
    define("acosh(Tensor self) -> Tensor")
        .doc("Inverse hyperbolic cosine.")
        .unary([](Value x) { return acosh(x); }, Result::floating)
        .complex(holomorphic(
            [](Complex z) { return acosh(z); },
            [](Complex z, Complex) { return reciprocal(sqrt(-1.0 + z) * sqrt(1.0 + z)); }));

const OpRecord& atanh_op =
    define("atanh(Tensor self) -> Tensor")
        .doc("Inverse hyperbolic tangent.")
        .unary([](Value x) { return atanh(x); }, Result::floating)
        .complex(holomorphic([](Complex z) { return atanh(z); },
                             [](Complex z, Complex) { return reciprocal(1.0 - z * z); }));

const OpRecord& erf_op = define("erf(Tensor self) -> Tensor")
                             .doc("Error function.")
                             .unary([](Value x) { return erf(x); }, Result::floating);

const OpRecord& erfc_op = define("erfc(Tensor self) -> Tensor")
                              .doc("1 - erf(x), exact for large x.")
                              .unary([](Value x) { return erfc(x); }, Result::floating);

const OpRecord& lgamma_op = define("lgamma(Tensor self) -> Tensor")
                                .doc("log |gamma(x)|.")
                                .unary([](Value x) { return lgamma(x); }, Result::floating);

const OpRecord& sigmoid_op =
    define("sigmoid(Tensor self) -> Tensor")
        .functional({"sigmoid(Tensor input)"})
        .doc("1 / (1 + exp(-x)).")
        .unary([](Value x) { return sigmoid(x); }, Result::floating)
        .complex(holomorphic([](Complex z) { return reciprocal(1.0 + exp(-z)); },
                             [](Complex, Complex y) { return y * (1.0 - y); }));

const OpRecord& logit_op = define("logit_point(Tensor self) -> Tensor")
                               .surface(Surface::internal)
                               .doc("log(x / (1 - x)).")
                               .unary([](Value x) { return log(x / (1.0 - x)); }, Result::floating)
                               .gradient([](std::span<const Value> v) {
                                 const Value x = v[0], slope = v[2] / (x * (1.0 - x));
                                 return std::vector{where((x >= 0.0) & (x <= 1.0), slope, NAN)};
                               });

const OpRecord& deg2rad_op = define("deg2rad(Tensor self) -> Tensor")
                                 .doc("Degrees to radians.")
                                 .unary([](Value x) { return x * (M_PI / 180); }, Result::floating);

const OpRecord& rad2deg_op = define("rad2deg(Tensor self) -> Tensor")
                                 .doc("Radians to degrees.")
                                 .unary([](Value x) { return x * (180 / M_PI); }, Result::floating);

const OpRecord& neg_op =
    define("neg(Tensor self) -> Tensor")
        .doc("-x; bool has no negative (use logical_not).")
        .unary(
            [](Value x) {
              ARETE_CHECK(x.type() != expr::Type::boolean,
                          TypeError("neg",
                                    "Negation, the `-` operator, on a bool tensor is not "
                                    "supported.")
                              .hint("use ~ or logical_not()"));
              return -x;
            },
            Result::promote)
        .complex(of_complex([](Complex z) { return -z; }, {}, by_parts))
        .dtypes(kAllReal);

const OpRecord& positive_op =
    define("positive(Tensor self) -> Tensor")
        .doc("The tensor itself; bool has no sign.")
        .compose([](const Call& c) -> Results {
          ARETE_CHECK(c.tensor(0).dtype() != kBool,
                      TypeError(c.name(), "The `+` operator, on a bool tensor is not supported."));
          return {c.tensor(0)};
        })
        .dtypes(kAllReal);

const OpRecord& erfinv_op = define("erfinv(Tensor self) -> Tensor")
                                .autocast(autocast_on_cuda(Autocast::f32))
                                .doc("Inverse of erf on (-1, 1).")
                                .unary([](Value x) { return erfinv(x); });

const OpRecord& digamma_op =
    define("digamma(Tensor self) -> Tensor").doc("The derivative of lgamma.").unary([](Value x) {
      return digamma(x);
    });

const OpRecord& sinc_op = define("sinc(Tensor self) -> Tensor")
                              .doc("sin(pi x) / (pi x), 1 at 0.")
                              .unary([](Value x) {
                                const Value y = x * M_PI;
                                // Squares of less are 0 in float32, in derivatives.
                                const Value small = abs(y) < 1e-15;
                                const Value safe = where(small, 1.0, y);
                                return where(small, 1.0 - y * y * (1.0 / 6), sin(safe) / safe);
                              })
                              // The derivative is (cos(pi z) - sinc(z)) / z, 0 at 0.
                              .complex(holomorphic(
                                  [](Complex z) {
                                    const Complex one = constant_like(z.re, 1, 0);
                                    const Complex x = where(is_zero(z), one, z * std::numbers::pi);
                                    return where(is_zero(z), one, sin(x) / x);
                                  },
                                  [](Complex z, Complex y) {
                                    const Complex x =
                                        where(is_zero(z), constant_like(z.re, 1, 0), z);
                                    return where(is_zero(z), constant_like(z.re, 0, 0),
                                                 (cos(x * std::numbers::pi) - y) / x);
                                  }));

// The gradient reads the result, so that relu_ needs no copy of its input. It passes at NaN.
const OpRecord& relu_op =
    define("relu(Tensor self) -> Tensor")
        .functional({"", "relu_"})
        .doc("max(x, 0); NaN stays NaN.")
        .unary([](Value x) { return max(x, 0.0); }, Result::promote)
        .gradient([](std::span<const Value> v) {
          return std::vector{where(v[1] <= 0.0, constant_like(v[2], 0.0), v[2])};
        })
        .dtypes(kAllReal);

const OpRecord& logical_not_op =
    define("logical_not(Tensor self) -> Tensor")
        .doc("True where x is zero.")
        .unary([](Value x) { return x.type() == expr::Type::boolean ? !x : x == 0.0; },
               Result::boolean)
        .complex(of_complex([](Complex z) { return is_zero(z); }));

const OpRecord& bitwise_not_op = define("bitwise_not(Tensor self) -> Tensor")
                                     .doc("All bits flipped (two's complement); logical for bool.")
                                     .unary([](Value x) { return ~x; }, Result::promote)
                                     .dtypes({kInt64, kInt32, kInt16, kInt8});

const OpRecord& isnan_op =
    define("isnan(Tensor self) -> Tensor")
        .doc("True where x is NaN.")
        .unary([](Value x) { return is_nan(x); }, Result::boolean)
        .complex(of_complex([](Complex z) { return is_nan(z.re) | is_nan(z.im); }));

const OpRecord& isinf_op =
    define("isinf(Tensor self) -> Tensor")
        .doc("True where x is infinite.")
        .unary([](Value x) { return is_inf(x); }, Result::boolean)
        .complex(of_complex([](Complex z) { return is_inf(z.re) | is_inf(z.im); }));

const OpRecord& isfinite_op =
    define("isfinite(Tensor self) -> Tensor")
        .doc("True where x is neither infinite nor NaN.")
        .unary([](Value x) { return !(is_nan(x) | is_inf(x)); }, Result::boolean)
        .complex(of_complex([](Complex z) {
          return !(is_nan(z.re) | is_nan(z.im) | is_inf(z.re) | is_inf(z.im));
        }));

const OpRecord& signbit_op =
    define("signbit(Tensor self) -> Tensor")
        .doc("True where the sign bit is set, -0.0 included.")
        .unary(
            [](Value x) {
              return x.is_floating() ? copysign(constant_like(x, 1.0), x) < 0.0 : x < 0.0;
            },
            Result::boolean);

Value finite_of(Value x, Value nan, Value posinf, Value neginf) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  return where(x == kInf, posinf, where(x == -kInf, neginf, where(is_nan(x), nan, x)));
}

const OpRecord& nan_to_num_op = []() -> const OpRecord& {
  PointwiseDef d;
  d.n_inputs = 1;
  d.n_params = 3;
  d.definition = [](std::span<const Value> v) {
    return std::vector{v[0].is_floating() ? finite_of(v[0], v[1], v[2], v[3]) : v[0]};
  };
  return define("nan_to_num_point(Tensor self, float nan, float posinf, float neginf) -> Tensor")
      .surface(Surface::internal)
      .doc("NaN, +inf and -inf replaced by numbers.")
      .pointwise(std::move(d))
      // Both parts alike; of the numbers only the real ones count.
      .complex({[](std::span<const Value> v) {
        return std::vector{finite_of(v[0], v[2], v[4], v[6]), finite_of(v[1], v[2], v[4], v[6])};
      }})
      .in_place();
}();

// Where no finite number is beyond `posinf` and `neginf`: two steps instead of three.
const OpRecord& nan_to_bounds_op = []() -> const OpRecord& {
  PointwiseDef d;
  d.n_inputs = 1;
  d.n_params = 3;
  d.definition = [](Values v) {
    return std::vector{where(is_nan(v[0]), v[1], min(max(v[0], v[3]), v[2]))};
  };
  d.gradient = [](Values v) { return std::vector{where(is_nan(v[0]) | is_inf(v[0]), 0.0, v[2])}; };
  return define("nan_to_bounds(Tensor self, float nan, float posinf, float neginf) -> Tensor")
      .surface(Surface::internal)
      .doc("NaN replaced by a number, and +inf and -inf by the largest and lowest.")
      .pointwise(std::move(d))
      .in_place();
}();

/// How infinities of a floating or complex dtype are replaced; by default by its extreme numbers.
struct Replacement {
  Replacement(DType dtype, std::optional<double> posinf, std::optional<double> neginf)
      : part(is_complex(dtype) ? real_of(dtype) : dtype),
        high(posinf.value_or(max_of(part))),
        low(neginf.value_or(lowest_of(part))),
        op(!is_complex(dtype) && high >= max_of(part) && low <= lowest_of(part) ? nan_to_bounds_op
                                                                                : nan_to_num_op) {}
  DType part;
  double high, low;
  const OpRecord& op;
};

}  // namespace
}  // namespace arete::ops

ARETE_DEFINE_UNARY(abs)
ARETE_DEFINE_UNARY(sign)
ARETE_DEFINE_UNARY(sgn)
ARETE_DEFINE_UNARY(floor)
ARETE_DEFINE_UNARY(ceil)
ARETE_DEFINE_UNARY(trunc)
ARETE_DEFINE_UNARY(round)
ARETE_DEFINE_UNARY(frac)
ARETE_DEFINE_UNARY(sqrt)
ARETE_DEFINE_UNARY(rsqrt)
ARETE_DEFINE_UNARY(reciprocal)
ARETE_DEFINE_UNARY(exp)
ARETE_DEFINE_UNARY(exp2)
ARETE_DEFINE_UNARY(expm1)
ARETE_DEFINE_UNARY(log)
ARETE_DEFINE_UNARY(log2)
ARETE_DEFINE_UNARY(log10)
ARETE_DEFINE_UNARY(log1p)
ARETE_DEFINE_UNARY(sin)
ARETE_DEFINE_UNARY(cos)
ARETE_DEFINE_UNARY(tan)
ARETE_DEFINE_UNARY(asin)
ARETE_DEFINE_UNARY(acos)
ARETE_DEFINE_UNARY(atan)
ARETE_DEFINE_UNARY(sinh)
ARETE_DEFINE_UNARY(cosh)
ARETE_DEFINE_UNARY(tanh)
ARETE_DEFINE_UNARY(asinh)
ARETE_DEFINE_UNARY(acosh)
ARETE_DEFINE_UNARY(atanh)
ARETE_DEFINE_UNARY(erf)
ARETE_DEFINE_UNARY(erfc)
ARETE_DEFINE_UNARY(lgamma)
ARETE_DEFINE_UNARY(sigmoid)
ARETE_DEFINE_UNARY(logit)
ARETE_DEFINE_UNARY(deg2rad)
ARETE_DEFINE_UNARY(rad2deg)
ARETE_DEFINE_UNARY(neg)
ARETE_DEFINE_UNARY(positive)
ARETE_DEFINE_UNARY(erfinv)
ARETE_DEFINE_UNARY(digamma)
ARETE_DEFINE_UNARY(sinc)
ARETE_DEFINE_UNARY(relu)
ARETE_DEFINE_UNARY(logical_not)
ARETE_DEFINE_UNARY(bitwise_not)

namespace arete {
Tensor square(const Tensor& self) { return ops::call(ops::square_op, {self}); }
Tensor Tensor::square() const { return arete::square(*this); }
Tensor& Tensor::square_() { return ops::call_in_place(*this, ops::square_point_op, {*this}); }

#define ARETE_DEFINE_TEST(name)                                                 \
  Tensor name(const Tensor& self) { return ops::call(ops::name##_op, {self}); } \
  Tensor Tensor::name() const { return arete::name(*this); }
ARETE_DEFINE_TEST(isnan)
ARETE_DEFINE_TEST(isinf)
ARETE_DEFINE_TEST(isfinite)
ARETE_DEFINE_TEST(signbit)
#undef ARETE_DEFINE_TEST

Tensor nan_to_num(const Tensor& self, double nan, std::optional<double> posinf,
                  std::optional<double> neginf) {
  if (is_integral_or_bool(self.dtype())) return self.clone();
  const ops::Replacement r(self.dtype(), posinf, neginf);
  return ops::call(r.op, {self, nan, r.high, r.low});
}
Tensor& nan_to_num_(Tensor& self, double nan, std::optional<double> posinf,
                    std::optional<double> neginf) {
  if (is_integral_or_bool(self.dtype())) return self;
  const ops::Replacement r(self.dtype(), posinf, neginf);
  return ops::call_in_place(self, r.op, {self, nan, r.high, r.low});
}
Tensor Tensor::nan_to_num(double nan, std::optional<double> posinf,
                          std::optional<double> neginf) const {
  return arete::nan_to_num(*this, nan, posinf, neginf);
}
Tensor Tensor::operator-() const { return neg(); }
Tensor Tensor::operator~() const { return bitwise_not(); }
}  // namespace arete

ARETE_FAMILY(unary)
