// The memory of one stream in the caching allocator: its arenas and windows, and what is known
// about how far the stream has come.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <deque>

#include "arete/backend/cuda/runtime/allocator_arena.h"
#include "arete/backend/cuda/runtime/allocator_windows.h"

// Note [Epochs]
// A freed block may still be used by kernels that its stream was given before. Every pool counts
// epochs; a free block remembers the one in which it (or the last part of it) was freed, and a
// window the one in which it was last used. When an epoch ends, an event is recorded on the stream;
// once it is done, nothing uses blocks freed in that epoch or earlier. Epochs end every few
// allocations, but only while memory is fragmented, since nobody asks otherwise.

namespace arete::cuda {

/// The memory of a stream, or of a private pool and a stream.
struct StreamPool {
  // Larger blocks have an arena of their own.
  static constexpr size_t kSmallLimit = size_t(1) << 20;
  // Events of epochs that are not done.
  static constexpr size_t kMostMarks = 64;

  StreamPool(ArenaResources& resources, CUstream stream, uint64_t id)
      : stream(stream),
        id(id),
        small(resources, this, Arena::Kind::small),
        large(resources, this, Arena::Kind::large),
        windows(resources, &small, &large) {}

  CUstream stream;
  uint64_t id;             // 0: not private
  bool ownerless = false;  // the stream is gone, and nothing of it is running
  bool released = false;   // was private; its blocks are freed one after the other
  Arena small, large;
  Windows windows;  // over memory of both

  // Note [Epochs]
  struct Mark {
    CUevent event;
    uint64_t epoch;
  };
  uint64_t epoch = 1, done_epoch = 0;
  std::deque<Mark> marks;

  void next_epoch() {
    ++epoch;
    small.set_epoch(epoch);
    large.set_epoch(epoch);
    windows.set_epoch(epoch);
  }
  void end_epoch(MemorySource& source) {
    if (marks.size() >= kMostMarks) return;
    marks.push_back({source.record(stream), epoch});
    next_epoch();
  }
  void poll_marks(MemorySource& source) {
    while (!marks.empty() && source.is_done(marks.front().event)) {
      done_epoch = marks.front().epoch;
      source.discard(marks.front().event);
      marks.pop_front();
    }
    windows.release_dropped(done_epoch);
  }
  /// Its stream has been waited for.
  void all_done(MemorySource& source) {
    for (const Mark& m : marks) source.discard(m.event);
    marks.clear();
    done_epoch = epoch;
    next_epoch();
    windows.release_dropped(done_epoch);
  }

  /// Graphs use even its free memory.
  bool is_private() const { return id != 0 && !released; }
  /// Its free memory can be unmapped without waiting.
  bool is_idle() const { return id == 0 && ownerless; }
  bool has_blocks() const { return small.has_blocks() || large.has_blocks(); }
  Arena& arena(size_t size) { return size <= kSmallLimit ? small : large; }
  Arena& other_arena(size_t size) { return size <= kSmallLimit ? large : small; }
  size_t mapped() const { return small.mapped() + large.mapped(); }
};

}  // namespace arete::cuda
