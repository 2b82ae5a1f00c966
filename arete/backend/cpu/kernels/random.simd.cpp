// Philox numbers, 16 blocks at a time: arrays of that length become vector registers.
#include "arete/backend/cpu/kernels/random_table.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=off")  // the same bits with and without fused multiply-add
#else
#pragma STDC FP_CONTRACT OFF
#endif

#include "arete/backend/cpu/kernels/simd.inl.h"
#include "arete/prim/philox.h"

namespace arete::cpu::kernels::ARETE_SIMD_TARGET {
namespace {

constexpr int kGroup = int(kRandomGroup);

struct Lanes {
  uint32_t l[4][kGroup];
};

// A lane of the counter is the low half of a number of 64 bits, whose high half is whatever it is:
// so the products of a round are one instruction, and what a round moves from high halves to low
// ones is one shift, where 32 bits would have to be taken apart and put together again.
typedef uint64_t Wide __attribute__((vector_size(kVectorBytes)));
typedef uint32_t Narrow __attribute__((vector_size(kVectorBytes / 2)));
constexpr int kWide = kVectorBytes / 8;

/// Of the low halves.
[[gnu::always_inline]] inline Wide product(Wide a, Wide b) {
#if defined(__AVX512F__)
  return Wide(_mm512_mul_epu32(__m512i(a), __m512i(b)));
#elif defined(__AVX2__)
  return Wide(_mm256_mul_epu32(__m256i(a), __m256i(b)));
#elif defined(__SSE2__)
  return Wide(_mm_mul_epu32(__m128i(a), __m128i(b)));
#else
  return (a & 0xffffffffu) * (b & 0xffffffffu);
#endif
}

// philox_block() of 16 block numbers.
[[gnu::always_inline]] inline void generate(Lanes& out, uint64_t seed, uint64_t block) {
  constexpr int kAtOnce = 2;  // that do not wait for each other
  for (int first = 0; first < kGroup; first += kAtOnce * kWide) {
    Wide c[kAtOnce][4];
    for (int v = 0; v < kAtOnce; ++v) {
      for (int j = 0; j < kWide; ++j) c[v][0][j] = block + uint64_t(first + v * kWide + j);
      c[v][1] = c[v][0] >> 32;
      c[v][2] = c[v][3] = Wide{};
    }
    uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
#pragma GCC unroll 2
      for (int v = 0; v < kAtOnce; ++v) {
        const Wide p0 = product(c[v][0], Wide{} + prim::kPhiloxFactors[0]),
                   p1 = product(c[v][2], Wide{} + prim::kPhiloxFactors[1]);
        c[v][0] = (p1 >> 32) ^ c[v][1] ^ (Wide{} + k0);
        c[v][2] = (p0 >> 32) ^ c[v][3] ^ (Wide{} + k1);
        c[v][1] = p1;
        c[v][3] = p0;
      }
      k0 += prim::kPhiloxKeySteps[0];
      k1 += prim::kPhiloxKeySteps[1];
    }
    for (int v = 0; v < kAtOnce; ++v)
      for (int k = 0; k < 4; ++k) {
        const Narrow low = __builtin_convertvector(c[v][k], Narrow);
        __builtin_memcpy(&out.l[k][first + v * kWide], &low, sizeof(low));
      }
  }
}

// Not std::clamp: see kernel_table.h.
template <class T>
[[gnu::always_inline]] inline T limit(T v, T low, T high) {
  v = v < low ? low : v;
  return v > high ? high : v;
}

void lanes(uint32_t* out, uint64_t seed, uint64_t block, int64_t blocks) {
  Lanes x;
  for (int64_t b = 0; b < blocks; b += kGroup, out += 4 * kGroup) {
    generate(x, seed, block + uint64_t(b));
    for (int j = 0; j < kGroup; ++j)
      for (int k = 0; k < 4; ++k) out[4 * j + k] = x.l[k][j];
  }
}

void uniform_f32(float* out, uint64_t seed, uint64_t block, int64_t blocks, float a, float range,
                 float low, float high) {
  Lanes x;
  for (int64_t b = 0; b < blocks; b += kGroup, out += 4 * kGroup) {
    generate(x, seed, block + uint64_t(b));
    for (int j = 0; j < kGroup; ++j)
      for (int k = 0; k < 4; ++k)
        out[4 * j + k] = limit(prim::random_unit_f32(x.l[k][j]) * range + a, low, high);
  }
}

void uniform_f64(double* out, uint64_t seed, uint64_t block, int64_t blocks, double a, double range,
                 double low, double high) {
  Lanes x;
  for (int64_t b = 0; b < blocks; b += kGroup, out += 2 * kGroup) {
    generate(x, seed, block + uint64_t(b));
    for (int j = 0; j < kGroup; ++j)
      for (int k = 0; k < 2; ++k)
        out[2 * j + k] =
            limit(prim::random_unit_f64(x.l[2 * k][j], x.l[2 * k + 1][j]) * range + a, low, high);
  }
}

void normal_f32(float* out, uint64_t seed, uint64_t block, int64_t blocks, float mean,
                float deviation) {
  Lanes x;
  float y[4][kGroup];
  for (int64_t b = 0; b < blocks; b += kGroup, out += 4 * kGroup) {
    generate(x, seed, block + uint64_t(b));
    for (int k = 0; k < 4; k += 2)
      for (int j = 0; j < kGroup; ++j) {
        const auto z = prim::random_normal_f32(x.l[k][j], x.l[k + 1][j]);
        y[k][j] = z.even * deviation + mean;
        y[k + 1][j] = z.odd * deviation + mean;
      }
    for (int j = 0; j < kGroup; ++j)
      for (int k = 0; k < 4; ++k) out[4 * j + k] = y[k][j];
  }
}

void normal_f64(double* out, uint64_t seed, uint64_t block, int64_t blocks, double mean,
                double deviation) {
  Lanes x;
  for (int64_t b = 0; b < blocks; b += kGroup, out += 2 * kGroup) {
    generate(x, seed, block + uint64_t(b));
    for (int j = 0; j < kGroup; ++j) {
      const auto z = prim::random_normal_f64(x.l[0][j], x.l[1][j], x.l[2][j], x.l[3][j]);
      out[2 * j] = z.even * deviation + mean;
      out[2 * j + 1] = z.odd * deviation + mean;
    }
  }
}

void wide_integers(int64_t* out, uint64_t seed, uint64_t block, int64_t blocks, uint64_t start,
                   uint64_t range) {
  Lanes x;
  for (int64_t b = 0; b < blocks; b += kGroup, out += 2 * kGroup) {
    generate(x, seed, block + uint64_t(b));
    for (int j = 0; j < kGroup; ++j)
      for (int k = 0; k < 2; ++k)
        out[2 * j + k] =
            int64_t(start + prim::random_mul_high(uint64_t(x.l[2 * k + 1][j]) << 32 | x.l[2 * k][j],
                                                  range));
  }
}

// The four elements of a block as one number, a byte each.
[[gnu::always_inline]] inline void keep_bytes(uint32_t* out, const Lanes& x, uint32_t last) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && sizeof(bool) == 1);
  for (int j = 0; j < kGroup; ++j)
    out[j] = uint32_t(x.l[0][j] <= last) | uint32_t(x.l[1][j] <= last) << 8 |
             uint32_t(x.l[2][j] <= last) << 16 | uint32_t(x.l[3][j] <= last) << 24;
}

void bernoulli_bool(bool* out, uint64_t seed, uint64_t block, int64_t blocks, uint32_t last) {
  Lanes x;
  uint32_t bytes[kGroup];
  for (int64_t b = 0; b < blocks; b += kGroup, out += 4 * kGroup) {
    generate(x, seed, block + uint64_t(b));
    keep_bytes(bytes, x, last);
    __builtin_memcpy(out, bytes, sizeof(bytes));
  }
}

void bernoulli_f32(float* out, uint64_t seed, uint64_t block, int64_t blocks, uint32_t last) {
  Lanes x;
  for (int64_t b = 0; b < blocks; b += kGroup, out += 4 * kGroup) {
    generate(x, seed, block + uint64_t(b));
    for (int j = 0; j < kGroup; ++j)
      for (int k = 0; k < 4; ++k) out[4 * j + k] = float(x.l[k][j] <= last);
  }
}

void dropout_f32(float* out, const float* in, uint64_t seed, uint64_t block, int64_t blocks,
                 uint32_t last, float scale) {
  Lanes x;
  uint32_t bytes[kGroup];
  for (int64_t b = 0; b < blocks; b += kGroup, out += 4 * kGroup, in += 4 * kGroup) {
    generate(x, seed, block + uint64_t(b));
    keep_bytes(bytes, x, last);
    uint8_t keep[4 * kGroup];
    __builtin_memcpy(keep, bytes, sizeof(bytes));
#pragma GCC ivdep
    for (int i = 0; i < 4 * kGroup; ++i) out[i] = keep[i] != 0 ? in[i] * scale : 0.0f;
  }
}

}  // namespace

extern const RandomTable random_table;
const RandomTable random_table = {lanes,         uniform_f32,    uniform_f64,
                                  normal_f32,    normal_f64,     wide_integers,
                                  bernoulli_f32, bernoulli_bool, dropout_f32};

}  // namespace arete::cpu::kernels::ARETE_SIMD_TARGET
