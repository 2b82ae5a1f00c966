// Our own vector functions: those that networks spend their time in, and their relatives.
#pragma once

#include <cstdint>

#if defined(__SSE4_1__)
#include <immintrin.h>
#endif
#include <sleef.h>

#include "arete/backend/cpu/kernels/simd.inl.h"

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
typedef uint64_t VL __attribute__((vector_size(sizeof(VD))));
#else
using VI = int32_t;
using VL = uint64_t;
#endif

// Note [Vector functions]
// Polynomials are minimax approximations (Remez) of what the comments name, with coefficients
// rounded to f32; those of f64 and quotients are interpolated at Chebyshev's nodes in 50 digits. x
// is reduced to n * ln 2 + r with |r| <= ln 2 / 2; ln 2 is split so that n times its upper part is
// exact.
constexpr float kLog2E = 1.44269504f;
constexpr float kLn2High = 0x1.62e4p-1f, kLn2Low = 1.42860677e-6f;
constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
constexpr double kLog2Ed = 1.4426950408889634;
constexpr double kLn2HighD = 0x1.62e42feep-1, kLn2LowD = 1.9082149292705877e-10;
constexpr double kMagicD = 0x1.8p52;

// Coefficients from the highest power down.
template <class V, class T, int n>
inline V polynomial(V x, const T (&c)[n]) {
  V y = V{} + c[0];
  for (int i = 1; i < n; ++i) y = y * x + c[i];
  return y;
}
// Where the last rounding is not seen: in two chains, since what the processor waits for is the
// chain of operations.
template <class V, class T, int n>
inline V polynomial_in_pairs(V x, const T (&c)[n]) {
  const V square = x * x;
  V ends = V{} + c[0], others = V{} + c[1];
  for (int i = 2; i < n; ++i) {
    V& y = i % 2 == 0 ? ends : others;
    y = y * square + c[i];
  }
  return n % 2 == 0 ? ends * x + others : others * x + ends;
}
template <class V, class T, int n, int m>
inline V quotient(V x, const T (&p)[n], const T (&q)[m]) {
  return polynomial(x, p) / polynomial(x, q);
}

inline VF splat_f(float v) { return VF{} + v; }
inline VD splat_d(double v) { return VD{} + v; }
inline VF abs_f(VF x) { return __builtin_bit_cast(VF, __builtin_bit_cast(VI, x) & 0x7fffffff); }
inline VD abs_d(VD x) {
  return __builtin_bit_cast(VD, __builtin_bit_cast(VL, x) & ~(uint64_t(1) << 63));
}
/// |magnitude| with the sign of `sign`; magnitude must not be negative.
inline VF with_sign(VF magnitude, VF sign) {
  return __builtin_bit_cast(
      VF, __builtin_bit_cast(VI, magnitude) | (__builtin_bit_cast(VI, sign) & int32_t(0x80000000)));
}

inline VD with_sign(VD magnitude, VD sign) {
  return __builtin_bit_cast(
      VD, __builtin_bit_cast(VL, magnitude) | (__builtin_bit_cast(VL, sign) & uint64_t(1) << 63));
}
/// Rounded towards 0 to half the digits, so that the square is exact.
inline VF upper_half(VF x) {
  return __builtin_bit_cast(VF, __builtin_bit_cast(VI, x) & int32_t(0xfffff000));
}
inline VD upper_half(VD x) {
  return __builtin_bit_cast(VD, __builtin_bit_cast(VL, x) & 0xfffffffff8000000);
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

/// The same for n in [-2044, 2046] and kMagicD.
inline VD scale_d(VD x, VD n, VD biased) {
#if defined(__AVX512F__)
  (void)biased;
  return _mm512_scalef_pd(x, n);
#else
  (void)n;
  const VL whole = __builtin_bit_cast(VL, biased) - 0x4338000000000000 + 2048;  // not negative
  const VL half = whole >> 1;
  const VD a = __builtin_bit_cast(VD, (half + (1023 - 1024)) << 52);
  const VD b = __builtin_bit_cast(VD, (whole - half + (1023 - 1024)) << 52);
  return x * a * b;
#endif
}

/// e^(x + low) / 2^less, where low is about x's last place.
inline VF scaled_exp(VF x, VF low = VF{}, float less = 0) {
  // Below -104 the result rounds to 0. Scaling down to it would be an underflow, which costs the
  // processor a hundred cycles each: masked softmax is full of them.
#if defined(__AVX512F__)
  x = _mm512_min_ps(splat_f(90.0f), x);  // of a NaN and a number the second is taken
  const __mmask16 keep = _mm512_cmp_ps_mask(x, splat_f(-104.0f), _CMP_NLT_UQ);
#else
  x = x > 90.0f ? splat_f(90.0f) : x;  // comparisons let NaN through
  const auto is_zero = x < -104.0f;
  x = is_zero ? splat_f(0.0f) : x;
#endif
  const VF biased = x * kLog2E + kMagic;
  const VF n = biased - kMagic;
  VF r = x - n * kLn2High;
  r = r - n * kLn2Low + low;
  // (e^r - 1 - r) / r^2
  VF q = r * 1.381446840e-03f + 8.368780836e-03f;
  q = q * r + 4.166839272e-02f;
  q = q * r + 1.666651964e-01f;
  q = q * r + 4.999999404e-01f;
  const VF p = (q * r) * r + r + 1.0f;
#if defined(__AVX512F__)
  return _mm512_maskz_scalef_ps(keep, p, n - less);
#else
  return is_zero ? splat_f(0.0f) : scale_f(p, n - less, biased - less);
#endif
}

/// (e^r - 1 - r) / r^2
constexpr double kExpD[] = {2.5100472505694996e-8, 2.7620201591031549e-7, 2.7557268276905696e-6,
                            2.4801521057868205e-5, 1.9841269863171556e-4, 1.3888888917367081e-3,
                            8.3333333333300382e-3, 4.1666666666623821e-2, 1.6666666666666667e-1,
                            5.0000000000000010e-1};
inline VD scaled_exp(VD x, VD low = VD{}, double less = 0) {
#if defined(__AVX512F__)
  x = _mm512_min_pd(splat_d(711.0), x);
  const __mmask8 keep = _mm512_cmp_pd_mask(x, splat_d(-745.2), _CMP_NLT_UQ);
#else
  x = x > 711.0 ? splat_d(711.0) : x;
  const auto is_zero = x < -745.2;
  x = is_zero ? VD{} : x;
#endif
  const VD biased = x * kLog2Ed + kMagicD;
  const VD n = biased - kMagicD;
  VD r = x - n * kLn2HighD;
  r = r - n * kLn2LowD + low;
  const VD p = (polynomial(r, kExpD) * r) * r + r + 1.0;
#if defined(__AVX512F__)
  return _mm512_maskz_scalef_pd(keep, p, n - less);
#else
  return is_zero ? VD{} : scale_d(p, n - less, biased - less);
#endif
}

inline VF exp_f(VF x) { return scaled_exp(x); }
inline VD exp_d(VD x) { return scaled_exp(x); }

/// (e^x - 1) / 2^less, as 2^n ((e^r - 1) + (1 - 2^-n)): each term keeps its digits, and none
/// overflows before the result does.
inline VF scaled_expm1(VF x, float less = 0) {
  VF y = x > 90.0f ? splat_f(90.0f) : x;
  y = y < -20.0f ? splat_f(-20.0f) : y;
  const VF biased = y * kLog2E + kMagic;
  const VF n = biased - kMagic;
  VF r = y - n * kLn2High;
  r = r - n * kLn2Low;
  VF q = r * 1.388250967e-03f + 8.366580121e-03f;
  q = q * r + 4.166720062e-02f;
  q = q * r + 1.666654348e-01f;
  q = q * r + 4.999999702e-01f;
  const VF rest = 1.0f - scale_f(splat_f(1.0f), -n, 2 * kMagic - biased);
  const VF sum = rest + r;  // |rest| is 0 or larger than |r|: what is lost is exact
  const VF result = scale_f(sum + ((q * r) * r + ((rest - sum) + r)), n - less, biased - less);
  return x == 0 ? x : result;
}
inline VD scaled_expm1(VD x, double less = 0) {
  VD y = x > 711.0 ? splat_d(711.0) : x;
  y = y < -40.0 ? splat_d(-40.0) : y;
  const VD biased = y * kLog2Ed + kMagicD;
  const VD n = biased - kMagicD;
  VD r = y - n * kLn2HighD;
  r = r - n * kLn2LowD;
  const VD rest = 1.0 - scale_d(splat_d(1.0), -n, 2 * kMagicD - biased);
  const VD sum = rest + r;
  const VD low = (polynomial(r, kExpD) * r) * r + ((rest - sum) + r);
  const VD result = scale_d(sum + low, n - less, biased - less);
  return x == 0 ? x : result;
}

inline VF expm1_f(VF x) { return scaled_expm1(x); }
inline VD expm1_d(VD x) { return scaled_expm1(x); }

/// Small arguments: x + x u P(u) with u = x^2. Others: tanh |x| = m / (m + 2) with m = e^2|x| - 1,
/// which is computed without cancellation.
inline VF tanh_f(VF x) {
  const VF u = x * x;
  VF s = u * -6.291408092e-03f + 2.108304575e-02f;
  s = s * u + -5.385487154e-02f;
  s = s * u + 1.333260834e-01f;
  s = s * u + -3.333331943e-01f;
  const VF a = abs_f(x);
  const VF small = (s * u) * a + a;
  VF y = a * 2.0f;
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
  return with_sign(u < 0.3f ? small : m / (m + 2.0f), x);
}
inline VD tanh_d(VD x) {
  VD y = abs_d(x) * 2.0;
  y = y > 40.0 ? splat_d(40.0) : y;
  const VD m = expm1_d(y);
  return with_sign(m / (m + 2.0), x);
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
  // In pairs of terms: what the processor waits for is the chain of operations.
  const VF t2 = t * t;
  VF q = (t * 3.065485973e-03f + -2.231519669e-02f) + t2 * -1.982191752e-04f;
  q = q * t2 + (t * 1.041136459e-01f + 6.369761229e-01f);
  q = q * t2 + (t * 1.127797246e+00f + 1.664518204e-04f);
  const VF y = -q;
  const VF biased = y * kLog2E + kMagic;
  const VF n = biased - kMagic;
  VF r = y - n * kLn2High;
  r = r - n * kLn2Low;
  const VF r2 = r * r;
  VF e = (r * 8.368780836e-03f + 4.166839272e-02f) + r2 * 1.381446840e-03f;
  e = e * r2 + (r * 1.666651964e-01f + 4.999999404e-01f);
  e = e * r2 + r + 1.0f;
  const VF large = 1.0f - scale_f(e, n, biased);
  return with_sign(a < 0.9f ? small : large, x);
}

// Note [The error function's complement]
// Beyond 1/2 it is e^-a^2 w P(1 - 5 w) for w = 1 / (a + 5/2), a variable in which few terms do for
// all a. a^2 is taken apart: rounded, it would cost as many last places as it is large. Up to 1/2
// it is 1 minus the odd polynomial of the error function.
constexpr double kErfSmall[] = {
    -1.4555338052957604e-7, 1.6364125595553408e-6, -1.4922683322707105e-5, 1.2055278460971395e-4,
    -8.5483264020674174e-4, 5.2239776211254241e-3, -2.6866170644958865e-2, 1.1283791670954776e-1,
    -3.761263890318375e-1,  1.2837916709551257e-1};
constexpr float kErfSmallF[] = {4.70005721e-3f, -2.67492319e-2f, 1.12827151e-1f, -3.7612604e-1f,
                                1.28379165e-1f};
constexpr double kErfcD[] = {
    1.9161898836098298e-8, -3.7052411889546571e-8, -1.0277787403050129e-7, 1.32366156695547e-7,
    4.8096379316353401e-7, -9.9516226005374989e-9, -1.9813563010975757e-6, -2.3275328032759889e-6,
    6.7609597017942265e-6, 1.8242272674403452e-5,  -1.9533779719942407e-5, -1.1260432282691784e-4,
    5.8308045431897759e-5, 7.0269365180789569e-4,  -4.3920828936574448e-4, -4.8187855174657593e-3,
    8.3930443035808733e-3, 2.8361550131762564e-2,  -1.7125114524607157e-1, 4.5391411664809967e-1,
    -8.046518494391487e-1, 1.0540318203057179};
constexpr float kErfcF[] = {5.92237566e-4f, -3.91798174e-4f, -4.77854642e-3f,
                            8.37824326e-3f, 2.83555919e-2f,  -1.71249361e-1f,
                            4.53914415e-1f, -8.04651909e-1f, 1.05403182f};
inline VD erfc_d(VD x) {
  const VD a = abs_d(x) > 28.0 ? splat_d(28.0) : abs_d(x);
  const VD z = upper_half(a);
  const VD sum = a + 2.5, inverse = 1.0 / sum;
  const VD w = inverse - (a - (sum - 2.5)) * inverse * inverse;  // of the sum before rounding
  const VD far = scaled_exp(-(z * z), (z - a) * (z + a)) * (w * polynomial(1.0 - 5.0 * w, kErfcD));
  const VD near = 1.0 - (polynomial(x * x, kErfSmall) * x + x);
  return a < 0.5 ? near : x < 0 ? 2.0 - far : far;
}
inline VF erfc_f(VF x) {
  const VF a = abs_f(x) > 10.5f ? splat_f(10.5f) : abs_f(x);
  const VF z = upper_half(a);
  const VF sum = a + 2.5f, inverse = 1.0f / sum;
  const VF w = inverse - (a - (sum - 2.5f)) * inverse * inverse;
  const VF far =
      scaled_exp(-(z * z), (z - a) * (z + a)) * (w * polynomial(1.0f - 5.0f * w, kErfcF));
  const VF near = 1.0f - (polynomial(x * x, kErfSmallF) * x + x);
  return a < 0.5f ? near : x < 0 ? 2.0f - far : far;
}
// Here the complement, and its error, are subtracted from 1: a quotient of polynomials with
// positive coefficients is enough.
constexpr double kErfP[] = {0.00072760545109046477, 0.010442983366305161, 0.072109846359952991,
                            0.30524957501985813,    0.85061440402215873,  1.563901075253508,
                            1.7771689956192014,     0.99999999990358202};
constexpr double kErfQ[] = {0.0012896471323202791, 0.018509703337377415, 0.12845627195170385,
                            0.55029439259668909,   1.5709506119418066,   3.0330720233033598,
                            3.8424611009183184,    2.9055481611655081,   1.0};
inline VD erf_d(VD x) {
  const VD a = abs_d(x) > 6.0 ? splat_d(6.0) : abs_d(x);
  const VD far = 1.0 - exp_d(-(a * a)) * quotient(a, kErfP, kErfQ);
  const VD near = polynomial(a * a, kErfSmall) * a + a;
  return with_sign(a < 0.5 ? near : far, x);
}

// Whether any element's condition holds.
inline bool any(bool mask) { return mask; }
template <class M>
inline bool any(const M& mask) {
#if defined(__AVX512F__)
  return _mm512_test_epi32_mask(__builtin_bit_cast(__m512i, mask),
                                __builtin_bit_cast(__m512i, mask)) != 0;
#elif defined(__AVX2__)
  const __m256i m = __builtin_bit_cast(__m256i, mask);
  return !_mm256_testz_si256(m, m);
#elif defined(__SSE4_1__)
  const __m128i m = __builtin_bit_cast(__m128i, mask);
  return !_mm_testz_si128(m, m);
#else
  return mask;
#endif
}

// Note [Logarithms]
// x = 2^n (1 + r) with 1 + r between the roots of 1/2 and 2. log(1 + r) is r - r^2 / 2 + tail(r):
// in f32 r^3 P(r), in f64 of s = r / (2 + r), whose odd series is 2 s + s^3 P(s^2) and 2 s = r - s
// r. The logarithm of 2^n and the first part of what is left, both exact, are added with what that
// sum loses, so that only small terms are rounded before the result is.
#if defined(__SSE4_1__)
typedef uint32_t VU __attribute__((vector_size(sizeof(VF))));
#else
using VU = uint32_t;
#endif
/// r, and n, of a positive normal x.
constexpr uint32_t kRootOfHalfF = 0x3f3504f3;
inline VF take_apart(VF x, VF& n) {
  const VU biased = __builtin_bit_cast(VU, x) + (0x3f800000u - kRootOfHalfF);
  n = __builtin_bit_cast(VF, biased >> 23 | 0x4b000000u) - (0x1p23f + 127.0f);
  return __builtin_bit_cast(VF, (biased & 0x7fffffu) + kRootOfHalfF) - 1.0f;
}
constexpr uint64_t kRootOfHalfD = 0x3fe6a09e667f3bcd;
inline VD take_apart(VD x, VD& n) {
  const VL biased = __builtin_bit_cast(VL, x) + (0x3ff0000000000000 - kRootOfHalfD);
  n = __builtin_bit_cast(VD, biased >> 52 | 0x4330000000000000) - (0x1p52 + 1023.0);
  return __builtin_bit_cast(VD, (biased & 0xfffffffffffff) + kRootOfHalfD) - 1.0;
}
constexpr float kLogF[] = {-0.0763441101f, 0.127617672f, -0.131603003f, 0.142017409f,
                           -0.16623345f,   0.200012267f, -0.250008225f, 0.333333313f};
inline VF log_tail(VF r, VF half) { return polynomial_in_pairs(r, kLogF) * (r * (half + half)); }
constexpr double kLogD[] = {0.14619343453512615, 0.15331487235865734, 0.18182896183483085,
                            0.2222221103781659,  0.28571428626570206, 0.3999999999989819,
                            0.666666666666667};
inline VD log_tail(VD r, VD half) {
  const VD s = r / (r + 2.0), u = s * s;
  return s * (half + u * polynomial_in_pairs(u, kLogD));
}
/// Logarithms of the base of 2 and of e, in two parts: the first has few digits.
template <class T>
struct Base {
  T two, two_low, e, e_low;
};
constexpr Base<float> kNaturalF{kLn2High, kLn2Low, 1, 0},
    kBinaryF{1, 0, 0x1.714p0f, 0x1.47652cp-12f},
    kDecimalF{0x1.344p-2f, 0x1.3509f8p-18f, 0x1.bcap-2f, 0x1.7b1526p-14f};
constexpr Base<double> kNaturalD{kLn2HighD, kLn2LowD, 1, 0},
    kBinaryD{1, 0, 0x1.715476p0, 0x1.4ae0bf85ddf44p-26},
    kDecimalD{0x1.34413509f78p-2, 0x1.fef311f12b358p-46, 0x1.bcb7b1p-2, 0x1.49b9438ca9aaep-28};

/// log(2^n (1 + r)) + more, for a small number more.
template <class V, class T>
inline V sum_of_logs(V n, V r, V more, const Base<T>& base) {
  const V half = r * r * T(0.5);
  V first = r - half, low = (r - first) - half + (log_tail(r, half) + more);
  if (base.e != 1) {
    const V upper = upper_half(first);
    low = (first - upper) * base.e + (first * base.e_low + low * (base.e + base.e_low));
    first = upper * base.e;
  }
  const V whole = n * base.two, sum = whole + first;
  return sum + (((whole - sum) + first) + (low + n * base.two_low));
}
template <class V, class T>
inline V log_of(V x, const Base<T>& base, T least, T most, T lift, T lifted) {
  const bool others = any(!((x >= least) & (x <= most)));
  const V given = x;
  if (others) x = x < least ? x * lift : x;
  V n;
  const V r = take_apart(x, n);
  if (others) n = given < least ? n - lifted : n;
  const V y = sum_of_logs(n, r, V{}, base);
  if (!others) return y;
  // Subnormal numbers are done; what is left has no logarithm or is infinite.
  const T inf = T(__builtin_inf());
  return given > 0 ? (given > most ? V{} + inf : y)
                   : (given == 0 ? V{} - inf : (given - given) / (given - given));
}
inline VF log_of(VF x, const Base<float>& base) {
  return log_of(x, base, 0x1p-126f, 0x1.fffffep127f, 0x1p24f, 24.0f);
}
inline VD log_of(VD x, const Base<double>& base) {
  return log_of(x, base, 0x1p-1022, 0x1.fffffffffffffp1023, 0x1p54, 54.0);
}
inline VF log_f(VF x) { return log_of(x, kNaturalF); }
inline VD log_d(VD x) { return log_of(x, kNaturalD); }
inline VF log2_f(VF x) { return log_of(x, kBinaryF); }
inline VD log2_d(VD x) { return log_of(x, kBinaryD); }
inline VF log10_f(VF x) { return log_of(x, kDecimalF); }
inline VD log10_d(VD x) { return log_of(x, kDecimalD); }

// In f32 in fewer steps: with u = 1 + x = 2^n m for m in [3/4, 3/2): n ln 2 + log(m), where m - 1
// gets back what rounding took from u; r - r^2 / 2 + r^3 P(r) is log(1 + r).
constexpr float kLog1pF[] = {-0.0450744852f, 0.104630239f,  -0.131612241f,
                             0.144784063f,   -0.166473091f, 0.199908599f,
                             -0.250000954f,  0.333334506f,  -0.5f};
inline VF log1p_f(VF x) {
  const VF u = x + 1.0f;
  const VU bits = __builtin_bit_cast(VU, u);
  const VI whole = __builtin_bit_cast(VI, bits - 0x3f400000u) >> 23;
  const VU exponent = __builtin_bit_cast(VU, whole) << 23;
  const VF m = __builtin_bit_cast(VF, bits - exponent);
  // Beyond 1e9 nothing that counts is lost, and the power may be none of this type.
  const VF power = __builtin_bit_cast(VF, 0x3f800000u - exponent);
  const VF lost = x > 1e9f ? splat_f(0.0f) : (x - (u - 1.0f)) * power;
  const VF r = (m - 1.0f) + lost;
  const VF n = __builtin_bit_cast(VF, whole + 0x4b400000) - kMagic;
  VF y = n * kLn2High + ((polynomial(r, kLog1pF) * (r * r) + n * kLn2Low) + r);
  const float inf = __builtin_inff();
  y = (x == 0) | (x == inf) ? x : y;
  return x > -1.0f ? y : x == -1.0f ? splat_f(-inf) : (x - x) / (x - x);
}

/// As the logarithm of u = 1 + x and what rounding took from u; beyond 1e18 that is nothing that
/// counts, and the power may be none of this type.
inline VD log1p_d(VD x) {
  const VD u = x + 1.0;
  VD n;
  const VD r = take_apart(u, n);
  const VL exponent = __builtin_bit_cast(VL, n + (0x1p52 + 1023.0)) << 52;
  const VD power = __builtin_bit_cast(VD, 0x7fe0000000000000 - exponent);  // 2^-n
  const VD lost = x > 1e18 ? VD{} : (x - (u - 1.0)) * power;
  VD y = sum_of_logs(n, r, lost * (1.0 - r), kNaturalD);
  const double inf = __builtin_inf();
  y = (x == 0) | (x == inf) ? x : y;
  return x > -1.0 ? y : x == -1.0 ? splat_d(-inf) : (x - x) / (x - x);
}

inline VF sqrt_of(VF x) {
#if defined(__AVX512F__)
  return _mm512_sqrt_ps(x);
#elif defined(__AVX2__)
  return _mm256_sqrt_ps(x);
#elif defined(__SSE4_1__)
  return _mm_sqrt_ps(x);
#else
  return __builtin_sqrtf(x);
#endif
}
inline VD sqrt_of(VD x) {
#if defined(__AVX512F__)
  return _mm512_sqrt_pd(x);
#elif defined(__AVX2__)
  return _mm256_sqrt_pd(x);
#elif defined(__SSE4_1__)
  return _mm_sqrt_pd(x);
#else
  return __builtin_sqrt(x);
#endif
}

// Note [Inverse trigonometric functions]
// Odd polynomials t + t^3 P(t^2): of the arc sine of t up to 1/2, beyond of t = sqrt((1 - |x|) /
// 2), whose double the result lacks to pi / 2, and of the arc tangent of t up to 3/5, beyond of (x
// - 1) / (x + 1), which goes with pi / 4, and from 5/3 on of -1 / x, which goes with pi / 2. The
// part of pi and t are added with what their sum loses.
constexpr float kAsinF[] = {0.0337007269f, 0.017143717f,  0.0311017279f,
                            0.0445993207f, 0.0750009492f, 0.166666657f};
constexpr double kAsinD[] = {0.02877844261259304,  -0.014881409392818063, 0.017419357964884856,
                             0.005450878187720551, 0.010324318288744113,  0.011478952690257387,
                             0.013971235301124539, 0.017352391265909227,  0.022372173002005596,
                             0.030381944137085216, 0.04464285714637338,   0.07499999999998425,
                             0.16666666666666669};
constexpr float kAtanF[] = {-0.0246783998f, 0.0601742752f, -0.087203756f, 0.110669591f,
                            -0.142831445f,  0.199999437f,  -0.333333343f};
constexpr double kAtanD[] = {0.004215498094438362, -0.015227124944713562, 0.02857707675103384,
                             -0.03916870759958712, 0.046445101124227284,  -0.052400658221011545,
                             0.058790958994872175, -0.06666342751230758,  0.07692285646289762,
                             -0.09090908112878897, 0.11111111084995498,   -0.14285714285348933,
                             0.1999999999999798,   -0.3333333333333333};
constexpr float kHalfPiF = 1.57079637f, kHalfPiLowF = -4.37113883e-8f;
constexpr double kHalfPiD = 1.5707963267948966, kHalfPiLowD = 6.123233995736766e-17;

/// quarters * pi / 2 + t + rest; t is no larger than the first term, if there is one.
template <class V, class T>
inline V plus_angle(V quarters, V t, V rest, T half_pi, T half_pi_low) {
  const V angle = quarters * half_pi, sum = angle + t;
  return sum + (((angle - sum) + t) + (rest + quarters * half_pi_low));
}
/// t of the arc sine and, in `rest`, what is to be added to it; `beyond`: where |x| > 1/2.
template <class V, class T, class M, int n>
inline V arc_sine_of(V size, const T (&c)[n], M beyond, V& rest) {
  const V u = beyond ? (T(1) - size) * T(0.5) : size * size;
  const V root = sqrt_of(u), upper = upper_half(root), t = beyond ? root : size;
  // What the root lacks, (u - t^2) / (2 t), counts where it is from 1/4 to 1/2: there the quotient
  // is within 8 % of a line.
  const V lack =
      ((u - upper * upper) - (root - upper) * (root + upper)) * (T(2.9) - T(3.88) * root);
  rest = t * u * polynomial_in_pairs(u, c) + (beyond ? lack : V{});
  return t;
}
template <class V, class T, int n>
inline V asin_of(V x, const T (&c)[n], V size, T half_pi, T half_pi_low) {
  const auto beyond = size > T(0.5);
  V rest;
  const V t = arc_sine_of(size, c, beyond, rest);
  const V zero{}, one = zero + T(1);
  return with_sign(plus_angle(beyond ? one : zero, beyond ? t * T(-2) : t,
                              beyond ? rest * T(-2) : rest, half_pi, half_pi_low),
                   x);
}
template <class V, class T, int n>
inline V acos_of(V x, const T (&c)[n], V size, T half_pi, T half_pi_low) {
  const auto beyond = size > T(0.5), negative = x < 0;
  V rest;
  const V t = arc_sine_of(size, c, beyond, rest);
  const V zero{}, one = zero + T(1);
  const V quarters = beyond ? (negative ? one + one : zero) : one;
  const V factor = (beyond ? one + one : zero - one) * (negative ? zero - one : one);
  return plus_angle(quarters, t * factor, rest * factor, half_pi, half_pi_low);
}
template <class V, class T, int n>
inline V atan_of(V x, const T (&c)[n], V size, T half_pi, T half_pi_low) {
  const auto beyond = size > T(0.6), far = size > T(5.0 / 3);
  const V zero{}, one = zero + T(1);
  const V above = far ? zero - one : beyond ? size - one : size;
  const V t = above / (far ? size : beyond ? size + one : one);
  const V quarters = far ? one : beyond ? zero + T(0.5) : zero, u = t * t;
  return with_sign(plus_angle(quarters, t, t * u * polynomial_in_pairs(u, c), half_pi, half_pi_low),
                   x);
}
inline VF asin_f(VF x) { return asin_of(x, kAsinF, abs_f(x), kHalfPiF, kHalfPiLowF); }
inline VD asin_d(VD x) { return asin_of(x, kAsinD, abs_d(x), kHalfPiD, kHalfPiLowD); }
inline VF acos_f(VF x) { return acos_of(x, kAsinF, abs_f(x), kHalfPiF, kHalfPiLowF); }
inline VD acos_d(VD x) { return acos_of(x, kAsinD, abs_d(x), kHalfPiD, kHalfPiLowD); }
inline VF atan_f(VF x) { return atan_of(x, kAtanF, abs_f(x), kHalfPiF, kHalfPiLowF); }
inline VD atan_d(VD x) { return atan_of(x, kAtanD, abs_d(x), kHalfPiD, kHalfPiLowD); }

// Note [Sine and cosine]
// x is n quarters of a turn and r + lost, |r| up to pi / 4. Products of n with the first two parts
// of pi / 2 are exact as long as |x| <= kMostTurned. Sine and cosine of r are r + r^3 S(r^2) and 1
// - r^2 / 2 + r^4 C(r^2), with what is lost in r and in the difference.
constexpr float kMostTurnedF = 120;
constexpr double kMostTurnedD = 1e5;
inline VU bits_of(VF x) { return __builtin_bit_cast(VU, x); }
inline VL bits_of(VD x) { return __builtin_bit_cast(VL, x); }
template <class T>
struct Quarter {
  T inverse, magic, parts[3];
};
constexpr Quarter<float> kQuarterF{
    0.636619772f, kMagic, {0x1.921fp0f, 0x1.6a88p-17f, 0x1.0b4612p-34f}};
constexpr Quarter<double> kQuarterD{
    0.6366197723675814, kMagicD, {0x1.921fb54440000p0, 0x1.68c234c4cp-39, 0x1.98a2e03707345p-77}};
constexpr float kSineF[] = {-0.000195160115f, 0.00833216868f, -0.166666552f};
constexpr float kCosineF[] = {2.44370076e-05f, -0.00138873549f, 0.0416666456f};
constexpr double kSineD[] = {-7.578489125964318e-13, 1.60583624861747e-10,   -2.505210487965323e-08,
                             2.7557319214070135e-06, -0.0001984126984125484, 0.008333333333333323,
                             -0.16666666666666666};
constexpr double kCosineD[] = {-1.1360844759581577e-11, 2.087574968767624e-09,
                               -2.7557314577015475e-07, 2.4801587290396455e-05,
                               -0.0013888888888875885,  0.04166666666666661};
/// Sine and cosine of what is beyond whole quarters, each in two terms, and the quarters' last
/// bits.
template <class V>
struct Turned {
  V sine, sine_low, cosine, cosine_low;
  decltype(bits_of(V{})) quarters;
};
template <class V, class T, int n, int m>
inline Turned<V> turned(V x, const Quarter<T>& quarter, const T (&s)[n], const T (&c)[m]) {
  const V biased = x * quarter.inverse + quarter.magic, whole = biased - quarter.magic;
  const V first = x - whole * quarter.parts[0], second = whole * quarter.parts[1];
  const V r = first - second, lost = ((first - r) - second) - whole * quarter.parts[2];
  const V u = r * r, half = u * T(0.5), near = T(1) - half;
  return {r, r * u * polynomial_in_pairs(u, s) + lost * near, near,
          ((T(1) - near) - half) + (u * u * polynomial_in_pairs(u, c) - r * lost), bits_of(biased)};
}
inline auto turned(VF x) { return turned(x, kQuarterF, kSineF, kCosineF); }
inline auto turned(VD x) { return turned(x, kQuarterD, kSineD, kCosineD); }

template <int kQuarters, class V>
inline V sine_of(V x) {
  const Turned<V> t = turned(x);
  const auto quarters = t.quarters + kQuarters;
  const auto odd = (quarters & 1) != 0;
  const V y = (odd ? t.cosine : t.sine) + (odd ? t.cosine_low : t.sine_low);
  const auto sign = (quarters & 2) << (8 * sizeof(Element<V>) - 2);
  return __builtin_bit_cast(V, bits_of(y) ^ sign);
}
template <class V>
inline V tangent_of(V x) {
  const Turned<V> t = turned(x);
  const auto odd = (t.quarters & 1) != 0;
  const V sine = t.sine + t.sine_low, sine_low = (t.sine - sine) + t.sine_low;
  const V cosine = t.cosine + t.cosine_low, cosine_low = (t.cosine - cosine) + t.cosine_low;
  const V a = odd ? -cosine : sine, a_low = odd ? -cosine_low : sine_low;
  const V b = odd ? sine : cosine, b_low = odd ? sine_low : cosine_low;
  const V inverse = Element<V>(1) / b, q = a * inverse, q_upper = upper_half(q),
          b_upper = upper_half(b);
  const V rest = ((a - q_upper * b_upper) - q_upper * (b - b_upper)) - (q - q_upper) * b;
  return x == 0 ? x : q + (rest + (a_low - q * b_low)) * inverse;
}
inline VF near_sin_f(VF x) { return x == 0 ? x : sine_of<0>(x); }
inline VD near_sin_d(VD x) { return x == 0 ? x : sine_of<0>(x); }
inline VF near_cos_f(VF x) { return sine_of<1>(x); }
inline VD near_cos_d(VD x) { return sine_of<1>(x); }
inline VF near_tan_f(VF x) { return tangent_of(x); }
inline VD near_tan_d(VD x) { return tangent_of(x); }

// e^-|x| never overflows, and for negative x it keeps results below the smallest normal number.
template <class V>
inline V sigmoid_of(V x, V exp_minus_abs, V one) {
  return (x < 0 ? exp_minus_abs : one) / (one + exp_minus_abs);
}
inline VF sigmoid_f(VF x) { return sigmoid_of(x, exp_f(-abs_f(x)), splat_f(1.0f)); }
inline VD sigmoid_d(VD x) { return sigmoid_of(x, exp_d(-abs_d(x)), splat_d(1.0)); }

// Of halves, which are finite where the results are.
inline VF sinh_f(VF x) {
  const VF a = abs_f(x), t = scaled_expm1(a, 1);
  const VF small = t > 1e30f ? splat_f(1e30f) : t;
  return with_sign(a < 1e-15f ? a : t + small / (small * 2 + 1.0f), x);
}
inline VD sinh_d(VD x) {
  const VD a = abs_d(x), t = scaled_expm1(a, 1);
  const VD small = t > 1e30 ? splat_d(1e30) : t;
  return with_sign(a < 1e-30 ? a : t + small / (small * 2 + 1.0), x);
}
inline VF cosh_f(VF x) {
  const VF e = scaled_exp(abs_f(x), VF{}, 1);
  return e + 0.25f / e;
}
inline VD cosh_d(VD x) {
  const VD e = scaled_exp(abs_d(x), VD{}, 1);
  return e + 0.25 / e;
}

}  // namespace
}  // namespace arete::cpu::kernels
