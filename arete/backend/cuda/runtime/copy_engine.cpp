#include "arete/backend/cuda/runtime/copy_engine.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "arete/backend/cuda/runtime/context.h"
#include "arete/backend/cuda/runtime/driver.h"
#include "arete/backend/cuda/runtime/pinned_allocator.h"
#include "arete/base/error.h"
#include "arete/base/thread_pool.h"

namespace arete::cuda {
namespace {

constexpr size_t kKiB = 1024, kMiB = 1024 * kKiB;
// Up to here one thread and one buffer are as fast as several.
constexpr size_t kOneBuffer = kMiB;
constexpr size_t kSmallestChunk = kMiB / 2, kLargestChunk = 4 * kMiB;
// More threads than saturate any link's bandwidth only fight over memory.
constexpr int kMostThreads = 12;

CUdeviceptr address(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }

bool is_pinned(const void* p) {
  if (PinnedAllocator::get().owns(p)) return true;
  unsigned type = 0;  // stays 0 for memory that the driver does not know
  const CUresult result =
      driver().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address(p));
  return result == CUDA_SUCCESS && type == CU_MEMORYTYPE_HOST;
}

// A pinned buffer and the event after which the device is done with it.
struct Slot {
  explicit Slot(DeviceContext& device, size_t bytes)
      : device(device), buffer(bytes), event(device.take_event()) {}
  Slot(Slot&& o) noexcept
      : device(o.device), buffer(std::move(o.buffer)), event(std::exchange(o.event, nullptr)) {}
  ~Slot() {
    if (event) device.give_event(event);
  }
  DeviceContext& device;
  PinnedBlock buffer;
  CUevent event;
  bool busy = false;
  size_t offset = 0, bytes = 0;  // of the chunk in it
};

// The work of a large copy: chunks that threads take one after the other, two buffers for each
// thread.
class ChunkedCopy {
 public:
  ChunkedCopy(DeviceContext& device, size_t bytes, CUstream stream)
      : device_(device), bytes_(bytes), stream_(stream) {
    int threads = std::clamp(num_threads(), 1, kMostThreads);
    chunk_ = std::clamp(bytes / size_t(3 * threads) / (64 * kKiB) * (64 * kKiB), kSmallestChunk,
                        kLargestChunk);
    const size_t chunks = (bytes + chunk_ - 1) / chunk_;
    threads = int(std::min<size_t>(size_t(threads), (chunks + 1) / 2));
    slots_.reserve(size_t(2 * threads));
    try {
      while (slots_.size() < size_t(2 * threads)) slots_.emplace_back(device, chunk_);
    } catch (const OutOfMemoryError&) {
      if (slots_.size() < 2) throw;  // fewer buffers do as well
    }
  }
  ~ChunkedCopy() {
    // The buffers go back while the device may still read them.
    try {
      const auto end = record_event(device_, stream_);
      for (const Slot& s : slots_) PinnedAllocator::get().note_use(s.buffer.data(), end);
    } catch (...) {
      // The context is broken: nothing is read any more.
    }
  }

  void to_device(void* dst, const void* src) {
    for_each_thread([&](Slot* slots) {
      for (int k = 0; take(slots[k]); k = 1 - k) {
        Slot& s = slots[k];
        if (s.busy) ARETE_CU(cuEventSynchronize, s.event);
        std::memcpy(s.buffer.data(), static_cast<const std::byte*>(src) + s.offset, s.bytes);
        ARETE_CU(cuMemcpyHtoDAsync, address(dst) + s.offset, s.buffer.data(), s.bytes, stream_);
        ARETE_CU(cuEventRecord, s.event, stream_);
        s.busy = true;
      }
    });
  }

  void to_host(void* dst, const void* src) {
    for_each_thread([&](Slot* slots) {
      const auto start = [&](Slot& s) {
        if (!(s.busy = take(s))) return;
        ARETE_CU(cuMemcpyDtoHAsync, s.buffer.data(), address(src) + s.offset, s.bytes, stream_);
        ARETE_CU(cuEventRecord, s.event, stream_);
      };
      start(slots[0]);
      start(slots[1]);
      for (int k = 0; slots[k].busy; k = 1 - k) {
        Slot& s = slots[k];
        ARETE_CU(cuEventSynchronize, s.event);
        std::memcpy(static_cast<std::byte*>(dst) + s.offset, s.buffer.data(), s.bytes);
        start(s);
      }
    });
  }

 private:
  // The next chunk; false if there are no more.
  bool take(Slot& s) {
    s.offset = next_.fetch_add(chunk_, std::memory_order_relaxed);
    if (s.offset >= bytes_) return false;
    s.bytes = std::min(chunk_, bytes_ - s.offset);
    return true;
  }
  template <class F>
  void for_each_thread(F f) {
    const int64_t threads = int64_t(slots_.size() / 2);
    parallel_for(0, threads, 1, [&](int64_t first, int64_t last) {
      device_.make_current();
      for (int64_t t = first; t < last; ++t) f(&slots_[size_t(2 * t)]);
    });
  }

  DeviceContext& device_;
  size_t bytes_, chunk_ = 0;
  CUstream stream_;
  std::atomic<size_t> next_{0};
  std::vector<Slot> slots_;
};

}  // namespace

void copy_to_device(DeviceContext& device, void* dst, const void* src, size_t bytes,
                    CUstream stream) {
  if (bytes <= kOneBuffer) {
    const PinnedBlock buffer(bytes);
    std::memcpy(buffer.data(), src, bytes);
    ARETE_CU(cuMemcpyHtoDAsync, address(dst), buffer.data(), bytes, stream);
    PinnedAllocator::get().note_use(buffer.data(), record_event(device, stream));
  } else if (is_pinned(src)) {
    ARETE_CU(cuMemcpyHtoDAsync, address(dst), src, bytes, stream);
    record_event(device, stream)->wait();
  } else {
    ChunkedCopy(device, bytes, stream).to_device(dst, src);
  }
}

void copy_to_host(DeviceContext& device, void* dst, const void* src, size_t bytes,
                  CUstream stream) {
  if (bytes <= kOneBuffer) {
    const PinnedBlock buffer(bytes);
    ARETE_CU(cuMemcpyDtoHAsync, buffer.data(), address(src), bytes, stream);
    ARETE_CU(cuStreamSynchronize, stream);
    std::memcpy(dst, buffer.data(), bytes);
  } else if (is_pinned(dst)) {
    ARETE_CU(cuMemcpyDtoHAsync, dst, address(src), bytes, stream);
    ARETE_CU(cuStreamSynchronize, stream);
  } else {
    ChunkedCopy(device, bytes, stream).to_host(dst, src);
  }
  device.raise_device_errors();
}

}  // namespace arete::cuda
