// What is known about a device, and the counters of its memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace arete {

/// Properties of a GPU, known without using it.
struct DeviceProperties {
  std::string name;
  int major = 0, minor = 0;  ///< compute capability
  size_t total_memory = 0;   ///< bytes
  int multi_processor_count = 0;
  int clock_rate = 0, memory_clock_rate = 0;  ///< kHz, the highest
  int memory_bus_width = 0;                   ///< bits
  int l2_cache_size = 0;                      ///< bytes
  int shared_memory_per_block = 0;            ///< bytes, the most a kernel may ask for
  int shared_memory_per_multiprocessor = 0;   ///< bytes
  int max_threads_per_multi_processor = 0;
  int regs_per_multiprocessor = 0;
  int warp_size = 32;
  std::string pci_bus_id;
};

/// Counters of a caching allocator, in bytes unless named otherwise. `peak_` since the start or the
/// last reset.
struct MemoryStats {
  size_t allocated = 0, peak_allocated = 0;  // handed out
  size_t reserved = 0, peak_reserved = 0;    // taken from the driver
  size_t pending = 0;                        // freed, but still used on other streams
  int64_t allocations = 0, frees = 0;        // calls
  int64_t segments = 0, blocks = 0, peak_blocks = 0;
  int64_t retries = 0, out_of_memory = 0;  // cache emptied to go on; errors raised
};

/// Physical memory of a device, in bytes.
struct MemoryInfo {
  size_t free = 0, total = 0;
};

}  // namespace arete
