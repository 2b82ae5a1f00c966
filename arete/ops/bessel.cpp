// Records of Bessel functions and the Airy function.
#include <cmath>
#include <numbers>

#include "arete/ops/special_family.h"

namespace arete {
namespace ops {

using expr::Value;

namespace {

// The references are the integrals that define the functions; the trapezoidal rule converges
// exponentially for them (periodic integrands, or ones that vanish doubly exponentially).
template <class F>
double mean_over_half_period(F f) {
  constexpr int kPoints = 400;
  long double s = 0;
  for (int i = 0; i < kPoints; ++i) s += f((long double)std::numbers::pi * (i + 0.5L) / kPoints);
  return double(s / kPoints);
}
double reference_i(int n, double x, bool scaled) {
  return mean_over_half_period([&](long double t) {
    return std::exp(x * std::cos(t) - (scaled ? std::fabs((long double)x) : 0)) * std::cos(n * t);
  });
}
double reference_j(int n, double x) {
  return mean_over_half_period([&](long double t) { return std::cos(n * t - x * std::sin(t)); });
}
double reference_k(int n, double x, bool scaled) {
  long double s = 0;
  constexpr long double kStep = 1.0L / 64;
  for (int i = 0; i < 1000; ++i) {
    const long double t = i * kStep;
    s += (i ? 1 : 0.5L) * std::exp(-x * (std::cosh(t) - (scaled ? 1 : 0))) * std::cosh(n * t);
  }
  return double(s * kStep);
}
// Maclaurin's series.
double reference_airy(double x) {
  const long double z = (long double)x * x * x;
  long double f = 1, g = x, a = 1, b = x;
  for (int k = 1; k < 80; ++k) {
    f += a *= z / ((3 * k - 1) * (3 * k));
    g += b *= z / ((3 * k) * (3 * k + 1));
  }
  return double(0.355028053887817239260063186004L * f - 0.258819403792806798405183560189L * g);
}

// I1(x) / x and its like need their limit at 0.
Value over(Value y, Value x, double limit) {
  return where(x == 0, limit, y / where(x == 0, 1.0, x));
}

const OpRecord& i0_op =
    define("i0(Tensor self) -> Tensor")
        .doc("Modified Bessel function of the first kind, order 0.")
        .pointwise(
            special_unary(expr::bessel_i0, [](Value x, Value) { return expr::bessel_i1(x); }))
        .in_place()
        .samples(unary_samples(-6, 12))
        .reference(reference1([](double x) { return reference_i(0, x, false); }));

const OpRecord& i0e_op =
    define("special_i0e(Tensor self) -> Tensor")
        .doc("exp(-|x|) times the modified Bessel function i0.")
        .pointwise(special_unary(
            expr::bessel_i0e, [](Value x, Value y) { return expr::bessel_i1e(x) - sign(x) * y; }))
        .samples(unary_samples(0.5, 12))
        .reference(reference1([](double x) { return reference_i(0, x, true); }));

const OpRecord& i1_op =
    define("special_i1(Tensor self) -> Tensor")
        .doc("Modified Bessel function of the first kind, order 1.")
        .pointwise(special_unary(
            expr::bessel_i1, [](Value x, Value y) { return expr::bessel_i0(x) - over(y, x, 0.5); }))
        .samples(unary_samples(-6, 12))
        .reference(reference1([](double x) { return reference_i(1, x, false); }));

const OpRecord& i1e_op =
    define("special_i1e(Tensor self) -> Tensor")
        .doc("exp(-|x|) times the modified Bessel function i1.")
        .pointwise(special_unary(
            expr::bessel_i1e,
            [](Value x, Value y) { return expr::bessel_i0e(x) - y * sign(x) - over(y, x, 0.5); }))
        .samples(unary_samples(0.5, 12))
        .reference(reference1([](double x) { return reference_i(1, x, true); }));

const OpRecord& k0_op =
    define("special_modified_bessel_k0(Tensor self) -> Tensor")
        .doc("Modified Bessel function of the second kind, order 0.")
        .pointwise(
            special_unary(expr::bessel_k0, [](Value x, Value) { return -expr::bessel_k1(x); }))
        .samples(unary_samples(0.3, 6))
        .reference(reference1([](double x) { return reference_k(0, x, false); }));

const OpRecord& k1_op =
    define("special_modified_bessel_k1(Tensor self) -> Tensor")
        .doc("Modified Bessel function of the second kind, order 1.")
        .pointwise(special_unary(expr::bessel_k1,
                                 [](Value x, Value y) { return -expr::bessel_k0(x) - y / x; }))
        .samples(unary_samples(0.3, 6))
        .reference(reference1([](double x) { return reference_k(1, x, false); }));

const OpRecord& k0e_op =
    define("special_scaled_modified_bessel_k0(Tensor x) -> Tensor")
        .doc("exp(x) times the modified Bessel function k0.")
        .pointwise(special_unary(expr::bessel_k0e,
                                 [](Value x, Value y) { return y - expr::bessel_k1e(x); }))
        .samples(unary_samples(0.3, 6))
        .reference(reference1([](double x) { return reference_k(0, x, true); }));

const OpRecord& k1e_op =
    define("special_scaled_modified_bessel_k1(Tensor x) -> Tensor")
        .doc("exp(x) times the modified Bessel function k1.")
        .pointwise(special_unary(expr::bessel_k1e,
                                 [](Value x, Value y) { return y - expr::bessel_k0e(x) - y / x; }))
        .samples(unary_samples(0.3, 6))
        .reference(reference1([](double x) { return reference_k(1, x, true); }));

const OpRecord& j0_op =
    define("special_bessel_j0(Tensor self) -> Tensor")
        .doc("Bessel function of the first kind, order 0.")
        .pointwise(
            special_unary(expr::bessel_j0, [](Value x, Value) { return -expr::bessel_j1(x); }))
        .samples(unary_samples(-8, 12))
        .reference(reference1([](double x) { return reference_j(0, x); }));

const OpRecord& j1_op =
    define("special_bessel_j1(Tensor self) -> Tensor")
        .doc("Bessel function of the first kind, order 1.")
        .pointwise(special_unary(
            expr::bessel_j1, [](Value x, Value y) { return expr::bessel_j0(x) - over(y, x, 0.5); }))
        .samples(unary_samples(-8, 12))
        .reference(reference1([](double x) { return reference_j(1, x); }));

const OpRecord& y0_op =
    define("special_bessel_y0(Tensor self) -> Tensor")
        .doc("Bessel function of the second kind, order 0; NaN for negative x.")
        .pointwise(
            special_unary(expr::bessel_y0, [](Value x, Value) { return -expr::bessel_y1(x); }))
        .samples(unary_samples(0.3, 12))
        .reference(reference1([](double x) { return ::y0(x); }));

const OpRecord& y1_op =
    define("special_bessel_y1(Tensor self) -> Tensor")
        .doc("Bessel function of the second kind, order 1; NaN for negative x.")
        .pointwise(special_unary(expr::bessel_y1,
                                 [](Value x, Value y) { return expr::bessel_y0(x) - y / x; }))
        .samples(unary_samples(0.3, 12))
        .reference(reference1([](double x) { return ::y1(x); }));

const OpRecord& spherical_j0_op =
    define("special_spherical_bessel_j0(Tensor x) -> Tensor")
        .doc("sin(x) / x, 1 at 0.")
        .pointwise(special_unary(expr::spherical_bessel_j0))
        .samples(unary_samples(-4, 4))
        .reference(reference1([](double x) { return x == 0 ? 1 : std::sin(x) / x; }));

PointwiseDef without_gradient(PointwiseDef d) {
  d.non_differentiable = 1;
  return d;
}

const OpRecord& airy_op = define("special_airy_ai(Tensor x) -> Tensor")
                              .doc("Airy's function Ai; has no gradient.")
                              .pointwise(without_gradient(special_unary(expr::airy_ai)))
                              .samples(unary_samples(-5, 3.5))
                              .reference(reference1(reference_airy))
                              .no_gradient_test();

}  // namespace
}  // namespace ops

#define ARETE_DEFINE_BESSEL(name, record) \
  Tensor name(const Tensor& self) { return ops::call(ops::record, {self}); }
ARETE_DEFINE_BESSEL(i0, i0_op)
ARETE_DEFINE_BESSEL(special_i0e, i0e_op)
ARETE_DEFINE_BESSEL(special_i1, i1_op)
ARETE_DEFINE_BESSEL(special_i1e, i1e_op)
ARETE_DEFINE_BESSEL(special_modified_bessel_k0, k0_op)
ARETE_DEFINE_BESSEL(special_modified_bessel_k1, k1_op)
ARETE_DEFINE_BESSEL(special_scaled_modified_bessel_k0, k0e_op)
ARETE_DEFINE_BESSEL(special_scaled_modified_bessel_k1, k1e_op)
ARETE_DEFINE_BESSEL(special_bessel_j0, j0_op)
ARETE_DEFINE_BESSEL(special_bessel_j1, j1_op)
ARETE_DEFINE_BESSEL(special_bessel_y0, y0_op)
ARETE_DEFINE_BESSEL(special_bessel_y1, y1_op)
ARETE_DEFINE_BESSEL(special_spherical_bessel_j0, spherical_j0_op)
ARETE_DEFINE_BESSEL(special_airy_ai, airy_op)
#undef ARETE_DEFINE_BESSEL

}  // namespace arete

ARETE_FAMILY(bessel)
