#include "arete/ops/complex_value.h"

#include <cmath>
#include <numbers>

namespace arete::ops {

using expr::Value;

namespace {

// Note [Complex special values]
// Formulas hold where all parts are finite and nothing overflows on the way. Around them stand the
// values of C99's Annex G: what an infinite part, NaN or a zero with a sign gives. Products of an
// infinite size and the sine of zero would be NaN where the result is known.

Value is_finite(Value v) { return !(is_inf(v) | is_nan(v)); }
Value is_infinite(Complex a) { return is_inf(a.re) | is_inf(a.im); }

// |a| = big * sqrt(1 + ratio^2).
struct Size {
  Value big, ratio;
  explicit Size(Complex a) : big(max(abs(a.re), abs(a.im))), ratio(min(abs(a.re), abs(a.im))) {
    ratio = ratio / where((big == 0.0) | is_inf(big), 1.0, big);
  }
};
// log |a| where |a| is not near 1; infinity wins over NaN.
Value log_size(Complex a) {
  const Size s(a);
  const Value ratio = where(is_inf(s.ratio), 0.0, s.ratio);
  return where(is_infinite(a), HUGE_VAL, log(s.big) + log1p(ratio * ratio) * 0.5);
}

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
  const Size s(a);
  const Value root =
      where((s.big == 0.0) | is_inf(s.big), s.big, s.big * sqrt(s.ratio * s.ratio + 1.0));
  return where(is_infinite(a), HUGE_VAL, root);  // infinity wins over NaN
}

Value angle(Complex a) { return atan2(a.im, a.re); }

Complex sgn(Complex a) {
  const Value size = abs(a), zero = size == 0.0;
  const Value divisor = where(zero, 1.0, size);
  return {where(zero, 0.0, a.re / divisor), where(zero, 0.0, a.im / divisor)};
}

Complex reciprocal(Complex a) { return constant_like(a.re, 1, 0) / a; }

Complex sqrt(Complex a) {
  // t = sqrt((|re| + |a|) / 2) is the part without cancellation; the other one is |im| / 2t. The
  // number is scaled by a power of two, so that the sum does not overflow and nothing is lost below
  // the smallest normal number.
  const Value right = a.re >= 0.0, small = max(abs(a.re), abs(a.im)) < 1.0;
  const Complex scaled = a * where(small, 0x1p119, constant_like(a.re, 0x1p-3));
  const Value t =
      sqrt(abs(scaled.re) + abs(scaled)) * where(small, 0x1p-60, constant_like(a.re, 2.0));
  const Value other = a.im / (where(t == 0.0, 1.0, t) * 2.0);
  const Value re = where(right, t, abs(other)), im = where(right, other, copysign(t, a.im));
  const Value zero = is_zero(a), infinite = is_inf(a.im);
  return {where(infinite, HUGE_VAL, where(zero, 0.0, re)), where(zero | infinite, a.im, im)};
}

Complex exp(Complex a) {
  // Large sizes in two factors: exp(710) is infinite, exp(710) cos(1.57) is not.
  const Value large = abs(a.re) > 80.0, part = exp(where(large, a.re * 0.5, a.re));
  const Value rest = where(large, part, 1.0), turning = is_finite(a.im);
  const Value angle = where((a.re == -HUGE_VAL) & !turning, 0.0, a.im);
  return {where((a.re == HUGE_VAL) & !turning, a.re, part * cos(angle) * rest),
          where(a.im == 0.0, a.im, part * sin(angle) * rest)};
}

Complex expm1(Complex a) {
  const Value half = sin(a.im * 0.5);
  const Complex whole = exp(a);
  return {where(abs(a.re) > 40.0, whole.re - 1.0, expm1(a.re) * cos(a.im) - 2.0 * half * half),
          whole.im};
}

Complex log(Complex a) {
  // Near |a| = 1 the logarithm of the size cancels: log1p(|a|^2 - 1) / 2 there.
  const Value x = abs(a.re), y = abs(a.im);
  const Value big = max(x, y), small = min(x, y);
  const Value near = (big > 0.5) & (big < 2.0);
  const Value excess = where(near, (big - 1.0) * (big + 1.0) + small * small, 0.0);
  return {where(near, log1p(excess) * 0.5, log_size(a)), angle(a)};
}

Complex log1p(Complex a) {
  const Value x = a.re, y = a.im;
  const Value near = (abs(x) < 0.5) & (abs(y) < 0.5);
  const Complex far = log(1.0 + a);
  return {where(near, log1p(where(near, x * (x + 2.0) + y * y, 0.0)) * 0.5, far.re), far.im};
}

// Both parts of sinh and cosh are products of a hyperbolic and a circular function.
struct Hyperbolic {
  Value s, c, rest;  // sinh and cosh of the real part are s * rest and c * rest
  explicit Hyperbolic(Value x) : s(x), c(x), rest(x) {
    const Value size = abs(x), large = size > 80.0;
    const Value half = exp(where(large, size * 0.5, 0.0));
    s = where(large, copysign(half * 0.5, x), sinh(x));
    c = where(large, half * 0.5, cosh(x));
    rest = half;
  }
};
Complex sinh(Complex a) {
  const Hyperbolic h(a.re);
  const Value still = (!is_finite(a.im)) & ((a.re == 0.0) | is_inf(a.re));
  return {where(still, a.re, h.s * cos(a.im) * h.rest),
          where(a.im == 0.0, a.im, h.c * sin(a.im) * h.rest)};
}
Complex cosh(Complex a) {
  const Hyperbolic h(a.re);
  const Value turning = is_finite(a.im);
  const Value sine = where(a.im == 0.0, a.im * copysign(1.0, a.re), h.s * sin(a.im) * h.rest);
  return {where((!turning) & is_inf(a.re), HUGE_VAL, h.c * cos(a.im) * h.rest),
          where((!turning) & (a.re == 0.0), a.re, sine)};
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
  const Value one = where(is_finite(a.im) | is_inf(x), copysign(1.0, a.re), NAN);
  const Value re = where(large, one, b * rho * s / d);
  const Value im = where(large, where(is_inf(x) & !is_finite(a.im), 0.0, tail), t / d);
  return {where(a.re == 0.0, a.re, re), where(a.im == 0.0, a.im, im)};
}
Complex sin(Complex a) { return times_minus_i(sinh(times_i(a))); }
Complex cos(Complex a) { return cosh(times_i(a)); }
Complex tan(Complex a) { return times_minus_i(tanh(times_i(a))); }

// So far from 0 that squares may overflow, and that 1 + z is z.
Value is_large(Complex a) { return (abs(a.re) > 1e18) | (abs(a.im) > 1e18); }
Value log_twice(Complex a) { return log_size(a) + std::numbers::ln2; }

// The inverse functions are Kahan's ("Branch cuts for complex elementary functions", 1987):
// products of square roots on both sides of the cuts, so that no difference of large numbers
// appears.
Complex asin(Complex a) {
  const Complex left = sqrt(1.0 - a), right = sqrt(1.0 + a);
  const Value large = is_large(a), size = log_twice(a);
  const Value re = atan2(a.re, where(large, abs(a.im), (left * right).re));
  return {where(a.re == 0.0, a.re, re),
          where(large, copysign(size, a.im), asinh((conj(left) * right).im))};
}
Complex acos(Complex a) {
  const Complex left = sqrt(1.0 - a), right = sqrt(1.0 + a);
  const Value large = is_large(a), size = log_twice(a);
  const Value re = where(large, atan2(abs(a.im), a.re), atan2(left.re, right.re) * 2.0);
  return {where(a.re == 0.0, M_PI_2, re),
          where(large, copysign(size, -a.im), asinh((conj(right) * left).im))};
}
Complex acosh(Complex a) {
  const Complex w = acos(a);
  return {abs(w.im), copysign(w.re, a.im)};
}
Complex asinh(Complex a) { return times_minus_i(asin(times_i(a))); }
Complex atanh(Complex a) {
  // log(|1 + z| / |1 - z|) / 2, from |1 - z| alone: its square must neither vanish nor overflow.
  const Value x = abs(a.re), gap = 1.0 - x, distance = abs(Complex{gap, a.im});
  const Value touching = distance < 1e-18, large = is_large(a);
  const Value square = where(touching, 1.0, distance * distance);
  const Value size =
      where(touching, (std::numbers::ln2 - log(distance)) * 0.5, log1p(x * 4.0 / square) * 0.25);
  const Value turn = atan2(a.im * 2.0, gap * (x + 1.0) - a.im * a.im) * 0.5;
  // Far from 0 it is 1 / z and a quarter turn.
  const Value far = where(is_infinite(a), 0.0, reciprocal(a).re);
  const Value quarter =
      where(is_nan(a.im) | (is_nan(x) & !is_inf(a.im)), NAN, copysign(M_PI_2, a.im));
  const Value re = copysign(where(large, abs(far), size), a.re);
  return {where(a.re == 0.0, a.re, re), where(large, quarter, turn)};
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
