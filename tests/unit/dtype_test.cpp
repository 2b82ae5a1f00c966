// Element types: promotion against PyTorch's table, limits, names; numbers.
#include "arete/core/dtype.h"
#include "arete/core/complex.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <type_traits>

#include "arete/base/error.h"
#include "arete/core/scalar.h"

namespace arete {
namespace {

// torch.promote_types(row, column), rows and columns in the order of `kOrder`; transcribed from the
// documented table of PyTorch 2 (complex32 left out, it has no counterpart here).
constexpr std::array kOrder = {kUInt8,   kInt8,    kInt16,     kInt32,      kInt64, kFloat16,
                               kFloat32, kFloat64, kComplex64, kComplex128, kBool,  kBFloat16};
constexpr DType u1 = kUInt8, i1 = kInt8, i2 = kInt16, i4 = kInt32, i8 = kInt64, f2 = kFloat16,
                f4 = kFloat32, f8 = kFloat64, c4 = kComplex64, c8 = kComplex128, b1 = kBool,
                bf = kBFloat16;
constexpr DType kTable[12][12] = {
    /*        u1  i1  i2  i4  i8  f2  f4  f8  c4  c8  b1  bf */
    /* u1 */ {u1, i2, i2, i4, i8, f2, f4, f8, c4, c8, u1, bf},
    /* i1 */ {i2, i1, i2, i4, i8, f2, f4, f8, c4, c8, i1, bf},
    /* i2 */ {i2, i2, i2, i4, i8, f2, f4, f8, c4, c8, i2, bf},
    /* i4 */ {i4, i4, i4, i4, i8, f2, f4, f8, c4, c8, i4, bf},
    /* i8 */ {i8, i8, i8, i8, i8, f2, f4, f8, c4, c8, i8, bf},
    /* f2 */ {f2, f2, f2, f2, f2, f2, f4, f8, c4, c8, f2, f4},
    /* f4 */ {f4, f4, f4, f4, f4, f4, f4, f8, c4, c8, f4, f4},
    /* f8 */ {f8, f8, f8, f8, f8, f8, f8, f8, c8, c8, f8, f8},
    /* c4 */ {c4, c4, c4, c4, c4, c4, c4, c8, c4, c8, c4, c4},
    /* c8 */ {c8, c8, c8, c8, c8, c8, c8, c8, c8, c8, c8, c8},
    /* b1 */ {u1, i1, i2, i4, i8, f2, f4, f8, c4, c8, b1, bf},
    /* bf */ {bf, bf, bf, bf, bf, f4, f4, f8, c4, c8, bf, bf},
};

TEST(DType, PromotesAsPyTorch) {
  for (size_t i = 0; i < kOrder.size(); ++i)
    for (size_t j = 0; j < kOrder.size(); ++j)
      EXPECT_EQ(promote_types(kOrder[i], kOrder[j]), kTable[i][j])
          << name_of(kOrder[i]) << " " << name_of(kOrder[j]);
}

TEST(DType, Float8PromotesOnlyWithItself) {
  EXPECT_EQ(promote_types(kFloat8E4M3, kFloat8E4M3), kFloat8E4M3);
  EXPECT_EQ(promote_types(kFloat8E5M2, kFloat8E5M2), kFloat8E5M2);
  for (int i = 0; i < kNumDTypes; ++i) {
    if (DType(i) == kFloat8E4M3) continue;
    EXPECT_THROW(promote_types(kFloat8E4M3, DType(i)), TypeError);
    EXPECT_THROW(promote_types(DType(i), kFloat8E4M3), TypeError);
  }
}

TEST(DType, UnsignedIntegersPromoteWithFloatsOnly) {
  const auto is_new = [](DType t) { return t == kUInt16 || t == kUInt32 || t == kUInt64; };
  for (DType t : {kUInt16, kUInt32, kUInt64})
    for (int i = 0; i < kNumDTypes; ++i) {
      const DType other = DType(i);
      if (other == t || (is_floating(other) && !is_float8(other))) {
        EXPECT_EQ(promote_types(t, other), other);
        EXPECT_EQ(promote_types(other, t), other);
      } else {
        EXPECT_THROW(promote_types(t, other), TypeError) << name_of(other);
        EXPECT_THROW(promote_types(other, t), TypeError) << name_of(other);
      }
      EXPECT_EQ(is_unsigned(other), other == kUInt8 || is_new(other));
    }
}

TEST(Scalar, HoldsUnsignedIntegers) {
  const Scalar large(uint64_t(1) << 63), small(uint64_t(7));
  EXPECT_TRUE(large.is_large());
  EXPECT_FALSE(small.is_large());
  EXPECT_FALSE(large == Scalar(INT64_MIN));
  EXPECT_EQ(large.dtype(), kUInt64);
  EXPECT_EQ(large.to_double(), 0x1p63);
  EXPECT_EQ(large.to_string(), "9223372036854775808");
  EXPECT_EQ(large.to_bits(), uint64_t(1) << 63);
  EXPECT_THROW(large.to_int64(), ValueError);
  EXPECT_EQ(small.to_int64(), 7);
}

template <class T>
void check_limits() {
  EXPECT_EQ(max_of(dtype_of<T>), double(std::numeric_limits<T>::max()));
  EXPECT_EQ(lowest_of(dtype_of<T>), double(std::numeric_limits<T>::lowest()));
  EXPECT_EQ(epsilon_of(dtype_of<T>), double(std::numeric_limits<T>::epsilon()));
}

TEST(DType, LimitsOfStandardTypes) {
  check_limits<bool>();
  check_limits<uint8_t>();
  check_limits<int8_t>();
  check_limits<int16_t>();
  check_limits<int32_t>();
  check_limits<int64_t>();
  check_limits<uint16_t>();
  check_limits<uint32_t>();
  check_limits<uint64_t>();
  check_limits<float>();
  check_limits<double>();
}

// The limits of the reduced formats, found in their patterns.
template <class T>
void check_reduced_limits(uint32_t largest_finite) {
  T largest, one(1.0f), next = one;
  largest.bits = decltype(largest.bits)(largest_finite);
  ++next.bits;
  EXPECT_EQ(max_of(dtype_of<T>), double(float(largest)));
  EXPECT_EQ(lowest_of(dtype_of<T>), -double(float(largest)));
  EXPECT_EQ(epsilon_of(dtype_of<T>), double(float(next)) - 1);
}

TEST(DType, LimitsOfReducedTypes) {
  check_reduced_limits<Half>(0x7bff);
  check_reduced_limits<BFloat16>(0x7f7f);
  check_reduced_limits<Float8E4M3>(0x7e);
  check_reduced_limits<Float8E5M2>(0x7b);
}

TEST(DType, SizesAreThoseOfTheTypes) {
  for (int i = 0; i < kNumDTypes; ++i)
    visit_dtype(DType(i), [i]<class T>(TypeTag<T>) {
      EXPECT_EQ(size_of(DType(i)), sizeof(T));
      EXPECT_EQ(dtype_of<T>, DType(i));
    });
}

TEST(DType, ParsesNames) {
  for (int i = 0; i < kNumDTypes; ++i) EXPECT_EQ(parse_dtype(name_of(DType(i))), DType(i));
  EXPECT_EQ(parse_dtype("half"), kFloat16);
  EXPECT_EQ(parse_dtype("float"), kFloat32);
  EXPECT_EQ(parse_dtype("long"), kInt64);
  EXPECT_EQ(parse_dtype("bf16"), kBFloat16);
  try {
    parse_dtype("float31");
    FAIL();
  } catch (const TypeError& e) {
    EXPECT_EQ(e.Error::got(), "'float31'");
  }
}

TEST(DType, DefaultTypeIsFloating) {
  EXPECT_EQ(default_dtype(), kFloat32);
  set_default_dtype(kFloat64);
  EXPECT_EQ(default_dtype(), kFloat64);
  EXPECT_EQ(Scalar(1.5).dtype(), kFloat64);
  EXPECT_EQ(Scalar(std::complex<double>(1, 2)).dtype(), kComplex128);
  set_default_dtype(kFloat32);
  EXPECT_THROW(set_default_dtype(kInt32), TypeError);
  EXPECT_THROW(set_default_dtype(kFloat8E5M2), TypeError);
  EXPECT_EQ(default_dtype(), kFloat32);
}

TEST(Scalar, PrintsAsPython) {
  EXPECT_EQ(Scalar(true).to_string(), "True");
  EXPECT_EQ(Scalar(-3).to_string(), "-3");
  EXPECT_EQ(Scalar(2.0).to_string(), "2.0");
  EXPECT_EQ(Scalar(0.1).to_string(), "0.1");
  EXPECT_EQ(Scalar(1e-5).to_string(), "1e-05");
  EXPECT_EQ(Scalar(1e20).to_string(), "1e+20");
  EXPECT_EQ(Scalar(-std::numeric_limits<double>::infinity()).to_string(), "-inf");
  EXPECT_EQ(Scalar(std::complex<double>(1, -2)).to_string(), "(1.0-2.0j)");
  EXPECT_EQ(Scalar(7).dtype(), kInt64);
  EXPECT_EQ(Scalar(false).dtype(), kBool);
}

}  // namespace
}  // namespace arete
