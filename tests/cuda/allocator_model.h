// A model of a device's memory and streams for tests of the caching allocator: it hands out
// addresses that are never touched, lets the work of streams finish at random later times, and
// checks what the allocator does with both.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "arete/backend/cuda/runtime/allocator.h"
#include "arete/base/error.h"

namespace arete::cuda {

inline constexpr size_t kChunk = size_t(2) << 20;

inline CUstream stream_of(int i) { return reinterpret_cast<CUstream>(uintptr_t(i) * 16 + 16); }

/// Work on streams is counted: `submitted` kernels, of which the first `done` have finished.
class DeviceModel {
 public:
  explicit DeviceModel(size_t capacity, bool plain = false) : capacity(capacity), plain(plain) {}

  struct Work {
    CUstream stream;
    uint64_t position;
  };
  struct Stream {
    uint64_t submitted = 0, done = 0;
  };
  /// Memory that was freed (address to end), and the work that may still use it.
  struct Freed {
    uintptr_t end;
    std::vector<Work> work;
  };
  struct Range {
    size_t bytes;
    uint64_t pool = 0;  // the private pool that it serves
    bool released = false;
  };

  bool is_done(const Work& w) { return streams[w.stream].done >= w.position; }
  void submit(CUstream s) { ++streams[s].submitted; }
  void finish(CUstream s) { streams[s].done = streams[s].submitted; }
  void finish_all() {
    for (auto& [name, s] : streams) s.done = s.submitted;
  }

  /// Calls f(begin, end) for the physical memory behind addresses, which are pages with numbers.
  template <class F>
  void each_physical(uintptr_t p, size_t size, F f) const {
    if (plain) return f(p, p + size);
    uintptr_t begin = 0, end = 0;
    for (const uintptr_t last = p + size; p < last;) {
      const uintptr_t next = std::min(last, (p / kChunk + 1) * kChunk);
      const uintptr_t at = mapped.at(p / kChunk) * kChunk + p % kChunk;
      if (at != end) {
        if (begin != end) f(begin, end);
        begin = at;
      }
      end = at + (next - p);
      p = next;
    }
    f(begin, end);
  }
  static bool overlaps(const std::map<uintptr_t, uintptr_t>& blocks, uintptr_t begin,
                       uintptr_t end) {
    auto next = blocks.lower_bound(begin);
    return (next != blocks.end() && next->first < end) ||
           (next != blocks.begin() && std::prev(next)->second > begin);
  }
  /// The allocator handed out a block for `stream`.
  void allocated(uintptr_t p, size_t size, CUstream stream, uint64_t pool) {
    ASSERT_EQ(p % 256, 0u);
    ASSERT_FALSE(overlaps(live, p, p + size)) << "blocks overlap";
    auto range = std::prev(ranges.upper_bound(p));
    ASSERT_LE(p + size, range->first + range->second.bytes);
    if (!plain) {
      for (uintptr_t c = p / kChunk; c <= (p + size - 1) / kChunk; ++c)
        ASSERT_TRUE(mapped.contains(c)) << "no memory behind a block";
    }
    each_physical(p, size, [&](uintptr_t begin, uintptr_t end) {
      ASSERT_FALSE(overlaps(live_memory, begin, end)) << "blocks share memory";
      // What used the memory before must have finished, or be on the same stream.
      each_freed(freed_memory, begin, end, [&](const Work& w) {
        ASSERT_TRUE(w.stream == stream || is_done(w)) << "reused while another stream uses it";
      });
      cut_freed(freed_memory, begin, end);
      live_memory.emplace(begin, end);
    });
    cut_freed(freed_ranges, p, p + size);
    if (pool != range->second.pool) {
      // Only a range that served nobody before may become one of a private pool.
      ASSERT_EQ(range->second.pool, 0u) << "memory of a private pool used elsewhere";
      ASSERT_TRUE(!touched.contains(range->first)) << "memory of others used by a private pool";
      range->second.pool = pool;
    }
    touched.insert(range->first);
    live.emplace(p, p + size);
  }
  /// The block was given back; `uses` are the other streams that used it.
  void freed(uintptr_t p, CUstream stream, const std::vector<CUstream>& uses) {
    auto it = live.find(p);
    ASSERT_TRUE(it != live.end());
    Freed f{it->second, {{stream, streams[stream].submitted}}};
    for (CUstream s : uses) f.work.push_back({s, streams[s].submitted});
    each_physical(p, it->second - p, [&](uintptr_t begin, uintptr_t end) {
      freed_memory.emplace(begin, Freed{end, f.work});
      live_memory.erase(begin);
    });
    freed_ranges.emplace(p, std::move(f));
    live.erase(it);
  }
  void release_pool(uint64_t pool) {
    for (auto& [base, r] : ranges)
      if (r.pool == pool) r.released = true;
  }
  /// Pages that no live block uses, outside of private pools.
  size_t unused_pages() {
    std::unordered_set<uintptr_t> unused;
    for (auto [c, page] : mapped) {
      const Range& r = std::prev(ranges.upper_bound(c * kChunk))->second;
      if (r.pool == 0 || r.released) unused.insert(page);
    }
    for (auto [p, end] : live_memory)
      for (uintptr_t page = p / kChunk; page <= (end - 1) / kChunk; ++page) unused.erase(page);
    return unused.size();
  }
  /// Memory that was freed, by addresses or by physical memory.
  using FreedMap = std::map<uintptr_t, Freed>;
  template <class F>
  static void each_freed(const FreedMap& freed_ranges, uintptr_t begin, uintptr_t end, F f) {
    auto it = freed_ranges.upper_bound(begin);
    if (it != freed_ranges.begin() && std::prev(it)->second.end > begin) --it;
    for (; it != freed_ranges.end() && it->first < end; ++it)
      for (const Work& w : it->second.work) f(w);
  }
  static void cut_freed(FreedMap& freed_ranges, uintptr_t begin, uintptr_t end) {
    auto it = freed_ranges.upper_bound(begin);
    if (it != freed_ranges.begin() && std::prev(it)->second.end > begin) --it;
    while (it != freed_ranges.end() && it->first < end) {
      const uintptr_t first = it->first;
      Freed f = std::move(it->second);
      it = freed_ranges.erase(it);
      if (f.end > end) it = freed_ranges.emplace(end, f).first;
      if (first < begin) freed_ranges.emplace(first, Freed{begin, std::move(f.work)});
    }
  }
  /// Memory got one more address.
  void aliased(uintptr_t from, uintptr_t to, size_t bytes) {
    for (size_t i = 0; i < bytes / kChunk; ++i) {
      const auto page = mapped.find(from / kChunk + i);
      ASSERT_NE(page, mapped.end()) << "no memory there";
      const uintptr_t number = page->second;
      ASSERT_TRUE(mapped.emplace(to / kChunk + i, number).second) << "mapped twice";
      ++addresses[number];
    }
  }
  /// The addresses are not used any more: what was done at others does not matter.
  void check_unused(uintptr_t begin, uintptr_t end) {
    ASSERT_FALSE(overlaps(live, begin, end)) << "taken from a live block";
    each_freed(freed_ranges, begin, end,
               [&](const Work& w) { ASSERT_TRUE(is_done(w)) << "unmapped while in use"; });
    const Range& r = std::prev(ranges.upper_bound(begin))->second;
    ASSERT_TRUE(r.pool == 0 || r.released || closing) << "memory of a private pool was unmapped";
    cut_freed(freed_ranges, begin, end);
  }
  void unmapped(uintptr_t chunk) {
    const auto it = mapped.find(chunk);
    ASSERT_NE(it, mapped.end()) << "was not mapped";
    const uintptr_t page = it->second;
    mapped.erase(it);
    if (--addresses.at(page)) return;
    addresses.erase(page);
    if (!closing) {
      ASSERT_FALSE(overlaps(live_memory, page * kChunk, (page + 1) * kChunk)) << "is in use";
    }
    cut_freed(freed_memory, page * kChunk, (page + 1) * kChunk);
    used -= kChunk;
  }

  const size_t capacity;
  const bool plain;
  size_t used = 0, held_by_others = 0;
  int capturing = 0;     // graphs being captured: no waiting, no events
  bool closing = false;  // the allocator is being destroyed
  int64_t synchronizations = 0, events = 0, aliases = 0;
  int64_t mappings = 0;  // times that memory was mapped or unmapped at any address
  size_t aliased_bytes = 0;
  bool fail_events = false, fail_aliases = false;
  uintptr_t next_address = uintptr_t(1) << 40;
  uintptr_t next_event = 1, next_page = 1;
  std::map<uintptr_t, uintptr_t> live, live_memory;  // by addresses, and by physical memory
  FreedMap freed_ranges, freed_memory;               // likewise
  std::map<uintptr_t, Range> ranges;
  std::set<uintptr_t> touched;
  std::set<CUstream> destroyed;
  std::unordered_map<uintptr_t, uintptr_t> mapped;  // pages of chunks
  std::unordered_map<uintptr_t, int> addresses;     // how many a page has
  std::unordered_map<CUstream, Stream> streams;
  std::unordered_map<uintptr_t, Work> open_events;
};

class ModelSource final : public MemorySource {
 public:
  explicit ModelSource(DeviceModel& model) : m(model) {}

  size_t granularity() override { return m.plain ? 0 : kChunk; }
  void* reserve(size_t bytes) override {
    EXPECT_FALSE(m.plain);
    EXPECT_EQ(bytes % kChunk, 0u);
    return new_range(bytes);
  }
  void unreserve(void* p, size_t bytes) noexcept override {
    EXPECT_EQ(m.ranges.at(uintptr_t(p)).bytes, bytes);
    for (uintptr_t c = uintptr_t(p) / kChunk; c < (uintptr_t(p) + bytes) / kChunk; ++c)
      if (m.mapped.contains(c)) {
        ADD_FAILURE() << "still mapped";
        break;
      }
    m.ranges.erase(uintptr_t(p));
  }
  bool map(void* p, size_t bytes) override {
    EXPECT_EQ(uintptr_t(p) % kChunk, 0u);
    EXPECT_EQ(bytes % kChunk, 0u);
    EXPECT_GT(bytes, 0u);
    if (bytes > m.capacity - m.used - m.held_by_others) return false;
    const auto range = std::prev(m.ranges.upper_bound(uintptr_t(p)));
    EXPECT_LE(uintptr_t(p) + bytes, range->first + range->second.bytes);
    for (uintptr_t c = uintptr_t(p) / kChunk; c < (uintptr_t(p) + bytes) / kChunk; ++c) {
      EXPECT_TRUE(m.mapped.emplace(c, m.next_page).second) << "mapped twice";
      m.addresses[m.next_page++] = 1;
    }
    ++m.mappings;
    m.used += bytes;
    return true;
  }
  bool alias(void* from, void* to, size_t bytes) override {
    EXPECT_EQ(m.capturing, 0) << "memory mapped during a capture";
    EXPECT_EQ(uintptr_t(from) % kChunk, 0u);
    EXPECT_EQ(uintptr_t(to) % kChunk, 0u);
    EXPECT_EQ(bytes % kChunk, 0u);
    const auto range = std::prev(m.ranges.upper_bound(uintptr_t(to)));
    EXPECT_LE(uintptr_t(to) + bytes, range->first + range->second.bytes);
    if (m.fail_aliases) return false;
    ++m.aliases;
    ++m.mappings;
    m.aliased_bytes += bytes;
    m.aliased(uintptr_t(from), uintptr_t(to), bytes);
    return true;
  }
  void unmap(void* p, size_t bytes) noexcept override {
    EXPECT_EQ(uintptr_t(p) % kChunk, 0u);
    EXPECT_EQ(bytes % kChunk, 0u);
    ++m.mappings;
    m.check_unused(uintptr_t(p), uintptr_t(p) + bytes);
    for (uintptr_t c = uintptr_t(p) / kChunk; c < (uintptr_t(p) + bytes) / kChunk; ++c)
      m.unmapped(c);
  }
  void* allocate(size_t bytes) override {
    EXPECT_TRUE(m.plain);
    if (bytes > m.capacity - m.used - m.held_by_others) return nullptr;
    m.used += bytes;
    return new_range(bytes);
  }
  void release(void* p) noexcept override {
    auto it = m.ranges.find(uintptr_t(p));
    EXPECT_TRUE(it != m.ranges.end());
    m.check_unused(it->first, it->first + it->second.bytes);
    m.used -= it->second.bytes;
    m.ranges.erase(it);
  }
  void memory_info(size_t* free, size_t* total) override {
    *free = m.capacity - m.used - m.held_by_others;
    *total = m.capacity;
  }
  CUevent record(CUstream stream) override {
    EXPECT_EQ(m.capturing, 0) << "event recorded during a capture";
    if (m.fail_events) throw DeviceError("", "the context is broken");
    EXPECT_FALSE(m.destroyed.contains(stream)) << "event recorded on a destroyed stream";
    ++m.events;
    const uintptr_t e = m.next_event++;
    m.open_events.emplace(e, DeviceModel::Work{stream, m.streams[stream].submitted});
    return reinterpret_cast<CUevent>(e);
  }
  bool is_done(CUevent event) override {
    EXPECT_EQ(m.capturing, 0) << "event queried during a capture";
    return m.is_done(m.open_events.at(uintptr_t(event)));
  }
  void discard(CUevent event) noexcept override {
    EXPECT_EQ(m.open_events.erase(uintptr_t(event)), 1u);
  }
  void synchronize() override {
    EXPECT_EQ(m.capturing, 0) << "waited during a capture";
    ++m.synchronizations;
    m.finish_all();
  }
  void synchronize(CUstream stream) override { m.finish(stream); }

 private:
  void* new_range(size_t bytes) {
    const uintptr_t p = m.next_address;
    m.next_address += (bytes + kChunk - 1) / kChunk * kChunk + kChunk;  // never neighbours
    m.ranges.emplace(p, DeviceModel::Range{bytes});
    return reinterpret_cast<void*>(p);
  }
  DeviceModel& m;
};

inline constexpr size_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;

inline size_t rounded(size_t bytes) { return (bytes + 511) / 512 * 512; }

/// An allocator over the model, and the model's own count of what it does.
class Checked {
 public:
  explicit Checked(size_t capacity, bool plain = false)
      : model(capacity, plain),
        allocator(std::make_unique<CachingAllocator>(std::make_unique<ModelSource>(model),
                                                     "cuda:0 (model)")) {}
  ~Checked() {
    model.closing = true;
    model.live.clear();
    model.live_memory.clear();
    allocator.reset();
    EXPECT_EQ(model.used, 0u);
    EXPECT_TRUE(model.ranges.empty());
    EXPECT_TRUE(model.open_events.empty());
  }

  struct Block {
    char* p;
    size_t bytes;
    CUstream stream;
    std::vector<CUstream> uses;
    uint64_t pool;
  };

  Block allocate(size_t bytes, CUstream stream, uint64_t pool = 0) {
    return given(allocator->allocate(bytes, stream), bytes, stream, pool);
  }
  /// p is null where there is none.
  Block allocate_at(char* p, size_t bytes, CUstream stream, uint64_t pool = 0) {
    void* const at = allocator->allocate_at(p, bytes, stream);
    if (!at) return {nullptr, bytes, stream, {}, pool};
    EXPECT_EQ(at, p);
    return given(at, bytes, stream, pool);
  }
  Block given(void* p, size_t bytes, CUstream stream, uint64_t pool) {
    Block b{static_cast<char*>(p), bytes, stream, {}, pool};
    allocated += rounded(bytes);
    peak_allocated = std::max(peak_allocated, allocated);
    ++allocations;
    model.allocated(uintptr_t(b.p), rounded(bytes), stream, pool);
    model.submit(stream);
    return b;
  }
  void use(Block& b, size_t offset, CUstream stream) {
    allocator->note_use(b.p + offset, stream);
    model.submit(stream);
    if (stream != b.stream && std::find(b.uses.begin(), b.uses.end(), stream) == b.uses.end())
      b.uses.push_back(stream);
  }
  void free(const Block& b) {
    model.freed(uintptr_t(b.p), b.stream, b.uses);
    allocator->deallocate(b.p);
    allocated -= rounded(b.bytes);
    ++frees;
  }
  void check_stats() {
    const prim::MemoryStats s = allocator->stats();
    EXPECT_EQ(s.allocated, allocated);
    EXPECT_EQ(s.peak_allocated, peak_allocated);
    EXPECT_EQ(s.reserved, model.used);
    EXPECT_GE(s.peak_reserved, s.reserved);
    EXPECT_GE(s.reserved, s.allocated + s.pending);
    EXPECT_EQ(s.allocations, allocations);
    EXPECT_EQ(s.frees, frees);
    EXPECT_EQ(s.blocks, allocations - frees);
  }

  DeviceModel model;
  std::unique_ptr<CachingAllocator> allocator;
  size_t allocated = 0, peak_allocated = 0;
  int64_t allocations = 0, frees = 0;
};

inline const CUstream kMain = stream_of(0), kSide = stream_of(1);

}  // namespace arete::cuda
