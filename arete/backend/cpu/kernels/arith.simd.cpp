// Arithmetic, comparison, selection: loops that the compiler turns into vector code.
#include <utility>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "arete/backend/cpu/kernels/simd.inl.h"

namespace arete::cpu::kernels {
namespace {

template <class F, class T, class R>
void unary(void* out, const void* a, const void*, const void*, int64_t n) {
  auto* o = static_cast<R*>(out);
  auto* x = static_cast<const T*>(a);
  ARETE_LOOP o[i] = F::run(x[i]);
}

template <class F, class T, class R, int V>
void binary(void* out, const void* a, const void* b, const void*, int64_t n) {
  auto* o = static_cast<R*>(out);
  auto* x = static_cast<const T*>(a);
  auto* y = static_cast<const T*>(b);
  if constexpr (V == vv) {
    ARETE_LOOP o[i] = F::run(x[i], y[i]);
  } else if constexpr (V == vs) {
    const T s = *y;
    ARETE_LOOP o[i] = F::run(x[i], s);
  } else {
    const T s = *x;
    ARETE_LOOP o[i] = F::run(s, y[i]);
  }
}

#define ARETE_UNARY(name, expression) \
  struct name {                       \
    template <class T>                \
    static auto run(T a) {            \
      return expression;              \
    }                                 \
  };
#define ARETE_BINARY(name, expression) \
  struct name {                        \
    template <class T>                 \
    static auto run(T a, T b) {        \
      return expression;               \
    }                                  \
  };
#define ARETE_FLOAT_FUNCTION(name, fn)                         \
  struct name {                                                \
    static float run(float a) { return __builtin_##fn##f(a); } \
    static double run(double a) { return __builtin_##fn(a); }  \
  };
// Integers wrap.
#define ARETE_WRAPPING(name, op)                  \
  struct name {                                   \
    template <class T>                            \
    static T run(T a, T b) {                      \
      return T(Unsigned<T>(a) op Unsigned<T>(b)); \
    }                                             \
  };

struct Neg {
  template <class T>
  static T run(T a) {
    if constexpr (kIsFloat<T>)
      return -a;
    else
      return T(Unsigned<T>(0) - Unsigned<T>(a));
  }
};
struct Abs {
  static float run(float a) { return __builtin_fabsf(a); }
  static double run(double a) { return __builtin_fabs(a); }
  template <class T>
  static T run(T a) {
    if constexpr (kIsUnsigned<T>)
      return a;
    else
      return a < 0 ? Neg::run(a) : a;
  }
};
ARETE_UNARY(Sign, T(T(a > 0) - T(a < 0)))
ARETE_UNARY(BitNot, T(~a))
ARETE_UNARY(LogicalNot, uint8_t(a ^ 1))
ARETE_FLOAT_FUNCTION(Floor, floor)
ARETE_FLOAT_FUNCTION(Ceil, ceil)
ARETE_FLOAT_FUNCTION(Trunc, trunc)
ARETE_FLOAT_FUNCTION(Round, rint)
ARETE_FLOAT_FUNCTION(Sqrt, sqrt)
ARETE_UNARY(Rsqrt, T(1) / Sqrt::run(a))
ARETE_UNARY(Reciprocal, T(1) / a)
ARETE_UNARY(IsNan, uint8_t(a != a))
struct IsInf {
  static uint8_t run(float a) { return __builtin_fabsf(a) == __builtin_inff(); }
  static uint8_t run(double a) { return __builtin_fabs(a) == __builtin_inf(); }
};

ARETE_WRAPPING(Add, +)
ARETE_WRAPPING(Sub, -)
ARETE_WRAPPING(Mul, *)
ARETE_BINARY(Div, a / b)
ARETE_BINARY(Min, min_of(a, b))
ARETE_BINARY(Max, max_of(a, b))
struct CopySign {
  static float run(float a, float b) { return __builtin_copysignf(a, b); }
  static double run(double a, double b) { return __builtin_copysign(a, b); }
};
// Neighbours in the order of their bits, which is that of magnitudes.
template <class T, class I>
inline T next_after(T a, T b) {
  const I bits = __builtin_bit_cast(I, a);
  const I step = (a < b) == (a > 0) ? I(1) : I(-1);
  const T smallest = CopySign::run(__builtin_bit_cast(T, I(1)), b);
  T y = a == 0 ? smallest : __builtin_bit_cast(T, I(bits + step));
  y = a == b ? b : y;
  return (a != a) | (b != b) ? a + b : y;
}
struct NextAfter {
  static float run(float a, float b) { return next_after<float, int32_t>(a, b); }
  static double run(double a, double b) { return next_after<double, int64_t>(a, b); }
};
ARETE_BINARY(BitAnd, T(a& b))
ARETE_BINARY(BitOr, T(a | b))
ARETE_BINARY(BitXor, T(a ^ b))
struct Shl {
  template <class T>
  static T run(T a, T b) {
    constexpr T kBits = sizeof(T) * 8;
    const T shifted = T(Unsigned<T>(a) << (b & (kBits - 1)));
    return Unsigned<T>(b) >= Unsigned<T>(kBits) ? T(0) : shifted;
  }
};
struct Shr {
  template <class T>
  static T run(T a, T b) {
    constexpr T kBits = sizeof(T) * 8;
    const bool beyond = Unsigned<T>(b) >= Unsigned<T>(kBits);
    const T shifted = T(a >> (beyond ? kBits - 1 : b));
    return kIsUnsigned<T> && beyond ? T(0) : shifted;
  }
};
ARETE_BINARY(Eq, uint8_t(a == b))
ARETE_BINARY(Ne, uint8_t(a != b))
ARETE_BINARY(Lt, uint8_t(a < b))
ARETE_BINARY(Le, uint8_t(a <= b))
ARETE_BINARY(Gt, uint8_t(a > b))
ARETE_BINARY(Ge, uint8_t(a >= b))

template <class F, class T, class R = T>
void put(KernelTable& t, KOp op) {
  t.unary[op][kTypeOf<T>] = unary<F, T, R>;
}
template <class F, class T, class R = T>
void put2(KernelTable& t, KOp op) {
  t.binary[op][kTypeOf<T>][vv] = binary<F, T, R, vv>;
  t.binary[op][kTypeOf<T>][vs] = binary<F, T, R, vs>;
  t.binary[op][kTypeOf<T>][sv] = binary<F, T, R, sv>;
}

template <class T>
void put_arithmetic(KernelTable& t) {
  put<Neg, T>(t, op_neg);
  put<Abs, T>(t, op_abs);
  put<Sign, T>(t, op_sign);
  put2<Add, T>(t, op_add);
  put2<Sub, T>(t, op_sub);
  put2<Mul, T>(t, op_mul);
}
template <class T>
void put_ordered(KernelTable& t) {
  put2<Min, T>(t, op_min);
  put2<Max, T>(t, op_max);
  put2<Eq, T, uint8_t>(t, op_eq);
  put2<Ne, T, uint8_t>(t, op_ne);
  put2<Lt, T, uint8_t>(t, op_lt);
  put2<Le, T, uint8_t>(t, op_le);
  put2<Gt, T, uint8_t>(t, op_gt);
  put2<Ge, T, uint8_t>(t, op_ge);
}
template <class T>
void put_float(KernelTable& t) {
  put_arithmetic<T>(t);
  put_ordered<T>(t);
  put<Floor, T>(t, op_floor);
  put<Ceil, T>(t, op_ceil);
  put<Trunc, T>(t, op_trunc);
  put<Round, T>(t, op_round);
  put<Sqrt, T>(t, op_sqrt);
  put<Rsqrt, T>(t, op_rsqrt);
  put<Reciprocal, T>(t, op_reciprocal);
  put<IsNan, T, uint8_t>(t, op_is_nan);
  put<IsInf, T, uint8_t>(t, op_is_inf);
  put2<Div, T>(t, op_div);
  put2<CopySign, T>(t, op_copysign);
  put2<NextAfter, T>(t, op_nextafter);
}
template <class T>
void put_bits(KernelTable& t) {
  put2<BitAnd, T>(t, op_bit_and);
  put2<BitOr, T>(t, op_bit_or);
  put2<BitXor, T>(t, op_bit_xor);
}
template <class T>
void put_int(KernelTable& t) {
  put_arithmetic<T>(t);
  put_ordered<T>(t);
  put_bits<T>(t);
  put<BitNot, T>(t, op_bit_not);
  put2<Shl, T>(t, op_shl);
  put2<Shr, T>(t, op_shr);
}

// Three operands: bit k of V says that operand k is a scalar.
template <class F, class A, class T, int V>
void ternary(void* out, const void* a, const void* b, const void* c, int64_t n) {
  auto* o = static_cast<T*>(out);
  auto* x = static_cast<const A*>(a);
  auto* y = static_cast<const T*>(b);
  auto* z = static_cast<const T*>(c);
  const A sx = *x;
  const T sy = *y, sz = *z;
  ARETE_LOOP o[i] = F::run(V & 1 ? sx : x[i], V & 2 ? sy : y[i], V & 4 ? sz : z[i]);
}
template <class F, class A, class T>
void put3(Kernel* kernels) {
  kernels[0] = ternary<F, A, T, 0>;
  kernels[1] = ternary<F, A, T, 1>;
  kernels[2] = ternary<F, A, T, 2>;
  kernels[3] = ternary<F, A, T, 3>;
  kernels[4] = ternary<F, A, T, 4>;
  kernels[5] = ternary<F, A, T, 5>;
  kernels[6] = ternary<F, A, T, 6>;
}

struct Select {
  template <class T>
  static T run(uint8_t c, T a, T b) {
    return c ? a : b;
  }
};
struct MulAdd {
  template <class T>
  static T run(T a, T b, T c) {
    return fma_of(a, b, c);
  }
};
struct MulSub {
  template <class T>
  static T run(T a, T b, T c) {
    return fma_of(a, b, -c);
  }
};
struct SubMul {
  template <class T>
  static T run(T a, T b, T c) {
    return fma_of(-a, b, c);
  }
};
// max(min(a, b), c), or min(max(a, b), c), for scalars b and c that are numbers: one instruction of
// x86, which gives its second operand where one of them is NaN.
template <class V>
inline V smaller_of(V bound, V a) {
#if defined(__AVX512F__)
  if constexpr (kIsFloat<Element<V>>) {
    if constexpr (sizeof(Element<V>) == 4)
      return V(_mm512_min_ps(__m512(bound), __m512(a)));
    else
      return V(_mm512_min_pd(__m512d(bound), __m512d(a)));
  }
#elif defined(__AVX2__)
  if constexpr (kIsFloat<Element<V>>) {
    if constexpr (sizeof(Element<V>) == 4)
      return V(_mm256_min_ps(__m256(bound), __m256(a)));
    else
      return V(_mm256_min_pd(__m256d(bound), __m256d(a)));
  }
#endif
  return bound < a ? bound : a;
}
template <class V>
inline V larger_of(V bound, V a) {
#if defined(__AVX512F__)
  if constexpr (kIsFloat<Element<V>>) {
    if constexpr (sizeof(Element<V>) == 4)
      return V(_mm512_max_ps(__m512(bound), __m512(a)));
    else
      return V(_mm512_max_pd(__m512d(bound), __m512d(a)));
  }
#elif defined(__AVX2__)
  if constexpr (kIsFloat<Element<V>>) {
    if constexpr (sizeof(Element<V>) == 4)
      return V(_mm256_max_ps(__m256(bound), __m256(a)));
    else
      return V(_mm256_max_pd(__m256d(bound), __m256d(a)));
  }
#endif
  return bound > a ? bound : a;
}
template <class T, bool kMinFirst>
void limits(void* out, const void* a, const void* b, const void* c, int64_t n) {
  constexpr int64_t kLanes = kVectorBytes / int64_t(sizeof(T));
  typedef T V __attribute__((vector_size(kVectorBytes)));
  auto* o = static_cast<T*>(out);
  auto* x = static_cast<const T*>(a);
  const T first = *static_cast<const T*>(b), second = *static_cast<const T*>(c);
  if (first != first || second != second) {
    for (int64_t i = 0; i < n; ++i) o[i] = first + second;
    return;
  }
  const V y = V{} + first, z = V{} + second;
  const auto step = [&](int64_t i, uint64_t bytes) {
    V v{};
    __builtin_memcpy(&v, x + i, bytes);
    v = kMinFirst ? larger_of(z, smaller_of(y, v)) : smaller_of(z, larger_of(y, v));
    __builtin_memcpy(o + i, &v, bytes);
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) step(i, kVectorBytes);
  if (i < n) step(i, uint64_t(n - i) * sizeof(T));
}

// What an operand of a choice is at x: there, or the same everywhere. Each stands in a variable of
// its own: the compiler leaves an array of them in memory.
template <bool kScalar, class V, class T>
inline V operand_at(V same, const T* x, uint64_t bytes) {
  if constexpr (!kScalar) __builtin_memcpy(&same, x, bytes);
  return same;
}
template <class F, class T, int kScalars>
void choose(void* out, const void* a, const void* b, const void* c, const void* d, int64_t n) {
  constexpr int64_t kLanes = kVectorBytes / int64_t(sizeof(T));
  typedef T V __attribute__((vector_size(kVectorBytes)));
  auto* o = static_cast<T*>(out);
  auto *x = static_cast<const T*>(a), *y = static_cast<const T*>(b);
  auto *z = static_cast<const T*>(c), *w = static_cast<const T*>(d);
  // Less zeros, which keeps the sign of a zero.
  const V sx = *x - V{}, sy = *y - V{}, sz = *z - V{}, sw = *w - V{};
  const auto step = [&](int64_t i, uint64_t bytes) {
    const auto first = F::run(operand_at<(kScalars & 1) != 0>(sx, x + i, bytes),
                              operand_at<(kScalars & 2) != 0>(sy, y + i, bytes));
    const V v = first ? operand_at<(kScalars & 4) != 0>(sz, z + i, bytes)
                      : operand_at<(kScalars & 8) != 0>(sw, w + i, bytes);
    __builtin_memcpy(o + i, &v, bytes);
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) step(i, kVectorBytes);
  if (i < n) step(i, uint64_t(n - i) * sizeof(T));
}
ARETE_BINARY(IsEqual, a == b)
ARETE_BINARY(IsUnequal, a != b)
ARETE_BINARY(IsLess, a < b)
ARETE_BINARY(IsLessEqual, a <= b)

template <class F, class T, int kScalars = 15>
void put_choice(ChooseKernel* kernels) {
  if constexpr ((kScalars & 3) != 3) kernels[kScalars] = choose<F, T, kScalars>;
  if constexpr (kScalars > 0) put_choice<F, T, kScalars - 1>(kernels);
}
template <class T>
void put_choices(KernelTable& t) {
  put_choice<IsEqual, T>(t.choose[compare_eq][kTypeOf<T>]);
  put_choice<IsUnequal, T>(t.choose[compare_ne][kTypeOf<T>]);
  put_choice<IsLess, T>(t.choose[compare_lt][kTypeOf<T>]);
  put_choice<IsLessEqual, T>(t.choose[compare_le][kTypeOf<T>]);
  t.triple[triple_min_max][kTypeOf<T>][6] = limits<T, true>;
  t.triple[triple_max_min][kTypeOf<T>][6] = limits<T, false>;
}
template <class T>
void put_products(KernelTable& t) {
  put3<MulAdd, T, T>(t.triple[triple_mul_add][kTypeOf<T>]);
  put3<MulSub, T, T>(t.triple[triple_mul_sub][kTypeOf<T>]);
  put3<SubMul, T, T>(t.triple[triple_sub_mul][kTypeOf<T>]);
}

template <class V, int... i>
inline V exchanged(V v, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(v, v, (i ^ 1)...);
}
template <class V, int... i>
inline V real_parts(V v, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(v, v, (i & ~1)...);
}
template <class V, int... i>
inline V imaginary_parts(V v, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(v, v, (i | 1)...);
}
/// a * b - c in even lanes, a * b + c in odd ones, rounded once.
template <class V>
inline V mul_sub_add(V a, V b, V c) {
#if defined(__AVX512F__)
  if constexpr (sizeof(a[0]) == 4)
    return V(_mm512_fmaddsub_ps(__m512(a), __m512(b), __m512(c)));
  else
    return V(_mm512_fmaddsub_pd(__m512d(a), __m512d(b), __m512d(c)));
#elif defined(__FMA__)
  if constexpr (sizeof(a[0]) == 4)
    return V(_mm256_fmaddsub_ps(__m256(a), __m256(b), __m256(c)));
  else
    return V(_mm256_fmaddsub_pd(__m256d(a), __m256d(b), __m256d(c)));
#else
  for (int k = 0; k < int(sizeof(V) / sizeof(a[0])); ++k)
    a[k] = fma_of(a[k], b[k], k % 2 ? c[k] : -c[k]);
  return a;
#endif
}
template <class T, int kVariant>
void complex_product(void* out, const void* a, const void* b, const void*, int64_t n) {
  constexpr int kLanes = kVectorBytes / int(sizeof(T));
  typedef T V __attribute__((vector_size(kVectorBytes)));
  constexpr auto lanes = std::make_integer_sequence<int, kLanes>();
  auto* o = static_cast<T*>(out);
  auto *x = static_cast<const T*>(a), *y = static_cast<const T*>(b);
  const auto number = [](const T* p) {
    V v{};
    for (int k = 0; k < kLanes; ++k) v[k] = p[k % 2];
    return v;
  };
  const V sx = number(x), sy = number(y);
  const auto step = [&](int64_t i, uint64_t bytes) {
    const V v = operand_at<kVariant == sv>(sx, x + i, bytes),
            w = operand_at<kVariant == vs>(sy, y + i, bytes);
    const V r =
        mul_sub_add(v, real_parts(w, lanes), exchanged(v, lanes) * imaginary_parts(w, lanes));
    __builtin_memcpy(o + i, &r, bytes);
  };
  int64_t i = 0;
  for (; i + kLanes <= 2 * n; i += kLanes) step(i, kVectorBytes);
  if (i < 2 * n) step(i, uint64_t(2 * n - i) * sizeof(T));
}
template <class T>
void conjugate(void* out, const void* a, const void*, const void*, int64_t n) {
  auto* o = static_cast<T*>(out);
  auto* x = static_cast<const T*>(a);
  ARETE_LOOP {
    o[2 * i] = x[2 * i];
    o[2 * i + 1] = -x[2 * i + 1];
  }
}
template <class T>
void put_complex(KernelTable& t) {
  t.complex_product[kTypeOf<T>][vv] = complex_product<T, vv>;
  t.complex_product[kTypeOf<T>][vs] = complex_product<T, vs>;
  t.complex_product[kTypeOf<T>][sv] = complex_product<T, sv>;
  t.conjugate[kTypeOf<T>] = conjugate<T>;
}

#if defined(__AVX512F__)
template <class T>
struct Lanes;
template <>
struct Lanes<uint32_t> {
  static constexpr int64_t kCount = 16;
  template <int kWanted>
  static unsigned wanted(const uint8_t* m, int64_t n) {
    const __mmask16 in = n >= kCount ? __mmask16(0xffff) : __mmask16((1u << n) - 1);
    const __m128i bytes = _mm_maskz_loadu_epi8(in, m);
    const __mmask16 ones = _mm_test_epi8_mask(bytes, bytes);
    return kWanted ? ones : unsigned(~ones & in);
  }
  static __m512i load(const uint32_t* x, int64_t n) {
    return n >= kCount ? _mm512_loadu_si512(x)
                       : _mm512_maskz_loadu_epi32(__mmask16((1u << n) - 1), x);
  }
  static void store(uint32_t* o, __m512i v) { _mm512_storeu_si512(o, v); }
  static __m512i compress(unsigned m, __m512i v) {
    return _mm512_maskz_compress_epi32(__mmask16(m), v);
  }
  static __m512i expand(unsigned m, __m512i v) {
    return _mm512_maskz_expand_epi32(__mmask16(m), v);
  }
};
template <>
struct Lanes<uint64_t> {
  static constexpr int64_t kCount = 8;
  template <int kWanted>
  static unsigned wanted(const uint8_t* m, int64_t n) {
    const __mmask16 in = n >= kCount ? __mmask16(0xff) : __mmask16((1u << n) - 1);
    const __m128i bytes = _mm_maskz_loadu_epi8(in, m);
    const __mmask16 ones = _mm_test_epi8_mask(bytes, bytes);
    return kWanted ? ones : unsigned(~ones & in);
  }
  static __m512i load(const uint64_t* x, int64_t n) {
    return n >= kCount ? _mm512_loadu_si512(x)
                       : _mm512_maskz_loadu_epi64(__mmask8((1u << n) - 1), x);
  }
  static void store(uint64_t* o, __m512i v) { _mm512_storeu_si512(o, v); }
  static __m512i compress(unsigned m, __m512i v) {
    return _mm512_maskz_compress_epi64(__mmask8(m), v);
  }
  static __m512i expand(unsigned m, __m512i v) { return _mm512_maskz_expand_epi64(__mmask8(m), v); }
};
#endif

int64_t count(const void* a, int64_t n) {
  typedef uint8_t V __attribute__((vector_size(kVectorBytes)));
  typedef uint64_t W __attribute__((vector_size(kVectorBytes)));
  constexpr int64_t kMostSteps = 255;  // of sums in bytes
  auto* x = static_cast<const uint8_t*>(a);
  int64_t total = 0, i = 0;
  while (i + kVectorBytes <= n) {
    V sums{};
    for (int64_t k = 0; k < kMostSteps && i + kVectorBytes <= n; ++k, i += kVectorBytes) {
      V v;
      __builtin_memcpy(&v, x + i, sizeof(V));
      sums -= V(v != 0);
    }
    const W bytes = __builtin_bit_cast(W, sums);
    const W pairs = (bytes & 0x00ff00ff00ff00ff) + (bytes >> 8 & 0x00ff00ff00ff00ff);
    const W words = pairs * 0x0001000100010001 >> 48;
    for (int k = 0; k < kVectorBytes / 8; ++k) total += int64_t(words[k]);
  }
  for (; i < n; ++i) total += x[i] != 0;
  return total;
}

// Whole vectors are written: what is behind the last element must be the output's too.
template <class T, int kWanted>
void compress(void* out, const void* a, const void* b, const void*, int64_t n) {
  auto* o = static_cast<T*>(out);
  auto* x = static_cast<const T*>(a);
  auto* m = static_cast<const uint8_t*>(b);
  int64_t k = 0;
#if defined(__AVX512F__)
  if constexpr (sizeof(T) >= 4) {
    for (int64_t i = 0; i < n; i += Lanes<T>::kCount) {
      const auto wanted = Lanes<T>::template wanted<kWanted>(m + i, n - i);
      Lanes<T>::store(o + k, Lanes<T>::compress(wanted, Lanes<T>::load(x + i, n - i)));
      k += __builtin_popcount(wanted);
    }
    return;
  }
#endif
  for (int64_t i = 0; i < n; ++i) {
    o[k] = x[i];
    k += (m[i] != 0) == kWanted;
  }
}
template <class T, int kWanted>
void expand(void* out, const void* a, const void* b, const void*, int64_t n) {
  auto* o = static_cast<T*>(out);
  auto* x = static_cast<const T*>(a);
  auto* m = static_cast<const uint8_t*>(b);
  int64_t k = 0;
#if defined(__AVX512F__)
  if constexpr (sizeof(T) >= 4) {
    for (int64_t i = 0; i < n; i += Lanes<T>::kCount) {
      const auto wanted = Lanes<T>::template wanted<kWanted>(m + i, n - i);
      Lanes<T>::store(o + i, Lanes<T>::expand(wanted, Lanes<T>::load(x + k, Lanes<T>::kCount)));
      k += __builtin_popcount(wanted);
    }
    return;
  }
#endif
  for (int64_t i = 0; i < n; ++i) {
    o[i] = x[k];
    k += (m[i] != 0) == kWanted;
  }
}
template <class T>
void put_moves(KernelTable& t) {
  t.compress[sizeof(T)][0] = compress<T, 0>;
  t.compress[sizeof(T)][1] = compress<T, 1>;
  t.expand[sizeof(T)][0] = expand<T, 0>;
  t.expand[sizeof(T)][1] = expand<T, 1>;
}

template <class T>
void add_three(void* out, const void* a, const void* b, const void* c, int64_t n) {
  auto* o = static_cast<T*>(out);
  auto *x = static_cast<const T*>(a), *y = static_cast<const T*>(b), *z = static_cast<const T*>(c);
  ARETE_LOOP o[i] = o[i] + x[i] + y[i] + z[i];
}

template <class T>
void splat(void* out, const void* a, const void*, const void*, int64_t n) {
  auto* o = static_cast<T*>(out);
  const T s = *static_cast<const T*>(a);
  for (int64_t i = 0; i < n; ++i) o[i] = s;
}
void splat_pair(void* out, const void* a, const void*, const void*, int64_t n) {
  auto* o = static_cast<uint64_t*>(out);
  const uint64_t low = *static_cast<const uint64_t*>(a), high = static_cast<const uint64_t*>(a)[1];
  for (int64_t i = 0; i < 2 * n; i += 2) {
    o[i] = low;
    o[i + 1] = high;
  }
}

}  // namespace

void ARETE_FILL(arith)(KernelTable& t) {
  put_float<float>(t);
  put_float<double>(t);
  put_int<int32_t>(t);
  put_int<int64_t>(t);
  put_int<uint64_t>(t);
  put_int<char8_t>(t);
  put_int<int8_t>(t);
  put_int<int16_t>(t);
  put_ordered<uint8_t>(t);
  put_bits<uint8_t>(t);
  put<LogicalNot, uint8_t>(t, op_bit_not);
  put_choices<float>(t);
  put_choices<double>(t);
  put_choices<int32_t>(t);
  put_choices<int64_t>(t);
  put_choices<uint64_t>(t);
  put_choices<char8_t>(t);
  put_choices<int8_t>(t);
  put_choices<int16_t>(t);
  put_complex<float>(t);
  put_complex<double>(t);
  put_products<float>(t);
  put_products<double>(t);
  put3<Select, uint8_t, uint8_t>(t.select[1]);
  put3<Select, uint8_t, uint16_t>(t.select[2]);
  put3<Select, uint8_t, uint32_t>(t.select[4]);
  put3<Select, uint8_t, uint64_t>(t.select[8]);
  t.add_three[t_f32] = add_three<float>;
  t.add_three[t_f64] = add_three<double>;
  t.count = count;
  put_moves<uint8_t>(t);
  put_moves<uint16_t>(t);
  put_moves<uint32_t>(t);
  put_moves<uint64_t>(t);
  t.splat[1] = splat<uint8_t>;
  t.splat[2] = splat<uint16_t>;
  t.splat[4] = splat<uint32_t>;
  t.splat[8] = splat<uint64_t>;
  t.splat[16] = splat_pair;
}

}  // namespace arete::cpu::kernels
