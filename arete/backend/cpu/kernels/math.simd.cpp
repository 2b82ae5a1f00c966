// Transcendental functions.
#include <sleef.h>

#include "arete/backend/cpu/kernels/math.inl.h"
#include "arete/backend/cpu/kernels/simd.inl.h"

namespace arete::cpu::kernels {
namespace {

#if defined(__AVX512F__)
#define ARETE_SLEEF_F(name, accuracy) Sleef_##name##f16_##accuracy##avx512f
#define ARETE_SLEEF_D(name, accuracy) Sleef_##name##d8_##accuracy##avx512f
#elif defined(__AVX2__)
#define ARETE_SLEEF_F(name, accuracy) Sleef_##name##f8_##accuracy##avx2
#define ARETE_SLEEF_D(name, accuracy) Sleef_##name##d4_##accuracy##avx2
#elif defined(__SSE4_1__)
#define ARETE_SLEEF_F(name, accuracy) Sleef_##name##f4_##accuracy##sse4
#define ARETE_SLEEF_D(name, accuracy) Sleef_##name##d2_##accuracy##sse4
#else
#define ARETE_SLEEF_F(name, accuracy) Sleef_##name##f_##accuracy
#define ARETE_SLEEF_D(name, accuracy) Sleef_##name##_##accuracy
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
ARETE_WRAP(expm1, u10)
ARETE_WRAP(log, u10)
ARETE_WRAP(log2, u10)
ARETE_WRAP(log10, u10)
ARETE_WRAP(sin, u10)
ARETE_WRAP(cos, u10)
ARETE_WRAP(tan, u10)
ARETE_WRAP(asin, u10)
ARETE_WRAP(acos, u10)
ARETE_WRAP(atan, u10)
ARETE_WRAP(atanh, u10)
ARETE_WRAP(erfc, u15)
ARETE_WRAP(lgamma, u10)

VD exp_d(VD x) { return ARETE_SLEEF_D(exp, u10)(x); }
VD tanh_d(VD x) { return ARETE_SLEEF_D(tanh, u10)(x); }
VD erf_d(VD x) { return ARETE_SLEEF_D(erf, u10)(x); }
VD sigmoid_d(VD x) { return sigmoid_of(x, exp_d(x < 0 ? x : -x), VD{} + 1.0); }

// Where the library's functions overflow though their results do not: hyperbolic functions just
// before infinity, and inverse ones of arguments with an infinite square.
inline bool any(bool mask) { return mask; }
template <class M>
inline bool any(const M& mask) {
  bool found = false;
  for (size_t i = 0; i < sizeof(M) / sizeof(mask[0]); ++i) found |= mask[i] != 0;
  return found;
}
enum class Symmetry { none, even, odd };
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
#define ARETE_WRAP_FAR(name, symmetry, limit_f, limit_d, ...)                                \
  VF near_##name##_f(VF x) { return ARETE_SLEEF_F(name, u10)(x); }                           \
  VD near_##name##_d(VD x) { return ARETE_SLEEF_D(name, u10)(x); }                           \
  VF name##_f(VF x) {                                                                        \
    [[maybe_unused]] constexpr auto e = exp_f, l = log_f;                                    \
    [[maybe_unused]] constexpr float ln2 = 0.693147181f;                                     \
    return with_far<Symmetry::symmetry, near_##name##_f>(x, limit_f,                         \
                                                         [=](VF s) { return __VA_ARGS__; }); \
  }                                                                                          \
  VD name##_d(VD x) {                                                                        \
    [[maybe_unused]] constexpr auto e = exp_d, l = log_d;                                    \
    [[maybe_unused]] constexpr double ln2 = 0.69314718055994531;                             \
    return with_far<Symmetry::symmetry, near_##name##_d>(x, limit_d,                         \
                                                         [=](VD s) { return __VA_ARGS__; }); \
  }
ARETE_WRAP_FAR(sinh, odd, 88.0f, 709.0, e(s / 2) / 2 * e(s / 2))
ARETE_WRAP_FAR(cosh, even, 88.0f, 709.0, e(s / 2) / 2 * e(s / 2))
ARETE_WRAP_FAR(asinh, odd, 1e10f, 1e10, l(s) + ln2)
ARETE_WRAP_FAR(acosh, none, 1e10f, 1e10, l(s) + ln2)
ARETE_WRAP_FAR(log1p, none, 1e20f, 1e20, l(s))

VF pow_f(VF x, VF y) { return ARETE_SLEEF_F(pow, u10)(x, y); }
VD pow_d(VD x, VD y) { return ARETE_SLEEF_D(pow, u10)(x, y); }
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
  ARETE_PUT(lgamma); ARETE_PUT(sigmoid);
  // clang-format on
  put2<pow_f, float, VF>(t, op_pow);
  put2<pow_d, double, VD>(t, op_pow);
  put2<atan2_f, float, VF>(t, op_atan2);
  put2<atan2_d, double, VD>(t, op_atan2);
}

}  // namespace arete::cpu::kernels
