// Sorts of unsigned keys by vectors: what sort.cpp uses where the processor has them.
#pragma once

#include <cstdint>

#include "arete/backend/cpu/kernels/select_table.h"

namespace arete::cpu::kernels {

/// Of uint32_t or uint64_t keys; null where the instruction set has no such sort.
template <class Key>
struct KeySort {
  /// In ascending order, in place.
  void (*sort)(Key* keys, int64_t n);
  /// Some key is chosen, and those before it in the order are moved to the front of all others:
  /// how many they are, from 1 to n - 1; n if all keys are equal. n >= kFewestSplit.
  int64_t (*split)(Key* keys, int64_t n);
};
constexpr int64_t kFewestSplit = 256;

struct SortTable {
  KeySort<uint32_t> of_32;
  KeySort<uint64_t> of_64;
};

namespace base {
extern const SortTable sort_table;
}
#if defined(__x86_64__)
namespace avx2 {
extern const SortTable sort_table;
}
namespace avx512 {
extern const SortTable sort_table;
}
#endif

}  // namespace arete::cpu::kernels
