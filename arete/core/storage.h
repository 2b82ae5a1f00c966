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

/// A copy between host memory and a device that may still be under way.
class PendingCopy {
 public:
  virtual ~PendingCopy() = default;
  virtual bool is_done() const noexcept = 0;
  /// Waits for it and raises what the device recorded until then.
  virtual void wait() = 0;
  /// Copies in one queue are done in order.
  virtual const void* queue() const noexcept = 0;
};

class Storage;

/// Who puts calls off and owes the memory that they use its values (compile/queue.h).
class Promiser {
 public:
  virtual ~Promiser() = default;
  /// Makes the calls that use the memory: after it the memory is there, and as they leave it.
  virtual void settle(const Storage& memory) = 0;
};

/// A count of writes.
class VersionCounter final : public RefCounted {
 public:
  explicit VersionCounter(uint64_t start) : version_(start) {}
  uint64_t version() const noexcept { return version_.load(std::memory_order_relaxed); }
  void bump() noexcept { version_.fetch_add(1, std::memory_order_relaxed); }
  void destroy() const noexcept { delete this; }

 private:
  std::atomic<uint64_t> version_;
};

/// Owns bytes on a device. Every in-place write through any view bumps the version, so that a
/// tensor saved for the backward pass notices. Writes that it shall not notice, by tensors with a
/// counter of their own (Tensor::variable_data), count among all writes.
class Storage final : public RefCounted {
 public:
  /// Allocates; `allocator` may be null for meta storages (no data). `pinned`: host memory that a
  /// GPU can reach by itself.
  static IntrusivePtr<Storage> create(Device device, size_t bytes, Allocator* allocator,
                                      bool pinned = false);
  /// Takes over foreign memory; `release` runs when the last view is gone.
  static IntrusivePtr<Storage> adopt(Device device, void* data, size_t bytes,
                                     std::function<void()> release);
  /// Over memory that another process shares: takes over its file (shared_file); IoError if that
  /// has fewer bytes.
  static IntrusivePtr<Storage> map_shared(int file, size_t bytes);

  /// Memory that calls which were put off will write. Its address is a stand-in, which nobody may
  /// look behind, until provide() gives it memory.
  static IntrusivePtr<Storage> promise(Device device, size_t bytes, std::byte* stand_in);
  /// Gives promised memory its place, of bytes() from `allocator`; null: it stays somebody else's.
  void provide(void* data, Allocator* allocator);

  /// The address. Whoever reads or writes the memory takes one of the next two instead.
  std::byte* data() const noexcept { return data_; }
  /// The address once nothing that is under way or was put off writes to the memory any more.
  std::byte* readable_data() const {
    if (is_awaited()) [[unlikely]]
      wait(false);
    return data_;
  }
  /// The address once nothing that is under way or was put off uses the memory any more.
  std::byte* writable_data() const {
    if (is_awaited()) [[unlikely]]
      wait(true);
    return data_;
  }
  /// Whose calls use the memory and were put off; null: nobody's.
  Promiser* promiser() const noexcept { return promiser_.load(std::memory_order_acquire); }
  /// Calls that use the memory, and may write it, were put off.
  void put_off(Promiser* by, bool writes) const noexcept {
    if (writes) written_later_.store(true, std::memory_order_relaxed);
    promiser_.store(by, std::memory_order_release);
  }
  /// They were made. Of another one's nothing is forgotten.
  void forget_promise(const Promiser* by) const noexcept;
  bool has_pending_copies() const noexcept {
    return pending_.load(std::memory_order_acquire) != nullptr;
  }
  size_t bytes() const noexcept { return bytes_; }
  Device device() const noexcept { return device_; }
  uint64_t version() const noexcept { return version_.load(std::memory_order_relaxed); }
  void bump_version() noexcept { version_.fetch_add(1, std::memory_order_relaxed); }
  /// How often the memory was written, by whatever tensor.
  uint64_t writes() const noexcept {
    return version() + hidden_writes_.load(std::memory_order_relaxed);
  }
  /// A write that the version does not tell of.
  void note_write() noexcept { hidden_writes_.fetch_add(1, std::memory_order_relaxed); }

  bool is_pinned() const noexcept { return pinned_; }

  /// Moves the bytes to memory that processes share: the ones forked from now on, and those that
  /// map shared_file(); of a GPU to where other processes open it (device/shared_memory.h).
  /// DeviceError for other devices and where memory of a GPU is not moved; what is shared stays as
  /// it is. Addresses taken before are not valid any more, unless mark_exported() was called.
  void share();
  /// The memory, which is new to this object, is one that other processes use, too.
  void mark_shared() noexcept { shared_ = true; }
  /// Whether other processes may see what is written, and write: of the host's memory and of GPUs'.
  bool is_shared() const noexcept { return shared_; }
  /// The descriptor of shared memory of the host, which lives as long as this object; -1 for other
  /// memory.
  int shared_file() const noexcept { return shared_file_; }
  /// Somebody was given the address, to whom this object does not answer (NumPy, DLPack): the
  /// memory stays there as long as this object lives.
  void mark_exported() noexcept { exported_.store(true, std::memory_order_relaxed); }
  bool is_exported() const noexcept { return exported_.load(std::memory_order_relaxed); }

  /// Who starts a copy to (`writes`) or from this memory and does not wait for it calls the first
  /// before, which waits for copies in other queues that it would collide with, and the second
  /// after.
  void wait_for_other_queues(const void* queue, bool writes) const;
  void add_pending(std::shared_ptr<PendingCopy> copy, bool writes);

  void destroy() const noexcept;

 private:
  struct Pending;
  Storage(Device device, std::byte* data, size_t bytes, Allocator* allocator, bool pinned)
      : data_(data),
        bytes_(bytes),
        allocator_(allocator),
        device_(device.resolved()),
        pinned_(pinned) {}
  ~Storage();
  bool is_awaited() const noexcept {
    return pending_.load(std::memory_order_acquire) || promiser_.load(std::memory_order_acquire);
  }
  void wait(bool readers_too) const;
  void wait_for_copies(bool readers_too) const;
  void free_memory() noexcept;
  std::byte* data_;
  size_t bytes_;
  Allocator* allocator_;
  std::atomic<uint64_t> version_{0}, hidden_writes_{0};
  mutable std::atomic<Pending*> pending_{nullptr};
  mutable std::atomic<Promiser*> promiser_{nullptr};
  mutable std::atomic<bool> written_later_{false};  // by what was put off
  Device device_;
  bool pinned_;
  bool shared_ = false;
  std::atomic<bool> exported_{false};
  int shared_file_ = -1;
  std::unique_ptr<std::function<void()>> release_;
};
using StoragePtr = IntrusivePtr<Storage>;

}  // namespace arete
