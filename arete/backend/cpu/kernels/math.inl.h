// Our own vector functions on f32: those that networks spend their time in.
#pragma once

#include <cstdint>

#if defined(__SSE4_1__)
#include <immintrin.h>
#endif
#include <sleef.h>

namespace arete::cpu::kernels {
namespace {

#if defined(__AVX512F__)
using VF = __m512;
using VD = __m512d;
#elif defined(__AVX2__)
using VF = __m256;
using VD = __m256d;
#elif defined(__SSE4_1__)
using VF = __m128;
using VD = __m128d;
#else
using VF = float;
using VD = double;
#endif
#if defined(__SSE4_1__)
typedef int32_t VI __attribute__((vector_size(sizeof(VF))));
#else
using VI = int32_t;
#endif

// Note [Vector functions]
// Polynomials are minimax approximations (Remez) of what the comments name, with coefficients
// rounded to f32. x is reduced to n * ln 2 + r with |r| <= ln 2 / 2; ln 2 is split so that n times
// its upper part is exact.
constexpr float kLog2E = 1.44269504f;
constexpr float kLn2High = 0x1.62e4p-1f, kLn2Low = 1.42860677e-6f;
constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number

inline VF splat_f(float v) { return VF{} + v; }
inline VF abs_f(VF x) { return __builtin_bit_cast(VF, __builtin_bit_cast(VI, x) & 0x7fffffff); }
/// |magnitude| with the sign of `sign`; magnitude must not be negative.
inline VF with_sign(VF magnitude, VF sign) {
  return __builtin_bit_cast(
      VF, __builtin_bit_cast(VI, magnitude) | (__builtin_bit_cast(VI, sign) & int32_t(0x80000000)));
}

/// x * 2^n for whole n in [-252, 254]; `biased` is n + kMagic.
inline VF scale_f(VF x, VF n, VF biased) {
#if defined(__AVX512F__)
  (void)biased;
  return _mm512_scalef_ps(x, n);
#else
  (void)n;
  // In two steps, each a normal number: results may overflow or be subnormal.
  const VI whole = __builtin_bit_cast(VI, biased) - 0x4b400000;
  const VI half = whole >> 1;
  const VF a = __builtin_bit_cast(VF, (half + 127) << 23);
  const VF b = __builtin_bit_cast(VF, (whole - half + 127) << 23);
  return x * a * b;
#endif
}

inline VF exp_f(VF x) {
  // Below -104 the result rounds to 0. Scaling down to it would be an underflow, which costs the
  // processor a hundred cycles each: masked softmax is full of them.
#if defined(__AVX512F__)
  x = _mm512_min_ps(splat_f(89.0f), x);  // of a NaN and a number the second is taken
  const __mmask16 keep = _mm512_cmp_ps_mask(x, splat_f(-104.0f), _CMP_NLT_UQ);
#else
  x = x > 89.0f ? splat_f(89.0f) : x;  // comparisons let NaN through
  const auto is_zero = x < -104.0f;
  x = is_zero ? splat_f(0.0f) : x;
#endif
  const VF biased = x * kLog2E + kMagic;
  const VF n = biased - kMagic;
  VF r = x - n * kLn2High;
  r = r - n * kLn2Low;
  // (e^r - 1 - r) / r^2
  VF q = r * 1.381446840e-03f + 8.368780836e-03f;
  q = q * r + 4.166839272e-02f;
  q = q * r + 1.666651964e-01f;
  q = q * r + 4.999999404e-01f;
  const VF p = (q * r) * r + r + 1.0f;
#if defined(__AVX512F__)
  return _mm512_maskz_scalef_ps(keep, p, n);
#else
  return is_zero ? splat_f(0.0f) : scale_f(p, n, biased);
#endif
}

/// Small arguments: x + x u P(u) with u = x^2. Others: tanh |x| = m / (m + 2) with m = e^2|x| - 1,
/// which is computed without cancellation.
inline VF tanh_f(VF x) {
  const VF u = x * x;
  VF s = u * -6.291408092e-03f + 2.108304575e-02f;
  s = s * u + -5.385487154e-02f;
  s = s * u + 1.333260834e-01f;
  s = s * u + -3.333331943e-01f;
  const VF small = (s * u) * x + x;
  VF y = abs_f(x) * 2.0f;
  y = y > 20.0f ? splat_f(20.0f) : y;
  const VF biased = y * kLog2E + kMagic;
  const VF n = biased - kMagic;
  VF r = y - n * kLn2High;
  r = r - n * kLn2Low;
  VF q = r * 1.388250967e-03f + 8.366580121e-03f;
  q = q * r + 4.166720062e-02f;
  q = q * r + 1.666654348e-01f;
  q = q * r + 4.999999702e-01f;
  const VF e = (q * r) * r + r;  // e^r - 1
  const VF scale = scale_f(splat_f(1.0f), n, biased);
  const VF m = e * scale + (scale - 1.0f);
  return u < 0.3f ? small : with_sign(m / (m + 2.0f), x);
}

/// Small arguments: x + x P(x^2); others: 1 - e^-Q(|x|).
inline VF erf_f(VF x) {
  const VF a = abs_f(x);
  const VF u = x * x;
  VF p = u * -6.090361276e-04f + 5.011963192e-03f;
  p = p * u + -2.677890845e-02f;
  p = p * u + 1.128214076e-01f;
  p = p * u + -3.761252463e-01f;
  p = p * u + 1.283791512e-01f;
  const VF small = a * p + a;
  const VF t = a > 4.0f ? splat_f(4.0f) : a;  // erf is 1 from there on
  VF q = t * -1.982191752e-04f + 3.065485973e-03f;
  q = q * t + -2.231519669e-02f;
  q = q * t + 1.041136459e-01f;
  q = q * t + 6.369761229e-01f;
  q = q * t + 1.127797246e+00f;
  q = q * t + 1.664518204e-04f;
  const VF y = -q;
  const VF biased = y * kLog2E + kMagic;
  const VF n = biased - kMagic;
  VF r = y - n * kLn2High;
  r = r - n * kLn2Low;
  VF e = r * 1.381446840e-03f + 8.368780836e-03f;
  e = e * r + 4.166839272e-02f;
  e = e * r + 1.666651964e-01f;
  e = e * r + 4.999999404e-01f;
  e = (e * r) * r + r + 1.0f;
  const VF large = 1.0f - scale_f(e, n, biased);
  return with_sign(a < 0.9f ? small : large, x);
}

// e^-|x| never overflows, and for negative x it keeps results below the smallest normal number.
template <class V>
inline V sigmoid_of(V x, V exp_minus_abs, V one) {
  return (x < 0 ? exp_minus_abs : one) / (one + exp_minus_abs);
}
inline VF sigmoid_f(VF x) { return sigmoid_of(x, exp_f(-abs_f(x)), splat_f(1.0f)); }

}  // namespace
}  // namespace arete::cpu::kernels
