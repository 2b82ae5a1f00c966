// Two steps of arithmetic as one: what the first gives stays in a register.
#include "arete/backend/cpu/kernels/simd.inl.h"

// Each step rounds.
#pragma GCC optimize("fp-contract=off")

namespace arete::cpu::kernels {
namespace {

// Unsigned integers in the place of the elements of a vector.
template <size_t kBytes>
struct BitsOf;
template <>
struct BitsOf<4> {
  typedef uint32_t type __attribute__((vector_size(kVectorBytes)));
};
template <>
struct BitsOf<8> {
  typedef uint64_t type __attribute__((vector_size(kVectorBytes)));
};

template <KArithmetic kOp>
inline constexpr bool kHasOther = kOp != a_square&& kOp != a_abs;

inline float absolute(float a) { return __builtin_fabsf(a); }
inline double absolute(double a) { return __builtin_fabs(a); }
template <class V>
inline V absolute(V a) {  // without the sign's bit
  using Bits = typename BitsOf<sizeof(Element<V>)>::type;
  return V(Bits(a) & (~Bits{} >> 1));
}

template <KArithmetic kOp, class V>
inline V apply(V a, V b) {
  if constexpr (kOp == a_add) return a + b;
  if constexpr (kOp == a_sub) return a - b;
  if constexpr (kOp == a_sub_from) return b - a;
  if constexpr (kOp == a_mul) return a * b;
  if constexpr (kOp == a_div) return a / b;
  if constexpr (kOp == a_square) return a * a;
  if constexpr (kOp == a_abs) return absolute(a);
}

/// Bit 0 of kScalars: b is a scalar; bit 1: c.
template <KArithmetic kFirst, KArithmetic kSecond, class T, int kScalars>
void joined(void* out, const void* a, const void* b, const void* c, int64_t n) {
  constexpr int64_t kLanes = kVectorBytes / int64_t(sizeof(T));
  typedef T V __attribute__((vector_size(kVectorBytes)));
  constexpr bool kHasThird = kHasOther<kSecond>, kSame = (kScalars & 1) != 0,
                 kSameThird = !kHasThird || (kScalars & 2) != 0;
  auto* o = static_cast<T*>(out);
  auto *x = static_cast<const T*>(a), *y = static_cast<const T*>(b);
  auto* z = kHasThird ? static_cast<const T*>(c) : y;
  const T sy = *y, sz = *z;
  const V vy = sy - V{}, vz = sz - V{};  // less zeros, which keeps the sign of a zero
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    V u, v = vy, w = vz;
    __builtin_memcpy(&u, x + i, sizeof(V));
    if constexpr (!kSame) __builtin_memcpy(&v, y + i, sizeof(V));
    if constexpr (!kSameThird) __builtin_memcpy(&w, z + i, sizeof(V));
    u = apply<kSecond>(apply<kFirst>(u, v), w);
    __builtin_memcpy(o + i, &u, sizeof(V));
  }
  for (; i < n; ++i)
    o[i] = apply<kSecond>(apply<kFirst>(x[i], kSame ? sy : y[i]), kSameThird ? sz : z[i]);
}

template <class T, KArithmetic kFirst, KArithmetic kSecond>
void put(KernelTable& t) {
  Kernel* const kernels = t.joined[kFirst][kSecond][kTypeOf<T>];
  kernels[0] = joined<kFirst, kSecond, T, 0>;
  kernels[1] = joined<kFirst, kSecond, T, 1>;
  if constexpr (kHasOther<kSecond>) {
    kernels[2] = joined<kFirst, kSecond, T, 2>;
    kernels[3] = joined<kFirst, kSecond, T, 3>;
  }
}
template <class T, KArithmetic kFirst>
void put_after(KernelTable& t) {
  put<T, kFirst, a_add>(t);
  put<T, kFirst, a_sub>(t);
  put<T, kFirst, a_sub_from>(t);
  put<T, kFirst, a_mul>(t);
  put<T, kFirst, a_div>(t);
  put<T, kFirst, a_square>(t);
  put<T, kFirst, a_abs>(t);
}
template <class T>
void put_all(KernelTable& t) {
  put_after<T, a_add>(t);
  put_after<T, a_sub>(t);
  put_after<T, a_sub_from>(t);
  put_after<T, a_mul>(t);
}

}  // namespace

void ARETE_FILL(joined)(KernelTable& t) {
  put_all<float>(t);
  put_all<double>(t);
}

}  // namespace arete::cpu::kernels
