#include "arete/core/storage.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arete/base/error.h"
#include "arete/core/device_copy.h"
#include "arete/core/device_sharing.h"
#include "arete/core/memory_events.h"
#include "arete/core/sync_debug.h"
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

IoError not_shared(const char* what) {
  return IoError("share_memory_", std::string("shared memory cannot be ") + what)
      .got(std::strerror(errno));
}

/// Never nothing, which cannot be mapped.
size_t mapped_bytes(size_t bytes) { return std::max<size_t>(bytes, 1); }

std::byte* map_file(int file, size_t bytes) {
  void* const p = mmap(nullptr, mapped_bytes(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (p == MAP_FAILED) throw not_shared("mapped");
  return static_cast<std::byte*>(p);
}

std::atomic<DeviceSharing*> device_sharing{nullptr};

// A GPU's allocator speaks itself, of temporary blocks too.
void tell(MemoryEvent::Action action, const Storage& s) {
  if (s.data() && !s.device().is_cuda())
    notify_memory({action, s.device(), s.is_pinned(), uintptr_t(s.data()), s.bytes(), s.bytes()});
}
}  // namespace

void set_device_sharing(DeviceSharing* sharing) noexcept { device_sharing = sharing; }

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

IntrusivePtr<Storage> Storage::map_shared(int file, size_t bytes) {
  try {
    struct stat known;
    if (fstat(file, &known) < 0) throw not_shared("looked at");
    ARETE_CHECK(size_t(known.st_size) >= mapped_bytes(bytes),
                IoError("map_shared", "the shared memory is smaller than the tensor")
                    .expected(std::to_string(bytes) + " bytes")
                    .got(std::to_string(known.st_size)));
    IntrusivePtr<Storage> s(new Storage(kCPU, map_file(file, bytes), bytes, nullptr, false));
    s->shared_file_ = file;
    s->shared_ = true;
    return s;
  } catch (...) {
    close(file);
    throw;
  }
}

IntrusivePtr<Storage> Storage::promise(Device device, size_t bytes, std::byte* stand_in) {
  return IntrusivePtr<Storage>(new Storage(device, stand_in, bytes, nullptr, false));
}

void Storage::provide(void* data, Allocator* allocator) {
  data_ = static_cast<std::byte*>(data);
  allocator_ = allocator;
  if (allocator) tell(MemoryEvent::Action::alloc, *this);
}

void Storage::forget_promise(const Promiser* by) const noexcept {
  if (promiser() != by) return;
  written_later_.store(false, std::memory_order_relaxed);
  promiser_.store(nullptr, std::memory_order_release);
}

void Storage::wait(bool readers_too) const {
  if (Promiser* const by = promiser();
      by && (readers_too || written_later_.load(std::memory_order_relaxed)))
    by->settle(*this);
  if (has_pending_copies()) wait_for_copies(readers_too);
}

void Storage::share() {
  if (is_shared()) return;
  if (DeviceSharing* const sharing = device_sharing.load(); sharing && device_.is_cuda()) {
    writable_data();
    ARETE_CHECK(allocator_ && !is_exported(),
                DeviceError("share_memory_",
                            "memory of a GPU that other code has is not moved to where it is "
                            "shared"));
    void* const shared = sharing->copy(device_, data_, bytes_);
    free_memory();
    data_ = static_cast<std::byte*>(shared);
    allocator_ = &sharing->allocator(device_);
    shared_ = true;
    return;
  }
  ARETE_CHECK(device_.is_cpu(), DeviceError("share_memory_",
                                            "only memory of the host and of GPUs is shared between "
                                            "processes")
                                    .got("a tensor on " + device_.to_string())
                                    .hint("send .cpu(), or a copy: pickles hold the values"));
  writable_data();  // copies from and to a GPU are done
  const int file = memfd_create("arete", MFD_CLOEXEC);
  if (file < 0) throw not_shared("made");
  std::byte* shared = nullptr;
  try {
    if (ftruncate(file, off_t(mapped_bytes(bytes_))) < 0) throw not_shared("made");
    shared = map_file(file, bytes_);
  } catch (...) {
    close(file);
    throw;
  }
  if (bytes_ > 0) std::memcpy(shared, data_, bytes_);
  if (exported_.load(std::memory_order_relaxed)) {
    // Whoever has the old address may go on to read there.
    const auto kept = std::shared_ptr<Storage>(
        new Storage(device_, data_, bytes_, allocator_, pinned_), [](Storage* s) { delete s; });
    kept->release_ = std::move(release_);
    release_ = std::make_unique<std::function<void()>>([kept] {});
  } else {
    free_memory();
  }
  allocator_ = nullptr;
  pinned_ = false;
  data_ = shared;
  shared_file_ = file;
  shared_ = true;
}

Storage::~Storage() {
  // The allocator of pinned memory knows of the copies by itself.
  delete pending_.load(std::memory_order_acquire);
  if (shared_file_ >= 0) {
    munmap(data_, mapped_bytes(bytes_));
    close(shared_file_);
  }
  free_memory();
}

void Storage::free_memory() noexcept {
  if (allocator_) {
    // Told before: from then on another thread may be given the address.
    tell(MemoryEvent::Action::free, *this);
    allocator_->deallocate(data_, bytes_);
  }
  if (const auto release = std::move(release_)) {
    try {
      (*release)();
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
  std::vector<Pending::Entry> dropped;  // what copies keep alive is released without the lock
  const std::lock_guard lock(pending_mutex);
  Pending* p = pending_.load(std::memory_order_relaxed);
  std::unique_ptr<Pending> fresh(p ? nullptr : new Pending);
  if (!p) p = fresh.get();
  // A later copy in the same queue stands for an earlier one, but readers of the memory wait for
  // those that write it only.
  const auto stays =
      std::stable_partition(p->entries.begin(), p->entries.end(), [&](const Pending::Entry& e) {
        return !e.copy->is_done() &&
               (e.copy->queue() != copy->queue() || (e.writes != writes && !writes));
      });
  dropped.assign(std::move_iterator(stays), std::move_iterator(p->entries.end()));
  p->entries.erase(stays, p->entries.end());
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
  // They leave the list even if waiting fails: then the device is in no state to finish them. One
  // that only this thread's stream waits for now stays there for others.
  const auto forget = [&](bool failed) {
    const std::lock_guard lock(pending_mutex);
    Pending* p = pending_.load(std::memory_order_relaxed);
    if (!p) return;
    std::erase_if(p->entries, [&](const Pending::Entry& e) {
      return std::find(copies.begin(), copies.end(), e.copy) != copies.end() &&
             (failed || e.copy->is_done());
    });
    if (p->entries.empty()) {
      pending_.store(nullptr, std::memory_order_release);
      delete p;
    }
  };
  const bool all_done =
      std::all_of(copies.begin(), copies.end(), [](const auto& c) { return c->is_done(); });
  // They stay in the list if this throws.
  for (const auto& c : copies)
    if (const auto* const d = dynamic_cast<const DeviceCopy*>(c.get());
        !all_done && d && !d->is_done())
      note_host_wait("the first look at a non_blocking copy", d->device());
  try {
    std::optional<tracing::HostScope> traced;
    if (!all_done && tracing::listener())
      traced.emplace(tracing::HostEvent{tracing::HostEvent::Kind::synchronize,
                                        "end of a non_blocking copy", device_, 0, true});
    for (const auto& c : copies) c->wait();
  } catch (...) {
    forget(true);
    throw;
  }
  forget(false);
}

void Storage::destroy() const noexcept { delete this; }

}  // namespace arete
