// One arena of the caching allocator: the memory of one stream's pool for small or for large
// blocks. It cuts and joins blocks and grows and shrinks its segments; it knows nothing of streams,
// events and limits, and is guarded by the allocator's lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "arete/backend/cuda/runtime/allocator.h"
#include "arete/backend/cuda/runtime/allocator_blocks.h"

namespace arete::cuda {

class Arena;
struct StreamPool;
struct Window;

/// One range of addresses, covered by blocks.
struct Segment {
  Segment(uintptr_t base, size_t bytes, Arena* arena)
      : base(base), bytes(bytes), arena(arena), live(bytes / kBlockUnit) {}
  uintptr_t end() const { return base + bytes; }

  uintptr_t base;
  size_t bytes;
  Arena* arena;
  size_t mapped = 0;         // bytes with physical memory
  Block* first = nullptr;    // its blocks, by address
  IndexSet live;             // where live blocks begin, in units of kBlockUnit
  Window* window = nullptr;  // if it is the addresses of one
};

/// What the allocators of one device may reserve together.
struct MemoryBudget {
  std::mutex growing;  // held from a look at what is left until what was taken is counted
  std::atomic<size_t> limit{0}, reserved{0};

  size_t left() const {
    const size_t most = limit, taken = reserved;
    return most > taken ? most - taken : 0;
  }
};

/// What all arenas of an allocator share.
class ArenaResources {
 public:
  ArenaResources(MemorySource& source, MemoryBudget& budget)
      : source(source), budget(budget), granularity(source.granularity()) {}

  /// The segment with this address; null if there is none.
  Segment* find_segment(uintptr_t address) const;
  /// The live block with this address, `segment` being the one that has it; null if none.
  Block* find_live(const Segment* segment, uintptr_t address) const;
  /// The same for free blocks.
  Block* find_free(const Segment* segment, uintptr_t address) const;
  void add_segment(Segment* s);
  void remove_segment(const Segment* s) { std::erase(segments, s); }

  void add_mapped(Segment* s, size_t bytes) {
    s->mapped += bytes;
    mapped += bytes;
    budget.reserved += bytes;
    if (mapped > peak_mapped) peak_mapped = mapped;
  }
  void subtract_mapped(Segment* s, size_t bytes) {
    s->mapped -= bytes;
    mapped -= bytes;
    budget.reserved -= bytes;
  }

  MemorySource& source;
  MemoryBudget& budget;
  const size_t granularity;  // 0: plain segments
  size_t range_bytes = 0;    // addresses to reserve for a segment
  size_t mapped = 0, peak_mapped = 0;
  BlockRecords records;
  BlockTable live;
  std::vector<Segment*> segments;  // by address
};

class Arena {
 public:
  enum class Kind : uint8_t { small, large };

  Arena(ArenaResources& resources, StreamPool* pool, Kind kind)
      : resources_(resources), pool_(pool), kind_(kind) {}
  /// Gives all segments back; nothing may be live any more.
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  StreamPool* pool() const { return pool_; }
  Kind kind() const { return kind_; }

  /// Blocks that become free from now on are marked with this.
  void set_epoch(uint64_t epoch) { epoch_ = epoch; }

  /// The best fitting free block, cut to `size`, neither free nor yet live; null if none fits.
  Block* take(size_t size) {
    Block* b = free_.best_fit(size);
    if (!b) return nullptr;
    free_.remove(b);
    if (b->size != size) cut(b, size, Block::State::free);
    return b;
  }
  /// Makes a block free and joins it with its neighbours; returns what it is part of then.
  Block* put(Block* b);

  /// Where a block of some size could come from with the least new physical memory.
  struct Growth {
    size_t bytes = 0;        // new physical memory
    Block* first = nullptr;  // the blocks from here on, free ones and holes; null: a new segment
    uintptr_t begin = 0, end = 0;  // addresses that it needs left alone
    size_t segment_bytes = 0;      // size of the new segment
  };
  /// `tight`: no more than needed (a plain segment may be larger otherwise).
  Growth plan(size_t size, bool tight) const;
  /// Where so many bytes of new memory could go, in one piece.
  Growth plan_new(size_t bytes) const;
  /// After it take() succeeds. False if memory is exhausted; what was mapped until then is free.
  bool grow(size_t size, const Growth& growth);

  /// Makes part of a free block a block of its own, of state lent; put() ends that.
  Block* lend(Block* b, uintptr_t begin, uintptr_t end);

  /// Calls f(block, bytes) for free blocks with physical memory that trim() could give back.
  template <class F>
  void for_each_trimmable(F f) const {
    for (const auto& s : segments_)
      for (Block* b = s->first; b; b = b->after)
        if (b->state == Block::State::free)
          if (const size_t n = trimmable(b)) f(b, n);
  }
  size_t trimmable(const Block* b) const;
  /// Gives physical memory of a free block back, up to `most` bytes (rounded up to chunks), and
  /// returns how much. The device must have finished with it.
  size_t trim(Block* b, size_t most);
  /// As trim() of every free block.
  size_t trim_all();

  size_t mapped() const;
  bool has_blocks() const;  // live, lent or pending ones
  const std::vector<std::unique_ptr<Segment>>& segments() const { return segments_; }

 private:
  /// Shortens `b` to `size`; the rest becomes a block of its own of the given state.
  Block* cut(Block* b, size_t size, Block::State rest);
  void become(Block* b, Block::State state);
  void join_holes(Block* b);
  /// `b` takes over the addresses of its successor, whose record is recycled.
  void swallow_next(Block* b);
  void add_hole(Block* b);
  void remove_hole(Block* b);
  Segment* add_segment(void* base, size_t bytes);
  void remove_segment(Segment* s);

  ArenaResources& resources_;
  StreamPool* pool_;
  Kind kind_;
  uint64_t epoch_ = 1;
  FreeBlocks free_;
  Block* holes_ = nullptr;  // linked by left and right
  std::vector<std::unique_ptr<Segment>> segments_;
};

}  // namespace arete::cuda
