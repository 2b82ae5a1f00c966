#include "arete/backend/cuda/runtime/allocator.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "arete/backend/cuda/runtime/allocator_pool.h"
#include "arete/backend/cuda/runtime/allocator_report.h"
#include "arete/base/error.h"
#include "arete/core/memory_events.h"

// Note [How memory grows]
// A request that no free block of its arena fits goes through these, each only if those before did
// not help:
//  1. Blocks that waited for other streams and are free by now.
//  2. A window that was made before (Note [Windows]) and whose memory is free.
//  3. New physical memory, if the reserved bytes stay within a small part of the most that was ever
//     in use at once (soft_limit). So the first steps of a training program grow without waiting.
//  4. Beyond that, memory is there but in pieces. The other arena of the pool may have one that
//     fits. Else a window over free chunks of the pool is made, after as much growth as these are
//     too few by. It needs no waiting, since what comes next runs after everything that used the
//     memory at home. What other pools have free is unmapped first, which needs waiting for the
//     device. Both cost time, so that a program that needs either again and again is allowed to
//     grow instead.
//  5. When the driver has no more, or the limit of set_memory_fraction is reached: cached memory
//     anywhere is given back, first as much as is needed, then all of it.
//  6. OutOfMemoryError.
// Memory that kernels may still use is never unmapped. During a capture nothing may be waited for
// or asked, so that only pools of destroyed streams, which are idle, give memory then.

namespace arete::cuda {
namespace {

constexpr size_t kMostBytes = size_t(1) << 47;
constexpr int kMostWaits = 64;
// Of the bytes handed out, one in so many may be put into new windows: mapping runs at some
// 130 GB/s, kernels at ten times that.
constexpr size_t kGatherShare = 1024;
// So many times the most that was in use may be put into windows before that counts.
constexpr size_t kGatherAtOnce = 16;
// Allocations between looks at events, while blocks wait for other streams or memory is fragmented.
constexpr unsigned kPollInterval = 64;
constexpr int64_t kFragmentedFor = 50000;  // allocations after the soft limit was met

std::atomic<const char* (*)()> operator_source{nullptr};

const char* current_operator() {
  const auto source = operator_source.load(std::memory_order_relaxed);
  return source ? source() : nullptr;
}

}  // namespace

void set_operator_source(const char* (*source)()) noexcept {
  operator_source.store(source, std::memory_order_relaxed);
}

struct CachingAllocator::Impl {
  Impl(std::unique_ptr<MemorySource> s, std::string name, int device_number, Impl* beside)
      : source(std::move(s)),
        budget(beside ? beside->budget : std::make_shared<MemoryBudget>()),
        resources(*source, *budget),
        device_name(std::move(name)),
        device(DeviceType::cuda, device_number) {
    size_t free = 0, total = 0;
    source->memory_info(&free, &total);
    device_total = total;
    if (!beside) budget->limit = total;
    if (resources.granularity) {
      slack_unit = resources.granularity;
      resources.range_bytes = round_up(total + total / 8, resources.granularity);
    }
  }
  ~Impl();

  void* allocate(size_t bytes, CUstream stream);
  void* allocate_at(void* p, size_t bytes, CUstream stream);
  void* give_out(Block* b, size_t bytes, CUstream stream);
  void deallocate(void* p);
  bool note_uses(std::span<const void* const> sorted, CUstream stream);
  bool is_known_to_use(const StreamPool& pool, CUstream stream) const;
  void forget_stream(CUstream stream);
  void empty_cache();
  void check_pool(uint64_t pool) const;
  void begin_pool(uint64_t pool, CUstream stream);
  void end_pool(CUstream stream);
  void release_pool(uint64_t pool);
  std::vector<prim::PoolSegment> segments(uint64_t pool) const;
  prim::MemoryStats stats() const;
  MemoryReport report() const;

  void tell(MemoryEvent::Action action, uintptr_t address, size_t bytes, size_t requested,
            CUstream stream) const {
    notify_memory({action, device, false, address, bytes, requested, stream});
  }
  bool capturing() const { return !routes.empty(); }
  StreamPool& pool_of(CUstream stream);
  StreamPool& find_pool(CUstream stream, uint64_t id);
  Block* take_slowly(StreamPool& pool, size_t size);
  Block* borrow(const StreamPool& pool, size_t size);
  Block* grow(StreamPool& pool, size_t size, bool tight);
  Block* gather(StreamPool& pool, size_t size, size_t most);
  size_t soft_limit(size_t size) const;
  // A program that repeats itself makes its windows once, at worst of most of the memory for every
  // kind of step.
  bool may_gather(size_t bytes) const {
    return gathered + bytes <= kGatherAtOnce * high_water + total / kGatherShare;
  }
  bool may_wait();
  bool free_elsewhere(const StreamPool& pool) const;
  size_t make_room(size_t bytes, const Arena::Growth* keep, bool may_wait);
  void look_at_events();
  void drop_empty_pools();

  void record_uses(Block* b);
  size_t poll();
  void finish(Block* b) {
    pending -= b->size;
    put(b);
  }
  void put(Block* b) {
    if (b->segment->window) [[unlikely]]
      b->segment->arena->pool()->windows.put(b);
    else
      b->segment->arena->put(b);
  }

  struct Route {
    CUstream stream;
    uint64_t pool;
  };
  /// Between enter_pool and leave_pool.
  struct Scope {
    std::thread::id thread;
    uint64_t pool;
  };
  struct UseQueue {
    struct Entry {
      CUevent event;
      Block* block;
    };
    CUstream stream;
    std::deque<Entry> entries;
  };

  mutable std::mutex mutex;
  std::unique_ptr<MemorySource> source;
  std::shared_ptr<MemoryBudget> budget;
  ArenaResources resources;
  std::string device_name;
  Device device;
  size_t device_total = 0, slack_unit = 0;

  StreamPool* last_pool = nullptr;  // the one found last
  std::vector<std::unique_ptr<StreamPool>> pools;
  std::vector<Route> routes;
  std::vector<Scope> scopes;         // the innermost of a thread last
  std::vector<uint64_t> lent_pools;  // of open_pools
  uint64_t last_pool_id = 0;
  std::vector<uint64_t> open_pools;

  std::vector<UseQueue> queues;
  std::vector<Block*> deferred;  // freed, with uses for which no event could be recorded yet
  size_t waiting_events = 0;
  unsigned ticks = 0;

  size_t allocated = 0, peak_allocated = 0, pending = 0;
  size_t total = 0, gathered = 0;  // ever handed out; ever put into windows
  int64_t allocations = 0, frees = 0, blocks = 0, peak_blocks = 0, retries = 0, failures = 0;
  size_t high_water = 0;  // of allocated + pending, since the start or the last empty_cache
  size_t wait_high_water = 0;
  int waits_since = 0;  // times that memory was waited for since the high water rose
  int64_t moves = 0, fragmented_until = 0;
};

CachingAllocator::Impl::~Impl() {
  try {
    source->synchronize();
  } catch (...) {  // a broken context, or the driver has shut down
  }
  for (UseQueue& q : queues)
    for (UseQueue::Entry& e : q.entries) source->discard(e.event);
  for (const auto& p : pools) p->all_done(*source);
}

// The fast path -------------------------------------------------------------------------------

void* CachingAllocator::Impl::allocate(size_t bytes, CUstream stream) {
  if (bytes == 0) return nullptr;
  const std::lock_guard lock(mutex);
  if (bytes > kMostBytes) {  // no arithmetic with it
    ++failures;
    tell(MemoryEvent::Action::out_of_memory, 0, bytes, bytes, stream);
    throw out_of_memory_error(report(), bytes);
  }
  const size_t size = round_up(bytes, kBlockUnit);
  StreamPool& pool = pool_of(stream);
  if ((waiting_events || allocations < fragmented_until) && ++ticks % kPollInterval == 0)
    look_at_events();
  Block* b = pool.arena(size).take(size);
  if (!b) [[unlikely]] {
    b = take_slowly(pool, size);
    if (!b) {
      ++failures;
      tell(MemoryEvent::Action::out_of_memory, 0, size, bytes, stream);
      throw out_of_memory_error(report(), bytes);
    }
  }
  return give_out(b, bytes, stream);
}

void* CachingAllocator::Impl::allocate_at(void* p, size_t bytes, CUstream stream) {
  const auto address = uintptr_t(p);
  if (bytes == 0 || bytes > kMostBytes || address % kBlockUnit != 0) return nullptr;
  const size_t size = round_up(bytes, kBlockUnit);
  const std::lock_guard lock(mutex);
  const auto find = [&]() -> Block* {
    const Segment* const s = resources.find_segment(address);
    if (!s || s->window || s->arena->pool() != &pool_of(stream)) return nullptr;
    Block* const b = resources.find_free(s, address);
    return b && address >= b->address && address + size <= b->end() ? b : nullptr;
  };
  Block* b = find();
  // Other streams may have come to the end of what they used.
  if (!b && waiting_events && poll()) b = find();
  if (!b) return nullptr;
  return give_out(b->segment->arena->lend(b, address, address + size), bytes, stream);
}

/// A block that is neither free nor live.
void* CachingAllocator::Impl::give_out(Block* b, size_t bytes, CUstream stream) {
  const size_t size = b->size;
  resources.live.insert(b);
  b->state = Block::State::live;
  b->operator_name = current_operator();
  Segment* s = b->segment;
  s->live.insert((b->address - s->base) / kBlockUnit);
  ++allocations;
  if (++blocks > peak_blocks) peak_blocks = blocks;
  total += size;
  allocated += size;
  if (allocated > peak_allocated) peak_allocated = allocated;
  if (allocated + pending > high_water) high_water = allocated + pending;
  memory_totals(device.index).allocated_bytes.store(int64_t(total), std::memory_order_relaxed);
  tell(MemoryEvent::Action::alloc, b->address, size, bytes, stream);
  return b->pointer();
}

void CachingAllocator::Impl::deallocate(void* p) {
  if (!p) return;
  const std::lock_guard lock(mutex);
  Block* b = resources.live.take(uintptr_t(p));
  ARETE_ASSERT(b);
  Segment* s = b->segment;
  s->live.erase((b->address - s->base) / kBlockUnit);
  ++frees;
  --blocks;
  allocated -= b->size;
  tell(MemoryEvent::Action::free, b->address, b->size, b->size, s->arena->pool()->stream);
  if (b->uses.empty()) {
    put(b);
    return;
  }
  b->state = Block::State::pending;
  pending += b->size;
  if (capturing())
    deferred.push_back(b);
  else
    record_uses(b);
}

StreamPool& CachingAllocator::Impl::pool_of(CUstream stream) {
  uint64_t id = 0;
  for (const Route& r : routes)
    if (r.stream == stream) id = r.pool;
  if (id == 0 && !scopes.empty()) [[unlikely]] {
    const auto mine = std::find_if(scopes.rbegin(), scopes.rend(), [](const Scope& s) {
      return s.thread == std::this_thread::get_id();
    });
    if (mine != scopes.rend()) id = mine->pool;
  }
  if (last_pool && last_pool->stream == stream && last_pool->id == id) return *last_pool;
  last_pool = &find_pool(stream, id);
  return *last_pool;
}

StreamPool& CachingAllocator::Impl::find_pool(CUstream stream, uint64_t id) {
  for (const auto& p : pools)
    if (p->stream == stream && p->id == id && !p->ownerless) return *p;
  if (id == 0)
    for (const auto& p : pools)
      if (p->is_idle()) {
        // Uses by the new owner that were noted before are harmless: they only make a block wait.
        p->ownerless = false;
        p->stream = stream;
        p->all_done(*source);
        return *p;
      }
  pools.push_back(std::make_unique<StreamPool>(resources, stream, id));
  return *pools.back();
}

// Growth: Note [How memory grows] ---------------------------------------------------------------

Block* CachingAllocator::Impl::take_slowly(StreamPool& pool, size_t size) {
  Arena &arena = pool.arena(size), &other = pool.other_arena(size);
  if (poll())
    if (Block* b = arena.take(size)) return b;
  if (Block* b = pool.windows.take(size)) return b;

  if (resources.granularity && !capturing()) {
    pool.poll_marks(*source);
    Arena::Growth growth = arena.plan(size, false);
    const size_t most = soft_limit(size);
    if (resources.mapped + growth.bytes > most) {
      if (Block* b = other.take(size)) return b;
      if (may_gather(size)) {
        fragmented_until = allocations + kFragmentedFor;
        if (Block* b = gather(pool, size, most)) return b;
        if (free_elsewhere(pool) && may_wait()) {
          growth = arena.plan(size, false);
          // More than is needed now, so that the next few requests need not wait again.
          const size_t room = resources.mapped + growth.bytes - most + high_water / 64;
          make_room(room, &growth, true);
          if (Block* b = arena.take(size)) return b;
        }
        // Ends of chunks are free, which windows cannot have: growth by as much as is missing.
        if (Block* b = gather(pool, size, kMostBytes)) return b;
      }
    }
  }
  if (Block* b = grow(pool, size, false)) return b;

  if (Block* b = other.take(size)) return b;
  if (resources.granularity && !capturing())
    if (Block* b = gather(pool, size, kMostBytes)) return b;
  ++retries;
  for (const bool all : {false, true}) {
    const Arena::Growth growth = arena.plan(size, true);
    make_room(all ? kMostBytes : growth.bytes, all ? nullptr : &growth, true);
    if (Block* b = arena.take(size)) return b;
    if (Block* b = other.take(size)) return b;
    if (Block* b = grow(pool, size, true)) return b;
  }
  return borrow(pool, size);
}

/// A free block of a pool that lends: one of the same stream, after whose work it comes. Nothing
/// for a graph, whose replays would use the memory when the pool has it back.
Block* CachingAllocator::Impl::borrow(const StreamPool& pool, size_t size) {
  for (const Route& r : routes)
    if (r.stream == pool.stream) return nullptr;
  for (const auto& p : pools) {
    if (p.get() == &pool || p->stream != pool.stream || p->ownerless ||
        std::find(lent_pools.begin(), lent_pools.end(), p->id) == lent_pools.end())
      continue;
    if (Block* b = p->arena(size).take(size)) return b;
    if (Block* b = p->other_arena(size).take(size)) return b;
    if (Block* b = p->windows.take(size)) return b;
  }
  return nullptr;
}

Block* CachingAllocator::Impl::grow(StreamPool& pool, size_t size, bool tight) {
  Arena& arena = pool.arena(size);
  const Arena::Growth growth = arena.plan(size, tight);
  const std::lock_guard growing(budget->growing);
  if (growth.bytes > budget->left() || !arena.grow(size, growth)) return nullptr;
  Block* b = arena.take(size);
  ARETE_ASSERT(b);
  return b;
}

/// A block in a new window, after growth as far as the pool has too few free chunks, but not beyond
/// `most` reserved bytes.
Block* CachingAllocator::Impl::gather(StreamPool& pool, size_t size, size_t most) {
  if (size <= resources.granularity) return nullptr;  // it needs no more than one chunk
  const size_t found = pool.windows.free_bytes();
  if (found < size) {
    const Arena::Growth growth = pool.large.plan_new(size - found);
    const std::lock_guard growing(budget->growing);
    if (resources.mapped + growth.bytes > most || growth.bytes > budget->left() ||
        !pool.large.grow(growth.bytes, growth))
      return nullptr;
    if (Block* b = pool.large.take(size)) return b;
  }
  Block* b = pool.windows.make(size);
  if (b) {
    ++moves;
    gathered += size;
  }
  return b;
}

/// The most to reserve before pieces are gathered.
size_t CachingAllocator::Impl::soft_limit(size_t size) const {
  const size_t most = std::max(high_water, allocated + pending + size);
  return most + most / 32 + slack_unit * (2 + 2 * pools.size());
}

/// Whether the device may be waited for only to keep below the soft limit.
bool CachingAllocator::Impl::may_wait() {
  if (capturing()) return false;
  if (high_water > wait_high_water + wait_high_water / 64) {
    wait_high_water = high_water;
    waits_since = 0;
  }
  if (waits_since >= kMostWaits) return false;
  ++waits_since;
  ++moves;
  return true;
}

/// Whether waiting would make memory free for the pool that is not its own already.
bool CachingAllocator::Impl::free_elsewhere(const StreamPool& pool) const {
  bool found = pending != 0;
  for (const auto& p : pools)
    if (p.get() != &pool && !p->is_private())
      for (const Arena* a : {&p->small, &p->large})
        a->for_each_trimmable([&](const Block*, size_t) { found = true; });
  return found;
}

/// Gives back at least `bytes` of free memory, if there is so much, but nothing that `keep` counts
/// on. Returns how much.
size_t CachingAllocator::Impl::make_room(size_t bytes, const Arena::Growth* keep, bool may_wait) {
  struct Candidate {
    bool last;  // better kept if there are others
    size_t bytes;
    Arena* arena;
    Block* block;
  };
  std::vector<Candidate> candidates;
  size_t freed = 0;
  const auto collect = [&](StreamPool& p, uint64_t until_epoch) {
    for (Arena* a : {&p.small, &p.large})
      a->for_each_trimmable([&](Block* b, size_t n) {
        if (b->freed_at > until_epoch) return;
        if (keep && b->address < keep->end && keep->begin < b->end()) return;
        candidates.push_back({p.id == 0, n, a, b});
      });
  };
  const auto trim = [&] {
    // Small pieces first: large ones are more likely to be used as they are.
    std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
      if (a.last != b.last) return b.last;
      return a.bytes != b.bytes ? a.bytes < b.bytes : a.block->address < b.block->address;
    });
    for (const Candidate& c : candidates)
      if (freed < bytes) freed += c.arena->trim(c.block, bytes - freed);
    candidates.clear();
  };
  constexpr uint64_t kAny = ~uint64_t(0);
  for (const auto& p : pools)
    if (p->is_idle()) collect(*p, kAny);
  trim();
  if (freed < bytes && !capturing()) {
    for (const auto& p : pools)
      if (p->id == 0 && !p->ownerless) {
        p->poll_marks(*source);
        collect(*p, p->done_epoch);
      }
    trim();
  }
  if (freed < bytes && !capturing() && may_wait) {
    source->synchronize();
    poll();
    for (const auto& p : pools) {
      p->all_done(*source);
      if (!p->is_private()) collect(*p, kAny);
    }
    trim();
  }
  drop_empty_pools();
  return freed;
}

/// Now and then, while there is something to see.
void CachingAllocator::Impl::look_at_events() {
  if (capturing()) return;
  poll();
  if (allocations < fragmented_until)
    for (const auto& p : pools)
      if (p->id == 0 && !p->ownerless) {
        p->poll_marks(*source);
        p->end_epoch(*source);
      }
}

void CachingAllocator::Impl::drop_empty_pools() {
  std::erase_if(pools, [&](const std::unique_ptr<StreamPool>& p) {
    if (!(p->released || p->is_idle()) || p->mapped() || p->has_blocks()) return false;
    for (const Route& r : routes)
      if (r.pool == p->id && p->id) return false;
    if (last_pool == p.get()) last_pool = nullptr;
    return true;
  });
}

// Other streams ---------------------------------------------------------------------------------

/// Whether no block of the pool has to have a note of it.
bool CachingAllocator::Impl::is_known_to_use(const StreamPool& pool, CUstream stream) const {
  return (pool.stream == stream && !pool.ownerless) ||
         std::any_of(routes.begin(), routes.end(),
                     [&](const Route& r) { return r.stream == stream && r.pool != pool.id; });
}

bool CachingAllocator::Impl::note_uses(std::span<const void* const> sorted, CUstream stream) {
  const std::lock_guard lock(mutex);
  bool all = true;
  const Segment* s = nullptr;
  bool is_known = false;
  for (const void* const p : sorted) {
    const auto address = uintptr_t(p);
    if (!s || address >= s->end()) {
      s = resources.find_segment(address);
      is_known = s && is_known_to_use(*s->arena->pool(), stream);
      all &= s != nullptr;
    }
    if (!s || is_known) continue;
    Block* b = resources.find_live(s, address);
    if (b && std::find(b->uses.begin(), b->uses.end(), stream) == b->uses.end())
      b->uses.push_back(stream);
  }
  return all;
}

/// Records an event on every stream that used a freed block. On failure the block is kept aside,
/// to try again later.
void CachingAllocator::Impl::record_uses(Block* b) {
  try {
    while (!b->uses.empty()) {
      const CUstream stream = b->uses.back();
      auto q = std::find_if(queues.begin(), queues.end(),
                            [&](const UseQueue& u) { return u.stream == stream; });
      if (q == queues.end()) q = queues.insert(q, UseQueue{stream, {}});
      q->entries.push_back({source->record(stream), b});
      b->uses.pop_back();
      ++b->waiting;
      ++waiting_events;
    }
  } catch (const Error&) {
    deferred.push_back(b);
  }
}

/// Frees blocks that no other stream uses any more; returns how many.
size_t CachingAllocator::Impl::poll() {
  if (capturing()) return 0;
  size_t done = 0;
  for (Block* b : std::exchange(deferred, {})) {
    record_uses(b);
    if (b->uses.empty() && b->waiting == 0) {  // its streams were destroyed meanwhile
      finish(b);
      ++done;
    }
  }
  for (UseQueue& q : queues)
    while (!q.entries.empty() && source->is_done(q.entries.front().event)) {
      const UseQueue::Entry e = q.entries.front();
      q.entries.pop_front();
      source->discard(e.event);
      --waiting_events;
      if (--e.block->waiting == 0 && e.block->uses.empty()) {
        finish(e.block);
        ++done;
      }
    }
  return done;
}

void CachingAllocator::Impl::forget_stream(CUstream stream) {
  source->synchronize(stream);
  const std::lock_guard lock(mutex);
  std::erase_if(routes, [&](const Route& r) { return r.stream == stream; });
  resources.live.for_each([&](Block& b) { std::erase(b.uses, stream); });
  for (Block* b : deferred) std::erase(b->uses, stream);
  poll();
  std::erase_if(queues, [&](const UseQueue& q) { return q.stream == stream && q.entries.empty(); });
  for (const auto& p : pools)
    if (p->stream == stream) {
      p->all_done(*source);
      p->stream = nullptr;
      p->ownerless = true;
    }
  last_pool = nullptr;
}

// Private pools ---------------------------------------------------------------------------------

void CachingAllocator::Impl::check_pool(uint64_t pool) const {
  ARETE_CHECK(std::find(open_pools.begin(), open_pools.end(), pool) != open_pools.end(),
              ValueError("", "there is no such private memory pool").got(std::to_string(pool)));
}

void CachingAllocator::Impl::begin_pool(uint64_t pool, CUstream stream) {
  const std::lock_guard lock(mutex);
  check_pool(pool);
  ARETE_CHECK(std::find(lent_pools.begin(), lent_pools.end(), pool) == lent_pools.end(),
              ValueError("", "graphs do not take memory from a private memory pool that lends its")
                  .got("pool " + std::to_string(pool)));
  for (const Route& r : routes)
    ARETE_CHECK(r.stream != stream, ValueError("",
                                               "the stream allocates from a private memory "
                                               "pool already"));
  routes.push_back({stream, pool});
}

void CachingAllocator::Impl::end_pool(CUstream stream) {
  const std::lock_guard lock(mutex);
  std::erase_if(routes, [&](const Route& r) { return r.stream == stream; });
  poll();
}

void CachingAllocator::Impl::release_pool(uint64_t pool) {
  const std::lock_guard lock(mutex);
  std::erase(open_pools, pool);
  std::erase(lent_pools, pool);
  bool found = false;
  for (const auto& p : pools)
    if (p->id == pool) found = p->released = true;
  if (!found || capturing()) return;
  source->synchronize();  // the last replay may be running, on any stream
  poll();
  for (const auto& p : pools)
    if (p->id == pool) {
      p->small.trim_all();
      p->large.trim_all();
    }
  drop_empty_pools();
}

std::vector<prim::PoolSegment> CachingAllocator::Impl::segments(uint64_t pool) const {
  using State = prim::PoolSegment::Block::State;
  std::vector<prim::PoolSegment> found;
  for (const Segment* s : resources.segments) {
    const StreamPool* const p = s->arena->pool();
    // The memory of a window is that of its home.
    if (p->id != pool || s->mapped == 0 || s->window) continue;
    prim::PoolSegment segment{s->base, s->mapped, p->stream, resources.granularity != 0, {}};
    for (const Block* b = s->first; b; b = b->after)
      if (b->state != Block::State::hole)
        segment.blocks.push_back({b->address, b->size,
                                  b->state == Block::State::free      ? State::free
                                  : b->state == Block::State::pending ? State::pending
                                                                      : State::live});
    found.push_back(std::move(segment));
  }
  return found;
}

void CachingAllocator::Impl::empty_cache() {
  const std::lock_guard lock(mutex);
  make_room(kMostBytes, nullptr, true);
  high_water = wait_high_water = allocated + pending;
  waits_since = 0;
}

// Reports ---------------------------------------------------------------------------------------

prim::MemoryStats CachingAllocator::Impl::stats() const {
  prim::MemoryStats s;
  s.allocated = allocated;
  s.peak_allocated = peak_allocated;
  s.reserved = resources.mapped;
  s.peak_reserved = resources.peak_mapped;
  s.pending = pending;
  s.allocations = allocations;
  s.frees = frees;
  for (const Segment* segment : resources.segments) s.segments += segment->mapped != 0;
  s.blocks = blocks;
  s.peak_blocks = peak_blocks;
  s.retries = retries;
  s.out_of_memory = failures;
  return s;
}

MemoryReport CachingAllocator::Impl::report() const {
  MemoryReport r;
  r.device = device_name;
  r.stats = stats();
  source->memory_info(&r.device_free, &r.device_total);
  r.limit = budget->limit;
  r.reserved_beside = budget->reserved - resources.mapped;
  r.moves = moves;
  r.plain_segments = resources.granularity == 0;
  r.capturing = capturing();
  std::map<std::string_view, MemoryReport::Holder> holders;
  int streams = 0;
  for (const auto& p : pools) {
    for (const Arena* a : {&p->small, &p->large}) {
      MemoryReport::Pool line;
      line.name = p->id          ? "private pool " + std::to_string(p->id)
                  : p->ownerless ? "of a destroyed stream"
                                 : "stream " + std::to_string(streams);
      line.name += a->kind() == Arena::Kind::small ? ", small" : ", large";
      const auto count = [&](const Block* b) {
        if (b->state == Block::State::free) {
          line.cached += b->size;
          line.largest_free = std::max(line.largest_free, b->size);
        } else if (b->state == Block::State::pending) {
          line.pending += b->size;
        } else if (b->state == Block::State::live) {
          line.allocated += b->size;
          ++line.blocks;
          const char* name = b->operator_name ? b->operator_name : "(no operator)";
          MemoryReport::Holder& h = holders[name];
          h.bytes += b->size;
          ++h.blocks;
        }
      };
      for (const auto& s : a->segments())
        for (const Block* b = s->first; b; b = b->after) count(b);
      if (a == &p->large) p->windows.for_each_block(count);
      if (p->is_private()) r.private_cached += line.cached;
      r.pools.push_back(std::move(line));
    }
    streams += p->id == 0 && !p->ownerless;
  }
  for (auto& [name, h] : holders) {
    h.operator_name = name;
    r.holders.push_back(std::move(h));
  }
  std::stable_sort(r.holders.begin(), r.holders.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return r;
}

// The class -------------------------------------------------------------------------------------

CachingAllocator::CachingAllocator(std::unique_ptr<MemorySource> source, std::string device_name,
                                   int device, CachingAllocator* beside)
    : impl_(std::make_unique<Impl>(std::move(source), std::move(device_name), device,
                                   beside ? beside->impl_.get() : nullptr)) {}
CachingAllocator::~CachingAllocator() = default;

void* CachingAllocator::allocate(size_t bytes, CUstream stream) {
  return impl_->allocate(bytes, stream);
}
void* CachingAllocator::allocate_at(void* p, size_t bytes, CUstream stream) {
  return impl_->allocate_at(p, bytes, stream);
}
void CachingAllocator::deallocate(void* p) noexcept { impl_->deallocate(p); }
bool CachingAllocator::note_use(const void* p, CUstream stream) {
  return impl_->note_uses({&p, 1}, stream);
}
bool CachingAllocator::note_uses(std::span<const void* const> sorted, CUstream stream) {
  return impl_->note_uses(sorted, stream);
}
void CachingAllocator::forget_stream(CUstream stream) { impl_->forget_stream(stream); }
void CachingAllocator::empty_cache() { impl_->empty_cache(); }

void CachingAllocator::set_memory_fraction(double fraction) {
  ARETE_CHECK(fraction > 0 && fraction <= 1,
              ValueError("", "set_memory_fraction: the fraction is out of range")
                  .argument("fraction")
                  .expected("more than 0 and at most 1")
                  .got(std::to_string(fraction)));
  impl_->budget->limit =
      fraction == 1 ? impl_->device_total : size_t(double(impl_->device_total) * fraction);
}

prim::MemoryStats CachingAllocator::stats() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->stats();
}

void CachingAllocator::reset_peak_stats() {
  const std::lock_guard lock(impl_->mutex);
  impl_->peak_allocated = impl_->allocated;
  impl_->peak_blocks = impl_->blocks;
  impl_->resources.peak_mapped = impl_->resources.mapped;
}

std::string CachingAllocator::summary() const {
  const std::lock_guard lock(impl_->mutex);
  return format_summary(impl_->report());
}

uint64_t CachingAllocator::create_pool() {
  const std::lock_guard lock(impl_->mutex);
  impl_->open_pools.push_back(++impl_->last_pool_id);
  return impl_->last_pool_id;
}
void CachingAllocator::begin_pool(uint64_t pool, CUstream stream) {
  impl_->begin_pool(pool, stream);
}
void CachingAllocator::end_pool(CUstream stream) { impl_->end_pool(stream); }
void CachingAllocator::release_pool(uint64_t pool) { impl_->release_pool(pool); }

void CachingAllocator::enter_pool(uint64_t pool) {
  const std::lock_guard lock(impl_->mutex);
  impl_->check_pool(pool);
  impl_->scopes.push_back({std::this_thread::get_id(), pool});
}

void CachingAllocator::leave_pool(uint64_t pool) noexcept {
  const std::lock_guard lock(impl_->mutex);
  auto& scopes = impl_->scopes;
  const auto mine = std::find_if(scopes.rbegin(), scopes.rend(), [&](const Impl::Scope& s) {
    return s.pool == pool && s.thread == std::this_thread::get_id();
  });
  if (mine != scopes.rend()) scopes.erase(std::prev(mine.base()));
}

void CachingAllocator::lend_pool(uint64_t pool) {
  const std::lock_guard lock(impl_->mutex);
  impl_->check_pool(pool);
  impl_->lent_pools.push_back(pool);
}

std::vector<prim::PoolSegment> CachingAllocator::segments(uint64_t pool) const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->segments(pool);
}

}  // namespace arete::cuda
