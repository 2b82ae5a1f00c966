// How much memory a part of a program takes.
//
//   GPUMemoryTracker tracker(kCUDA);
//   loss.backward();
//   std::puts(tracker.report().c_str());   // peak and change since it was made
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "arete/core/device.h"

namespace arete {

/// While it lives, follows what is allocated and freed on a device, by any thread. Trackers may
/// overlap and nest: each has its own peak, and the device's counters are left alone. On the CPU it
/// follows the memory of tensors.
class GPUMemoryTracker {
 public:
  /// "cuda" on a machine without a GPU: nothing is ever allocated there, all figures are 0.
  explicit GPUMemoryTracker(Device device = kCUDA);
  ~GPUMemoryTracker();
  GPUMemoryTracker(const GPUMemoryTracker&) = delete;
  GPUMemoryTracker& operator=(const GPUMemoryTracker&) = delete;

  /// Ends it; the figures stay.
  void stop();
  Device device() const noexcept;
  /// Bytes held when it began: of a GPU; 0 for the CPU, where nobody counts.
  int64_t before() const noexcept;
  /// Bytes that are held more than at its beginning, now and at most. The first may be negative.
  int64_t delta() const noexcept;
  int64_t peak() const noexcept;
  /// Bytes handed out meanwhile, and calls.
  int64_t allocated() const noexcept;
  int64_t allocations() const noexcept;
  /// "peak +1.5 GiB, now +512 MiB, 120 allocations of 3.2 GiB on cuda:0"
  std::string report() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace arete
