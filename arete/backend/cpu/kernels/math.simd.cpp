// Transcendental functions.
#include <sleef.h>

#include "arete/backend/cpu/kernels/math.inl.h"
#include "arete/backend/cpu/kernels/simd.inl.h"
#include "arete/expr/orthogonal.h"

namespace arete::cpu::kernels {
namespace {

#if defined(__AVX512F__)
#define ARETE_SLEEF_F(name, accuracy) Sleef_##name##f16_##accuracy##avx512f
#define ARETE_SLEEF_D(name, accuracy) Sleef_##name##d8_##accuracy##avx512f
#define ARETE_RINT_D Sleef_rintd8_avx512f
#elif defined(__AVX2__)
#define ARETE_SLEEF_F(name, accuracy) Sleef_##name##f8_##accuracy##avx2
#define ARETE_SLEEF_D(name, accuracy) Sleef_##name##d4_##accuracy##avx2
#define ARETE_RINT_D Sleef_rintd4_avx2
#elif defined(__SSE4_1__)
#define ARETE_SLEEF_F(name, accuracy) Sleef_##name##f4_##accuracy##sse4
#define ARETE_SLEEF_D(name, accuracy) Sleef_##name##d2_##accuracy##sse4
#define ARETE_RINT_D Sleef_rintd2_sse4
#else
#define ARETE_SLEEF_F(name, accuracy) Sleef_##name##f_##accuracy
#define ARETE_SLEEF_D(name, accuracy) Sleef_##name##_##accuracy
#define ARETE_RINT_D Sleef_rint
#endif

template <class V>
inline V load(const void* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof(V));
  return v;
}
template <class V, class T>
inline V broadcast(T s) {
  T lanes[sizeof(V) / sizeof(T)];
  for (T& l : lanes) l = s;
  return load<V>(lanes);
}

// The last elements go through a buffer, so that every element takes the same vector code.
template <auto F, class T, class V>
void unary(void* out, const void* a, const void*, const void*, int64_t n) {
  constexpr int64_t kLanes = sizeof(V) / sizeof(T);
  auto* o = static_cast<T*>(out);
  auto* x = static_cast<const T*>(a);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const V v = F(load<V>(x + i));
    __builtin_memcpy(o + i, &v, sizeof(V));
  }
  if (i < n) {
    T buffer[kLanes] = {};
    for (int64_t k = 0; k < n - i; ++k) buffer[k] = x[i + k];
    const V v = F(load<V>(buffer));
    __builtin_memcpy(buffer, &v, sizeof(V));
    for (int64_t k = 0; k < n - i; ++k) o[i + k] = buffer[k];
  }
}

template <auto F, class T, class V, int kVariant>
void binary(void* out, const void* a, const void* b, const void*, int64_t n) {
  constexpr int64_t kLanes = sizeof(V) / sizeof(T);
  auto* o = static_cast<T*>(out);
  auto* x = static_cast<const T*>(a);
  auto* y = static_cast<const T*>(b);
  const V sx = broadcast<V>(*x), sy = broadcast<V>(*y);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const V v = F(kVariant == sv ? sx : load<V>(x + i), kVariant == vs ? sy : load<V>(y + i));
    __builtin_memcpy(o + i, &v, sizeof(V));
  }
  if (i < n) {
    T left[kLanes] = {}, right[kLanes] = {};
    for (int64_t k = 0; k < n - i; ++k) {
      left[k] = kVariant == sv ? *x : x[i + k];
      right[k] = kVariant == vs ? *y : y[i + k];
    }
    const V v = F(load<V>(left), load<V>(right));
    __builtin_memcpy(left, &v, sizeof(V));
    for (int64_t k = 0; k < n - i; ++k) o[i + k] = left[k];
  }
}

template <auto F>
void put_f(KernelTable& t, KOp op) {
  t.unary[op][t_f32] = unary<F, float, VF>;
}
template <auto F>
void put_d(KernelTable& t, KOp op) {
  t.unary[op][t_f64] = unary<F, double, VD>;
}
template <auto F, class T, class V>
void put2(KernelTable& t, KOp op) {
  t.binary[op][kTypeOf<T>][vv] = binary<F, T, V, vv>;
  t.binary[op][kTypeOf<T>][vs] = binary<F, T, V, vs>;
  t.binary[op][kTypeOf<T>][sv] = binary<F, T, V, sv>;
}

// Wrapped: the address of a library function is no constant expression everywhere.
#define ARETE_WRAP(name, accuracy)                               \
  VF name##_f(VF x) { return ARETE_SLEEF_F(name, accuracy)(x); } \
  VD name##_d(VD x) { return ARETE_SLEEF_D(name, accuracy)(x); }
ARETE_WRAP(exp2, u10)
ARETE_WRAP(atanh, u10)
ARETE_WRAP(lgamma, u10)

// Where the library's functions overflow though their results do not: arguments with an infinite
// square.
enum class Symmetry { none, odd };
/// near(x), or far(x) beyond `limit`.
template <Symmetry kSymmetry, auto kNear, class V, class T, class Far>
inline V with_far(V x, T limit, Far far) {
  const V size = kSymmetry == Symmetry::none ? x : x < 0 ? -x : x;
  const V y = kNear(x);
  const auto large = size > limit;
  if (!any(large)) return y;
  const V z = far(size);
  return large ? (kSymmetry == Symmetry::odd ? (x < 0 ? -z : z) : z) : y;
}
#define ARETE_WRAP_FAR(name, symmetry, limit)                                                   \
  VF near_##name##_f(VF x) { return ARETE_SLEEF_F(name, u10)(x); }                              \
  VD near_##name##_d(VD x) { return ARETE_SLEEF_D(name, u10)(x); }                              \
  VF name##_f(VF x) {                                                                           \
    return with_far<Symmetry::symmetry, near_##name##_f>(                                       \
        x, limit##f, [](VF s) { return log_f(s) + float(kLn2); });                              \
  }                                                                                             \
  VD name##_d(VD x) {                                                                           \
    return with_far<Symmetry::symmetry, near_##name##_d>(x, limit,                              \
                                                         [](VD s) { return log_d(s) + kLn2; }); \
  }
constexpr double kLn2 = 0.69314718055994531;
ARETE_WRAP_FAR(asinh, odd, 1e10)
ARETE_WRAP_FAR(acosh, none, 1e10)
// Arguments too large for few parts of pi are the library's, and only they: what an element comes
// to does not depend on its neighbours.
#define ARETE_WRAP_TURNED(name)                                    \
  VF name##_f(VF x) {                                              \
    const VF y = near_##name##_f(x);                               \
    const auto far = abs_f(x) > kMostTurnedF;                      \
    return any(far) ? (far ? ARETE_SLEEF_F(name, u10)(x) : y) : y; \
  }                                                                \
  VD name##_d(VD x) {                                              \
    const VD y = near_##name##_d(x);                               \
    const auto far = abs_d(x) > kMostTurnedD;                      \
    return any(far) ? (far ? ARETE_SLEEF_D(name, u10)(x) : y) : y; \
  }
ARETE_WRAP_TURNED(sin)
ARETE_WRAP_TURNED(cos)
ARETE_WRAP_TURNED(tan)

// Note [The inverse error function by vectors]
// Rational approximations (interpolated at Chebyshev's nodes in 40 digits): of erfinv(x) / x in
// 9/16 - x^2 for |x| <= 3/4, and of erfinv(x) in w = sqrt(-log(1 - |x|)) beyond, where 1 - |x| is
// exact; in f64 one for w <= 3 and one for what is left. Errors are below half a last place.
constexpr double kMiddleP[] = {0.0046295178361994644, 0.31730417194039606, 3.4086587826011452,
                               12.832151510619875,    21.727106021614006,  18.039487150473597,
                               7.1609211997073787,    1.0845597967968248};
constexpr double kMiddleQ[] = {
    0.030108495873496597, 0.85350642854700909, 6.2476193089645378, 18.607684554381887,
    26.783008067162271,   19.70783200731746,   7.1213542411123774, 1};
constexpr double kNearP[] = {0.0029436682799331179, 0.06451331913534343, 0.4988973356257454,
                             1.877271784379916,     3.9176903047787963,  4.6818720400638538,
                             3.0157962364804027,    0.81341984759761854};
constexpr double kNearQ[] = {
    1.432578060592326e-08, 0.0029427746675712006, 0.061095780918722462, 0.43335958446333828,
    1.4525325003562091,    2.6056809447496447,    2.4645274163649993,   1};
constexpr double kFarP[] = {0.00014108604711169357, 0.0058830266304357691, 0.08921029122146866,
                            0.66411090030296716,    2.678098775508758,     5.8988856463561117,
                            6.5300269564133293,     2.714760997939285};
constexpr double kFarQ[] = {
    1.0946263834496328e-10, 0.00014107321218686985, 0.0054610496750318706, 0.073176129503421158,
    0.45362893219530487,    1.3991202380258867,     2.0216418091021016,    1};
constexpr float kMiddlePf[] = {0.110246412f, 1.54675519f, 2.74617267f, 1.0845598f};
constexpr float kMiddleQf[] = {0.388154685f, 2.38944888f, 3.05080867f, 1.0f};
constexpr float kTailPf[] = {0.0756132007f, 0.67809242f, 1.85277033f, 2.05781126f, 0.813419878f};
constexpr float kTailQf[] = {0.0755591914f, 0.591560841f, 1.28680527f, 1.0f};
constexpr double kTailStart = 1.177410022515474691;  // sqrt(log 4)

/// The result from those on either side of 3/4; x / 0 and 0 / 0 are the results for 1 and more.
template <class V, class T>
inline V erfinv_of(V x, V size, V middle, V tail, T limit) {
  const V y = size > limit ? (x < 0 ? -tail : tail) : middle * x;
  const V zero{};
  return size == T(1) ? x / zero : size < T(1) ? y : zero / zero;
}
VF erfinv_f(VF x) {
  const VF size = x < 0 ? -x : x;
  const VF middle = quotient(0.5625f - x * x, kMiddlePf, kMiddleQf);
  if (!any(size > 0.75f)) return middle * x;
  const VF w = sqrt_of(-log_f(1 - size));
  return erfinv_of(x, size, middle, quotient(w - float(kTailStart), kTailPf, kTailQf), 0.75f);
}
VD erfinv_d(VD x) {
  const VD size = x < 0 ? -x : x;
  const VD middle = quotient(0.5625 - x * x, kMiddleP, kMiddleQ);
  if (!any(size > 0.75)) return middle * x;
  const VD w = sqrt_of(-log_d(1 - size));
  VD tail = quotient(w - kTailStart, kNearP, kNearQ);
  if (any(w > 3.0)) tail = w > 3.0 ? quotient(w - 3.0, kFarP, kFarQ) : tail;
  return erfinv_of(x, size, middle, tail, 0.75);
}

// As expr::scalar::digamma, with the terms of the sum in pairs.
VD digamma_d(VD x) {
  constexpr double kSeries[] = {-1.0 / 12,  691.0 / 32760, -1.0 / 132, 1.0 / 240,
                                -1.0 / 252, 1.0 / 120,     -1.0 / 12,  0};
  constexpr double kPi = 3.14159265358979323846;
  const auto negative = x < 0;
  const VD y = negative ? 1 - x : x;
  const auto small = y < 10.0;
  VD w = y, sum{};
  if (any(small)) {
    for (int k = 8; k >= 0; k -= 2) {  // small terms first
      const VD a = y + double(k), b = y + double(k + 1);
      const auto one = a < 10.0, two = b < 10.0;
      const VD pair = (two ? a + b : VD{} + 1.0) / (two ? a * b : a);
      sum = one ? sum + pair : sum;
      w = one ? (w < a + 1 ? (two ? b + 1 : a + 1) : w) : w;
    }
  }
  const VD r = 1.0 / w;
  VD result = log_d(w) - r * 0.5 + polynomial(r * r, kSeries) - sum;
  if (any(negative)) {
    // The cotangent of pi x, by that of the nearer of a zero and a pole: their distances are exact.
    const VD part = x - ARETE_RINT_D(x);
    const auto near_zero = (part < 0 ? -part : part) > 0.25;
    const VD tangent =
        tan_d((near_zero ? (part < 0 ? VD{} - 0.5 : VD{} + 0.5) - part : part) * kPi);
    const VD reflected = result - kPi * (near_zero ? tangent : 1.0 / tangent);
    result = negative ? (part == 0 ? part / part : reflected) : result;
  }
  return x == 0 ? -1.0 / x : result;
}
// In f64: near the root at 1.46 digits are lost.
void digamma_wide(void* out, const void* a, const void*, const void*, int64_t n) {
  constexpr int64_t kLanes = sizeof(VD) / sizeof(double);
  auto* o = static_cast<float*>(out);
  auto* x = static_cast<const float*>(a);
  for (int64_t i = 0; i < n; i += kLanes) {
    const int64_t m = n - i < kLanes ? n - i : kLanes;
    double buffer[kLanes];
    for (int64_t k = 0; k < kLanes; ++k) buffer[k] = x[i + (k < m ? k : 0)];
    const VD v = digamma_d(load<VD>(buffer));
    __builtin_memcpy(buffer, &v, sizeof(VD));
    for (int64_t k = 0; k < m; ++k) o[i + k] = float(buffer[k]);
  }
}

// What a step from p_k to p_(k+1) takes: see OrthogonalFamily.
template <class T>
struct PolynomialStep {
  T a, b, c, d;
  PolynomialStep(const expr::OrthogonalFamily& f, int64_t k)
      : a(T(f.a0 + f.a1 * double(k))),
        b(T(f.b0 + f.b1 * double(k))),
        c(T(f.c0 + f.c1 * double(k))),
        d(T(1 + f.d1 * double(k))) {}
};

// Of blocks of elements, as far as the largest degree among them goes. A few vectors at once: each
// step waits for the one before.
template <class T, int kOrder, int kVariant>
void polynomials(const expr::OrthogonalFamily& f, T* out, const T* x, const T* degrees, int64_t n) {
  typedef T V __attribute__((vector_size(kVectorBytes)));
  constexpr int kLanes = kVectorBytes / int(sizeof(T)), kVectors = kOrder == 0 ? 4 : 2,
                kBlock = kVectors * kLanes;
  // Beyond, all numbers are whole.
  constexpr T kWhole = sizeof(T) == 4 ? T(0x1p23) : T(0x1p52);
  const bool steps_differ = f.a1 != 0 || f.b1 != 0 || f.c1 != 0 || f.d1 != 0, divides = f.d1 != 0;
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t here = n - first < kBlock ? n - first : kBlock;
    // Behind the end are polynomials of degree 0.
    T rest[2][kBlock];
    const T* values[] = {kVariant == sv ? x : x + first,
                         kVariant == vs ? degrees : degrees + first};
    if (here < kBlock)
      for (int k = 0; k < 2; ++k) {
        if (kVariant == (k == 0 ? sv : vs)) continue;
        for (int64_t i = 0; i < kBlock; ++i) rest[k][i] = i < here ? values[k][i] : T(0);
        values[k] = rest[k];
      }
    V at[kVectors], degree[kVectors], p[kOrder + 1][kVectors], before[kOrder + 1][kVectors],
        result[kVectors];
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
      at[i] = kVariant == sv ? V{} + *x : load<V>(values[0] + i * kLanes);
      degree[i] = kVariant == vs ? V{} + *degrees : load<V>(values[1] + i * kLanes);
    }
    V largest{};
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
      const V d = degree[i] > V{} ? degree[i] : V{}, whole = (d + kWhole) - kWhole;
      const V cut = d < kWhole ? (whole > d ? whole - T(1) : whole) : d;
      const V valid = degree[i] < T(expr::kLargestDegree) ? cut : V{} - T(1);
      degree[i] = degree[i] > T(-1) ? valid : V{} - T(1);
      largest = degree[i] > largest ? degree[i] : largest;
    }
    T most = 0;
    for (int l = 0; l < kLanes; ++l) most = largest[l] > most ? largest[l] : most;
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) {
      for (int o = 0; o <= kOrder; ++o) {
        before[o][i] = V{} + T(o == 0);
        p[o][i] = V{} + (o == 1 ? T(f.f1) : T(0));
      }
      p[0][i] = T(f.f1) * at[i] + T(f.f0);
      result[i] = degree[i] == T(1) ? p[kOrder][i] : V{};
      result[i] = degree[i] == T(0) ? before[kOrder][i] : result[i];
    }
    PolynomialStep<T> step(f, 1);
    for (int64_t k = 1; T(k) < most; ++k) {
      if (steps_differ) step = PolynomialStep<T>(f, k);
      const T next_degree = T(k + 1);
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; ++i) {
        const V factor = step.a * at[i] + step.b;
        V next[kOrder + 1];
        for (int o = 0; o <= kOrder; ++o) {
          next[o] = factor * p[o][i];
          if (o > 0) next[o] += T(o) * step.a * p[o - 1][i];
          next[o] = next[o] - step.c * before[o][i];
          if (divides) next[o] /= step.d;
        }
        for (int o = 0; o <= kOrder; ++o) before[o][i] = p[o][i], p[o][i] = next[o];
        result[i] = degree[i] == next_degree ? p[kOrder][i] : result[i];
      }
      if (k % 256 != 0) continue;
      // What has become NaN stays so.
      bool any = false;
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; ++i) {
        const auto goes_on = (degree[i] > next_degree) & (p[0][i] == p[0][i]);
        for (int l = 0; l < kLanes; ++l) any |= goes_on[l] != 0;
      }
      if (any) continue;
      for (int i = 0; i < kVectors; ++i)
        result[i] = degree[i] > next_degree ? V{} + T(__builtin_nan("")) : result[i];
      break;
    }
    T* const to = here < kBlock ? rest[0] : out + first;
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) __builtin_memcpy(to + i * kLanes, &result[i], sizeof(V));
    if (here < kBlock) __builtin_memcpy(out + first, to, uint64_t(here) * sizeof(T));
  }
}
template <class T, int kVariant>
void polynomial(void* out, const void* a, const void* b, const void* c, int64_t n) {
  int64_t index;
  __builtin_memcpy(&index, c, sizeof index);
  const expr::OrthogonalFamily& f = expr::kOrthogonal[expr::family_of(int(index))];
  auto* o = static_cast<T*>(out);
  auto* x = static_cast<const T*>(a);
  auto* y = static_cast<const T*>(b);
  static_assert(expr::kOrthogonalOrders == 4);
  switch (expr::order_of(int(index))) {
    case 0:
      return polynomials<T, 0, kVariant>(f, o, x, y, n);
    case 1:
      return polynomials<T, 1, kVariant>(f, o, x, y, n);
    case 2:
      return polynomials<T, 2, kVariant>(f, o, x, y, n);
    default:
      return polynomials<T, 3, kVariant>(f, o, x, y, n);
  }
}
template <class T>
void put_polynomials(KernelTable& t) {
  t.binary[op_polynomial][kTypeOf<T>][vv] = polynomial<T, vv>;
  t.binary[op_polynomial][kTypeOf<T>][vs] = polynomial<T, vs>;
  t.binary[op_polynomial][kTypeOf<T>][sv] = polynomial<T, sv>;
}

VF pow_f(VF x, VF y) { return ARETE_SLEEF_F(pow, u10)(x, y); }
VD pow_d(VD x, VD y) { return ARETE_SLEEF_D(pow, u10)(x, y); }
// Exponents that are products, quotients and roots: faster and more exact than the general power,
// with its values for zeros and infinities of either sign.
template <class T>
bool simple_power(T* out, const T* x, T exponent, int64_t n) {
  constexpr T kInf = T(__builtin_inf());
  const auto sqrt_of = [](T a) {
    if constexpr (sizeof(T) == 4)
      return __builtin_sqrtf(a + 0);
    else
      return __builtin_sqrt(a + 0);
  };
  if (exponent == 2) {
    ARETE_LOOP out[i] = x[i] * x[i];
  } else if (exponent == 3) {
    ARETE_LOOP out[i] = x[i] * x[i] * x[i];
  } else if (exponent == 1) {
    ARETE_LOOP out[i] = x[i];
  } else if (exponent == -1) {
    ARETE_LOOP out[i] = 1 / x[i];
  } else if (exponent == -2) {
    ARETE_LOOP out[i] = (1 / x[i]) * (1 / x[i]);
  } else if (exponent == T(0.5)) {
    ARETE_LOOP out[i] = x[i] == -kInf ? kInf : sqrt_of(x[i]);
  } else if (exponent == T(-0.5)) {
    ARETE_LOOP out[i] = x[i] == -kInf ? T(0) : 1 / sqrt_of(x[i]);
  } else {
    return false;
  }
  return true;
}
template <auto F, class T, class V>
void power_of_scalar(void* out, const void* a, const void* b, const void* c, int64_t n) {
  if (!simple_power(static_cast<T*>(out), static_cast<const T*>(a), *static_cast<const T*>(b), n))
    binary<F, T, V, vs>(out, a, b, c, n);
}
VF atan2_f(VF x, VF y) { return ARETE_SLEEF_F(atan2, u10)(x, y); }
VD atan2_d(VD x, VD y) { return ARETE_SLEEF_D(atan2, u10)(x, y); }

}  // namespace

void ARETE_FILL(math)(KernelTable& t) {
#define ARETE_PUT(name) put_f<name##_f>(t, op_##name), put_d<name##_d>(t, op_##name)
  // clang-format off
  ARETE_PUT(exp); ARETE_PUT(exp2); ARETE_PUT(expm1); ARETE_PUT(log); ARETE_PUT(log2);
  ARETE_PUT(log10); ARETE_PUT(log1p); ARETE_PUT(sin); ARETE_PUT(cos); ARETE_PUT(tan); ARETE_PUT(asin);
  ARETE_PUT(acos); ARETE_PUT(atan); ARETE_PUT(sinh); ARETE_PUT(cosh); ARETE_PUT(tanh);
  ARETE_PUT(asinh); ARETE_PUT(acosh); ARETE_PUT(atanh); ARETE_PUT(erf); ARETE_PUT(erfc);
  ARETE_PUT(erfinv); ARETE_PUT(lgamma); ARETE_PUT(sigmoid);
  // clang-format on
  t.unary[op_digamma][t_f32] = digamma_wide;
  put_d<digamma_d>(t, op_digamma);
  put2<pow_f, float, VF>(t, op_pow);
  put2<pow_d, double, VD>(t, op_pow);
  t.binary[op_pow][t_f32][vs] = power_of_scalar<pow_f, float, VF>;
  t.binary[op_pow][t_f64][vs] = power_of_scalar<pow_d, double, VD>;
  put_polynomials<float>(t);
  put_polynomials<double>(t);
  put2<atan2_f, float, VF>(t, op_atan2);
  put2<atan2_d, double, VD>(t, op_atan2);
}

}  // namespace arete::cpu::kernels
