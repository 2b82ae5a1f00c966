// Pointwise records of one input.
#include <numbers>

#include "arete/core/modes.h"
#include "arete/ops/autocast.h"
#include "arete/ops/complex_form.h"
#include "arete/ops/pointwise_family.h"

namespace arete::ops {

using expr::Value;
using Values = std::span<const Value>;
using Result = PointwiseDef::Result;

namespace {

double digamma_reference(double x) {
  // Recurrence up to 30, then the asymptotic series (DLMF 5.11.2), exact to 1e-17 there.
  double shift = 0;
  while (x < 30) {
    shift -= 1 / x;
    x += 1;
  }
  const double y = 1 / (x * x);
  return shift + std::log(x) - 0.5 / x -
         y * (1.0 / 12 - y * (1.0 / 120 - y * (1.0 / 252 - y * (1.0 / 240 - y / 132))));
}

double erfinv_reference(double y) {
  // Newton on erf from a rough start: independent of the program's polynomial.
  double x = y * 0.886;
  for (int i = 0; i < 60; ++i) x -= (std::erf(x) - y) / (M_2_SQRTPI * std::exp(-x * x));
  return x;
}

const std::vector<DType> kAllReal{kFloat32, kFloat64, kBFloat16, kFloat16, kInt32, kInt64};

const OpRecord& abs_op =
    define("abs(Tensor self) -> Tensor")
        .doc("|x|.")
        .unary([](Value x) { return abs(x); }, Result::promote)
        .complex(of_complex([](Complex z) { return abs(z); },
                            [](Values v) { return parts(sgn(complex_at(v, 0)) * v[3]); }))
        .samples(unary_samples(-2, 2))
        .reference(reference1([](double v) { return std::fabs(v); }))
        .dtypes(kAllReal);

const OpRecord& sign_op =
    define("sign(Tensor self) -> Tensor")
        .doc("-1, 0 or 1.")
        .unary([](Value x) { return sign(x); }, Result::promote)
        .samples(unary_samples(-2, 2))
        .reference(reference1([](double v) { return double((v > 0) - (v < 0)); }))
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
        .samples(unary_samples(-2, 2))
        .reference(reference1([](double v) { return double((v > 0) - (v < 0)); }))
        .dtypes(kAllReal);

const OpRecord& floor_op = define("floor(Tensor self) -> Tensor")
                               .doc("Rounds to -inf.")
                               .unary([](Value x) { return floor(x); }, Result::promote)
                               .samples(unary_samples(-2, 2))
                               .reference(reference1([](double v) { return std::floor(v); }))
                               .dtypes(kAllReal);

const OpRecord& ceil_op = define("ceil(Tensor self) -> Tensor")
                              .doc("Rounds to +inf.")
                              .unary([](Value x) { return ceil(x); }, Result::promote)
                              .samples(unary_samples(-2, 2))
                              .reference(reference1([](double v) { return std::ceil(v); }))
                              .dtypes(kAllReal);

const OpRecord& trunc_op = define("trunc(Tensor self) -> Tensor")
                               .doc("Rounds to zero.")
                               .unary([](Value x) { return trunc(x); }, Result::promote)
                               .samples(unary_samples(-2, 2))
                               .reference(reference1([](double v) { return std::trunc(v); }))
                               .dtypes(kAllReal);

const OpRecord& round_op = define("round(Tensor self) -> Tensor")
                               .doc("Rounds to the nearest whole number, halves to even.")
                               .unary([](Value x) { return round(x); }, Result::promote)
                               .samples(unary_samples(-2, 2))
                               .reference(reference1([](double v) { return std::nearbyint(v); }))
                               .dtypes(kAllReal);

const OpRecord& frac_op = define("frac(Tensor self) -> Tensor")
                              .doc("The fractional part, with the sign of x.")
                              .unary([](Value x) { return x - trunc(x); }, Result::promote)
                              .samples(unary_samples(-2, 2))
                              .reference(reference1([](double v) { return v - std::trunc(v); }))
                              .dtypes(kAllReal);

const OpRecord& sqrt_op =
    define("sqrt(Tensor self) -> Tensor")
        .doc("Square root.")
        .unary([](Value x) { return sqrt(x); }, Result::floating)
        .complex(holomorphic([](Complex z) { return sqrt(z); },
                             [](Complex, Complex y) { return reciprocal(y) * 0.5; }))
        .samples(unary_samples(0.1, 4))
        .reference(reference1([](double v) { return std::sqrt(v); }));

const OpRecord& rsqrt_op =
    define("rsqrt(Tensor self) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("1 / sqrt(x).")
        .unary([](Value x) { return rsqrt(x); }, Result::floating)
        .complex(holomorphic([](Complex z) { return reciprocal(sqrt(z)); },
                             [](Complex, Complex y) { return y * y * y * -0.5; }))
        .samples(unary_samples(0.1, 4))
        .reference(reference1([](double v) { return 1 / std::sqrt(v); }));

const OpRecord& square_point_op =
    define("square_point(Tensor self) -> Tensor")
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
        .samples(unary_samples(-2, 2))
        .reference(reference1([](double v) { return v * v; }))
        .dtypes(kAllReal);

const OpRecord& square_op =
    define("square(Tensor self) -> Tensor")
        .doc("x * x; of bool int64.")
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          return {x.dtype() == kBool ? x.to(kInt64) : call(square_point_op, {x})};
        })
        .in_place()
        .samples([](SampleMaker& m) {
          auto all = unary_samples(-2, 2)(m);
          all.push_back({{m.make_mask({5})}, "bool"});
          return all;
        })
        .reference(reference1([](double v) { return v * v; }))
        .dtypes(kAllReal);

const OpRecord& reciprocal_op =
    define("reciprocal(Tensor self) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("1 / x.")
        .unary([](Value x) { return reciprocal(x); }, Result::floating)
        .complex(holomorphic([](Complex z) { return reciprocal(z); },
                             [](Complex, Complex y) { return -(y * y); }))
        .samples(unary_samples(0.2, 3))
        .reference(reference1([](double v) { return 1 / v; }));

const OpRecord& exp_op = define("exp(Tensor self) -> Tensor")
                             .autocast(autocast_on_cuda(Autocast::f32))
                             .doc("e to the power x.")
                             .unary([](Value x) { return exp(x); }, Result::floating)
                             .complex(holomorphic([](Complex z) { return exp(z); },
                                                  [](Complex, Complex y) { return y; }))
                             .samples(unary_samples(-3, 3))
                             .reference(reference1([](double v) { return std::exp(v); }));

const OpRecord& exp2_op =
    define("exp2(Tensor self) -> Tensor")
        .doc("2 to the power x.")
        .unary([](Value x) { return exp2(x); }, Result::floating)
        .complex(holomorphic([](Complex z) { return exp(z * std::numbers::ln2); },
                             [](Complex, Complex y) { return y * std::numbers::ln2; }))
        .samples(unary_samples(-3, 3))
        .reference(reference1([](double v) { return std::exp2(v); }));

const OpRecord& expm1_op = define("expm1(Tensor self) -> Tensor")
                               .autocast(autocast_on_cuda(Autocast::f32))
                               .doc("exp(x) - 1, exact near 0.")
                               .unary([](Value x) { return expm1(x); }, Result::floating)
                               .complex(holomorphic([](Complex z) { return expm1(z); },
                                                    [](Complex, Complex y) { return 1.0 + y; }))
                               .samples(unary_samples(-2, 2))
                               .reference(reference1([](double v) { return std::expm1(v); }));

const OpRecord& log_op = define("log(Tensor self) -> Tensor")
                             .autocast(autocast_on_cuda(Autocast::f32))
                             .doc("Natural logarithm.")
                             .unary([](Value x) { return log(x); }, Result::floating)
                             .complex(holomorphic([](Complex z) { return log(z); },
                                                  [](Complex z, Complex) { return reciprocal(z); }))
                             .samples(unary_samples(0.1, 4))
                             .reference(reference1([](double v) { return std::log(v); }));

const OpRecord& log2_op =
    define("log2(Tensor self) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("Logarithm to base 2.")
        .unary([](Value x) { return log2(x); }, Result::floating)
        .complex(
            holomorphic([](Complex z) { return log(z) * std::numbers::log2e; },
                        [](Complex z, Complex) { return reciprocal(z) * std::numbers::log2e; }))
        .samples(unary_samples(0.1, 4))
        .reference(reference1([](double v) { return std::log2(v); }));

const OpRecord& log10_op =
    define("log10(Tensor self) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("Logarithm to base 10.")
        .unary([](Value x) { return log10(x); }, Result::floating)
        .complex(
            holomorphic([](Complex z) { return log(z) * std::numbers::log10e; },
                        [](Complex z, Complex) { return reciprocal(z) * std::numbers::log10e; }))
        .samples(unary_samples(0.1, 4))
        .reference(reference1([](double v) { return std::log10(v); }));

const OpRecord& log1p_op =
    define("log1p(Tensor self) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("log(1 + x), exact near 0.")
        .unary([](Value x) { return log1p(x); }, Result::floating)
        .complex(holomorphic([](Complex z) { return log1p(z); },
                             [](Complex z, Complex) { return reciprocal(1.0 + z); }))
        .samples(unary_samples(-0.9, 3))
        .reference(reference1([](double v) { return std::log1p(v); }));

const OpRecord& sin_op = define("sin(Tensor self) -> Tensor")
                             .doc("Sine of radians.")
                             .unary([](Value x) { return sin(x); }, Result::floating)
                             .complex(holomorphic([](Complex z) { return sin(z); },
                                                  [](Complex z, Complex) { return cos(z); }))
                             .samples(unary_samples(-4, 4))
                             .reference(reference1([](double v) { return std::sin(v); }));

const OpRecord& cos_op = define("cos(Tensor self) -> Tensor")
                             .doc("Cosine of radians.")
                             .unary([](Value x) { return cos(x); }, Result::floating)
                             .complex(holomorphic([](Complex z) { return cos(z); },
                                                  [](Complex z, Complex) { return -sin(z); }))
                             .samples(unary_samples(-4, 4))
                             .reference(reference1([](double v) { return std::cos(v); }));

const OpRecord& tan_op = define("tan(Tensor self) -> Tensor")
                             .autocast(autocast_on_cuda(Autocast::f32))
                             .doc("Tangent of radians.")
                             .unary([](Value x) { return tan(x); }, Result::floating)
                             .complex(holomorphic([](Complex z) { return tan(z); },
                                                  [](Complex, Complex y) { return 1.0 + y * y; }))
                             .samples(unary_samples(-1.2, 1.2))
                             .reference(reference1([](double v) { return std::tan(v); }));

const OpRecord& asin_op =
    define("asin(Tensor self) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("Inverse sine.")
        .unary([](Value x) { return asin(x); }, Result::floating)
        .complex(holomorphic([](Complex z) { return asin(z); },
                             [](Complex z, Complex) { return reciprocal(sqrt(1.0 - z * z)); }))
        .samples(unary_samples(-0.9, 0.9))
        .reference(reference1([](double v) { return std::asin(v); }));

const OpRecord& acos_op =
    define("acos(Tensor self) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("Inverse cosine.")
        .unary([](Value x) { return acos(x); }, Result::floating)
        .complex(holomorphic([](Complex z) { return acos(z); },
                             [](Complex z, Complex) { return -reciprocal(sqrt(1.0 - z * z)); }))
        .samples(unary_samples(-0.9, 0.9))
        .reference(reference1([](double v) { return std::acos(v); }));

const OpRecord& atan_op =
    define("atan(Tensor self) -> Tensor")
        .doc("Inverse tangent.")
        .unary([](Value x) { return atan(x); }, Result::floating)
        .complex(holomorphic([](Complex z) { return atan(z); },
                             [](Complex z, Complex) { return reciprocal(1.0 + z * z); }))
        .samples(unary_samples(-3, 3))
        .reference(reference1([](double v) { return std::atan(v); }));

const OpRecord& sinh_op = define("sinh(Tensor self) -> Tensor")
                              .autocast(autocast_on_cuda(Autocast::f32))
                              .doc("Hyperbolic sine.")
                              .unary([](Value x) { return sinh(x); }, Result::floating)
                              .complex(holomorphic([](Complex z) { return sinh(z); },
                                                   [](Complex z, Complex) { return cosh(z); }))
                              .samples(unary_samples(-3, 3))
                              .reference(reference1([](double v) { return std::sinh(v); }));

const OpRecord& cosh_op = define("cosh(Tensor self) -> Tensor")
                              .autocast(autocast_on_cuda(Autocast::f32))
                              .doc("Hyperbolic cosine.")
                              .unary([](Value x) { return cosh(x); }, Result::floating)
                              .complex(holomorphic([](Complex z) { return cosh(z); },
                                                   [](Complex z, Complex) { return sinh(z); }))
                              .samples(unary_samples(-3, 3))
                              .reference(reference1([](double v) { return std::cosh(v); }));

const OpRecord& tanh_op = define("tanh(Tensor self) -> Tensor")
                              .doc("Hyperbolic tangent.")
                              .unary([](Value x) { return tanh(x); }, Result::floating)
                              .complex(holomorphic([](Complex z) { return tanh(z); },
                                                   [](Complex, Complex y) { return 1.0 - y * y; }))
                              .samples(unary_samples(-3, 3))
                              .reference(reference1([](double v) { return std::tanh(v); }));

const OpRecord& asinh_op =
    define("asinh(Tensor self) -> Tensor")
        .doc("Inverse hyperbolic sine.")
        .unary([](Value x) { return asinh(x); }, Result::floating)
        .complex(holomorphic([](Complex z) { return asinh(z); },
                             [](Complex z, Complex) { return reciprocal(sqrt(1.0 + z * z)); }))
        .samples(unary_samples(-3, 3))
        .reference(reference1([](double v) { return std::asinh(v); }));

const OpRecord& acosh_op =
    define("acosh(Tensor self) -> Tensor")
        .doc("Inverse hyperbolic cosine.")
        .unary([](Value x) { return acosh(x); }, Result::floating)
        .complex(holomorphic(
            [](Complex z) { return acosh(z); },
            [](Complex z, Complex) { return reciprocal(sqrt(-1.0 + z) * sqrt(1.0 + z)); }))
        .samples(unary_samples(1.2, 4))
        .reference(reference1([](double v) { return std::acosh(v); }));

const OpRecord& atanh_op =
    define("atanh(Tensor self) -> Tensor")
        .doc("Inverse hyperbolic tangent.")
        .unary([](Value x) { return atanh(x); }, Result::floating)
        .complex(holomorphic([](Complex z) { return atanh(z); },
                             [](Complex z, Complex) { return reciprocal(1.0 - z * z); }))
        .samples(unary_samples(-0.9, 0.9))
        .reference(reference1([](double v) { return std::atanh(v); }));

const OpRecord& erf_op = define("erf(Tensor self) -> Tensor")
                             .doc("Error function.")
                             .unary([](Value x) { return erf(x); }, Result::floating)
                             .samples(unary_samples(-3, 3))
                             .reference(reference1([](double v) { return std::erf(v); }));

const OpRecord& erfc_op = define("erfc(Tensor self) -> Tensor")
                              .doc("1 - erf(x), exact for large x.")
                              .unary([](Value x) { return erfc(x); }, Result::floating)
                              .samples(unary_samples(-2, 3))
                              .reference(reference1([](double v) { return std::erfc(v); }));

const OpRecord& lgamma_op = define("lgamma(Tensor self) -> Tensor")
                                .doc("log |gamma(x)|.")
                                .unary([](Value x) { return lgamma(x); }, Result::floating)
                                .samples(unary_samples(0.5, 6))
                                .reference(reference1([](double v) { return std::lgamma(v); }));

const OpRecord& sigmoid_op =
    define("sigmoid(Tensor self) -> Tensor")
        .doc("1 / (1 + exp(-x)).")
        .unary([](Value x) { return sigmoid(x); }, Result::floating)
        .complex(holomorphic([](Complex z) { return reciprocal(1.0 + exp(-z)); },
                             [](Complex, Complex y) { return y * (1.0 - y); }))
        .samples(unary_samples(-5, 5))
        .reference(reference1([](double v) { return 1 / (1 + std::exp(-v)); }));

const OpRecord& logit_op =
    define("logit_point(Tensor self) -> Tensor")
        .doc("log(x / (1 - x)).")
        .unary([](Value x) { return log(x / (1.0 - x)); }, Result::floating)
        .samples(unary_samples(0.1, 0.9))
        .reference(reference1([](double v) { return std::log(v / (1 - v)); }));

const OpRecord& deg2rad_op = define("deg2rad(Tensor self) -> Tensor")
                                 .doc("Degrees to radians.")
                                 .unary([](Value x) { return x * (M_PI / 180); }, Result::floating)
                                 .samples(unary_samples(-200, 200))
                                 .reference(reference1([](double v) { return v * M_PI / 180; }));

const OpRecord& rad2deg_op = define("rad2deg(Tensor self) -> Tensor")
                                 .doc("Radians to degrees.")
                                 .unary([](Value x) { return x * (180 / M_PI); }, Result::floating)
                                 .samples(unary_samples(-4, 4))
                                 .reference(reference1([](double v) { return v * 180 / M_PI; }));

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
        .complex(of_complex([](Complex z) { return -z; }))
        .samples(unary_samples(-2, 2))
        .reference(reference1([](double v) { return -v; }))
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{{{m.make_mask({2})}, ErrorKind::type, "Negation"}};
        })
        .dtypes(kAllReal);

const OpRecord& positive_op = define("positive(Tensor self) -> Tensor")
                                  .doc("x itself, copied.")
                                  .unary([](Value x) { return x; }, Result::promote)
                                  .complex(of_complex([](Complex z) { return z; }))
                                  .samples(unary_samples(-2, 2))
                                  .reference(reference1([](double v) { return v; }))
                                  .dtypes(kAllReal);

const OpRecord& erfinv_op = define("erfinv(Tensor self) -> Tensor")
                                .autocast(autocast_on_cuda(Autocast::f32))
                                .doc("Inverse of erf on (-1, 1).")
                                .unary([](Value x) { return erfinv(x); })
                                .samples(unary_samples(-0.9, 0.9))
                                .reference(reference1(erfinv_reference));

const OpRecord& digamma_op = define("digamma(Tensor self) -> Tensor")
                                 .doc("The derivative of lgamma.")
                                 .unary([](Value x) { return digamma(x); })
                                 .samples(unary_samples(0.5, 6))
                                 .reference(reference1(digamma_reference));

const OpRecord& sinc_op =
    define("sinc(Tensor self) -> Tensor")
        .doc("sin(pi x) / (pi x), 1 at 0.")
        .unary([](Value x) {
          const Value y = x * M_PI;
          const Value zero = y == 0.0;
          const Value safe = where(zero, 1.0, y);
          return where(zero, 1.0, sin(safe) / safe);
        })
        // The derivative is (cos(pi z) - sinc(z)) / z, 0 at 0.
        .complex(holomorphic(
            [](Complex z) {
              const Complex one = constant_like(z.re, 1, 0);
              const Complex x = where(is_zero(z), one, z * std::numbers::pi);
              return where(is_zero(z), one, sin(x) / x);
            },
            [](Complex z, Complex y) {
              const Complex x = where(is_zero(z), constant_like(z.re, 1, 0), z);
              return where(is_zero(z), constant_like(z.re, 0, 0),
                           (cos(x * std::numbers::pi) - y) / x);
            }))
        .samples(unary_samples(0.1, 3))
        .reference(
            reference1([](double v) { return v == 0 ? 1 : std::sin(M_PI * v) / (M_PI * v); }));

// The gradient reads the result, so that relu_ needs no copy of its input.
const OpRecord& relu_op =
    define("relu(Tensor self) -> Tensor")
        .doc("max(x, 0); NaN stays NaN.")
        .unary([](Value x) { return max(x, 0.0); }, Result::promote)
        .gradient([](std::span<const Value> v) {
          return std::vector{where(v[1] > 0.0, v[2], constant_like(v[2], 0.0))};
        })
        .samples(unary_samples(-2, 2))
        .reference(reference1([](double v) { return v > 0 ? v : 0; }))
        .dtypes(kAllReal);

const OpRecord& logical_not_op =
    define("logical_not(Tensor self) -> Tensor")
        .doc("True where x is zero.")
        .unary([](Value x) { return x.type() == expr::Type::boolean ? !x : x == 0.0; },
               Result::boolean)
        .complex(of_complex([](Complex z) { return is_zero(z); }))
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3}).mul(m.make_mask({2, 3}))}, "some zeros"},
                                     {{m.make_mask({5})}, "bool"}};
        })
        .reference([](const Call& c) {
          const Tensor& x = c.tensor(0);
          return std::vector<Tensor>{build_tensor(
              x.sizes(), [&](const Shape& i) { return at(x, i) == 0; }, kBool)};
        });

const OpRecord& bitwise_not_op =
    define("bitwise_not(Tensor self) -> Tensor")
        .doc("All bits flipped (two's complement); logical for bool.")
        .unary([](Value x) { return ~x; }, Result::promote)
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3}, -20, 20)}, "integers"}};
        })
        .reference(reference1([](double v) { return double(~int64_t(v)); }))
        .dtypes({kInt64, kInt32, kInt16, kInt8});

std::vector<Sample> special_values(SampleMaker& m) {
  Tensor x = m.make({6});
  const double values[] = {0.0, -0.0, NAN, INFINITY, -INFINITY, 1.5};
  NoGradGuard no_grad;
  for (int i = 0; i < 6; ++i) x[i].fill_(values[i]);
  return {{{x}, "special values"}, {{m.make({2, 2})}, "finite"}};
}

template <class F>
Reference mask_reference(F f) {
  return [f](const Call& c) {
    const Tensor& x = c.tensor(0);
    return std::vector<Tensor>{build_tensor(
        x.sizes(), [&](const Shape& i) { return f(at(x, i)); }, kBool)};
  };
}

const OpRecord& isnan_op =
    define("isnan(Tensor self) -> Tensor")
        .doc("True where x is NaN.")
        .unary([](Value x) { return is_nan(x); }, Result::boolean)
        .complex(of_complex([](Complex z) { return is_nan(z.re) | is_nan(z.im); }))
        .samples(special_values)
        .reference(mask_reference([](double v) { return std::isnan(v); }));

const OpRecord& isinf_op =
    define("isinf(Tensor self) -> Tensor")
        .doc("True where x is infinite.")
        .unary([](Value x) { return is_inf(x); }, Result::boolean)
        .complex(of_complex([](Complex z) { return is_inf(z.re) | is_inf(z.im); }))
        .samples(special_values)
        .reference(mask_reference([](double v) { return std::isinf(v); }));

const OpRecord& isfinite_op =
    define("isfinite(Tensor self) -> Tensor")
        .doc("True where x is neither infinite nor NaN.")
        .unary([](Value x) { return !(is_nan(x) | is_inf(x)); }, Result::boolean)
        .complex(of_complex(
            [](Complex z) { return !(is_nan(z.re) | is_nan(z.im) | is_inf(z.re) | is_inf(z.im)); }))
        .samples(special_values)
        .reference(mask_reference([](double v) { return std::isfinite(v); }));

const OpRecord& signbit_op =
    define("signbit(Tensor self) -> Tensor")
        .doc("True where the sign bit is set, -0.0 included.")
        .unary(
            [](Value x) {
              return x.is_floating() ? copysign(constant_like(x, 1.0), x) < 0.0 : x < 0.0;
            },
            Result::boolean)
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({7})}, "values"}};
        })
        .reference(mask_reference([](double v) { return std::signbit(v); }));

const OpRecord& nan_to_num_op = []() -> const OpRecord& {
  PointwiseDef d;
  d.n_inputs = 1;
  d.n_params = 3;
  d.definition = [](std::span<const Value> v) {
    const Value x = v[0];
    if (!x.is_floating()) return std::vector{x};
    const Value finite = where(is_inf(x), where(x > 0.0, v[2], v[3]), x);
    return std::vector{where(is_nan(x), v[1], finite)};
  };
  return define("nan_to_num_point(Tensor self, float nan, float posinf, float neginf) -> Tensor")
      .doc("NaN, +inf and -inf replaced by numbers.")
      .pointwise(std::move(d))
      .in_place()
      .samples([](SampleMaker& m) {
        std::vector<Sample> all = special_values(m);
        for (Sample& s : all) s.args.insert(s.args.end(), {0.5, 7.0, -7.0});
        return all;
      })
      .reference([](const Call& c) {
        return std::vector<Tensor>{build_tensor(c.tensor(0).sizes(), [&](const Shape& i) {
          const double v = at(c.tensor(0), i);
          return std::isnan(v) ? c.real(1) : std::isinf(v) ? (v > 0 ? c.real(2) : c.real(3)) : v;
        })};
      })
      .no_gradient_test();
}();

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
  const DType t = self.dtype();
  if (!is_floating(t)) return self.clone();
  return ops::call(ops::nan_to_num_op,
                   {self, nan, posinf.value_or(max_of(t)), neginf.value_or(lowest_of(t))});
}
Tensor Tensor::nan_to_num(double nan, std::optional<double> posinf,
                          std::optional<double> neginf) const {
  return arete::nan_to_num(*this, nan, posinf, neginf);
}
Tensor Tensor::operator-() const { return neg(); }
Tensor Tensor::operator~() const { return bitwise_not(); }
}  // namespace arete

ARETE_FAMILY(unary)
