// Storage types of reduced precision. They convert to and from float, round to nearest even, and
// do no arithmetic: programs compute in f32 (see expr/program.h).
#pragma once

#include <bit>
#include <cstdint>

namespace arete {

namespace detail {
// A branch-free choice: compilers turn `?:` around floating arithmetic into a jump, which keeps
// loops from vectorizing.
constexpr uint32_t choose(bool condition, uint32_t a, uint32_t b) {
  const uint32_t mask = 0u - uint32_t(condition);
  return (a & mask) | (b & ~mask);
}

// Rounds an f32 to a small format with `E` exponent and `M` mantissa bits, half to even. `kFinite`:
// the format has no infinity and one NaN pattern; overflow becomes NaN (e4m3fn). Straight-line
// code with selects, so that loops over it vectorize.
template <int E, int M, bool kFinite>
constexpr uint32_t encode_small_float(float value) {
  constexpr int kBias = (1 << (E - 1)) - 1;
  constexpr uint32_t kInf = ((1u << E) - 1) << M;
  constexpr uint32_t kNan = kFinite ? (kInf | ((1u << M) - 1)) : (kInf | (1u << (M - 1)));
  constexpr uint32_t kOverflow = kFinite ? kNan : kInf;
  constexpr int kShift = 23 - M;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t abs = bits & 0x7fffffffu;
  // Normal results: exponent rebased, mantissa rounded; a carry runs into the exponent as it
  // should.
  const uint32_t rebased = abs - (uint32_t(127 - kBias) << 23);
  const uint32_t normal =
      (rebased + ((1u << (kShift - 1)) - 1) + ((rebased >> kShift) & 1)) >> kShift;
  // Subnormal results are multiples of 2^(1 - kBias - M): adding 2^23 of those rounds to one.
  constexpr uint32_t kMagic = uint32_t(127 + 23 + 1 - kBias - M) << 23;
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(abs) + std::bit_cast<float>(kMagic)) - kMagic;
  uint32_t result = choose(abs < (uint32_t(128 - kBias) << 23), subnormal, normal);
  result = result > kOverflow || abs == 0x7f800000u ? kOverflow : result;
  result = abs > 0x7f800000u ? kNan : result;
  return (bits >> 31) << (E + M) | result;
}

template <int E, int M, bool kFinite>
constexpr float decode_small_float(uint32_t v) {
  constexpr int kBias = (1 << (E - 1)) - 1;
  constexpr uint32_t kInf = ((1u << E) - 1) << M;
  constexpr uint32_t kNan = kInf | ((1u << M) - 1);
  constexpr int kShift = 23 - M;
  const uint32_t abs = v & ((1u << (E + M)) - 1);
  const uint32_t normal = (abs << kShift) + (uint32_t(127 - kBias) << 23);
  // A subnormal number is its mantissa, a small whole number, times a power of two.
  const uint32_t subnormal = std::bit_cast<uint32_t>(
      float(int32_t(abs)) * std::bit_cast<float>(uint32_t(127 + 1 - kBias - M) << 23));
  uint32_t result = choose(abs < (1u << M), subnormal, normal);
  if constexpr (kFinite)
    result = choose(abs == kNan, 0x7fc00000u, result);
  else
    result = choose(abs >= kInf, 0x7f800000u | (abs - kInf) << kShift, result);
  return std::bit_cast<float>(((v >> (E + M)) & 1u) << 31 | result);
}
}  // namespace detail

/// IEEE 754 binary16.
struct Half {
  uint16_t bits = 0;
  Half() = default;
  constexpr Half(float v) : bits(uint16_t(detail::encode_small_float<5, 10, false>(v))) {}
  constexpr operator float() const { return detail::decode_small_float<5, 10, false>(bits); }
};

/// The upper half of an f32.
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  constexpr BFloat16(float v) {
    const uint32_t b = std::bit_cast<uint32_t>(v);
    bits = (b & 0x7fffffffu) > 0x7f800000u ? uint16_t((b >> 16) | 0x40)
                                           : uint16_t((b + 0x7fffu + ((b >> 16) & 1)) >> 16);
  }
  constexpr operator float() const { return std::bit_cast<float>(uint32_t(bits) << 16); }
};

/// OCP 8-bit float, 4 exponent and 3 mantissa bits, no infinity; overflow becomes NaN.
struct Float8E4M3 {
  uint8_t bits = 0;
  Float8E4M3() = default;
  constexpr Float8E4M3(float v) : bits(uint8_t(detail::encode_small_float<4, 3, true>(v))) {}
  constexpr operator float() const { return detail::decode_small_float<4, 3, true>(bits); }
};

/// OCP 8-bit float, 5 exponent and 2 mantissa bits.
struct Float8E5M2 {
  uint8_t bits = 0;
  Float8E5M2() = default;
  constexpr Float8E5M2(float v) : bits(uint8_t(detail::encode_small_float<5, 2, false>(v))) {}
  constexpr operator float() const { return detail::decode_small_float<5, 2, false>(bits); }
};

}  // namespace arete
