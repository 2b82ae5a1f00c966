// What becomes of memory, told as it happens: to histories, trackers and profilers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "arete/core/device.h"

namespace arete {

/// One step in the life of a piece of memory.
struct MemoryEvent {
  /// alloc and free: of a tensor's storage in host memory, of a block of the caching allocator on a
  /// GPU (tensors and temporary memory of kernels). segment_*: what that allocator takes from the
  /// driver and gives back. out_of_memory: `bytes` were not to be had.
  enum class Action : uint8_t {
    alloc,
    free,
    segment_alloc,
    segment_free,
    segment_map,
    segment_unmap,
    out_of_memory
  };
  Action action = Action::alloc;
  Device device;
  bool pinned = false;  ///< host memory that GPUs reach by themselves
  uintptr_t address = 0;
  size_t bytes = 0;      ///< handed out
  size_t requested = 0;  ///< asked for
  const void* stream = nullptr;
};

/// Told of every event, on the thread where it happens and perhaps under an allocator's lock: must
/// not make or free tensors.
class MemoryObserver {
 public:
  virtual ~MemoryObserver() = default;
  virtual void on_memory(const MemoryEvent& event) noexcept = 0;
};
void add_memory_observer(MemoryObserver* observer);
/// When it returns, the observer is not being called and will not be.
void remove_memory_observer(MemoryObserver* observer) noexcept;

namespace detail {
extern constinit std::atomic<int> memory_observers;
void notify_memory(const MemoryEvent& event) noexcept;
}  // namespace detail
/// Whether anyone hears of memory now.
inline bool has_memory_observers() noexcept {
  return detail::memory_observers.load(std::memory_order_relaxed) != 0;
}
/// For whoever hands out memory. Without observers this is one test.
inline void notify_memory(const MemoryEvent& event) noexcept {
  if (has_memory_observers()) [[unlikely]]
    detail::notify_memory(event);
}

/// What the allocator of a GPU has done since the start, whatever was freed since: its own counts.
struct MemoryTotals {
  std::atomic<int64_t> allocated_bytes{0};  ///< handed out
  std::atomic<int64_t> reserved_bytes{0};   ///< taken from the driver
  std::atomic<int64_t> segments{0};         ///< ranges of addresses that it took
};
MemoryTotals& memory_totals(int device) noexcept;

/// Names what the calling thread does while it lives, for histories of memory; names inside names
/// are joined by "/".
class NameScope {
 public:
  explicit NameScope(std::string_view name);
  ~NameScope();
  NameScope(const NameScope&) = delete;
  NameScope& operator=(const NameScope&) = delete;

 private:
  size_t outer_;
};
/// "step/forward"; "" outside all scopes.
const std::string& current_name_scope() noexcept;
/// For scopes that are no C++ scopes.
void push_name_scope(std::string_view name);
void pop_name_scope() noexcept;

}  // namespace arete
