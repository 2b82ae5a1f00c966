// Asking for memory that will be read soon.
#pragma once

#include <cstdint>

namespace arete::cpu {

/// Asks for the cache lines of [begin, begin + bytes), which need not be memory of the program,
/// into the cache of this level and those behind it.
template <int kLevel = 1>
[[gnu::always_inline]] static inline void fetch_lines(const void* begin, int64_t bytes) {
  for (int64_t b = 0; b < bytes; b += 64)
    __builtin_prefetch(static_cast<const char*>(begin) + b, 0, 4 - kLevel);
  // Without it the compiler takes functions that do no more than this for functions that do
  // nothing, and leaves their calls out.
  asm volatile("");
}

}  // namespace arete::cpu
