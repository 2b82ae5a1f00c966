// Memory that views share: bytes, device and the version counter.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>

#include "arete/base/intrusive_ptr.h"
#include "arete/core/device.h"

namespace arete {

/// Where a device's memory comes from.
class Allocator {
 public:
  virtual ~Allocator() = default;
  /// At least 64-byte aligned; OutOfMemoryError with what was asked. 0 bytes: null.
  virtual void* allocate(size_t bytes) = 0;
  virtual void deallocate(void* p, size_t bytes) noexcept = 0;
};

/// Owns bytes on a device. Every in-place write through any view bumps the version, so that a
/// tensor saved for the backward pass notices.
class Storage final : public RefCounted {
 public:
  /// Allocates; `allocator` may be null for meta storages (no data).
  static IntrusivePtr<Storage> create(Device device, size_t bytes, Allocator* allocator);
  /// Takes over foreign memory; `release` runs when the last view is gone.
  static IntrusivePtr<Storage> adopt(Device device, void* data, size_t bytes,
                                     std::function<void()> release);

  std::byte* data() const noexcept { return data_; }
  size_t bytes() const noexcept { return bytes_; }
  Device device() const noexcept { return device_; }
  uint64_t version() const noexcept { return version_.load(std::memory_order_relaxed); }
  void bump_version() noexcept { version_.fetch_add(1, std::memory_order_relaxed); }

  void destroy() const noexcept;

 private:
  Storage(Device device, std::byte* data, size_t bytes, Allocator* allocator)
      : data_(data), bytes_(bytes), allocator_(allocator), device_(device) {}
  ~Storage();
  std::byte* data_;
  size_t bytes_;
  Allocator* allocator_;
  std::atomic<uint64_t> version_{0};
  Device device_;
  std::unique_ptr<std::function<void()>> release_;
};
using StoragePtr = IntrusivePtr<Storage>;

}  // namespace arete
