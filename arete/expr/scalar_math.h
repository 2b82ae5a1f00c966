// What each instruction of a program means on one element, as plain inline functions. The reference
// evaluator, constant folding and the scalar paths of the CPU backend share these definitions.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <type_traits>

#include "arete/expr/orthogonal.h"

namespace arete::expr::scalar {

/// Unsigned arithmetic wraps without undefined behaviour.
template <class I>
using Unsigned = std::make_unsigned_t<I>;

template <class T>
T neg(T a) {
  if constexpr (std::is_integral_v<T>)
    return T(Unsigned<T>(0) - Unsigned<T>(a));
  else
    return -a;
}
template <class T>
T abs(T a) {
  if constexpr (std::is_unsigned_v<T>)
    return a;
  else if constexpr (std::is_integral_v<T>)
    return a < 0 ? neg(a) : a;
  else
    return std::fabs(a);
}
/// -1, 0 or 1; 0 for NaN.
template <class T>
T sign(T a) {
  return T(T(a > 0) - T(a < 0));
}
template <class T>
T add(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return T(Unsigned<T>(a) + Unsigned<T>(b));
  else
    return a + b;
}
template <class T>
T sub(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return T(Unsigned<T>(a) - Unsigned<T>(b));
  else
    return a - b;
}
template <class T>
T mul(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return T(Unsigned<T>(a) * Unsigned<T>(b));
  else
    return a * b;
}

template <class T>
constexpr bool is_minus_one(T a) {
  return std::is_signed_v<T> && a == T(-1);
}
/// Integers: towards zero, 0 for a division by zero, and the lowest number over -1 wraps.
template <class T>
T div(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b == 0) return 0;
    return is_minus_one(b) ? neg(a) : T(a / b);
  } else {
    return a / b;
  }
}
/// The remainder of `div`: the sign of `a`; integers: 0 for b = 0.
template <class T>
T fmod(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return b == 0 || is_minus_one(b) ? T(0) : T(a % b);
  else
    return std::fmod(a, b);
}
/// The remainder of `floor_div`: the sign of `b`; integers: 0 for b = 0.
template <class T>
T remainder(T a, T b) {
  const T r = fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? T(r + b) : r;
}
/// The quotient rounded to minus infinity. For floats this is exact where floor(a / b) is not:
/// a / b may round up to the next whole number.
template <class T>
T floor_div(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    const T q = div(a, b);
    const T r = fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? T(q - 1) : q;
  } else {
    if (b == 0) return a / b;
    const T r = std::fmod(a, b);
    // a - r is a multiple of b, so the quotient is whole but for its rounding.
    T q = (a - r) / b;
    if (r != 0 && (r < 0) != (b < 0)) q -= 1;
    if (q == 0) return std::copysign(T(0), a / b);
    const T whole = std::floor(q);
    return q - whole > T(0.5) ? whole + 1 : whole;
  }
}

/// By squaring, wrapping. Negative exponents: 1 and -1 have their exact results, others give 0.
template <class I>
I pow_int(I base, I exponent) {
  if (exponent < 0) {
    if (base == 1) return 1;
    if (is_minus_one(base)) return exponent % 2 == 0 ? I(1) : I(-1);
    return 0;
  }
  Unsigned<I> result = 1, square = Unsigned<I>(base);
  for (Unsigned<I> e = Unsigned<I>(exponent); e; e >>= 1) {
    if (e & 1) result *= square;
    square *= square;
  }
  return I(result);
}

/// The greatest common divisor; 0 of zeros. That of the lowest number and itself or 0 wraps.
template <class I>
I gcd(I a, I b) {
  // Euclid's, since quotients are mostly small: those of the processor are fast for small numbers.
  using U = Unsigned<I>;
  U x = a < 0 ? U(0) - U(a) : U(a), y = b < 0 ? U(0) - U(b) : U(b);
  while (y != 0) {
    const U rest = sizeof(U) > 4 && (x | y) >> 31 >> 1 == 0 ? U(uint32_t(x) % uint32_t(y)) : x % y;
    x = y;
    y = rest;
  }
  return I(x);
}

/// NaN if either is NaN.
template <class T>
T min(T a, T b) {
  return a < b || a != a ? a : b;
}
template <class T>
T max(T a, T b) {
  return a > b || a != a ? a : b;
}

/// 0 for shifts by a negative number or by the width and more.
template <class I>
I shl(I a, I b) {
  return Unsigned<I>(b) >= sizeof(I) * 8 ? I(0) : I(Unsigned<I>(a) << b);
}
/// The sign (0 or -1) for shifts by a negative number or by the width and more.
template <class I>
I shr(I a, I b) {
  return Unsigned<I>(b) >= sizeof(I) * 8 ? (a < 0 ? I(-1) : I(0)) : I(a >> b);
}

/// Truncates; out-of-range values saturate, NaN gives 0. Negative numbers become unsigned ones by
/// way of the signed integers, as the narrow dtypes wrap.
template <class I, class F>
I to_int(F v) {
  if constexpr (std::is_unsigned_v<I>) {
    if (!(v >= 0)) return I(to_int<std::make_signed_t<I>>(v));
    return v >= 2 * F(I(1) << (sizeof(I) * 8 - 1)) ? std::numeric_limits<I>::max() : I(v);
  }
  constexpr F kLimit = F(Unsigned<I>(1) << (sizeof(I) * 8 - 1));
  if (v != v) return 0;
  if (v >= kLimit) return std::numeric_limits<I>::max();
  if (v < -kLimit) return std::numeric_limits<I>::lowest();
  return I(v);
}

/// Half to even, whatever the rounding mode says about other halves.
template <class F>
F round_even(F a) {
  return std::nearbyint(a);
}

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// Two Halley steps from a rough approximation.
inline double erfinv(double x) {
  const double magnitude = std::fabs(x);
  if (!(magnitude < 1))
    return magnitude == 1 ? std::copysign(std::numeric_limits<double>::infinity(), x)
                          : std::numeric_limits<double>::quiet_NaN();
  constexpr double kHalfSqrtPi = 0.88622692545275801365;  // sqrt(pi) / 2
  double y;
  if (magnitude < 0.125) {
    y = magnitude * kHalfSqrtPi;  // first term of the series
  } else {
    // Winitzki's inverse of the approximation erf(y)^2 ~ 1 - exp(-y^2 (4/pi + a y^2)/(1 + a y^2)).
    constexpr double a = 0.147;
    const double log_term = std::log((1 - magnitude) * (1 + magnitude));
    const double t = 2 / (std::numbers::pi * a) + log_term / 2;
    y = std::sqrt(std::sqrt(t * t - log_term / a) - t);
  }
  for (int step = 0; step < 2; ++step) {
    // Near 1 the difference is taken in erfc, where it keeps its digits (1 - magnitude is exact).
    const double error = magnitude < 0.5 ? std::erf(y) - magnitude : (1 - magnitude) - std::erfc(y);
    const double newton = error * kHalfSqrtPi * std::exp(y * y);
    y -= newton / (1 + y * newton);
  }
  return std::copysign(y, x);
}

/// The derivative of lgamma: reflection for negative numbers, recurrence up to 10, then the
/// asymptotic series. Poles: -inf at +0, +inf at -0, NaN at negative whole numbers.
inline double digamma(double x) {
  if (x == 0) return std::copysign(std::numeric_limits<double>::infinity(), -x);
  double result = 0;
  if (x < 0) {
    if (x == std::floor(x)) return std::numeric_limits<double>::quiet_NaN();
    // The cotangent of pi x, by that of the nearer of a zero and a pole: their distances are exact.
    const double part = x - std::nearbyint(x), size = std::fabs(part);
    const double tangent = std::tan(std::numbers::pi * (size > 0.25 ? 0.5 - size : size));
    result = -std::numbers::pi * std::copysign(size > 0.25 ? tangent : 1 / tangent, part);
    x = 1 - x;
  }
  const int steps = x < 10 ? int(std::ceil(10 - x)) : 0;
  double sum = 0;  // small terms first
  for (int k = steps - 1; k >= 0; --k) sum += 1 / (x + k);
  x += steps;
  const double inverse = 1 / x, z = inverse * inverse;
  // Bernoulli numbers B_2k / 2k.
  const double series =
      z * (1.0 / 12 -
           z * (1.0 / 120 -
                z * (1.0 / 252 -
                     z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760 - z * (1.0 / 12)))))));
  return result + (std::log(x) - inverse / 2 - series - sum);
}

/// Op::polynomial.
template <class F>
F polynomial(int index, F x, F n) {
  const OrthogonalFamily& f = kOrthogonal[family_of(index)];
  const int order = order_of(index);
  if (!(n > -1 && double(n) < kLargestDegree)) return 0;
  const double degree = std::trunc(double(n));
  F p[kOrthogonalOrders] = {F(f.f1) * x + F(f.f0), F(f.f1)}, before[kOrthogonalOrders] = {1};
  if (degree == 0) return before[order];
  double k = 1;
  for (; k < degree && p[0] == p[0]; ++k) {  // what has become NaN stays so
    const F a = F(f.a0 + f.a1 * k), factor = a * x + F(f.b0 + f.b1 * k), c = F(f.c0 + f.c1 * k),
            d = F(1 + f.d1 * k);
    F next[kOrthogonalOrders];
    for (int o = 0; o <= order; ++o) {
      next[o] = factor * p[o] + (o > 0 ? F(o) * a * p[o - 1] : F(0));
      next[o] = (next[o] - c * before[o]) / d;
    }
    for (int o = 0; o <= order; ++o) {
      before[o] = p[o];
      p[o] = next[o];
    }
  }
  return k < degree ? std::numeric_limits<F>::quiet_NaN() : p[order];
}

/// lgamma without the C library's global sign.
inline double lgamma(double x) {
  int sign = 0;
  return ::lgamma_r(x, &sign);
}

}  // namespace arete::expr::scalar
