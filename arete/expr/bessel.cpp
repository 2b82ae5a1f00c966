// Bessel functions and the Airy function.
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "arete/expr/special.h"
#include "arete/expr/special_tables.h"

namespace arete::expr {

namespace {
using namespace tables;

// Cephes' tables are of Chebyshev series whose first term is halved.
Value halved_series(Value t, std::span<const double> coefficients) {
  std::vector<double> halved(coefficients.begin(), coefficients.end());
  halved.back() *= 0.5;
  return chebyshev(t, halved);
}

// Forms for x > 8 stand beside others for smaller x; there they are those of 8, whose derivatives
// of any order are finite.
Value far_from_zero(Value x) { return max(x, 8.0); }

// The asymptotic form for x > 8: amplitude * (phase * cos(x - shift) -+ quad * sin(x - shift)). The
// shifted sine and cosine come from those of x, so that the shift costs no digits.
struct Asymptotic {
  Value phase, quad, amplitude, sum, difference;  // sum: (sin + cos) / sqrt 2
};
Asymptotic asymptotic(Value near, std::span<const double> phase, std::span<const double> quad) {
  const Value x = far_from_zero(near);
  const Value w = 8 / x, t = 2 * w * w - 1;
  const Value s = sin(x) * std::numbers::sqrt2 * 0.5, c = cos(x) * std::numbers::sqrt2 * 0.5;
  return {chebyshev(t, phase), w * chebyshev(t, quad), sqrt(2 / kPi / x), s + c, s - c};
}
Asymptotic asymptotic0(Value x) { return asymptotic(x, kJ0Phase, kJ0Quad); }
Asymptotic asymptotic1(Value x) { return asymptotic(x, kJ1Phase, kJ1Quad); }
Value near_series(Value x, std::span<const double> table) {
  return chebyshev(x * x * (1.0 / 32) - 1, table);
}

// exp(-|x|) I(x) for small and large |x|; Near of order 1 has a factor |x| taken out.
Value scaled_near(Value a, std::span<const double> near) {
  return halved_series(a * 0.25 - 1, near);
}
Value scaled_far(Value size, std::span<const double> far) {
  const Value a = far_from_zero(size);
  return halved_series(16 / a - 1, far) * rsqrt(a);
}

}  // namespace

Value bessel_j0(Value x) {
  const Value a = abs(x);
  const Asymptotic f = asymptotic0(a);
  return where(a <= 8, near_series(x, kJ0Near),
               (f.phase * f.sum - f.quad * f.difference) * f.amplitude);
}

Value bessel_j1(Value x) {
  const Value a = abs(x);
  const Asymptotic f = asymptotic1(a);
  const Value far = (f.phase * f.difference + f.quad * f.sum) * f.amplitude;
  return where(a <= 8, x * near_series(x, kJ1Near), where(x < 0, -far, far));
}

Value bessel_y0(Value x) {
  const Value near = near_series(x, kY0Near) + 2 / kPi * log(x) * near_series(x, kJ0Near);
  const Asymptotic f = asymptotic0(x);
  return where(x <= 8, near, (f.phase * f.difference + f.quad * f.sum) * f.amplitude);
}

Value bessel_y1(Value x) {
  const Value near =
      x * near_series(x, kY1Near) + 2 / kPi * (x * near_series(x, kJ1Near) * log(x) - 1 / x);
  const Asymptotic f = asymptotic1(x);
  const Value far = (f.quad * f.difference - f.phase * f.sum) * f.amplitude;
  return where(x == 0, -kInf, where(x <= 8, near, far));
}

Value bessel_i0e(Value x) {
  const Value a = abs(x);
  return where(a <= 8, scaled_near(a, kI0Near), scaled_far(a, kI0Far));
}

namespace {
// The function that is exp(-|x|) times the result, which is finite where exp(|x|) no longer is.
Value unscaled(Value x, Value scaled) {
  const Value root = exp(abs(x) * 0.5);
  return root * (root * scaled);
}
}  // namespace

Value bessel_i0(Value x) { return unscaled(x, bessel_i0e(x)); }
Value bessel_i1e(Value x) {
  const Value a = abs(x), far = scaled_far(a, kI1Far);
  return where(a <= 8, x * scaled_near(a, kI1Near), where(x < 0, -far, far));
}
Value bessel_i1(Value x) { return unscaled(x, bessel_i1e(x)); }

namespace {
// I(x) / x^order for x <= 2: the power series (DLMF 10.25.2).
Value small_i(Value x, int order) {
  std::vector<double> series;
  for (int k = 12; k >= 0; --k)
    series.push_back(std::ldexp(1 / (std::tgamma(k + 1.0) * std::tgamma(k + order + 1.0)), -order));
  std::span<const double> terms = series;
  if (is_single_precision()) terms = terms.subspan(4);
  return horner(x * x * 0.25, terms);
}
// Near 0 (and for no other x) the functions themselves, elsewhere times exp(x).
Value k0_near(Value x) {
  return halved_series(x * x * 0.5 - 1, kK0Near) - log(x * 0.5) * small_i(x, 0);
}
Value k1_near(Value x) {
  return log(x * 0.5) * x * small_i(x, 1) + halved_series(x * x * 0.5 - 1, kK1Near) / x;
}
Value k_far(Value x, std::span<const double> table) {
  return halved_series(4 / x - 1, table) * rsqrt(x);
}
}  // namespace

Value bessel_k0(Value x) { return where(x <= 2, k0_near(x), exp(-x) * k_far(x, kK0Far)); }
Value bessel_k0e(Value x) { return where(x <= 2, exp(x) * k0_near(x), k_far(x, kK0Far)); }
Value bessel_k1(Value x) {
  return where(x == 0, kInf, where(x <= 2, k1_near(x), exp(-x) * k_far(x, kK1Far)));
}
Value bessel_k1e(Value x) {
  return where(x == 0, kInf, where(x <= 2, exp(x) * k1_near(x), k_far(x, kK1Far)));
}

// The Taylor series up to 0.5, where the quotient and its derivatives would lose digits.
Value spherical_bessel_j0(Value x) {
  constexpr double kSeries[] = {1.0 / 6227020800, -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040,
                                1.0 / 120,        -1.0 / 6,        1.0};
  return where(abs(x) < 0.5, horner(x * x, kSeries), where(is_inf(x), 0.0, sin(x) / x));
}

Value airy_ai(Value x) {
  constexpr double kLeft = 16.0 / 3, kRight = 1.8856180831641267317;  // z at -4 and at 2
  const Value a = abs(x), root = sqrt(a), z = a * root * (2.0 / 3);
  const Value scale = std::numbers::inv_sqrtpi * rsqrt(root);
  const Value right = 0.5 * scale * exp(-z) * chebyshev(2 * kRight / z - 1, kAiryRight);
  const Value w = kLeft / z, t = 2 * w * w - 1, s = sin(z), c = cos(z);
  const Value left = std::numbers::sqrt2 * 0.5 * scale *
                     ((s + c) * chebyshev(t, kAiryPhase) + (s - c) * w * chebyshev(t, kAiryQuad));
  const Value middle = chebyshev((x + 1) * (1.0 / 3), kAiryMiddle);
  return where(x < -4, left, where(x < 2, middle, right));
}

}  // namespace arete::expr
