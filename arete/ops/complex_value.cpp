#include "arete/ops/complex_value.h"

#include <cmath>

namespace arete::ops {

using expr::Value;

namespace {

Value finite_or(Value v, double replacement) { return where(is_inf(v), replacement, v); }

}  // namespace

Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
Complex operator-(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }
Complex operator-(Complex a) { return {-a.re, -a.im}; }
Complex operator*(Complex a, Complex b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
Complex operator*(Complex a, Value b) { return {a.re * b, a.im * b}; }
Complex operator*(Complex a, double b) { return {a.re * b, a.im * b}; }
Complex operator+(double a, Complex b) { return {b.re + a, b.im}; }
Complex operator-(double a, Complex b) { return {a - b.re, -b.im}; }
Complex conj(Complex a) { return {a.re, -a.im}; }
Complex times_i(Complex a) { return {-a.im, a.re}; }
Complex times_minus_i(Complex a) { return {a.im, -a.re}; }

Complex operator/(Complex a, Complex b) {
  // With the larger part of b in `big`: (p + q small / big) / (big + small small / big). A zero b
  // leaves big 0, and the quotients are infinite or NaN as those of real numbers.
  const Value by_real = abs(b.re) >= abs(b.im);
  const Value big = where(by_real, b.re, b.im), small = where(by_real, b.im, b.re);
  const Value ratio = where(is_zero(b), 0.0, small / where(is_zero(b), 1.0, big));
  const Value scale = big + small * ratio;
  const Value re = where(by_real, a.re + a.im * ratio, a.re * ratio + a.im);
  const Value im = where(by_real, a.im - a.re * ratio, a.im * ratio - a.re);
  return {re / scale, im / scale};
}

Value operator==(Complex a, Complex b) { return (a.re == b.re) & (a.im == b.im); }
Value is_zero(Complex a) { return (a.re == 0.0) & (a.im == 0.0); }
Complex where(Value condition, Complex a, Complex b) {
  return {where(condition, a.re, b.re), where(condition, a.im, b.im)};
}
Complex constant_like(Value like, double re, double im) {
  return {expr::constant_like(like, re), expr::constant_like(like, im)};
}

Value abs(Complex a) {
  const Value x = abs(a.re), y = abs(a.im);
  const Value big = max(x, y), small = min(x, y);
  const Value special = (big == 0.0) | is_inf(big);
  const Value ratio = small / where(special, 1.0, big);
  const Value root = where(special, big, big * sqrt(ratio * ratio + 1.0));
  return where(is_inf(a.re) | is_inf(a.im), HUGE_VAL, root);  // infinity wins over NaN
}

Value angle(Complex a) { return atan2(a.im, a.re); }

Complex sgn(Complex a) {
  const Value size = abs(a), zero = size == 0.0;
  const Value divisor = where(zero, 1.0, size);
  return {where(zero, 0.0, a.re / divisor), where(zero, 0.0, a.im / divisor)};
}

Complex reciprocal(Complex a) { return constant_like(a.re, 1, 0) / a; }

Complex sqrt(Complex a) {
  // t = sqrt((|re| + |a|) / 2) is the part without cancellation; the other one is |im| / 2t.
  // Halves first: the sum must not overflow.
  const Value right = a.re >= 0.0;
  const Value t = sqrt(where(right, a.re, -a.re) * 0.5 + abs(a) * 0.5);
  const Value other = a.im * 0.5 / where(t == 0.0, 1.0, t);
  const Value re = where(right, t, abs(other)), im = where(right, other, copysign(t, a.im));
  const Value zero = is_zero(a), infinite = is_inf(a.im);
  return {where(infinite, HUGE_VAL, where(zero, 0.0, re)), where(zero | infinite, a.im, im)};
}

Complex exp(Complex a) {
  // Infinity times sin(0), and 0 times sin(infinity), would be NaN.
  const Value size = exp(a.re);
  const Value angle = where(size == 0.0, finite_or(a.im, 0.0), a.im);
  const Value real = (a.im == 0.0) & is_inf(size);
  return {size * cos(angle), where(real, a.im, size * sin(angle))};
}

Complex expm1(Complex a) {
  const Value half = sin(a.im * 0.5);
  return {expm1(a.re) * cos(a.im) - 2.0 * half * half, exp(a).im};
}

Complex log(Complex a) {
  // Near |a| = 1 the logarithm of the size cancels: log1p(|a|^2 - 1) / 2 there.
  const Value x = abs(a.re), y = abs(a.im);
  const Value big = max(x, y), small = min(x, y);
  const Value near = (big > 0.5) & (big < 2.0);
  const Value excess = where(near, (big - 1.0) * (big + 1.0) + small * small, 0.0);
  return {where(near, log1p(excess) * 0.5, log(abs(a))), angle(a)};
}

Complex log1p(Complex a) {
  const Value x = a.re, y = a.im;
  const Value near = (abs(x) < 0.5) & (abs(y) < 0.5);
  const Complex far = log(1.0 + a);
  return {where(near, log1p(where(near, x * (x + 2.0) + y * y, 0.0)) * 0.5, far.re), far.im};
}

// Infinite sizes times the sine of 0 would be NaN: real arguments have real results.
Complex sinh(Complex a) {
  const Value size = cosh(a.re), real = (a.im == 0.0) & is_inf(size);
  return {sinh(a.re) * cos(a.im), where(real, a.im, size * sin(a.im))};
}
Complex cosh(Complex a) {
  const Value size = sinh(a.re), real = (a.im == 0.0) & is_inf(size);
  return {cosh(a.re) * cos(a.im), where(real, copysign(1.0, a.re) * a.im, size * sin(a.im))};
}
Complex tanh(Complex a) {
  // Kahan: with t = tan(im), b = 1 + t^2, s = sinh(re). Beyond |re| = 20 the tangent is 1 but for
  // an imaginary part of size exp(-2 |re|).
  const Value x = abs(a.re), large = x > 20.0;
  const Value bounded = where(large, 1.0, a.re);
  const Value t = tan(a.im), b = t * t + 1.0;
  const Value s = sinh(bounded), rho = cosh(bounded);
  const Value d = b * s * s + 1.0;
  const Value tail = sin(a.im) * cos(a.im) * 4.0 * exp(x * -2.0);
  return {where(large, copysign(1.0, a.re), b * rho * s / d),
          where(large, where(is_inf(a.im), a.im * 0.0, tail), t / d)};
}
Complex sin(Complex a) { return times_minus_i(sinh(times_i(a))); }
Complex cos(Complex a) { return cosh(times_i(a)); }
Complex tan(Complex a) { return times_minus_i(tanh(times_i(a))); }

// The inverse functions are Kahan's ("Branch cuts for complex elementary functions", 1987):
// products of square roots on both sides of the cuts, so that no difference of large numbers
// appears.
Complex asin(Complex a) {
  const Complex left = sqrt(1.0 - a), right = sqrt(1.0 + a);
  return {atan2(a.re, (left * right).re), asinh((conj(left) * right).im)};
}
Complex acos(Complex a) {
  const Complex left = sqrt(1.0 - a), right = sqrt(1.0 + a);
  return {atan2(left.re, right.re) * 2.0, asinh((conj(right) * left).im)};
}
Complex acosh(Complex a) {
  const Complex left = sqrt(-1.0 + a), right = sqrt(1.0 + a);
  return {asinh((conj(left) * right).re), atan2(left.im, right.re) * 2.0};
}
Complex asinh(Complex a) { return times_minus_i(asin(times_i(a))); }
Complex atanh(Complex a) {
  const Value x = abs(a.re), gap = 1.0 - x, square = a.im * a.im;
  const Value size = log1p(x * 4.0 / (gap * gap + square)) * 0.25;
  return {copysign(size, a.re), atan2(a.im * 2.0, gap * (x + 1.0) - square) * 0.5};
}
Complex atan(Complex a) { return times_minus_i(atanh(times_i(a))); }

Complex pow(Complex a, Complex b) {
  const Value zero = is_zero(a);
  const Complex safe = where(zero, constant_like(a.re, 1, 0), a);
  const Complex usual = exp(b * log(safe));
  // Of the powers of zero only those with a positive real part, and the zeroth, are numbers.
  const Complex nan = constant_like(a.re, NAN, NAN), none = constant_like(a.re, 0, 0),
                one = constant_like(a.re, 1, 0);
  return where(zero, where(is_zero(b), one, where(b.re > 0.0, none, nan)), usual);
}

}  // namespace arete::ops
