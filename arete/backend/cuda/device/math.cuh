// The instructions of expr programs: op_<name> for every expr::Op, with the meanings of
// arete/expr/scalar_math.h. Results are within about two units of the last place of the exact ones,
// subnormal numbers included.
#pragma once
#include "dtype.cuh"

// ---- conversions: to boolean x != 0; float to integer truncates and saturates, NaN gives 0
template <class T>
struct Cast;
template <>
struct Cast<bool> {
  template <class V>
  DEVICE bool from(V v) {
    return v != V(0);
  }
};
template <>
struct Cast<f32> {
  template <class V>
  DEVICE f32 from(V v) {
    return f32(v);
  }
};
template <>
struct Cast<f64> {
  template <class V>
  DEVICE f64 from(V v) {
    return f64(v);
  }
};
template <>
struct Cast<i32> {
  template <class V>
  DEVICE i32 from(V v) {
    return i32(v);
  }
  DEVICE i32 from(f32 v) { return __float2int_rz(v); }
  DEVICE i32 from(f64 v) { return v != v ? 0 : __double2int_rz(v); }
};
template <>
struct Cast<i64> {
  template <class V>
  DEVICE i64 from(V v) {
    return i64(v);
  }
  DEVICE i64 from(f32 v) { return v != v ? 0 : __float2ll_rz(v); }
  DEVICE i64 from(f64 v) { return v != v ? 0 : __double2ll_rz(v); }
};
template <>
struct Cast<u64> {
  template <class V>
  DEVICE u64 from(V v) {
    return u64(v);
  }
  // Negative numbers by way of the signed integers, as the narrow dtypes wrap.
  DEVICE u64 from(f32 v) { return v >= 0 ? __float2ull_rz(v) : u64(Cast<i64>::from(v)); }
  DEVICE u64 from(f64 v) { return v >= 0 ? __double2ull_rz(v) : u64(Cast<i64>::from(v)); }
};
template <class T, class V>
DEVICE T op_cast(V v) {
  return Cast<T>::from(v);
}

// ---- any type
#define COMPARISON(name, op)        \
  template <class T>                \
  DEVICE bool op_##name(T a, T b) { \
    return a op b;                  \
  }
COMPARISON(eq, ==)
COMPARISON(ne, !=)
COMPARISON(lt, <)
COMPARISON(le, <=)
COMPARISON(gt, >)
COMPARISON(ge, >=)
#undef COMPARISON
template <class T>
DEVICE T op_select(bool c, T a, T b) {
  return c ? a : b;
}
template <class T>
DEVICE T op_sign(T a) {
  return T(T(a > T(0)) - T(a < T(0)));
}

DEVICE bool op_bit_not(bool a) { return !a; }
DEVICE i32 op_bit_not(i32 a) { return ~a; }
DEVICE i64 op_bit_not(i64 a) { return ~a; }
DEVICE u64 op_bit_not(u64 a) { return ~a; }
template <class T>
DEVICE T op_bit_and(T a, T b) {
  return T(a & b);
}
template <class T>
DEVICE T op_bit_or(T a, T b) {
  return T(a | b);
}
template <class T>
DEVICE T op_bit_xor(T a, T b) {
  return T(a ^ b);
}

// ---- integers: arithmetic wraps
template <class I>
DEVICE bool is_minus_one(I a) {
  return I(-1) < I(0) && a == I(-1);
}
#define INTEGER(I, U, kBits)                                                                    \
  DEVICE I op_neg(I a) { return I(U(0) - U(a)); }                                               \
  DEVICE I op_abs(I a) { return a < 0 ? op_neg(a) : a; }                                        \
  DEVICE I op_add(I a, I b) { return I(U(a) + U(b)); }                                          \
  DEVICE I op_sub(I a, I b) { return I(U(a) - U(b)); }                                          \
  DEVICE I op_mul(I a, I b) { return I(U(a) * U(b)); }                                          \
  DEVICE I op_min(I a, I b) { return a < b ? a : b; }                                           \
  DEVICE I op_max(I a, I b) { return a > b ? a : b; }                                           \
  DEVICE I op_div(I a, I b) { return b == 0 ? I(0) : is_minus_one(b) ? op_neg(a) : I(a / b); }  \
  DEVICE I op_fmod(I a, I b) { return b == 0 || is_minus_one(b) ? I(0) : I(a % b); }            \
  DEVICE I op_remainder(I a, I b) {                                                             \
    const I r = op_fmod(a, b);                                                                  \
    return r != 0 && (r < 0) != (b < 0) ? I(r + b) : r;                                         \
  }                                                                                             \
  DEVICE I op_floor_div(I a, I b) {                                                             \
    const I q = op_div(a, b), r = op_fmod(a, b);                                                \
    return r != 0 && (r < 0) != (b < 0) ? I(q - 1) : q;                                         \
  }                                                                                             \
  DEVICE I op_pow(I base, I exponent) {                                                         \
    if (exponent < 0) return base == 1 ? 1 : is_minus_one(base) ? I(exponent & 1 ? -1 : 1) : 0; \
    U result = 1, square = U(base);                                                             \
    for (U e = U(exponent); e; e >>= 1, square *= square)                                       \
      if (e & 1) result *= square;                                                              \
    return I(result);                                                                           \
  }                                                                                             \
  DEVICE I op_gcd(I a, I b) {                                                                   \
    U x = a < 0 ? U(0) - U(a) : U(a), y = b < 0 ? U(0) - U(b) : U(b);                           \
    while (y != 0) {                                                                            \
      const U rest = (x | y) >> 31 >> 1 ? x % y : U(u32(x) % u32(y));                           \
      x = y;                                                                                    \
      y = rest;                                                                                 \
    }                                                                                           \
    return I(x);                                                                                \
  }                                                                                             \
  DEVICE I op_shl(I a, I b) { return U(b) >= kBits ? I(0) : I(U(a) << b); }                     \
  DEVICE I op_shr(I a, I b) { return U(b) >= kBits ? I(a < 0 ? -1 : 0) : I(a >> int(b)); }
INTEGER(i32, u32, 32)
INTEGER(i64, u64, 64)
INTEGER(u64, u64, 64)
#undef INTEGER

// ---- floats
// Products and sums are rounded as the program says, whatever reads them: compilers make no fused
// multiply-adds of these.
#define ROUNDED(F, p, fma)                                              \
  DEVICE F op_add(F a, F b) { return __##p##add_rn(a, b); }             \
  DEVICE F op_sub(F a, F b) { return __##p##sub_rn(a, b); }             \
  DEVICE F op_mul(F a, F b) { return __##p##mul_rn(a, b); }             \
  DEVICE F op_mul_add(F a, F b, F c) { return __##fma##_rn(a, b, c); }  \
  DEVICE F op_mul_sub(F a, F b, F c) { return __##fma##_rn(a, b, -c); } \
  DEVICE F op_sub_mul(F a, F b, F c) { return __##fma##_rn(-a, b, c); }
ROUNDED(f32, f, fmaf)
ROUNDED(f64, d, fma)
#undef ROUNDED
#define FLOATING(F, f)                                                                      \
  DEVICE F op_neg(F a) { return -a; }                                                       \
  DEVICE F op_div(F a, F b) { return a / b; }                                               \
  DEVICE F op_reciprocal(F a) { return F(1) / a; }                                          \
  DEVICE F op_fmod(F a, F b) { return f(fmod)(a, b); }                                      \
  DEVICE F op_remainder(F a, F b) {                                                         \
    const F r = f(fmod)(a, b);                                                              \
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;                                        \
  }                                                                                         \
  /* The division may round up to the next whole number (see scalar_math.h): then something \
     of the other sign is left, which a fused operation finds while quotients are exact. */ \
  DEVICE F op_floor_div(F a, F b) {                                                         \
    const F d = a / b;                                                                      \
    if (b == 0) return d;                                                                   \
    if (f(fabs)(d) < F(4194304) && f(fabs)(b) < F(1) / F(0)) {                              \
      const F below = f(floor)(d), left = f(fma)(-below, b, a);                             \
      return left != 0 && (left < 0) != (b < 0) ? below - 1 : below;                        \
    }                                                                                       \
    const F r = f(fmod)(a, b);                                                              \
    F q = (a - r) / b;                                                                      \
    if (r != 0 && (r < 0) != (b < 0)) q -= 1;                                               \
    if (q == 0) return f(copysign)(F(0), d);                                                \
    const F whole = f(floor)(q);                                                            \
    return q - whole > F(0.5) ? whole + 1 : whole;                                          \
  }                                                                                         \
  DEVICE F op_pow(F a, F b) { return f(pow)(a, b); }                                        \
  DEVICE F op_atan2(F a, F b) { return f(atan2)(a, b); }                                    \
  DEVICE F op_copysign(F a, F b) { return f(copysign)(a, b); }                              \
  DEVICE F op_nextafter(F a, F b) { return f(nextafter)(a, b); }                            \
  DEVICE bool op_is_nan(F a) { return a != a; }                                             \
  DEVICE bool op_is_inf(F a) { return f(fabs)(a) == F(1) / F(0); }
#define SINGLE(name) name##f
#define DOUBLE(name) name
FLOATING(f32, SINGLE)
FLOATING(f64, DOUBLE)
#undef FLOATING
#undef SINGLE
#undef DOUBLE

// NaN if either is NaN.
DEVICE f32 op_min(f32 a, f32 b) {
  f32 r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
DEVICE f32 op_max(f32 a, f32 b) {
  f32 r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
DEVICE f64 op_min(f64 a, f64 b) { return a < b || a != a ? a : b; }
DEVICE f64 op_max(f64 a, f64 b) { return a > b || a != a ? a : b; }

#define LIBRARY(name, function)                          \
  DEVICE f32 op_##name(f32 a) { return function##f(a); } \
  DEVICE f64 op_##name(f64 a) { return function(a); }
LIBRARY(abs, fabs)
LIBRARY(floor, floor)
LIBRARY(ceil, ceil)
LIBRARY(trunc, trunc)
LIBRARY(round, rint)  // half to even
LIBRARY(sqrt, sqrt)
LIBRARY(rsqrt, rsqrt)
LIBRARY(exp, exp)
LIBRARY(exp2, exp2)
LIBRARY(expm1, expm1)
LIBRARY(log, log)
LIBRARY(log2, log2)
LIBRARY(log10, log10)
LIBRARY(log1p, log1p)
LIBRARY(sin, sin)
LIBRARY(cos, cos)
LIBRARY(tan, tan)
LIBRARY(asin, asin)
LIBRARY(acos, acos)
LIBRARY(atan, atan)
LIBRARY(sinh, sinh)
LIBRARY(cosh, cosh)
LIBRARY(tanh, tanh)
LIBRARY(asinh, asinh)
LIBRARY(acosh, acosh)
LIBRARY(atanh, atanh)
LIBRARY(erfc, erfc)
LIBRARY(erfinv, erfinv)
#undef LIBRARY

// ---- floats: our own where the library is slower or less exact than needed
// One instruction each, without care for subnormal numbers.
DEVICE f32 fast_exp2(f32 a) {
  f32 r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
  return r;
}
DEVICE f32 fast_reciprocal(f32 a) {
  f32 r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
  return r;
}

// erfc(a) for a >= 0 with an absolute error of 1e-7: 2^P(a), where P is a minimax polynomial for
// log2(erfc(a)) weighted with erfc(a). P falls for ever, so that there is nothing to limit.
DEVICE f32 erfc_absolute(f32 a) {
  f32 p = -4.5358605e-05f * a + 4.4550773e-04f;
  p = p * a - 1.489442e-03f;
  p = p * a - 7.7462895e-04f;
  p = p * a + 2.825368e-02f;
  p = p * a - 1.484816e-01f;
  p = p * a - 9.184164e-01f;
  p = p * a - 1.6279086f;
  return fast_exp2(p * a);
}
// Small arguments: x + x P(x^2). Both ways are computed: choosing costs less than a branch.
DEVICE f32 op_erf(f32 x) {
  const f32 u = x * x, a = fabsf(x);
  f32 p = -6.090361276e-04f * u + 5.011963192e-03f;
  p = p * u - 2.677890845e-02f;
  p = p * u + 1.128214076e-01f;
  p = p * u - 3.761252463e-01f;
  p = p * u + 1.283791512e-01f;
  const f32 large = copysignf(1.0f - erfc_absolute(a), x);
  return a >= 0.9f ? large : x * p + x;
}
DEVICE f64 op_erf(f64 a) { return erf(a); }
// 1 + erf(x) and 1 + tanh(x), where an absolute error of a few units of 1's last place is all that
// the separate operations would give: half the instructions of erf and tanh.
DEVICE f32 op_one_plus_erf(f32 x) {
  const f32 tail = erfc_absolute(fabsf(x));
  return x < 0.0f ? tail : 2.0f - tail;
}
DEVICE f64 op_one_plus_erf(f64 x) { return 1.0 + erf(x); }
DEVICE f32 op_one_plus_tanh(f32 x) {
  return 2.0f - 2.0f * fast_reciprocal(1.0f + fast_exp2(x * 2.885390082f));
}
DEVICE f64 op_one_plus_tanh(f64 x) { return 1.0 + tanh(x); }

// e^-|x| does not overflow, and keeps small results exact.
DEVICE f32 op_sigmoid(f32 x) {
  const f32 e = expf(-fabsf(x));
  return (x < 0.0f ? e : 1.0f) * fast_reciprocal(1.0f + e);
}
DEVICE f64 op_sigmoid(f64 x) { return 1.0 / (1.0 + exp(-x)); }

// Orthogonal polynomials and their derivatives, as expr/orthogonal.h says.
template <class T>
DEVICE T along(int first, int step, T k) {  // with no product where there is no step
  return step == 0 ? T(first) : T(first) + T(step) * k;
}
template <int kOrder, int f1, int f0, int a0, int a1, int b0, int b1, int c0, int c1, int d1,
          class T>
DEVICE T op_polynomial(T x, T n) {
  if (!(n > T(-1) && n < T(9007199254740992.0))) return T(0);
  const i64 degree = i64(n);
  T p[kOrder + 1], before[kOrder + 1];
#pragma unroll
  for (int o = 0; o <= kOrder; ++o) {
    before[o] = T(o == 0);
    p[o] = o == 0 ? T(f1) * x + T(f0) : T(o == 1 ? f1 : 0);
  }
  if (degree == 0) return before[kOrder];
  T at = 1;
  for (i64 k = 1; k < degree; ++k, at += T(1)) {
    if (p[0] != p[0]) return p[0];  // what has become NaN stays so
    const T a = along(a0, a1, at), factor = a * x + along(b0, b1, at), c = along(c0, c1, at);
#pragma unroll
    for (int o = kOrder; o >= 0; --o) {  // the lower ones are still those of k
      T next = factor * p[o] - c * before[o];
      if (o > 0) next += T(o) * a * p[o > 0 ? o - 1 : 0];
      if (d1 != 0) next /= along(1, d1, at);
      before[o] = p[o];
      p[o] = next;
    }
  }
  return p[kOrder];
}

// log |gamma(a)| for -10.01 < a < -2.4, where the library's lgammaf loses the digits near the zeros
// and, below -10, next to the poles: gamma(z) = (z - 1) ... (z - n) gamma(a) with z = a + n in
// [1, 2), and what counts is how far the quotient is from 1.
DEVICE f32 lgamma_below(f32 a) {
  const f64 kGamma[] = {// in z - 3/2, to 2e-16
                        0.0003798841122384746,  -0.0005535261237776001, 0.0003316776939463096,
                        -0.0005178579619329019, 0.0010571812704697682,  -0.001574779531032255,
                        0.0022734500847091783,  -0.0034122755571385196, 0.00513289510786973,
                        -0.00769152312170173,   0.011522406032760057,   -0.017222341295511746,
                        0.025837612388235707,   -0.03800194028697324,   0.05861030362995726,
                        -0.07752305217927971,   0.14464535904764564,    -0.1072948045661784,
                        0.41481345368828215,    0.03233839744888984,    0.886226925452758};
  const f32 below = floorf(a);
  const f64 z = f64(a) - f64(below) + 1.0;
  f64 product = 1, factor = z, gamma = kGamma[0];
#pragma unroll 1
  for (i32 k = i32(below); k <= 0; ++k) product *= factor -= 1.0;
#pragma unroll
  for (i32 k = 1; k < 21; ++k) gamma = gamma * (z - 1.5) + kGamma[k];
  product = fabs(product);
  const f32 size = f32(product), quotient = f32(gamma) / size;
  return quotient > 0.5f && quotient < 2.0f ? log1pf(f32(gamma - product) / size) : logf(quotient);
}
DEVICE f64 op_lgamma(f64 a) { return lgamma(a); }
DEVICE f32 op_lgamma(f32 a) { return a > -2.4f || !(a > -10.01f) ? lgammaf(a) : lgamma_below(a); }

// As scalar_math.h: reflection, recurrence up to 10, asymptotic series.
DEVICE f64 op_digamma(f64 x) {  // as expr/scalar_math.h
  const f64 pi = 3.14159265358979323846;
  if (x == 0) return copysign(1.0 / 0.0, -x);
  f64 result = 0;
  if (x < 0) {
    if (x == floor(x)) return 0.0 / 0.0;
    const f64 part = x - rint(x), size = fabs(part);
    const f64 tangent = tan(pi * (size > 0.25 ? 0.5 - size : size));
    result = -pi * copysign(size > 0.25 ? tangent : 1 / tangent, part);
    x = 1 - x;
  }
  const i32 steps = x < 10 ? i32(ceil(10 - x)) : 0;
  f64 sum = 0;
  for (i32 k = steps - 1; k >= 0; --k) sum += 1 / (x + k);
  x += steps;
  const f64 inverse = 1 / x, z = inverse * inverse;
  f64 series = 1.0 / 132 - z * (691.0 / 32760 - z * (1.0 / 12));
  series = 1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * series));
  series = z * (1.0 / 12 - z * series);
  return result + (log(x) - inverse / 2 - series - sum);
}
// For the digits of f32 the recurrence up to 6 is enough; its sum is one fraction.
DEVICE f32 op_digamma(f32 a) {
  const f64 pi = 3.14159265358979323846;
  if (a == 0) return copysignf(1.0f / 0.0f, -a);
  f64 x = a, result = 0;
  if (a < 0) {
    if (a == floorf(a)) return 0.0f / 0.0f;
    f64 sine, cosine;
    sincospi(f64(a - rintf(a)), &sine, &cosine);  // the difference is exact
    result = -pi * cosine / sine;
    x = 1 - x;
  }
  f64 over = 0, under = 1;
#pragma unroll
  for (i32 k = 0; k < 6; ++k)
    if (x < 6) {
      over = over * x + under;
      under *= x;
      x += 1;
    }
  const f64 inverse = 1 / x, z = inverse * inverse;
  f64 series = 1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132));
  series = z * (1.0 / 12 - z * (1.0 / 120 - z * series));
  return f32(result + (log(x) - inverse / 2 - series - over / under));
}
