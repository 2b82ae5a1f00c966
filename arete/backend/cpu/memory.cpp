#include "arete/backend/cpu/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <string>

#include "arete/base/error.h"

namespace arete::cpu {
namespace {

// Note [Kept memory]
// Small blocks (up to 4 KiB) are kept by each thread, one short list per size class; a block freed
// by another thread joins that thread's list. Larger ones are kept in one process-wide list
// ordered by size, up to kKeptBytes; a request takes a kept block of its own rounded size, or one
// at most an eighth larger. When the list is full the largest blocks go first.
constexpr size_t kAlignment = 64;
constexpr size_t kSmallest = 64, kSmall = 4096;
constexpr int kClasses = 7;  // 64 << k
constexpr int kPerClass = 64;
constexpr size_t kKeptBytes = size_t(256) << 20;

int class_of(size_t bytes) {
  return bytes <= kSmallest ? 0 : int(std::bit_width((bytes - 1) / kSmallest));
}

/// The size really allocated: a multiple of a sixteenth of the power of two below, so that kept
/// blocks fit again.
size_t rounded(size_t bytes) {
  if (bytes <= kSmall) return kSmallest << class_of(bytes);
  const size_t step = std::max(std::bit_floor(bytes) / 16, size_t(4096));
  return (bytes + step - 1) / step * step;
}

// Under sanitizers nothing is kept: so AddressSanitizer sees every use after a free, and
// ThreadSanitizer forgets what threads of libraries, whose locks it cannot see, did to a block
// before.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kKeep = false;
#else
constexpr bool kKeep = true;
#endif

// Large blocks are put on huge pages where the system offers them on request: their first use costs
// a fault for each 2 MiB instead of each 4 KiB, and streaming through them a fraction of the page
// walks. Only whole huge pages inside a block are asked for, so that none grows; where blocks begin
// is left to malloc, whose offsets keep several of them from the same sets of the caches.
constexpr size_t kHugePage = size_t(2) << 20;

void* system_allocate(size_t bytes) {
  // Unlike aligned_alloc it takes any size, so that the sanitizer sees where a block really ends.
  void* p = nullptr;
  if (posix_memalign(&p, kAlignment, bytes) != 0) return nullptr;
#ifdef MADV_HUGEPAGE
  if (bytes >= 4 * kHugePage) {
    const uintptr_t begin = (uintptr_t(p) + kHugePage - 1) / kHugePage * kHugePage;
    const uintptr_t end = (uintptr_t(p) + bytes) / kHugePage * kHugePage;
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);  // a wish: may fail
  }
#endif
  return p;
}

struct ThreadLists {
  struct List {
    int n = 0;
    void* blocks[kPerClass];
  };
  std::array<List, kClasses> lists;
  ~ThreadLists() {
    for (List& l : lists)
      for (int k = 0; k < l.n; ++k) std::free(l.blocks[k]);
  }
};

// Behind a pointer: see Note [Thread-local memory].
thread_local constinit ThreadLists* t_lists [[gnu::tls_model("initial-exec")]] = nullptr;

/// Makes the thread's lists; null once the thread ends (blocks freed then go to the system) and
/// where there is no memory for them.
ThreadLists* make_lists() noexcept {
  static thread_local constinit bool ended = false;
  struct Owner {
    ~Owner() {
      ended = true;
      delete t_lists;
      t_lists = nullptr;
    }
  };
  if (ended) return nullptr;
  static thread_local const Owner owner;
  return t_lists = new (std::nothrow) ThreadLists;
}

ThreadLists* lists_of_thread() noexcept {
  if (t_lists) [[likely]]
    return t_lists;
  return make_lists();
}

class Kept {
 public:
  void* take(size_t bytes) {
    std::lock_guard lock(mutex_);
    auto it = blocks_.lower_bound(bytes);
    if (it == blocks_.end() || it->first > bytes + bytes / 8) return nullptr;
    // The block answers to the size of its new owner from here on.
    void* p = it->second;
    total_ -= it->first;
    blocks_.erase(it);
    return p;
  }
  void put(void* p, size_t bytes) noexcept {
    if (bytes > kKeptBytes) return std::free(p);
    try {
      std::lock_guard lock(mutex_);
      // Before those of its size: what was freed last is still in the caches.
      blocks_.emplace_hint(blocks_.lower_bound(bytes), bytes, p);
      total_ += bytes;
      while (total_ > kKeptBytes) {
        auto last = std::prev(blocks_.end());
        std::free(last->second);
        total_ -= last->first;
        blocks_.erase(last);
      }
    } catch (...) {
      std::free(p);
    }
  }
  void clear() noexcept {
    std::lock_guard lock(mutex_);
    for (auto& [size, p] : blocks_) std::free(p);
    blocks_.clear();
    total_ = 0;
  }

 private:
  std::mutex mutex_;
  std::multimap<size_t, void*> blocks_;
  size_t total_ = 0;
};

Kept& kept() {
  static Kept* const k = new Kept;  // static tensors may be freed after all static objects
  return *k;
}

}  // namespace

void* allocate_cached(size_t bytes) {
  if (bytes == 0) return nullptr;
  if (kKeep && bytes <= kSmall)
    if (ThreadLists* const mine = lists_of_thread()) {
      ThreadLists::List& list = mine->lists[size_t(class_of(bytes))];
      if (list.n > 0) return list.blocks[--list.n];
    }
  constexpr size_t kMost = size_t(1) << 62;
  const size_t size = !kKeep || bytes >= kMost ? bytes : rounded(bytes);
  void* p = nullptr;
  if (bytes < kMost) {
    if (kKeep && bytes > kSmall) p = kept().take(size);
    if (!p) p = system_allocate(size);
    if (!p) {
      trim_cached();
      p = system_allocate(size);
    }
  }
  ARETE_CHECK(p, OutOfMemoryError("", "the system has not enough memory for a CPU tensor")
                     .got(std::to_string(bytes) + " bytes requested")
                     .hint("use smaller batches or free tensors that are not needed"));
  return p;
}

void release_cached(void* p, size_t bytes) noexcept {
  if (!p) return;
  if (!kKeep) return std::free(p);
  if (bytes <= kSmall) {
    ThreadLists* const mine = lists_of_thread();
    if (!mine) return std::free(p);
    ThreadLists::List& list = mine->lists[size_t(class_of(bytes))];
    if (list.n < kPerClass) {
      list.blocks[list.n++] = p;
    } else {
      std::free(p);
    }
    return;
  }
  kept().put(p, rounded(bytes));
}

void trim_cached() noexcept { kept().clear(); }

}  // namespace arete::cpu
