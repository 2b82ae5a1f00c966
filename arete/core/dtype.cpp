#include "arete/core/dtype.h"

#include <atomic>
#include <limits>
#include <string>
#include <utility>

#include "arete/base/error.h"

namespace arete {

namespace {

std::string both(DType a, DType b) {
  return std::string(name_of(a)) + " and " + std::string(name_of(b));
}

// The complex type with parts of floating type `t`.
DType complex_of(DType t) { return t == kFloat64 ? kComplex128 : kComplex64; }

constinit std::atomic<DType> default_slot{kFloat32};

}  // namespace

double epsilon_of(DType t) {
  switch (t) {
    case DType::f16:
      return 0x1p-10;
    case DType::bf16:
      return 0x1p-7;
    case DType::f8e4m3:
      return 0x1p-3;
    case DType::f8e5m2:
      return 0x1p-2;
    case DType::f32:
    case DType::c64:
      return std::numeric_limits<float>::epsilon();
    case DType::f64:
    case DType::c128:
      return std::numeric_limits<double>::epsilon();
    default:
      return 0;
  }
}

double max_of(DType t) {
  switch (t) {
    case DType::boolean:
      return 1;
    case DType::u8:
      return 255;
    case DType::u16:
      return 65535;
    case DType::u32:
      return 4294967295;
    case DType::u64:
      return double(std::numeric_limits<uint64_t>::max());
    case DType::i8:
      return 127;
    case DType::i16:
      return 32767;
    case DType::i32:
      return 2147483647;
    case DType::i64:
      return double(std::numeric_limits<int64_t>::max());
    case DType::f16:
      return 65504;
    case DType::bf16:
      return 0x1.fep127;
    case DType::f8e4m3:
      return 448;
    case DType::f8e5m2:
      return 57344;
    case DType::f32:
    case DType::c64:
      return std::numeric_limits<float>::max();
    case DType::f64:
    case DType::c128:
      return std::numeric_limits<double>::max();
  }
  __builtin_unreachable();
}

double lowest_of(DType t) {
  switch (t) {
    case DType::boolean:
    case DType::u8:
    case DType::u16:
    case DType::u32:
    case DType::u64:
      return 0;
    case DType::i8:
      return -128;
    case DType::i16:
      return -32768;
    case DType::i32:
      return -2147483648.0;
    case DType::i64:
      return -0x1p63;
    default:
      return -max_of(t);
  }
}

DType promote_types(DType a, DType b) {
  if (a == b) return a;
  ARETE_CHECK(!is_float8(a) && !is_float8(b),
              TypeError("", "Promotion for Float8 Types is not supported")
                  .got(both(a, b))
                  .hint("convert the 8-bit tensor first, e.g. x.to(float32)"));
  const bool a_new = a >= kUInt16, b_new = b >= kUInt16;
  if (a_new != b_new && is_floating(a_new ? b : a)) return a_new ? b : a;
  ARETE_CHECK(!a_new && !b_new,
              TypeError("", "Promotion for uint16, uint32, uint64 types is not supported")
                  .got(both(a, b))
                  .hint("convert one of the tensors first, e.g. x.to(int64)"));
  // The higher category decides: boolean, integer, floating, complex.
  if (category_of(a) < category_of(b)) std::swap(a, b);
  if (category_of(a) == 3) {
    if (category_of(b) == 2) return a == kComplex128 ? a : complex_of(b);
    return is_complex(b) ? kComplex128 : a;
  }
  if (category_of(a) != category_of(b)) return a;
  if (is_integer(a)) {
    // Sizes order the signed ones. u8 fits into every signed type but i8, which needs i16.
    if (a != kUInt8 && b != kUInt8) return size_of(a) > size_of(b) ? a : b;
    const DType is_signed = a == kUInt8 ? b : a;
    return is_signed == kInt8 ? kInt16 : is_signed;
  }
  // The 16-bit formats do not contain one another.
  if (size_of(a) == size_of(b)) return kFloat32;
  return size_of(a) > size_of(b) ? a : b;
}

DType default_dtype() noexcept { return default_slot.load(std::memory_order_relaxed); }

void set_default_dtype(DType t) {
  ARETE_CHECK(
      is_floating(t) && !is_float8(t),
      TypeError("set_default_dtype", "only floating-point types are supported as the default type")
          .argument("t")
          .expected("float16, bfloat16, float32 or float64")
          .got(name_of(t)));
  default_slot.store(t, std::memory_order_relaxed);
}

DType parse_dtype(std::string_view text) {
  struct Alias {
    std::string_view name;
    DType dtype;
  };
  constexpr Alias kAliases[] = {
      {"u8", kUInt8},           {"byte", kUInt8},         {"i8", kInt8},
      {"char", kInt8},          {"i16", kInt16},          {"short", kInt16},
      {"i32", kInt32},          {"int", kInt32},          {"i64", kInt64},
      {"long", kInt64},         {"f16", kFloat16},        {"half", kFloat16},
      {"f32", kFloat32},        {"float", kFloat32},      {"f64", kFloat64},
      {"double", kFloat64},     {"c64", kComplex64},      {"cfloat", kComplex64},
      {"c128", kComplex128},    {"cdouble", kComplex128}, {"boolean", kBool},
      {"bf16", kBFloat16},      {"f8e4m3", kFloat8E4M3},  {"f8e5m2", kFloat8E5M2},
      {"u16", kUInt16},         {"u32", kUInt32},         {"u64", kUInt64},
      {"f8_e4m3", kFloat8E4M3}, {"f8_e5m2", kFloat8E5M2}, {"float8_e4m3", kFloat8E4M3},
  };
  for (int i = 0; i < kNumDTypes; ++i)
    if (name_of(DType(i)) == text) return DType(i);
  for (const Alias& alias : kAliases)
    if (alias.name == text) return alias.dtype;
  std::string known;
  for (int i = 0; i < kNumDTypes; ++i) known += (i ? ", " : "") + std::string(name_of(DType(i)));
  throw TypeError("", "unknown dtype").expected(known).got("'" + std::string(text) + "'");
}

}  // namespace arete
