#include "arete/core/storage.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "arete/core/memory_events.h"
#include "arete/core/tracing.h"

namespace arete {

struct Storage::Pending {
  struct Entry {
    std::shared_ptr<PendingCopy> copy;
    bool writes;
  };
  std::vector<Entry> entries;  // never empty
};

namespace {
// Of all lists of pending copies: they are rare, and no one waits for a copy while holding it.
std::mutex pending_mutex;

// A GPU's allocator speaks itself, of temporary blocks too.
void tell(MemoryEvent::Action action, const Storage& s) {
  if (s.data() && !s.device().is_cuda())
    notify_memory({action, s.device(), s.is_pinned(), uintptr_t(s.data()), s.bytes(), s.bytes()});
}
}  // namespace

IntrusivePtr<Storage> Storage::create(Device device, size_t bytes, Allocator* allocator,
                                      bool pinned) {
  void* data = allocator ? allocator->allocate(bytes) : nullptr;
  try {
    IntrusivePtr<Storage> s(
        new Storage(device, static_cast<std::byte*>(data), bytes, allocator, pinned));
    tell(MemoryEvent::Action::alloc, *s);
    return s;
  } catch (...) {
    if (allocator) allocator->deallocate(data, bytes);
    throw;
  }
}

IntrusivePtr<Storage> Storage::adopt(Device device, void* data, size_t bytes,
                                     std::function<void()> release) {
  auto owned = std::make_unique<std::function<void()>>(std::move(release));
  IntrusivePtr<Storage> s(
      new Storage(device, static_cast<std::byte*>(data), bytes, nullptr, false));
  s->release_ = std::move(owned);
  return s;
}

Storage::~Storage() {
  // The allocator of pinned memory knows of the copies by itself.
  delete pending_.load(std::memory_order_acquire);
  if (allocator_) {
    // Told before: from then on another thread may be given the address.
    tell(MemoryEvent::Action::free, *this);
    allocator_->deallocate(data_, bytes_);
  }
  if (release_) {
    try {
      (*release_)();
    } catch (...) {
      // A destructor has nobody to tell.
    }
  }
}

void Storage::wait_for_other_queues(const void* queue, bool writes) const {
  if (!has_pending_copies()) return;
  std::vector<std::shared_ptr<PendingCopy>> colliding;
  {
    const std::lock_guard lock(pending_mutex);
    if (const Pending* p = pending_.load(std::memory_order_relaxed))
      for (const Pending::Entry& e : p->entries)
        if (e.copy->queue() != queue && (e.writes || writes)) colliding.push_back(e.copy);
  }
  for (const auto& c : colliding) c->wait();
}

void Storage::add_pending(std::shared_ptr<PendingCopy> copy, bool writes) {
  const std::lock_guard lock(pending_mutex);
  Pending* p = pending_.load(std::memory_order_relaxed);
  std::unique_ptr<Pending> fresh(p ? nullptr : new Pending);
  if (!p) p = fresh.get();
  // A later copy in the same queue stands for an earlier one, but readers of the memory wait for
  // those that write it only.
  std::erase_if(p->entries, [&](const Pending::Entry& e) {
    return e.copy->is_done() ||
           (e.copy->queue() == copy->queue() && (e.writes == writes || writes));
  });
  p->entries.push_back({std::move(copy), writes});
  fresh.release();
  pending_.store(p, std::memory_order_release);
}

void Storage::wait_for_copies(bool readers_too) const {
  std::vector<std::shared_ptr<PendingCopy>> copies;
  {
    const std::lock_guard lock(pending_mutex);
    if (Pending* p = pending_.load(std::memory_order_relaxed))
      for (const Pending::Entry& e : p->entries)
        if (e.writes || readers_too) copies.push_back(e.copy);
  }
  // They leave the list even if waiting fails: then the device is in no state to finish them.
  const auto forget = [&] {
    const std::lock_guard lock(pending_mutex);
    Pending* p = pending_.load(std::memory_order_relaxed);
    if (!p) return;
    std::erase_if(p->entries, [&](const Pending::Entry& e) {
      return std::find(copies.begin(), copies.end(), e.copy) != copies.end();
    });
    if (p->entries.empty()) {
      pending_.store(nullptr, std::memory_order_release);
      delete p;
    }
  };
  const bool all_done =
      std::all_of(copies.begin(), copies.end(), [](const auto& c) { return c->is_done(); });
  try {
    std::optional<tracing::HostScope> traced;
    if (!all_done && tracing::listener())
      traced.emplace(tracing::HostEvent{tracing::HostEvent::Kind::synchronize,
                                        "end of a non_blocking copy", device_, 0, true});
    for (const auto& c : copies) c->wait();
  } catch (...) {
    forget();
    throw;
  }
  forget();
}

void Storage::destroy() const noexcept { delete this; }

}  // namespace arete
