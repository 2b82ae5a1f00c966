// What the caching allocator keeps its blocks in: records of blocks, an index of free blocks by
// size, a table of live ones by address, and a set of addresses that finds the nearest one below.
#pragma once

#include <cuda.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

namespace arete::cuda {

/// Sizes of blocks are multiples of this, and their addresses too.
inline constexpr size_t kBlockUnit = 512;

inline constexpr size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }
inline constexpr size_t round_down(size_t n, size_t unit) { return n / unit * unit; }

struct Segment;

/// The blocks of a segment cover its range of addresses without gaps.
struct Block {
  enum class State : uint8_t {
    hole,     // addresses without physical memory
    free,     // may be handed out; both neighbours are of another kind
    live,     // handed out
    pending,  // given back, but perhaps still used on other streams
    lent,     // handed out at other addresses (Note [Windows])
  };

  uintptr_t address = 0;
  size_t size = 0;
  Segment* segment = nullptr;
  Block *before = nullptr, *after = nullptr;  // neighbours by address
  Block *left = nullptr, *right = nullptr;    // places in FreeBlocks, or in the list of holes
  const char* operator_name = nullptr;        // live: what asked for it
  std::vector<CUstream> uses;                 // live: streams other than the pool's
  uint64_t freed_at = 0;                      // free: the arena's epoch when it became so
  uint32_t waiting = 0;                       // pending: events not done
  State state = State::hole;

  uintptr_t end() const { return address + size; }
  void* pointer() const { return reinterpret_cast<void*>(address); }
};

/// Records of blocks, reused.
class BlockRecords {
 public:
  Block* make(Segment* segment, uintptr_t address, size_t size) {
    if (!unused_) [[unlikely]]
      add_slab();
    Block* b = unused_;
    unused_ = b->after;
    b->address = address;
    b->size = size;
    b->segment = segment;
    return b;
  }
  void recycle(Block* b) {
    b->uses.clear();
    b->after = unused_;
    unused_ = b;
  }

 private:
  void add_slab();
  Block* unused_ = nullptr;
  std::vector<std::unique_ptr<Block[]>> slabs_;
};

/// Free blocks by size. Up to kExactLimit there is a list for every size; above, a balanced tree
/// (a treap whose priorities are hashed addresses) by size and address for every sixteenth of an
/// octave. A bitmap of the bins in use finds the next larger one.
class FreeBlocks {
 public:
  void insert(Block* b);
  void remove(Block* b);
  /// The smallest block of at least `size` bytes, of several in a tree the lowest; null if none.
  /// It stays in.
  Block* best_fit(size_t size) const;

 private:
  static constexpr int kExactLog = 20, kMaxLog = 48;
  static constexpr size_t kExactLimit = size_t(1) << kExactLog;
  static constexpr int kExactBins = int(kExactLimit / kBlockUnit);
  static constexpr int kBins = kExactBins + (kMaxLog - kExactLog) * 16;
  static constexpr int kWords = (kBins + 63) / 64;
  static_assert(kWords <= 64, "one summary word");

  static int bin_of(size_t size) {
    if (size <= kExactLimit) return int(size / kBlockUnit) - 1;
    const int log = std::bit_width(size) - 1;
    if (log >= kMaxLog) return kBins - 1;
    return kExactBins + (log - kExactLog) * 16 + int(size >> (log - 4) & 15);
  }
  /// The first bin in use from `bin` on; -1 if none.
  int next_used(int bin) const {
    int w = bin / 64;
    const uint64_t word = used_[size_t(w)] >> bin % 64;
    if (word) return bin + std::countr_zero(word);
    if (++w >= kWords) return -1;
    const uint64_t rest = summary_ >> w;
    if (!rest) return -1;
    w += std::countr_zero(rest);
    return w * 64 + std::countr_zero(used_[size_t(w)]);
  }
  void mark(int bin) {
    used_[size_t(bin / 64)] |= uint64_t(1) << bin % 64;
    summary_ |= uint64_t(1) << bin / 64;
  }
  void unmark(int bin) {
    if (!(used_[size_t(bin / 64)] &= ~(uint64_t(1) << bin % 64)))
      summary_ &= ~(uint64_t(1) << bin / 64);
  }

  std::array<Block*, kBins> bins_{};
  std::array<uint64_t, kWords> used_{};
  uint64_t summary_ = 0;
};

/// Blocks by the address of their beginning: open addressing, at most half full.
class BlockTable {
 public:
  BlockTable() : slots_(size_t(1) << (64 - shift_)) {}

  void insert(Block* b) {
    if (2 * (count_ + 1) > slots_.size()) [[unlikely]]
      grow();
    ++count_;
    place({b->address, b});
  }
  Block* find(uintptr_t address) const {
    for (size_t i = home(address);; i = next(i)) {
      if (slots_[i].address == address) return slots_[i].block;
      if (!slots_[i].address) return nullptr;
    }
  }
  /// Takes it out; null if it is not in.
  Block* take(uintptr_t address) {
    for (size_t i = home(address);; i = next(i)) {
      if (slots_[i].address == address) {
        Block* b = slots_[i].block;
        erase(i);
        return b;
      }
      if (!slots_[i].address) return nullptr;
    }
  }
  template <class F>
  void for_each(F f) const {
    for (const Slot& s : slots_)
      if (s.address) f(*s.block);
  }

 private:
  struct Slot {
    uintptr_t address = 0;
    Block* block = nullptr;
  };
  size_t home(uintptr_t address) const {
    return size_t(address / kBlockUnit * 0x9E3779B97F4A7C15u >> shift_);
  }
  size_t next(size_t i) const { return (i + 1) & (slots_.size() - 1); }
  void place(Slot s) {
    size_t i = home(s.address);
    while (slots_[i].address) i = next(i);
    slots_[i] = s;
  }
  void erase(size_t i) {
    // Later entries of the run move up unless they would come before their home.
    const size_t mask = slots_.size() - 1;
    for (size_t j = next(i); slots_[j].address; j = next(j))
      if (((j - home(slots_[j].address)) & mask) >= ((j - i) & mask)) {
        slots_[i] = slots_[j];
        i = j;
      }
    slots_[i] = {};
    --count_;
  }
  void grow();

  int shift_ = 64 - 10;
  size_t count_ = 0;
  std::vector<Slot> slots_;
};

/// A set of indices below a fixed limit: a bitmap with a bitmap of its non-zero words, and so on.
/// Its pages come into being when they are first written.
class IndexSet {
 public:
  explicit IndexSet(size_t limit);

  void insert(size_t i) {
    for (const Level& level : levels_) {
      uint64_t& word = level.words[i / 64];
      const bool was_empty = word == 0;
      word |= uint64_t(1) << i % 64;
      if (!was_empty) return;
      i /= 64;
    }
  }
  void erase(size_t i) {
    for (const Level& level : levels_) {
      uint64_t& word = level.words[i / 64];
      word &= ~(uint64_t(1) << i % 64);
      if (word) return;
      i /= 64;
    }
  }
  /// The largest member that is <= i; -1 if there is none.
  ptrdiff_t find_down(size_t i) const;

 private:
  struct Free {
    void operator()(uint64_t* p) const { std::free(p); }
  };
  struct Level {
    std::unique_ptr<uint64_t[], Free> words;
  };
  std::vector<Level> levels_;  // the last one has one word
};

}  // namespace arete::cuda
