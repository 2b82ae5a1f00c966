// Kernels found once and kept by number.
#pragma once

#include <array>
#include <atomic>

#include "arete/backend/cuda/cuda_backend.h"

namespace arete::cuda {

/// Kernels of a family by number, for each device, so that calls after the first one build no
/// source text. For static objects.
template <size_t kCount>
class KernelTable {
 public:
  /// The kernel of `number`, whose source make() gives.
  template <class Make>
  const Kernel& get(CudaBackend& backend, size_t number, Make&& make) {
    const size_t device = size_t(backend.context().ordinal());
    if (device >= kDevices) return backend.kernel(make());
    std::atomic<const Kernel*>& slot = slots_[device][number];
    const Kernel* k = slot.load(std::memory_order_acquire);
    if (!k) [[unlikely]] {
      k = &backend.kernel(make());
      slot.store(k, std::memory_order_release);
    }
    return *k;
  }

 private:
  static constexpr size_t kDevices = 16;
  std::array<std::array<std::atomic<const Kernel*>, kCount>, kDevices> slots_{};
};

}  // namespace arete::cuda
