#include "arete/backend/cuda/runtime/pinned_allocator.h"

#include <algorithm>
#include <bit>
#include <string>

#include "arete/backend/cuda/runtime/context.h"
#include "arete/backend/cuda/runtime/driver.h"
#include "arete/base/error.h"

namespace arete::cuda {
namespace {

constexpr size_t kSmallest = 512, kPowersUpTo = size_t(32) << 20;

size_t rounded(size_t bytes) {
  if (bytes <= kSmallest) return kSmallest;
  if (bytes <= kPowersUpTo) return std::bit_ceil(bytes);
  const size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

}  // namespace

PinnedAllocator& PinnedAllocator::get() {
  static auto* const a = new PinnedAllocator;  // outlives static tensors
  return *a;
}

void* PinnedAllocator::allocate(size_t bytes) {
  if (bytes == 0) return nullptr;
  ARETE_CHECK(bytes < size_t(1) << 62, OutOfMemoryError("", "too much pinned memory requested")
                                           .got(std::to_string(bytes) + " bytes"));
  const size_t size = rounded(bytes);
  if (void* p = take(size)) return p;
  return pin(size);
}

// A cached block of exactly that size, or null.
void* PinnedAllocator::take(size_t size) {
  std::vector<std::shared_ptr<RecordedEvent>> dropped;  // given back without the lock
  const std::lock_guard lock(mutex_);
  auto found = free_.find(size);
  if (found == free_.end() && !waiting_.empty()) {
    collect(dropped);
    found = free_.find(size);
  }
  if (found == free_.end()) return nullptr;
  const uintptr_t address = found->second;
  live_.emplace(address, Block{size, {}});
  free_.erase(found);
  return reinterpret_cast<void*>(address);
}

void* PinnedAllocator::pin(size_t size) {
  // Any context will do: the memory is portable.
  DeviceContext::any().make_current();
  void* p = nullptr;
  const auto attempt = [&] {
    return driver().cuMemHostAlloc(&p, size, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  };
  CUresult result = attempt();
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    empty_cache();
    result = attempt();
  }
  ARETE_CHECK(result != CUDA_ERROR_OUT_OF_MEMORY,
              OutOfMemoryError("", "the system does not give so much pinned memory")
                  .got(std::to_string(size) + " bytes requested")
                  .hint("pin smaller tensors, or raise the limit on locked memory (ulimit -l)"));
  check(result, "cuMemHostAlloc");
  const std::lock_guard lock(mutex_);
  live_.emplace(reinterpret_cast<uintptr_t>(p), Block{size, {}});
  return p;
}

// Moves blocks whose copies are done to the free ones.
void PinnedAllocator::collect(std::vector<std::shared_ptr<RecordedEvent>>& dropped) {
  for (auto b = waiting_.begin(); b != waiting_.end();) {
    auto& uses = b->second.uses;
    if (!std::all_of(uses.begin(), uses.end(), [](const auto& e) { return e->is_done(); })) {
      ++b;
      continue;
    }
    dropped.insert(dropped.end(), uses.begin(), uses.end());
    free_.emplace(b->second.size, b->first);
    b = waiting_.erase(b);
  }
}

void PinnedAllocator::deallocate(void* p, size_t) noexcept try {
  if (!p) return;
  const std::lock_guard lock(mutex_);
  auto node = live_.extract(reinterpret_cast<uintptr_t>(p));
  if (node.empty()) return;
  if (node.mapped().uses.empty())
    free_.emplace(node.mapped().size, node.key());
  else
    waiting_.insert(std::move(node));
} catch (...) {
  // Without memory for the list the block is lost, which harms nobody.
}

PinnedAllocator::Blocks::const_iterator PinnedAllocator::find(const void* p) const {
  const auto address = reinterpret_cast<uintptr_t>(p);
  auto b = live_.upper_bound(address);
  if (b == live_.begin()) return live_.end();
  --b;
  return address < b->first + b->second.size ? b : live_.end();
}

void PinnedAllocator::note_use(const void* p, std::shared_ptr<RecordedEvent> event) {
  const std::lock_guard lock(mutex_);
  const auto found = find(p);
  if (found == live_.end()) return;
  auto& uses = live_.at(found->first).uses;
  // A later event of the same stream stands for the earlier one.
  std::erase_if(uses, [&](const auto& e) { return e->queue() == event->queue(); });
  uses.push_back(std::move(event));
}

bool PinnedAllocator::owns(const void* p) const {
  const std::lock_guard lock(mutex_);
  return find(p) != live_.end();
}

void PinnedAllocator::empty_cache() noexcept try {
  std::vector<std::shared_ptr<RecordedEvent>> dropped;
  std::multimap<size_t, uintptr_t> given_back;
  {
    const std::lock_guard lock(mutex_);
    collect(dropped);
    given_back.swap(free_);
  }
  if (given_back.empty()) return;
  DeviceContext::any().make_current();
  for (const auto& [size, address] : given_back)
    driver().cuMemFreeHost(reinterpret_cast<void*>(address));
} catch (...) {
}

}  // namespace arete::cuda
