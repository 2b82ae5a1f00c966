// Exhaustive tests of the reduced floating formats.
#include "arete/core/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace arete {
namespace {

uint32_t bits_of(float v) { return std::bit_cast<uint32_t>(v); }

// Values of every exponent with mantissas at and around the places where rounding decides.
std::vector<float> interesting_floats() {
  std::vector<float> out;
  for (uint32_t exponent = 0; exponent < 256; ++exponent)
    for (uint32_t sign = 0; sign < 2; ++sign)
      for (int bit = 0; bit <= 23; ++bit)
        for (uint32_t low = 0; low < 16; ++low)
          for (int delta = -1; delta <= 1; ++delta) {
            const uint32_t mantissa = ((low << bit) + uint32_t(delta)) & 0x7fffffu;
            out.push_back(std::bit_cast<float>(sign << 31 | exponent << 23 | mantissa));
          }
  return out;
}

// The value of a bit pattern from the definition of the format.
double decode_by_definition(uint32_t v, int e_bits, int m_bits) {
  const int bias = (1 << (e_bits - 1)) - 1;
  const int exponent = int(v >> m_bits) & ((1 << e_bits) - 1);
  const int mantissa = int(v) & ((1 << m_bits) - 1);
  const double magnitude = exponent == 0
                               ? std::ldexp(mantissa, 1 - bias - m_bits)
                               : std::ldexp(mantissa + (1 << m_bits), exponent - bias - m_bits);
  return (v >> (e_bits + m_bits)) & 1 ? -magnitude : magnitude;
}

template <class T>
void check_round_trip(uint32_t patterns) {
  for (uint32_t v = 0; v < patterns; ++v) {
    T t;
    t.bits = decltype(t.bits)(v);
    const float f = t;
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(float(T(f)))) << v;
      EXPECT_EQ(std::signbit(float(T(f))), std::signbit(f)) << v;
    } else {
      EXPECT_EQ(T(f).bits, t.bits) << v;
    }
  }
}

// Nearest value with ties to the even pattern, found by search over all patterns.
template <class T>
void check_nearest(int e_bits, int m_bits, uint32_t largest, bool has_infinity) {
  const double unit = decode_by_definition(largest, e_bits, m_bits) -
                      decode_by_definition(largest - 1, e_bits, m_bits);
  for (float f : interesting_floats()) {
    const T got(f);
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(float(got)));
      continue;
    }
    const double magnitude = std::fabs(double(f));
    const double limit = decode_by_definition(largest, e_bits, m_bits) + unit / 2;
    const bool largest_is_even = largest % 2 == 0;
    if (magnitude > limit || (magnitude == limit && !largest_is_even)) {
      EXPECT_TRUE(has_infinity ? std::isinf(float(got)) : std::isnan(float(got))) << f;
      continue;
    }
    uint32_t low = 0, high = largest;  // patterns of positive numbers are in order
    while (low < high) {
      const uint32_t middle = (low + high + 1) / 2;
      if (decode_by_definition(middle, e_bits, m_bits) <= magnitude)
        low = middle;
      else
        high = middle - 1;
    }
    uint32_t nearest = low;
    if (low < largest) {
      const double below = magnitude - decode_by_definition(low, e_bits, m_bits);
      const double above = decode_by_definition(low + 1, e_bits, m_bits) - magnitude;
      if (above < below || (above == below && low % 2 == 1)) nearest = low + 1;
    }
    const uint32_t sign = std::signbit(f) ? 1u << (e_bits + m_bits) : 0u;
    ASSERT_EQ(uint32_t(got.bits), sign | nearest) << std::hexfloat << f;
  }
}

TEST(Half, DecodesEveryPatternLikeTheCompiler) {
  for (uint32_t v = 0; v < 65536; ++v) {
    Half h;
    h.bits = uint16_t(v);
    _Float16 reference;
    std::memcpy(&reference, &h.bits, 2);
    const float expected = float(reference);
    if (std::isnan(expected))
      EXPECT_TRUE(std::isnan(float(h)));
    else
      EXPECT_EQ(bits_of(h), bits_of(expected)) << v;
  }
}

TEST(Half, EncodesLikeTheCompiler) {
  for (float f : interesting_floats()) {
    const _Float16 reference = _Float16(f);
    uint16_t expected;
    std::memcpy(&expected, &reference, 2);
    if (std::isnan(f))
      EXPECT_TRUE(std::isnan(float(Half(f))));
    else
      ASSERT_EQ(Half(f).bits, expected) << std::hexfloat << f;
  }
}

TEST(Half, RoundTrips) { check_round_trip<Half>(65536); }
TEST(BFloat16, RoundTrips) { check_round_trip<BFloat16>(65536); }
TEST(Float8E4M3, RoundTrips) { check_round_trip<Float8E4M3>(256); }
TEST(Float8E5M2, RoundTrips) { check_round_trip<Float8E5M2>(256); }

TEST(Half, RoundsToNearestEven) { check_nearest<Half>(5, 10, 0x7bff, true); }
TEST(BFloat16, RoundsToNearestEven) { check_nearest<BFloat16>(8, 7, 0x7f7f, true); }
TEST(Float8E4M3, RoundsToNearestEven) { check_nearest<Float8E4M3>(4, 3, 0x7e, false); }
TEST(Float8E5M2, RoundsToNearestEven) { check_nearest<Float8E5M2>(5, 2, 0x7b, true); }

TEST(Float8E4M3, DecodesByDefinition) {
  for (uint32_t v = 0; v < 256; ++v) {
    Float8E4M3 t;
    t.bits = uint8_t(v);
    if ((v & 0x7f) == 0x7f)
      EXPECT_TRUE(std::isnan(float(t)));
    else
      EXPECT_EQ(double(float(t)), decode_by_definition(v, 4, 3)) << v;
  }
  EXPECT_EQ(float(Float8E4M3(448.0f)), 448.0f);
  EXPECT_TRUE(std::isnan(float(Float8E4M3(std::numeric_limits<float>::infinity()))));
}

TEST(Float8E5M2, DecodesByDefinition) {
  for (uint32_t v = 0; v < 256; ++v) {
    Float8E5M2 t;
    t.bits = uint8_t(v);
    if ((v & 0x7f) > 0x7c)
      EXPECT_TRUE(std::isnan(float(t)));
    else if ((v & 0x7f) == 0x7c)
      EXPECT_TRUE(std::isinf(float(t)));
    else
      EXPECT_EQ(double(float(t)), decode_by_definition(v, 5, 2)) << v;
  }
}

TEST(Half, IsConstexpr) {
  static_assert(Half(1.5f).bits == 0x3e00 && float(Half(65520.0f)) > 65504.0f);
  static_assert(float(Half(0x1p-24f)) == 0x1p-24f && Half(0x1p-25f).bits == 0);
  static_assert(BFloat16(1.0f).bits == 0x3f80 && float(Float8E4M3(1.0f)) == 1.0f);
  static_assert(float(Float8E5M2(0x1p-16f)) == 0x1p-16f);
}

}  // namespace
}  // namespace arete
