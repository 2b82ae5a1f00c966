// What the caching allocator says about itself: the table of memory_summary and the text of
// out-of-memory errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "arete/base/error.h"
#include "arete/prim/backend.h"

namespace arete::cuda {

struct MemoryReport {
  /// Live blocks of one operator.
  struct Holder {
    std::string operator_name;
    size_t bytes = 0;
    int64_t blocks = 0;
  };
  struct Pool {
    std::string name;
    size_t allocated = 0, pending = 0, cached = 0, largest_free = 0;
    int64_t blocks = 0;
  };

  std::string device;
  prim::MemoryStats stats;
  size_t device_free = 0, device_total = 0;
  size_t limit = 0;            // the most that may be reserved, with what others here have
  size_t reserved_beside = 0;  // by other allocators of this process
  size_t private_cached = 0;   // free inside private pools, only for them
  int64_t moves = 0;           // times that free memory was put together, or waited for
  bool plain_segments = false;
  bool capturing = false;
  std::vector<Holder> holders;  // the largest first
  std::vector<Pool> pools;

  size_t cached() const { return stats.reserved - stats.allocated - stats.pending; }
};

/// "1.50 GiB"
std::string format_bytes(size_t bytes);
std::string format_summary(const MemoryReport& report);
OutOfMemoryError out_of_memory_error(const MemoryReport& report, size_t requested);

}  // namespace arete::cuda
