// Windows of a pool in the caching allocator: second addresses for free memory that lies in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "arete/backend/cuda/runtime/allocator_arena.h"

// Note [Windows]
// A window is a range of addresses behind which the memory of several free pieces of a pool is put
// together, so that it serves one request that none of them fits. The memory stays mapped where it
// belongs, its home. While the window is handed out, its pieces are blocks of state `lent` at home,
// as far as the request needs them: the end of the last chunk stays free. Given back, they are free
// blocks again as if they had never been elsewhere, and the window is kept. No data passes from
// one address of memory to another, since a block begins with nothing in it; and what its stream
// runs comes after everything that used the memory under other addresses.
//
// So to make a window costs time (the driver maps some 130 GB/s), but to use it again costs none:
// it will do whenever all of its pieces are free, for any request that is not larger. Programs that
// repeat themselves therefore come to rest. Suppose that nothing grows, and that a step begins with
// the free blocks that an earlier step of the same kind began with. Then it goes as that one went:
// a request finds the same free block, or where none fitted, the same window, because of those that
// will do the oldest is taken, and windows made since are newer. So no window is made that was not
// made in the first such step, and the step ends with the free blocks that the earlier one ended
// with, and the next step begins with these. How many kinds of steps there are, and in which order
// they come, does not matter. And memory does grow only a few times, by what the soft limit leaves,
// since scattered pieces are no reason to: a window makes one of them.
//
// The end of this argument would be that windows are dropped (the least recently used ones, when
// all together have several times the memory there is), or that the bytes put into windows reach
// what may_gather() allows and memory grows instead. That is for programs which ask for something
// new in every step.

namespace arete::cuda {

/// See Note [Windows].
struct Window {
  /// Memory at home, and where it is in the window.
  struct Piece {
    size_t offset;
    Segment* segment;
    uintptr_t home;
    size_t bytes;
  };

  Window(uintptr_t base, size_t bytes, Arena* arena) : segment(base, bytes, arena) {}

  Segment segment;                     // with one block, which is as long as was asked for last
  std::vector<Piece> pieces;           // by offset
  size_t usable = 0;                   // bytes from the beginning that are there without gaps
  std::vector<Block*> lent;            // pieces at home, while it is handed out
  uint64_t used_at = 0, freed_at = 0;  // count of uses; epoch
  bool dropped = false;
};

/// All windows of one pool; guarded by the allocator's lock.
class Windows {
 public:
  Windows(ArenaResources& resources, Arena* small, Arena* large)
      : resources_(resources), arenas_{small, large} {}
  /// Nothing may be using the device memory any more.
  ~Windows();
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;

  /// A block in a window that exists, neither free nor yet live; null if none can serve.
  Block* take(size_t size) {
    // Smaller requests find any free chunk as it is.
    if (windows_.empty() || size <= resources_.granularity) return nullptr;
    return take_oldest(size);
  }
  /// As take(), in a new window over free chunks of the pool. Null if these are too few, or the
  /// driver does not do it.
  Block* make(size_t size);
  /// Whole free chunks that a window could be made of.
  size_t free_bytes() const;
  /// Lets go of a block from take() or make(); its memory is free.
  void put(Block* b);

  /// Free memory at home is about to be unmapped, and the device has finished with it: unmaps it
  /// in all windows.
  void forget(uintptr_t begin, uintptr_t end);
  /// Unmaps windows that were dropped, if they were last used in this epoch or before, which the
  /// device must have finished.
  void release_dropped(uint64_t until_epoch);
  void set_epoch(uint64_t epoch) { epoch_ = epoch; }

  /// Calls f(block) for blocks handed out or not yet free of other streams.
  template <class F>
  void for_each_block(F f) const {
    for (const auto& w : windows_)
      if (!w->lent.empty()) f(w->segment.first);
  }

 private:
  Block* take_oldest(size_t size);
  bool can_serve(const Window& w, size_t size) const;
  Block* hand_out(Window& w, size_t size);
  void drop_old_ones(size_t bytes);
  void drop(Window& w);
  /// Unmaps all of it and gives its addresses back.
  void destroy(Window& w);

  ArenaResources& resources_;
  Arena* arenas_[2];
  uint64_t epoch_ = 1, uses_ = 0;
  size_t bytes_ = 0;                              // of all windows that are not dropped
  std::vector<std::unique_ptr<Window>> windows_;  // the oldest first
};

}  // namespace arete::cuda
