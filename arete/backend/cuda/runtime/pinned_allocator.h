// Host memory that GPUs reach by themselves, cached: pinning pages takes as long as copying them
// many times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "arete/backend/cuda/runtime/event.h"
#include "arete/core/storage.h"

namespace arete::cuda {

class DeviceContext;

/// One for the process: every GPU reaches all of it. A freed block is handed out again only when
/// the copies that were noted for it are done. Sizes are rounded up to powers of two, above 32 MiB
/// to eighths of them, so that blocks fit again.
class PinnedAllocator final : public Allocator {
 public:
  static PinnedAllocator& get();
  void* allocate(size_t bytes) override;
  void deallocate(void* p, size_t bytes) noexcept override;
  /// A copy from or to the block that holds `p` is under way until `event`.
  void note_use(const void* p, std::shared_ptr<RecordedEvent> event);
  /// True for addresses in blocks of this allocator.
  bool owns(const void* p) const;
  /// Gives free blocks back to the system.
  void empty_cache() noexcept;

 private:
  struct Block {
    size_t size = 0;
    std::vector<std::shared_ptr<RecordedEvent>> uses;
  };
  using Blocks = std::map<uintptr_t, Block>;
  void* take(size_t size);
  void* pin(size_t size);
  Blocks::const_iterator find(const void* p) const;
  void collect(std::vector<std::shared_ptr<RecordedEvent>>& dropped);

  mutable std::mutex mutex_;
  Blocks live_, waiting_;
  std::multimap<size_t, uintptr_t> free_;
};

/// A block for the time of a call.
class PinnedBlock {
 public:
  explicit PinnedBlock(size_t bytes)
      : bytes_(bytes), data_(PinnedAllocator::get().allocate(bytes)) {}
  ~PinnedBlock() {
    if (data_) PinnedAllocator::get().deallocate(data_, bytes_);
  }
  PinnedBlock(PinnedBlock&& o) noexcept
      : bytes_(o.bytes_), data_(std::exchange(o.data_, nullptr)) {}
  PinnedBlock& operator=(PinnedBlock&&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  size_t bytes_;
  void* data_;
};

}  // namespace arete::cuda
