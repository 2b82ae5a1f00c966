// Quotients rounded to whole numbers and their remainders, exact for all operands.
#include "arete/backend/cpu/kernels/simd.inl.h"

namespace arete::cpu::kernels {
namespace {

// Elements that are worked on together; what the vector code cannot do is found for all of them.
constexpr int64_t kChunk = 128;

inline float abs_of(float a) { return __builtin_fabsf(a); }
inline double abs_of(double a) { return __builtin_fabs(a); }
inline float trunc_of(float a) { return __builtin_truncf(a); }
inline double trunc_of(double a) { return __builtin_trunc(a); }

/// f(out, a, b, n) on chunks of a binary kernel's operands.
template <class T, int V, class F>
inline void by_chunks(void* out, const void* a, const void* b, int64_t n, F f) {
  auto* o = static_cast<T*>(out);
  auto* x = static_cast<const T*>(a);
  auto* y = static_cast<const T*>(b);
  for (int64_t i = 0; i < n; i += kChunk)
    f(o + i, V == sv ? x : x + i, V == vs ? y : y + i, n - i < kChunk ? n - i : kChunk);
}

#if defined(__FMA__)

inline float floor_of(float a) { return __builtin_floorf(a); }
inline double floor_of(double a) { return __builtin_floor(a); }
inline float copysign_of(float a, float b) { return __builtin_copysignf(a, b); }
inline double copysign_of(double a, double b) { return __builtin_copysign(a, b); }
inline float fmod_of(float a, float b) { return __builtin_fmodf(a, b); }
inline double fmod_of(double a, double b) { return __builtin_fmod(a, b); }

// Note [Remainders by vectors]
// With q = a / b rounded to a number of the format, and then to a whole one towards zero, a - q b
// is a multiple of b's last place and, since q is off by less than one or by half of its last
// place, has no more digits than the format: one fused multiply-add gives it without an error. It
// is congruent to a, and either less than b (with the wrong sign where the quotient was rounded up
// to a whole number) or smaller than a by the format's precision. So it takes one round for
// quotients below 2^24 and another for each factor of 2^24 more. Operands without a finite
// quotient go to the C library one by one.
template <class T, int V>
inline void remainders(T* r, const T* x, const T* y, int64_t n) {
  constexpr T kInf = T(__builtin_inf());
  int special = 0, unfinished = 0;
  ARETE_LOOP {
    const T a = x[V == sv ? 0 : i], b = y[V == vs ? 0 : i];
    const T q = trunc_of(a / b);
    const T rest = q == 0 ? a : fma_of(-q, b, a);
    r[i] = rest;
    special |= abs_of(q) < kInf ? 0 : 1;
    unfinished |= abs_of(rest) >= abs_of(b) ? 1 : 0;
  }
  while (unfinished) {  // numbers that are special become NaN here, if not before
    unfinished = 0;
    ARETE_LOOP {
      const T a = r[i], b = y[V == vs ? 0 : i];
      const T q = trunc_of(a / b);
      const T rest = q == 0 ? a : fma_of(-q, b, a);
      r[i] = rest;
      unfinished |= abs_of(rest) >= abs_of(b) ? 1 : 0;
    }
  }
  if (special)
    for (int64_t i = 0; i < n; ++i) {
      const T a = x[V == sv ? 0 : i], b = y[V == vs ? 0 : i];
      if (!(abs_of(trunc_of(a / b)) < kInf)) r[i] = fmod_of(a, b);
    }
  ARETE_LOOP {
    const T a = x[V == sv ? 0 : i], b = y[V == vs ? 0 : i], rest = r[i];
    const bool wrong = (rest != 0) & ((rest < 0) != (a < 0));
    r[i] = copysign_of(wrong ? rest + copysign_of(b, a) : rest, a);
  }
}

// What is made of operands and their remainder: see scalar_math.h.
struct Fmod {
  template <class T>
  static T run(T, T, T r) {
    return r;
  }
};
struct Remainder {
  template <class T>
  static T run(T, T b, T r) {
    return (r != 0) & ((r < 0) != (b < 0)) ? r + b : r;
  }
};
struct FloorDiv {
  template <class T>
  static T run(T a, T b, T r) {
    const T quotient = a / b;
    const T towards_zero = (a - r) / b;
    const T q = (r != 0) & ((r < 0) != (b < 0)) ? towards_zero - 1 : towards_zero;
    const T whole = floor_of(q);
    const T rounded = q - whole > T(0.5) ? whole + 1 : whole;
    const T y = q == 0 ? copysign_of(T(0), quotient) : rounded;
    return b == 0 ? quotient : y;
  }
};

template <class F, class T, int V>
void divide(void* out, const void* a, const void* b, const void*, int64_t n) {
  by_chunks<T, V>(out, a, b, n, [](T* o, const T* x, const T* y, int64_t n) {
    T r[kChunk];
    remainders<T, V>(r, x, y, n);
    const T sx = *x, sy = *y;
    ARETE_LOOP o[i] = F::run(V == sv ? sx : x[i], V == vs ? sy : y[i], r[i]);
  });
}

#endif  // defined(__FMA__)

// Integers below 2^51 are exact in doubles, and adding 1.5 * 2^52 puts them into the last bits. The
// quotient of two such numbers is not near enough to a whole number to be rounded to it.
constexpr int64_t kMagicBits = 0x4338000000000000;
constexpr double kMagicNumber = 0x1.8p52;
inline double to_double(int64_t v) {
  return __builtin_bit_cast(double, v + kMagicBits) - kMagicNumber;
}
inline double to_double(uint64_t v) { return to_double(int64_t(v)); }
inline double to_double(int32_t v) { return double(v); }
inline int64_t to_integer(double v) {
  return __builtin_bit_cast(int64_t, v + kMagicNumber) - kMagicBits;
}

// Of a quotient rounded towards zero, its remainder and the divisor; both are 0 for division by 0.
struct IntQuotient {
  template <class T>
  static T run(T q, T, T) {
    return q;
  }
};
struct IntRest {
  template <class T>
  static T run(T, T r, T) {
    return r;
  }
};
struct IntFloor {
  template <class T>
  static T run(T q, T r, T b) {
    return (r != 0) & ((r < 0) != (b < 0)) ? q - 1 : q;
  }
};
struct IntModulo {
  template <class T>
  static T run(T, T r, T b) {
    return (r != 0) & ((r < 0) != (b < 0)) ? r + b : r;
  }
};

template <class F, class T, int V>
void divide_int(void* out, const void* a, const void* b, const void*, int64_t n) {
  by_chunks<T, V>(out, a, b, n, [](T* o, const T* x, const T* y, int64_t n) {
    const T sx = *x, sy = *y;
    uint64_t large = 0;
    if constexpr (sizeof(T) == 8) {
      constexpr uint64_t kHalf = kIsUnsigned<T> ? 0 : uint64_t(1) << 51;
      ARETE_LOOP large |=
          (uint64_t(V == sv ? sx : x[i]) + kHalf) | (uint64_t(V == vs ? sy : y[i]) + kHalf);
      large >>= kIsUnsigned<T> ? 51 : 52;
    }
    if (large == 0) {
      ARETE_LOOP {
        const double u = to_double(V == sv ? sx : x[i]), v = to_double(V == vs ? sy : y[i]);
        const double quotient = trunc_of(u / v);
        const double q = v == 0 ? 0.0 : quotient;
        const double r = v == 0 ? 0.0 : u - q * v;
        o[i] = T(to_integer(F::run(q, r, v)));
      }
      return;
    }
    for (int64_t i = 0; i < n; ++i) {
      const T u = V == sv ? sx : x[i], v = V == vs ? sy : y[i];
      const bool plain = v != 0 && (kIsUnsigned<T> || v != T(-1));  // the lowest over -1 wraps
      const T q = plain ? T(u / v) : v == 0 ? T(0) : T(Unsigned<T>(0) - Unsigned<T>(u));
      o[i] = F::run(q, plain ? T(u % v) : T(0), v);
    }
  });
}

template <template <class, class, int> class Loop, class F, class T>
void put_loop(KernelTable& t, KOp op) {
  t.binary[op][kTypeOf<T>][vv] = Loop<F, T, vv>::run;
  t.binary[op][kTypeOf<T>][vs] = Loop<F, T, vs>::run;
  t.binary[op][kTypeOf<T>][sv] = Loop<F, T, sv>::run;
}
template <class F, class T, int V>
struct IntLoop {
  static constexpr Kernel run = divide_int<F, T, V>;
};
template <class T>
void put_int(KernelTable& t) {
  put_loop<IntLoop, IntQuotient, T>(t, op_div);
  put_loop<IntLoop, IntFloor, T>(t, op_floor_div);
  put_loop<IntLoop, IntRest, T>(t, op_fmod);
  put_loop<IntLoop, IntModulo, T>(t, op_remainder);
}
#if defined(__FMA__)
template <class F, class T, int V>
struct FloatLoop {
  static constexpr Kernel run = divide<F, T, V>;
};
template <class T>
void put_float(KernelTable& t) {
  put_loop<FloatLoop, FloorDiv, T>(t, op_floor_div);
  put_loop<FloatLoop, Fmod, T>(t, op_fmod);
  put_loop<FloatLoop, Remainder, T>(t, op_remainder);
}
#endif

}  // namespace

void ARETE_FILL(division)(KernelTable& t) {
  put_int<int32_t>(t);
  put_int<int64_t>(t);
  put_int<uint64_t>(t);
#if defined(__FMA__)  // elsewhere the scalar kernels stay
  put_float<float>(t);
  put_float<double>(t);
#endif
}

}  // namespace arete::cpu::kernels
