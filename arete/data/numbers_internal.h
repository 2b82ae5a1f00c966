// Random numbers on the host, for orders and augmentations.
#pragma once

#include <cstdint>

#include "arete/core/generator.h"
#include "arete/prim/philox.h"

namespace arete::data {

/// A stream of numbers from the blocks of a Philox stream, two of 64 bits from each (see Note
/// [Random numbers]).
class Numbers {
 public:
  Numbers(uint64_t seed, uint64_t first_block) : seed_(seed), block_(first_block) {}
  /// Takes one block of the generator: for a single number.
  explicit Numbers(Generator& g) : Numbers(g.reserve(1)) {}

  uint64_t bits64() {
    if (at_ == 4) {
      lanes_ = prim::philox_block(seed_, block_++);
      at_ = 0;
    }
    const uint64_t low = lanes_.lane[at_], high = lanes_.lane[at_ + 1];
    at_ += 2;
    return high << 32 | low;
  }
  /// Unbiased in [0, n): draws that fall in the incomplete last multiple of n are repeated.
  int64_t below(int64_t n) {
    const uint64_t limit = UINT64_MAX - UINT64_MAX % uint64_t(n);
    uint64_t x = bits64();
    while (x >= limit) x = bits64();
    return int64_t(x % uint64_t(n));
  }
  /// In [0, 1).
  double unit() {
    const uint64_t x = bits64();
    return prim::random_unit_f64(uint32_t(x), uint32_t(x >> 32));
  }

 private:
  explicit Numbers(Generator::State s) : Numbers(s.seed, s.offset) {}
  uint64_t seed_, block_;
  prim::PhiloxBlock lanes_{};
  int at_ = 4;
};

}  // namespace arete::data
