// Kernels found once and kept, so that calls after the first one build no source text: by number
// where a family is counted, else by a hash.
#pragma once

#include <array>
#include <atomic>
#include <unordered_map>

#include "arete/backend/cuda/cuda_backend.h"
#include "arete/base/hash.h"

namespace arete::cuda {

/// Kernels of a family by number, for each device. For static objects.
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

/// Kernels by a hash of what their source depends on, the device included. For thread-local
/// objects: finding one takes no lock.
class KernelMemo {
 public:
  template <class MakeSource>
  const Kernel& get(CudaBackend& backend, const Hash128& key, MakeSource&& make_source) {
    const Kernel*& kernel = kernels_[key];
    if (!kernel) [[unlikely]]
      kernel = &backend.kernel(make_source());
    return *kernel;
  }

 private:
  std::unordered_map<Hash128, const Kernel*, Hash128Hasher> kernels_;
};

}  // namespace arete::cuda
