// Philox4x32-10 and the mapping of its lanes to random numbers. Plain scalar code, so that any
// backend can mirror it and vectorizing compilers can widen it.
#pragma once

#include <cstdint>

namespace arete {
enum class DType : uint8_t;
}

namespace arete::prim {

class Primitives;
struct RandomArgs;
struct View;

// Note [Random numbers]
// The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy as
// 1, 2, 3). Key: the two halves of the seed, low first. Counter: the 64-bit block number, low half
// first, then two zeros. One block gives four lanes of 32 bits, L0 to L3.
//
// Element i of an output (row-major position) is made from block offset + i / per_block:
//
//   result                      lanes per element  per_block  from
//   uniform  f32 and narrower   1                  4          L[i % 4]
//   uniform  f64                2                  2          L[2 (i % 2)] low, next high
//   normal   f32 and narrower   1                  4          pair L0 L1 (i even, odd), pair L2 L3
//   normal   f64                2                  2          u1 from L0 L1, u2 from L2 L3
//   integers range <= 2^32      1                  4          L[i % 4]
//   integers range >  2^32      2                  2          L[2 (i % 2)] low, next high
//   bernoulli, every dtype      1                  4          L[i % 4]
//
// uniform: u = (top 24 bits) 2^-24, or (top 53 of 64 bits) 2^-53 for f64; the result is
//   a + u (b - a) with each operation rounded once in that precision, then limited to
//   [smallest value of the dtype >= a, largest value of the dtype < b], then rounded to the dtype:
//   b itself never appears, also not by rounding to a half type.
// normal: Box-Muller. With u1 = L0 2^-32 + 2^-33 (f64: (top 53 bits + 1) 2^-53), r = sqrt(-2 ln
// u1);
//   the angle is (quadrant + g) pi/2 where the quadrant is the top 2 bits of L1 and
//   g in (-1/2, 1/2) is made of the next 22 (f64: 51) bits. Even elements take the cosine, odd ones
//   the sine; the result is a + b z. ln, sin and cos are the polynomials below, evaluated without
//   fused multiply-add, so that every backend and instruction set gives the same bits.
// integers: ia + floor(x range / 2^32), x the lane (or the same with 64 bits).
// bernoulli: 1 if L 2^-32 < p.

/// Four lanes of 32 random bits.
struct PhiloxBlock {
  uint32_t lane[4];
};

// Kernels compile these for several instruction sets; forced inlining keeps the copies apart.
#define ARETE_RANDOM_INLINE [[gnu::always_inline]] inline

/// What a round multiplies lanes 0 and 2 by, and what it adds to the key.
inline constexpr uint32_t kPhiloxFactors[2] = {0xD2511F53u, 0xCD9E8D57u};
inline constexpr uint32_t kPhiloxKeySteps[2] = {0x9E3779B9u, 0xBB67AE85u};

/// One of the ten rounds, and the step of the key after it.
ARETE_RANDOM_INLINE void philox_round(PhiloxBlock& c, uint32_t& k0, uint32_t& k1) {
  const uint64_t p0 = uint64_t(kPhiloxFactors[0]) * c.lane[0],
                 p1 = uint64_t(kPhiloxFactors[1]) * c.lane[2];
  c = {{uint32_t(p1 >> 32) ^ c.lane[1] ^ k0, uint32_t(p1), uint32_t(p0 >> 32) ^ c.lane[3] ^ k1,
        uint32_t(p0)}};
  k0 += kPhiloxKeySteps[0];
  k1 += kPhiloxKeySteps[1];
}

/// Philox4x32-10 of one counter. Written out, since compilers widen only what is no inner loop.
ARETE_RANDOM_INLINE PhiloxBlock philox4x32_10(PhiloxBlock c, uint32_t k0, uint32_t k1) {
  philox_round(c, k0, k1);
  philox_round(c, k0, k1);
  philox_round(c, k0, k1);
  philox_round(c, k0, k1);
  philox_round(c, k0, k1);
  philox_round(c, k0, k1);
  philox_round(c, k0, k1);
  philox_round(c, k0, k1);
  philox_round(c, k0, k1);
  philox_round(c, k0, k1);
  return c;
}

/// Block number `block` of the stream `seed`.
ARETE_RANDOM_INLINE PhiloxBlock philox_block(uint64_t seed, uint64_t block) {
  return philox4x32_10({{uint32_t(block), uint32_t(block >> 32), 0, 0}}, uint32_t(seed),
                       uint32_t(seed >> 32));
}

/// [0, 1) from 24 bits.
ARETE_RANDOM_INLINE float random_unit_f32(uint32_t lane) {
  return float(int32_t(lane >> 8)) * 0x1p-24f;
}
/// [0, 1) from 53 bits.
ARETE_RANDOM_INLINE double random_unit_f64(uint32_t low, uint32_t high) {
  return double(int64_t((uint64_t(high) << 32 | low) >> 11)) * 0x1p-53;
}
/// floor(x * range / 2^64).
ARETE_RANDOM_INLINE uint64_t random_mul_high(uint64_t x, uint64_t range) {
  const uint64_t xl = uint32_t(x), xh = x >> 32, rl = uint32_t(range), rh = range >> 32;
  const uint64_t mid = xh * rl + (xl * rl >> 32), mid2 = xl * rh + uint32_t(mid);
  return xh * rh + (mid >> 32) + (mid2 >> 32);
}

/// Natural logarithm of a normal positive number: u = 2^e m with m in [sqrt(1/2), sqrt(2)), and
/// ln m = 2 atanh((m - 1) / (m + 1)) by its series.
ARETE_RANDOM_INLINE float random_log(float u) {
  const uint32_t t = __builtin_bit_cast(uint32_t, u) - 0x3f3504f3u;
  const float e = float(int32_t(t) >> 23);
  const float m = __builtin_bit_cast(float, (t & 0x7fffffu) + 0x3f3504f3u);
  const float s = (m - 1.0f) / (m + 1.0f), z = s * s;
  float p = z * (1.0f / 9) + 1.0f / 7;
  p = p * z + 1.0f / 5;
  p = p * z + 1.0f / 3;
  p = p * z;
  return e * 0.693147180559945309f + (2.0f * s + 2.0f * s * p);
}
ARETE_RANDOM_INLINE double random_log(double u) {
  const uint64_t t = __builtin_bit_cast(uint64_t, u) - 0x3fe6a09e667f3bcdull;
  const double e = double(int32_t(t >> 32) >> 20);
  const double m = __builtin_bit_cast(double, (t & 0xfffffffffffffull) + 0x3fe6a09e667f3bcdull);
  const double s = (m - 1.0) / (m + 1.0), z = s * s;
  double p = z * (1.0 / 21) + 1.0 / 19;
  p = p * z + 1.0 / 17;
  p = p * z + 1.0 / 15;
  p = p * z + 1.0 / 13;
  p = p * z + 1.0 / 11;
  p = p * z + 1.0 / 9;
  p = p * z + 1.0 / 7;
  p = p * z + 1.0 / 5;
  p = p * z + 1.0 / 3;
  p = p * z;
  return e * 0.693147180559945309417 + (2.0 * s + 2.0 * s * p);
}

/// Two independent values (cosine and sine part).
template <class T>
struct NormalPair {
  T even, odd;
};

/// Turns (cos, sin) of an angle in [-pi/4, pi/4] by `quadrant` right angles.
template <class T>
ARETE_RANDOM_INLINE NormalPair<T> random_turn(T c, T s, uint32_t quadrant) {
  const bool odd = quadrant & 1;
  const T x = odd ? s : c, y = odd ? c : s;
  const bool minus_x = (quadrant ^ (quadrant >> 1)) & 1, minus_y = quadrant & 2;
  return {minus_x ? -x : x, minus_y ? -y : y};
}

/// A pair of standard normal values from two lanes.
ARETE_RANDOM_INLINE NormalPair<float> random_normal_f32(uint32_t l0, uint32_t l1) {
  // Two exact halves of the lane: every conversion is of a signed number.
  const float u1 =
      (float(int32_t(l0 >> 16)) * 65536.0f + float(int32_t(l0 & 0xffffu))) * 0x1p-32f + 0x1p-33f;
  const float r = __builtin_sqrtf(-2.0f * random_log(u1));
  const int32_t k = int32_t(l1 >> 8 & 0x3fffffu);
  const float g = (float(k) + 0.5f) * 0x1p-22f - 0.5f;
  const float x = g * 1.57079632679489662f, z = x * x;
  float s = z * (1.0f / 362880) - 1.0f / 5040;
  s = s * z + 1.0f / 120;
  s = s * z - 1.0f / 6;
  s = s * z * x + x;
  float c = z * (-1.0f / 3628800) + 1.0f / 40320;
  c = c * z - 1.0f / 720;
  c = c * z + 1.0f / 24;
  c = c * z - 0.5f;
  c = c * z + 1.0f;
  return random_turn(r * c, r * s, l1 >> 30);
}
/// A pair of standard normal values from the four lanes of a block.
ARETE_RANDOM_INLINE NormalPair<double> random_normal_f64(uint32_t l0, uint32_t l1, uint32_t l2,
                                                         uint32_t l3) {
  const double u1 = random_unit_f64(l0, l1) + 0x1p-53;
  const double r = __builtin_sqrt(-2.0 * random_log(u1));
  const int64_t k = int64_t((uint64_t(l3) << 32 | l2) >> 11 & 0x7ffffffffffffull);
  const double g = (double(k) + 0.5) * 0x1p-51 - 0.5;
  const double x = g * 1.57079632679489661923, z = x * x;
  double s = z * (1.0 / 355687428096000.0) - 1.0 / 1307674368000.0;
  s = s * z + 1.0 / 6227020800.0;
  s = s * z - 1.0 / 39916800.0;
  s = s * z + 1.0 / 362880.0;
  s = s * z - 1.0 / 5040.0;
  s = s * z + 1.0 / 120.0;
  s = s * z - 1.0 / 6.0;
  s = s * z * x + x;
  double c = z * (1.0 / 20922789888000.0) - 1.0 / 87178291200.0;
  c = c * z + 1.0 / 479001600.0;
  c = c * z - 1.0 / 3628800.0;
  c = c * z + 1.0 / 40320.0;
  c = c * z - 1.0 / 720.0;
  c = c * z + 1.0 / 24.0;
  c = c * z - 0.5;
  c = c * z + 1.0;
  return random_turn(r * c, r * s, l3 >> 30);
}

/// The values that limit a uniform result in `dtype`: the smallest >= a and the largest < b. Where
/// there is none (a == b, or both between two neighbours), both are a rounded to the dtype.
struct UniformLimits {
  double low, high;
};
UniformLimits uniform_limits(DType dtype, double a, double b);

/// Moves seed and offset as a random call's state, in the host's memory, says (RandomArgs).
void apply_random_state(const View& state, uint64_t& seed, uint64_t& offset);

/// What is drawn: `out`, or what a program makes it of.
DType random_dtype(const RandomArgs& args);
/// Elements made from one block: 4, or 2 where an element takes two lanes.
int random_elements_per_block(const RandomArgs& args);
/// How far the offset of a stream must move on so that the next call shares no block with this.
uint64_t random_blocks(const RandomArgs& args);

/// A call with a program in two: the numbers go to memory first.
void random_in_two(Primitives& on, const RandomArgs& args);

}  // namespace arete::prim
