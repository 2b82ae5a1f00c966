// Samples, references and errors of the records in ops/bessel.cpp.
#include <cmath>
#include <numbers>

#include "arete/samples/pointwise_samples.h"

namespace arete::ops {
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

const Attached i0_op =
    attach("i0").samples(unary_samples(-6, 12)).reference(reference1([](double x) {
      return reference_i(0, x, false);
    }));
const Attached i0e_op =
    attach("special_i0e").samples(unary_samples(0.5, 12)).reference(reference1([](double x) {
      return reference_i(0, x, true);
    }));
const Attached i1_op =
    attach("special_i1").samples(unary_samples(-6, 12)).reference(reference1([](double x) {
      return reference_i(1, x, false);
    }));
const Attached i1e_op =
    attach("special_i1e").samples(unary_samples(0.5, 12)).reference(reference1([](double x) {
      return reference_i(1, x, true);
    }));
const Attached k0_op =
    attach("special_modified_bessel_k0")
        .samples(unary_samples(0.3, 6))
        .reference(reference1([](double x) { return reference_k(0, x, false); }));
const Attached k1_op =
    attach("special_modified_bessel_k1")
        .samples(unary_samples(0.3, 6))
        .reference(reference1([](double x) { return reference_k(1, x, false); }));
const Attached k0e_op =
    attach("special_scaled_modified_bessel_k0")
        .samples(unary_samples(0.3, 6))
        .reference(reference1([](double x) { return reference_k(0, x, true); }));
const Attached k1e_op =
    attach("special_scaled_modified_bessel_k1")
        .samples(unary_samples(0.3, 6))
        .reference(reference1([](double x) { return reference_k(1, x, true); }));
const Attached j0_op =
    attach("special_bessel_j0").samples(unary_samples(-8, 12)).reference(reference1([](double x) {
      return reference_j(0, x);
    }));
const Attached j1_op =
    attach("special_bessel_j1").samples(unary_samples(-8, 12)).reference(reference1([](double x) {
      return reference_j(1, x);
    }));
const Attached y0_op =
    attach("special_bessel_y0").samples(unary_samples(0.3, 12)).reference(reference1([](double x) {
      return ::y0(x);
    }));
const Attached y1_op =
    attach("special_bessel_y1").samples(unary_samples(0.3, 12)).reference(reference1([](double x) {
      return ::y1(x);
    }));
const Attached spherical_j0_op =
    attach("special_spherical_bessel_j0")
        .samples(unary_samples(-4, 4))
        .reference(reference1([](double x) { return x == 0 ? 1 : std::sin(x) / x; }));
const Attached airy_op = attach("special_airy_ai")
                             .samples(unary_samples(-5, 3.5))
                             .reference(reference1(reference_airy))
                             .no_gradient_test();

}  // namespace
}  // namespace arete::ops
