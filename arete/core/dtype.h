// Element types: their names, sizes, classes and promotion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "arete/core/half.h"

namespace arete {

/// The element types of tensors. The order is that of the promotion table, and then of age: the
/// numbers are part of the C interface.
enum class DType : uint8_t {
  u8,
  i8,
  i16,
  i32,
  i64,
  f16,
  f32,
  f64,
  c64,
  c128,
  boolean,
  bf16,
  f8e4m3,
  f8e5m2,
  u16,
  u32,
  u64,
};
inline constexpr int kNumDTypes = 17;

inline constexpr DType kUInt8 = DType::u8, kInt8 = DType::i8, kInt16 = DType::i16,
                       kInt32 = DType::i32, kInt64 = DType::i64, kFloat16 = DType::f16,
                       kFloat32 = DType::f32, kFloat64 = DType::f64, kComplex64 = DType::c64,
                       kComplex128 = DType::c128, kBool = DType::boolean, kBFloat16 = DType::bf16,
                       kFloat8E4M3 = DType::f8e4m3, kFloat8E5M2 = DType::f8e5m2,
                       kUInt16 = DType::u16, kUInt32 = DType::u32, kUInt64 = DType::u64;

namespace detail {
struct DTypeInfo {
  std::string_view name;  // as PyTorch prints it, without "torch."
  uint8_t size;           // bytes
  uint8_t cls;            // 0 boolean, 1 integer, 2 floating, 3 complex
};
inline constexpr DTypeInfo kDTypeInfo[kNumDTypes] = {
    {"uint8", 1, 1},         {"int8", 1, 1},        {"int16", 2, 1},   {"int32", 4, 1},
    {"int64", 8, 1},         {"float16", 2, 2},     {"float32", 4, 2}, {"float64", 8, 2},
    {"complex64", 8, 3},     {"complex128", 16, 3}, {"bool", 1, 0},    {"bfloat16", 2, 2},
    {"float8_e4m3fn", 1, 2}, {"float8_e5m2", 1, 2}, {"uint16", 2, 1},  {"uint32", 4, 1},
    {"uint64", 8, 1}};
}  // namespace detail

/// Bytes of one element.
constexpr size_t size_of(DType t) { return detail::kDTypeInfo[int(t)].size; }
/// The name users know: "float32", "int64", "bool", "float8_e4m3fn", ...
constexpr std::string_view name_of(DType t) { return detail::kDTypeInfo[int(t)].name; }
constexpr bool is_floating(DType t) { return detail::kDTypeInfo[int(t)].cls == 2; }
constexpr bool is_complex(DType t) { return detail::kDTypeInfo[int(t)].cls == 3; }
/// Integers only; false for bool.
constexpr bool is_integer(DType t) { return detail::kDTypeInfo[int(t)].cls == 1; }
constexpr bool is_integral_or_bool(DType t) { return detail::kDTypeInfo[int(t)].cls <= 1; }
constexpr bool is_float8(DType t) { return t == kFloat8E4M3 || t == kFloat8E5M2; }
constexpr bool is_unsigned(DType t) { return t == kUInt8 || t >= kUInt16; }
/// Floating types of 16 bits or fewer, which compute in f32.
constexpr bool is_reduced_float(DType t) { return t == kFloat16 || t == kBFloat16 || is_float8(t); }
/// Gradients exist for floating and complex tensors.
constexpr bool is_differentiable(DType t) { return detail::kDTypeInfo[int(t)].cls >= 2; }
/// 0 boolean, 1 integer, 2 floating, 3 complex: promotion's categories.
constexpr int category_of(DType t) { return detail::kDTypeInfo[int(t)].cls; }

/// The distance from 1 to the next larger number; 0 for integers and bool.
double epsilon_of(DType t);
/// Largest and lowest finite values, as doubles (exact but for the maxima of i64 and u64).
double max_of(DType t);
double lowest_of(DType t);

/// The type in which two tensors of types `a` and `b` (both with dimensions) are combined:
/// PyTorch's table. f8 promotes with nothing but itself, u16, u32 and u64 with nothing but
/// themselves and floating types (TypeError otherwise).
DType promote_types(DType a, DType b);

/// The global default for floating results made from integers and Python floats (f32 at start).
DType default_dtype() noexcept;
void set_default_dtype(DType t);

/// Parses "float32", "f32", "float", "half", ...; TypeError naming the text otherwise.
DType parse_dtype(std::string_view text);

template <class T>
struct DTypeOf;
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;
// clang-format off
#define ARETE_FOR_EACH_REAL_DTYPE(X)                                                        \
  X(uint8_t, u8) X(int8_t, i8) X(int16_t, i16) X(int32_t, i32) X(int64_t, i64) X(Half, f16) \
  X(float, f32) X(double, f64)                                                              \
  X(bool, boolean) X(BFloat16, bf16) X(Float8E4M3, f8e4m3) X(Float8E5M2, f8e5m2)            \
  X(uint16_t, u16) X(uint32_t, u32) X(uint64_t, u64)
// clang-format on
#define ARETE_DTYPE_OF(T, e)                 \
  template <>                                \
  struct DTypeOf<T> {                        \
    static constexpr DType value = DType::e; \
  };
ARETE_FOR_EACH_REAL_DTYPE(ARETE_DTYPE_OF)
#undef ARETE_DTYPE_OF

/// std::complex<float> and <double>, for headers that do without <complex>, which brings all
/// streams with it: core/complex.h is for files that compute with complex numbers.
template <class T>
concept ComplexNumber = std::is_floating_point_v<typename T::value_type> && requires(const T& v) {
  T(v.real(), v.imag());
};
template <ComplexNumber T>
struct DTypeOf<T> {
  static constexpr DType value = sizeof(T) == 8 ? DType::c64 : DType::c128;
};

}  // namespace arete
