// What the *.simd.cpp files share. Everything has internal linkage: each instruction set has its
// own copy of all code.
#pragma once

#include <cstdint>

#include "arete/backend/cpu/kernels/kernel_table.h"

#define ARETE_PASTE2(a, b) a##b
#define ARETE_PASTE(a, b) ARETE_PASTE2(a, b)
/// fill_arith_avx2 and so on: the function that puts a file's kernels into a table.
#define ARETE_FILL(family) ARETE_PASTE(fill_##family##_, ARETE_SIMD_TARGET)

/// Iterations are independent even where out is one of the operands: it is so element by element.
#define ARETE_LOOP _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i)

namespace arete::cpu::kernels {
namespace {

/// Of the widest vectors of the instruction set.
#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

template <class T>
struct UnsignedOf {
  using type = T;
};
template <>
struct UnsignedOf<int32_t> {
  using type = uint32_t;
};
template <>
struct UnsignedOf<int64_t> {
  using type = uint64_t;
};
template <>
struct UnsignedOf<int8_t> {
  using type = uint8_t;
};
// What products of narrow integers do not overflow.
template <>
struct UnsignedOf<int16_t> {
  using type = uint32_t;
};
template <class T>
using Unsigned = typename UnsignedOf<T>::type;

template <class T>
inline constexpr bool kIsFloat = false;
template <>
inline constexpr bool kIsFloat<float> = true;
template <>
inline constexpr bool kIsFloat<double> = true;

template <class T>
struct TypeIndex;
template <>
struct TypeIndex<uint8_t> {
  static constexpr KType value = t_bool;
};
template <>
struct TypeIndex<int32_t> {
  static constexpr KType value = t_i32;
};
template <>
struct TypeIndex<int64_t> {
  static constexpr KType value = t_i64;
};
template <>
struct TypeIndex<uint64_t> {
  static constexpr KType value = t_u64;
};
template <>
struct TypeIndex<float> {
  static constexpr KType value = t_f32;
};
template <>
struct TypeIndex<double> {
  static constexpr KType value = t_f64;
};
template <>
struct TypeIndex<char8_t> {  // uint8_t is that of booleans
  static constexpr KType value = t_u8;
};
template <>
struct TypeIndex<int8_t> {
  static constexpr KType value = t_i8;
};
template <>
struct TypeIndex<int16_t> {
  static constexpr KType value = t_i16;
};
template <class T>
inline constexpr KType kTypeOf = TypeIndex<T>::value;

template <class T>
inline constexpr bool kIsUnsigned = T(-1) > T(0);

/// Of a vector.
template <class V>
using Element = __typeof__(V{}[0] + V{}[0]);

/// a * b + c, rounded once, on every processor.
inline double fma_of(double a, double b, double c) { return __builtin_fma(a, b, c); }
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
inline float fma_of(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#else
inline float fma_of(float a, float b, float c) {
  // The product is exact in double, and the sum with its error is the exact result. If it has one,
  // the double next to it that is odd is taken: it rounds to float as the exact result does.
  const double product = double(a) * double(b), sum = product + double(c);
  const double part = sum - product;
  const double error = (product - (sum - part)) + (double(c) - part);
  const int64_t bits = __builtin_bit_cast(int64_t, sum);
  const int64_t step = (error > 0) == (sum > 0) ? 1 : -1;
  const bool moves = (bits & 1) == 0 && (error > 0 || error < 0);
  return float(__builtin_bit_cast(double, moves ? bits + step : bits));
}
#endif

/// a < b ? a : b and so on, NaN if either is NaN.
template <class T>
inline T min_of(T a, T b) {
  return a < b || a != a ? a : b;
}
template <class T>
inline T max_of(T a, T b) {
  return a > b || a != a ? a : b;
}

}  // namespace
}  // namespace arete::cpu::kernels
