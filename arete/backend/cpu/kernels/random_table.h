// Vector kernels of the random primitive; see Note [Random numbers] in prim/philox.h.
#pragma once

#include <cstdint>

namespace arete::cpu::kernels {

/// Every function writes the elements of `blocks` Philox blocks (a multiple of kRandomGroup) from
/// number `block` on. All instruction sets give the same bits.
inline constexpr int64_t kRandomGroup = 16;
struct RandomTable {
  void (*lanes)(uint32_t* out, uint64_t seed, uint64_t block, int64_t blocks);
  void (*uniform_f32)(float* out, uint64_t seed, uint64_t block, int64_t blocks, float a,
                      float range, float low, float high);
  void (*uniform_f64)(double* out, uint64_t seed, uint64_t block, int64_t blocks, double a,
                      double range, double low, double high);
  void (*normal_f32)(float* out, uint64_t seed, uint64_t block, int64_t blocks, float mean,
                     float deviation);
  void (*normal_f64)(double* out, uint64_t seed, uint64_t block, int64_t blocks, double mean,
                     double deviation);
  /// Of a range above 2^32.
  void (*wide_integers)(int64_t* out, uint64_t seed, uint64_t block, int64_t blocks, uint64_t start,
                        uint64_t range);
  /// 1 where the lane is at most `last`, else 0.
  void (*bernoulli_f32)(float* out, uint64_t seed, uint64_t block, int64_t blocks, uint32_t last);
  void (*bernoulli_bool)(bool* out, uint64_t seed, uint64_t block, int64_t blocks, uint32_t last);
  /// in * scale where the lane is at most `last`, else 0; `out` may be `in`.
  void (*dropout_f32)(float* out, const float* in, uint64_t seed, uint64_t block, int64_t blocks,
                      uint32_t last, float scale);
};

namespace base {
extern const RandomTable random_table;
}
#if defined(__x86_64__)
namespace avx2 {
extern const RandomTable random_table;
}
namespace avx512 {
extern const RandomTable random_table;
}
#endif

}  // namespace arete::cpu::kernels
