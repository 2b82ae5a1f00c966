// Arithmetic, comparison, selection: loops that the compiler turns into vector code.
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
    return b < 0 || b >= kBits ? T(0) : shifted;
  }
};
struct Shr {
  template <class T>
  static T run(T a, T b) {
    constexpr T kBits = sizeof(T) * 8;
    return T(a >> (b < 0 || b >= kBits ? kBits - 1 : b));
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
    return a * b + c;
  }
};
struct MulSub {
  template <class T>
  static T run(T a, T b, T c) {
    return a * b - c;
  }
};
struct SubMul {
  template <class T>
  static T run(T a, T b, T c) {
    return c - a * b;
  }
};
// max(min(a, b), c), or min(max(a, b), c), for scalars b and c.
template <class V>
inline V smaller_of(V a, V b) {
  return (a < b) | (a != a) ? a : b;
}
template <class V>
inline V larger_of(V a, V b) {
  return (a > b) | (a != a) ? a : b;
}
template <class T, bool kMinFirst>
void limits(void* out, const void* a, const void* b, const void* c, int64_t n) {
  constexpr int64_t kLanes = kVectorBytes / int64_t(sizeof(T));
  typedef T V __attribute__((vector_size(kVectorBytes)));
  auto* o = static_cast<T*>(out);
  auto* x = static_cast<const T*>(a);
  const V y = V{} + *static_cast<const T*>(b), z = V{} + *static_cast<const T*>(c);
  for (int64_t i = 0; i < n; i += kLanes) {
    const auto bytes = sizeof(T) * uint64_t(n - i < kLanes ? n - i : kLanes);
    V v{};
    if (bytes == kVectorBytes)
      __builtin_memcpy(&v, x + i, sizeof(V));
    else
      __builtin_memcpy(&v, x + i, bytes);
    v = kMinFirst ? larger_of(smaller_of(v, y), z) : smaller_of(larger_of(v, y), z);
    if (bytes == kVectorBytes)
      __builtin_memcpy(o + i, &v, sizeof(V));
    else
      __builtin_memcpy(o + i, &v, bytes);
  }
}

template <class F, class T>
void choose(void* out, const void* a, const void* b, const void* c, const void* d, int scalars,
            int64_t n) {
  constexpr int64_t kLanes = kVectorBytes / int64_t(sizeof(T));
  typedef T V __attribute__((vector_size(kVectorBytes)));
  const void* operands[] = {a, b, c, d};
  T repeated[4][kLanes];
  const T* p[4];
  int64_t step[4];
  for (int k = 0; k < 4; ++k) {
    p[k] = static_cast<const T*>(operands[k]);
    step[k] = 1;
    if (!(scalars >> k & 1)) continue;
    for (T& r : repeated[k]) r = *p[k];
    p[k] = repeated[k];
    step[k] = 0;
  }
  auto* o = static_cast<T*>(out);
  int64_t i = 0;
  if (a == b && ((scalars == 4 && a == d) || (scalars == 8 && a == c))) {  // what is NaN, or is not
    V other;
    __builtin_memcpy(&other, repeated[scalars == 4 ? 2 : 3], sizeof(V));
    const auto replace = [&](auto choice) {
      for (; i + kLanes <= n; i += kLanes) {
        V v;
        __builtin_memcpy(&v, p[0] + i, sizeof(V));
        const V y = choice(v);
        __builtin_memcpy(o + i, &y, sizeof(V));
      }
    };
    if (scalars == 4)
      replace([other](V v) { return F::run(v, v) ? other : v; });
    else
      replace([other](V v) { return F::run(v, v) ? v : other; });
  }
  for (; i + kLanes <= n; i += kLanes) {
    V v[4];
    for (int k = 0; k < 4; ++k) __builtin_memcpy(&v[k], p[k] + i * step[k], sizeof(V));
    const V y = F::run(v[0], v[1]) ? v[2] : v[3];
    __builtin_memcpy(o + i, &y, sizeof(V));
  }
  for (; i < n; ++i)
    o[i] = F::run(p[0][i * step[0]], p[1][i * step[1]]) ? p[2][i * step[2]] : p[3][i * step[3]];
}
ARETE_BINARY(IsEqual, a == b)
ARETE_BINARY(IsUnequal, a != b)
ARETE_BINARY(IsLess, a < b)
ARETE_BINARY(IsLessEqual, a <= b)

template <class T>
void put_choices(KernelTable& t) {
  t.choose[compare_eq][kTypeOf<T>] = choose<IsEqual, T>;
  t.choose[compare_ne][kTypeOf<T>] = choose<IsUnequal, T>;
  t.choose[compare_lt][kTypeOf<T>] = choose<IsLess, T>;
  t.choose[compare_le][kTypeOf<T>] = choose<IsLessEqual, T>;
  t.pair[pair_min_max][kTypeOf<T>][6] = limits<T, true>;
  t.pair[pair_max_min][kTypeOf<T>][6] = limits<T, false>;
}
template <class T>
void put_pairs(KernelTable& t) {
  put3<MulAdd, T, T>(t.pair[pair_mul_add][kTypeOf<T>]);
  put3<MulSub, T, T>(t.pair[pair_mul_sub][kTypeOf<T>]);
  put3<SubMul, T, T>(t.pair[pair_sub_mul][kTypeOf<T>]);
}

template <class T>
void splat(void* out, const void* a, const void*, const void*, int64_t n) {
  auto* o = static_cast<T*>(out);
  const T s = *static_cast<const T*>(a);
  for (int64_t i = 0; i < n; ++i) o[i] = s;
}

}  // namespace

void ARETE_FILL(arith)(KernelTable& t) {
  put_float<float>(t);
  put_float<double>(t);
  put_int<int32_t>(t);
  put_int<int64_t>(t);
  put_ordered<uint8_t>(t);
  put_bits<uint8_t>(t);
  put<LogicalNot, uint8_t>(t, op_bit_not);
  put_choices<float>(t);
  put_choices<double>(t);
  put_choices<int32_t>(t);
  put_choices<int64_t>(t);
  put_pairs<float>(t);
  put_pairs<double>(t);
  put3<Select, uint8_t, uint8_t>(t.select[1]);
  put3<Select, uint8_t, uint32_t>(t.select[4]);
  put3<Select, uint8_t, uint64_t>(t.select[8]);
  t.splat[1] = splat<uint8_t>;
  t.splat[2] = splat<uint16_t>;
  t.splat[4] = splat<uint32_t>;
  t.splat[8] = splat<uint64_t>;
}

}  // namespace arete::cpu::kernels
