// One piece of work from everywhere.
#pragma once

#include <cstdint>
#include <thread>
#include <vector>

#include "arete/base/thread_pool.h"

namespace arete::test {

/// Calls work(seed) in three threads at once, one of them within a serial region, and then in the
/// parts of a parallel region.
template <class F>
void concurrently(const F& work) {
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 3; ++i)
    threads.emplace_back([&, i] {
      if (i == 2) {
        const SerialRegion serial;
        work(i);
      } else {
        work(i);
      }
    });
  for (std::thread& t : threads) t.join();
  parallel_for(0, 4, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) work(uint64_t(i) + 10);
  });
}

}  // namespace arete::test
