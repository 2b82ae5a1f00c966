// Philox numbers, 16 blocks at a time: arrays of that length become vector registers.
#include "arete/backend/cpu/kernels/random_table.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("fp-contract=off")  // the same bits with and without fused multiply-add
#else
#pragma STDC FP_CONTRACT OFF
#endif

#include "arete/prim/philox.h"

namespace arete::cpu::kernels::ARETE_SIMD_TARGET {
namespace {

constexpr int kGroup = int(kRandomGroup);

struct Lanes {
  uint32_t l[4][kGroup];
};

[[gnu::always_inline]] inline void generate(Lanes& out, uint64_t seed, uint64_t block) {
  for (int j = 0; j < kGroup; ++j) {
    const prim::PhiloxBlock b = prim::philox_block(seed, block + uint64_t(j));
    out.l[0][j] = b.lane[0];
    out.l[1][j] = b.lane[1];
    out.l[2][j] = b.lane[2];
    out.l[3][j] = b.lane[3];
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

template <class T>
void bernoulli(T* out, uint64_t seed, uint64_t block, int64_t blocks, uint32_t last) {
  Lanes x;
  for (int64_t b = 0; b < blocks; b += kGroup, out += 4 * kGroup) {
    generate(x, seed, block + uint64_t(b));
    for (int j = 0; j < kGroup; ++j)
      for (int k = 0; k < 4; ++k) out[4 * j + k] = T(x.l[k][j] <= last);
  }
}

}  // namespace

extern const RandomTable random_table;
const RandomTable random_table = {lanes,      uniform_f32,      uniform_f64,    normal_f32,
                                  normal_f64, bernoulli<float>, bernoulli<bool>};

}  // namespace arete::cpu::kernels::ARETE_SIMD_TARGET
