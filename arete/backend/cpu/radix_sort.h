// Least-significant-digit radix sort of items, on one or several threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "arete/base/thread_pool.h"

namespace arete::cpu {

/// Sorts the n items make(0), ..., make(n - 1) by the lowest `bits` bits of their keys, keeping
/// the order of equal keys. `a` and `b` hold n items each; returns the one with the result.
/// `parts` pieces of the input are worked on in parallel.
template <class Item, class Make>
Item* radix_sort(Make&& make, int64_t n, int bits, int parts, Item* a, Item* b) {
  constexpr int kDigit = 8, kBuckets = 1 << kDigit;
  const auto begin_of = [&](int64_t part) { return n * part / parts; };
  std::vector<std::array<int64_t, kBuckets>> count(static_cast<size_t>(parts));
  Item* from = nullptr;  // null: make()
  Item* to = a;
  for (int shift = 0; shift < bits; shift += kDigit) {
    const auto pass = [&](auto&& get) {
      parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
        for (int64_t p = first; p < last; ++p) {
          auto& c = count[p];
          c.fill(0);
          for (int64_t i = begin_of(p), end = begin_of(p + 1); i < end; ++i)
            ++c[get(i).key() >> shift & (kBuckets - 1)];
        }
      });
      int64_t at = 0;
      for (int d = 0; d < kBuckets; ++d) {
        const int64_t start = at;
        for (auto& c : count) {
          const int64_t here = c[d];
          c[d] = at;
          at += here;
        }
        if (at - start == n) return false;  // one digit everywhere: nothing to do
      }
      parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
        for (int64_t p = first; p < last; ++p) {
          std::array<int64_t, kBuckets> next = count[p];
          for (int64_t i = begin_of(p), end = begin_of(p + 1); i < end; ++i) {
            const Item item = get(i);
            to[next[item.key() >> shift & (kBuckets - 1)]++] = item;
          }
        }
      });
      return true;
    };
    const bool moved = from ? pass([from](int64_t i) { return from[i]; }) : pass(make);
    if (!moved) continue;
    from = to;
    to = from == a ? b : a;
  }
  if (!from) {
    for (int64_t i = 0; i < n; ++i) a[i] = make(i);
    from = a;
  }
  return from;
}

}  // namespace arete::cpu
