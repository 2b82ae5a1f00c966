// Special functions of symbolic scalars, as compositions of instructions: they run on every device,
// fuse, and have symbolic derivatives. All take and give floating values. The approximations are
// meant for f64 (some 1e-15 relative unless noted). In f32 those of the error function's relatives
// and the Bessel functions are exact to a few units in the last place of their largest values
// nearby; around the others and ndtr, which lose more, callers cast to f64 (see special_family.h in
// ops).
#pragma once

#include "arete/expr/value.h"

namespace arete::expr {

/// While one lives, what this thread makes of the functions below needs the digits of f32 only.
/// They compute in the type of their operands all the same, in fewer steps.
class SinglePrecision {
 public:
  explicit SinglePrecision(bool on);
  ~SinglePrecision();
  SinglePrecision(const SinglePrecision&) = delete;
  SinglePrecision& operator=(const SinglePrecision&) = delete;

 private:
  bool before_;
};
bool is_single_precision();

// ---- error function and normal distribution
/// exp(x^2) erfc(x).
Value erfcx(Value x);
/// The normal distribution's probability of values below x, and its logarithm.
Value ndtr(Value x);
Value log_ndtr(Value x);
/// The inverse of ndtr on [0, 1]; NaN outside.
Value ndtri(Value p);

// ---- gamma function
/// The derivative of order n >= 1 of digamma, for any x; infinite at the poles.
Value polygamma(int n, Value x);
/// Hurwitz zeta: the sum of (q + k)^-s over k >= 0, for s > 1 (inf at 1, NaN below); for q below 0
/// only where s is whole.
Value hurwitz_zeta(Value s, Value q);
/// Regularized incomplete gamma functions for a, x >= 0 (NaN elsewhere): lower P and upper Q, to
/// about 1e-13 relative for the smaller of the two where x >= a or a > 8; and the density of the
/// gamma distribution times x, x^a exp(-x) / gamma(a).
struct IncompleteGamma {
  Value lower, upper, density;
};
IncompleteGamma incomplete_gamma(Value a, Value x);

// ---- Bessel functions; NaN for negative x where they are not real
Value bessel_j0(Value x);
Value bessel_j1(Value x);
Value bessel_y0(Value x);
Value bessel_y1(Value x);
/// Modified, of the first kind; with e: times exp(-|x|).
Value bessel_i0(Value x);
Value bessel_i0e(Value x);
Value bessel_i1(Value x);
Value bessel_i1e(Value x);
/// Modified, of the second kind; with e: times exp(x).
Value bessel_k0(Value x);
Value bessel_k0e(Value x);
Value bessel_k1(Value x);
Value bessel_k1e(Value x);
/// sin(x) / x, 1 at 0.
Value spherical_bessel_j0(Value x);
Value airy_ai(Value x);

// ---- building blocks
/// A polynomial; coefficients from the highest power down.
Value horner(Value x, std::span<const double> coefficients);
/// A Chebyshev series in t in [-1, 1]; coefficients from the highest order down.
Value chebyshev(Value t, std::span<const double> coefficients);

}  // namespace arete::expr
