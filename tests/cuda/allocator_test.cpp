#include "arete/backend/cuda/runtime/allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "allocator_model.h"
#include "arete/base/error.h"
#include "arete/core/memory_events.h"
#include "arete/profile/memory_history.h"

namespace arete::cuda {
namespace {

TEST(Allocator, reuses_on_the_same_stream_without_waiting) {
  Checked c(kGiB);
  EXPECT_EQ(c.allocator->allocate(0, kMain), nullptr);
  c.allocator->deallocate(nullptr);
  for (size_t bytes : {size_t(1), 1000 * kKiB, 5 * kMiB, 100 * kMiB}) {
    const auto a = c.allocate(bytes, kMain);
    c.free(a);
    const auto b = c.allocate(bytes, kMain);
    EXPECT_EQ(a.p, b.p);
    c.free(b);
  }
  c.check_stats();
  EXPECT_EQ(c.model.synchronizations, 0);
}

TEST(Allocator, gives_memory_where_it_was) {
  Checked c(kGiB);
  const auto a = c.allocate(3 * kKiB, kMain), b = c.allocate(10 * kKiB, kMain),
             end = c.allocate(kKiB, kMain);
  EXPECT_FALSE(c.allocate_at(a.p, 3 * kKiB, kMain).p) << "is live";
  // They are one free block, in which the second has its place again, whatever the first's is.
  c.free(b);
  c.free(a);
  EXPECT_FALSE(c.allocate_at(b.p, 10 * kKiB, kSide).p) << "of another stream";
  EXPECT_FALSE(c.allocate_at(b.p, 10 * kKiB + 1, kMain).p) << "a neighbour is live";
  EXPECT_FALSE(c.allocate_at(b.p + 1, 1, kMain).p) << "no place of a block";
  EXPECT_FALSE(c.allocate_at(nullptr, 1, kMain).p);
  EXPECT_FALSE(c.allocate_at(b.p, ~size_t(0), kMain).p);
  const auto again = c.allocate_at(b.p, 10 * kKiB, kMain), first = c.allocate(3 * kKiB, kMain);
  EXPECT_EQ(again.p, b.p);
  EXPECT_EQ(first.p, a.p);
  // Where a larger one was.
  c.free(again);
  const auto middle = c.allocate_at(b.p + kKiB, kKiB, kMain);
  EXPECT_EQ(middle.p, b.p + kKiB);
  for (const auto& x : {first, middle, end}) c.free(x);
  // Others use it still.
  auto used = c.allocate(3 * kKiB, kMain);
  c.use(used, 0, kSide);
  c.free(used);
  EXPECT_FALSE(c.allocate_at(used.p, 3 * kKiB, kMain).p);
  c.model.finish(kSide);
  const auto last = c.allocate_at(used.p, 3 * kKiB, kMain);
  EXPECT_EQ(last.p, used.p);
  c.free(last);
  c.check_stats();
}

// What a history tells of the allocator is what the allocator holds.
TEST(Allocator, history_replays_to_the_live_blocks) {
  memory::HistoryOptions options;
  options.native_frames = false;
  memory::record_history(options);
  Checked c(kGiB);
  std::mt19937 random(3);
  std::vector<Checked::Block> blocks;
  for (int i = 0; i < 400; ++i) {
    if (!blocks.empty() && random() % 2) {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      c.free(blocks.back());
      blocks.pop_back();
    } else {
      blocks.push_back(c.allocate(1 + random() % (4 * kMiB), random() % 2 ? kMain : kSide));
    }
  }
  const memory::Snapshot s = memory::snapshot();
  memory::stop_history();
  std::map<uintptr_t, size_t> held, live, replayed;
  for (const auto& b : blocks) held[uintptr_t(b.p)] = b.bytes;
  for (const memory::Entry& e : s.live) live[e.event.address] = e.event.requested;
  for (const memory::Entry& e : memory::replay(s)) replayed[e.event.address] = e.event.requested;
  EXPECT_EQ(live, held);
  EXPECT_EQ(replayed, held);
  size_t bytes = 0;
  for (const memory::Entry& e : s.live) {
    bytes += e.event.bytes;
    EXPECT_EQ(e.event.device, Device(DeviceType::cuda, 0));
  }
  EXPECT_EQ(bytes, c.allocator->stats().allocated);
  EXPECT_GE(memory_totals(0).allocated_bytes, int64_t(bytes));
  for (auto& b : blocks) c.free(b);
}

TEST(Allocator, joins_neighbours) {
  Checked c(kGiB);
  std::vector<Checked::Block> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(c.allocate(4 * kMiB, kMain));
  const size_t reserved = c.allocator->stats().reserved;
  EXPECT_EQ(reserved, 64 * kMiB);
  for (int i : {3, 1, 0, 2, 15, 7, 5, 6, 4, 8, 14, 10, 12, 11, 13, 9}) c.free(blocks[size_t(i)]);
  c.free(c.allocate(64 * kMiB, kMain));
  EXPECT_EQ(c.allocator->stats().reserved, reserved);
}

TEST(Allocator, waits_for_other_streams_before_reuse) {
  Checked c(kGiB);
  auto a = c.allocate(8 * kMiB, kMain);
  c.use(a, 5 * kMiB, kSide);  // an address inside
  c.use(a, 0, kMain);         // its own stream does not count
  c.free(a);
  EXPECT_EQ(c.allocator->stats().pending, 8 * kMiB);
  EXPECT_EQ(c.model.events, 1);
  const auto b = c.allocate(8 * kMiB, kMain);
  EXPECT_NE(a.p, b.p);
  c.model.finish(kSide);
  const auto d = c.allocate(8 * kMiB, kMain);
  EXPECT_EQ(a.p, d.p);
  EXPECT_EQ(c.allocator->stats().pending, 0u);
  EXPECT_EQ(c.model.synchronizations, 0);
  c.free(b);
  c.free(d);
  int on_the_stack = 0;
  c.allocator->note_use(&on_the_stack, kSide);  // not the allocator's
  c.allocator->note_use(nullptr, kSide);
  c.allocator->note_use(d.p, kSide);  // freed
  EXPECT_EQ(c.allocate(8 * kMiB, kMain).p, a.p);
}

TEST(Allocator, does_not_lend_between_streams) {
  Checked c(kGiB);
  const auto a = c.allocate(8 * kMiB, kMain);
  c.free(a);
  EXPECT_NE(c.allocate(8 * kMiB, kSide).p, a.p);
}

TEST(Allocator, keeps_blocks_whose_events_fail) {
  Checked c(kGiB);
  auto a = c.allocate(8 * kMiB, kMain);
  c.use(a, 0, kSide);
  c.model.fail_events = true;
  c.free(a);
  EXPECT_NE(c.allocate(8 * kMiB, kMain).p, a.p);
  c.model.fail_events = false;
  EXPECT_NE(c.allocate(8 * kMiB, kMain).p, a.p);  // recorded now
  c.model.finish(kSide);
  EXPECT_EQ(c.allocate(8 * kMiB, kMain).p, a.p);
}

TEST(Allocator, empties_its_cache) {
  for (const bool plain : {false, true}) {
    Checked c(kGiB, plain);
    const auto a = c.allocate(100 * kMiB, kMain), b = c.allocate(kKiB, kMain);
    c.free(c.allocate(200 * kMiB, kMain));
    c.free(a);
    EXPECT_GE(c.allocator->stats().reserved, 200 * kMiB);
    c.allocator->empty_cache();
    EXPECT_EQ(c.allocator->stats().reserved, 2 * kMiB);
    EXPECT_EQ(c.model.synchronizations, 1);
    c.free(b);
    c.allocator->empty_cache();
    EXPECT_EQ(c.allocator->stats().reserved, 0u);
    c.free(c.allocate(10 * kMiB, kMain));
    c.check_stats();
  }
}

TEST(Allocator, counts_and_resets_peaks) {
  Checked c(kGiB);
  const auto a = c.allocate(50 * kMiB, kMain), b = c.allocate(50 * kMiB, kMain);
  c.free(a);
  c.allocator->empty_cache();
  prim::MemoryStats s = c.allocator->stats();
  EXPECT_EQ(s.peak_allocated, 100 * kMiB);
  EXPECT_EQ(s.peak_reserved, 100 * kMiB);
  EXPECT_EQ(s.peak_blocks, 2);
  EXPECT_EQ(s.segments, 1);
  c.allocator->reset_peak_stats();
  s = c.allocator->stats();
  EXPECT_EQ(s.peak_allocated, 50 * kMiB);
  EXPECT_EQ(s.peak_reserved, 50 * kMiB);
  EXPECT_EQ(s.peak_blocks, 1);
  c.free(b);
}

TEST(Allocator, gathers_memory_when_the_device_is_full) {
  // Live blocks of 1 in 4 chunks leave holes everywhere; only the addresses are in the way.
  Checked c(512 * kMiB);
  std::vector<Checked::Block> keep, drop;
  for (int i = 0; i < 64; ++i) {
    keep.push_back(c.allocate(2 * kMiB, kMain));
    drop.push_back(c.allocate(6 * kMiB, kMain));
  }
  for (const auto& b : drop) c.free(b);
  const auto big = c.allocate(384 * kMiB, kMain);
  EXPECT_EQ(c.model.used, 512 * kMiB);
  EXPECT_EQ(c.model.synchronizations, 0);
  c.free(big);
  for (const auto& b : keep) c.free(b);
  // Memory cached by one stream serves another.
  c.free(c.allocate(500 * kMiB, kSide));
  c.free(c.allocate(500 * kMiB, kMain));
  c.check_stats();
  EXPECT_EQ(c.allocator->stats().out_of_memory, 0);
}

/// A full device of eight blocks of 8 MiB, of which the second, fourth and sixth are free.
std::vector<Checked::Block> fill_in_pieces(Checked& c) {
  std::vector<Checked::Block> b;
  for (int i = 0; i < 8; ++i) b.push_back(c.allocate(8 * kMiB, kMain));
  for (int i : {5, 3, 1}) {
    c.free(b[size_t(i)]);
    b.erase(b.begin() + i);
  }
  return b;
}

TEST(Allocator, finds_windows_again) {
  Checked c(64 * kMiB);
  const auto kept = fill_in_pieces(c);
  const auto a = c.allocate(19 * kMiB, kMain);
  const int64_t mappings = c.model.mappings;
  EXPECT_EQ(mappings, 8 + 3);
  // The end of the last chunk is free at home, where it belongs to the two chunks after it.
  const auto rest = c.allocate(5 * kMiB, kMain);
  EXPECT_EQ(c.allocator->stats().allocated, 64 * kMiB);
  c.free(rest);
  c.free(a);
  // The same window for the same and for smaller requests.
  for (const size_t bytes : {19 * kMiB, 18 * kMiB + 1, 8 * kMiB + 512}) {
    const auto again = c.allocate(bytes, kMain);
    EXPECT_EQ(again.p, a.p);
    c.free(again);
  }
  EXPECT_EQ(c.allocate(8 * kMiB, kMain).p, a.p - (a.p - kept[0].p) + 8 * kMiB);
  EXPECT_EQ(c.model.mappings, mappings);
  // One of its pieces is in use now, so that this needs one of its own.
  EXPECT_NE(c.allocate(10 * kMiB, kMain).p, a.p);
  EXPECT_GT(c.model.mappings, mappings);
  EXPECT_EQ(c.model.synchronizations, 0);
  EXPECT_NE(c.allocator->summary().find("58.00 MiB"), std::string::npos);
  c.check_stats();
}

TEST(Allocator, waits_for_other_streams_before_it_reuses_a_window) {
  Checked c(64 * kMiB);
  fill_in_pieces(c);
  auto a = c.allocate(20 * kMiB, kMain);
  c.use(a, 17 * kMiB, kSide);
  c.free(a);
  EXPECT_EQ(c.allocator->stats().pending, 20 * kMiB);
  c.model.finish(kSide);
  EXPECT_EQ(c.allocate(20 * kMiB, kMain).p, a.p);
  EXPECT_EQ(c.model.synchronizations, 0);
  c.check_stats();
}

TEST(Allocator, gives_memory_of_windows_back) {
  Checked c(64 * kMiB);
  fill_in_pieces(c);
  c.free(c.allocate(24 * kMiB, kMain));
  const auto a = c.allocate(10 * kMiB, kMain);
  c.allocator->empty_cache();  // the window loses what its block does not need
  EXPECT_EQ(c.model.used, 50 * kMiB);
  c.free(a);
  const int64_t mappings = c.model.mappings;
  EXPECT_EQ(c.allocate(10 * kMiB, kMain).p, a.p);
  EXPECT_EQ(c.model.mappings, mappings);
  EXPECT_NE(c.allocate(12 * kMiB, kMain).p, a.p);
  EXPECT_GT(c.model.mappings, mappings);
  c.check_stats();
}

TEST(Allocator, drops_windows_that_are_not_used) {
  // Every large request needs other pieces, on a device that is hundreds of kernels behind.
  Checked c(64 * kMiB);
  std::mt19937 random(3);
  std::vector<Checked::Block> chunks;
  size_t most_ranges = 0;
  for (int i = 0; i < 500; ++i) {
    while (chunks.size() < 32) chunks.push_back(c.allocate(2 * kMiB, kMain));
    std::shuffle(chunks.begin(), chunks.end(), random);
    for (; chunks.size() > 10; chunks.pop_back()) c.free(chunks.back());
    // One that an older window may serve, before the other makes a new one.
    const auto small = c.allocate(12 * kMiB, kMain), large = c.allocate(32 * kMiB, kMain);
    c.free(small);
    c.free(large);
    DeviceModel::Stream& s = c.model.streams[kMain];
    if (s.submitted > 1500) s.done = s.submitted - 1500;
    most_ranges = std::max(most_ranges, c.model.ranges.size());
  }
  EXPECT_GT(c.model.aliased_bytes, 400 * 32 * kMiB);
  EXPECT_LE(most_ranges, 150u);
  EXPECT_EQ(c.model.synchronizations, 0);
  c.check_stats();
}

TEST(Allocator, waits_where_memory_cannot_be_gathered) {
  Checked c(32 * kMiB);
  c.model.fail_aliases = true;
  std::vector<Checked::Block> b;
  for (int i = 0; i < 4; ++i) b.push_back(c.allocate(8 * kMiB, kMain));
  c.free(b[0]);
  c.free(b[2]);
  c.allocate(16 * kMiB, kMain);
  EXPECT_GT(c.model.synchronizations, 0);
}

TEST(Allocator, finds_pending_blocks_when_the_device_is_full) {
  Checked c(64 * kMiB);
  auto a = c.allocate(60 * kMiB, kMain);
  c.use(a, 0, kSide);
  c.free(a);
  EXPECT_EQ(c.allocate(60 * kMiB, kMain).p, a.p);  // after waiting
  EXPECT_EQ(c.model.synchronizations, 1);
  EXPECT_EQ(c.allocator->stats().retries, 1);
}

bool in_order(const std::string& text, const std::vector<std::string>& parts) {
  size_t at = 0;
  for (const std::string& p : parts) {
    at = text.find(p, at);
    if (at == std::string::npos) {
      ADD_FAILURE() << "no \"" << p << "\" (or not in this order) in: " << text;
      return false;
    }
  }
  return true;
}

thread_local const char* t_operator = nullptr;

TEST(Allocator, says_who_holds_memory_and_what_would_help) {
  Checked c(kGiB);
  set_operator_source([] { return t_operator; });
  t_operator = "mm";
  const auto a = c.allocate(300 * kMiB, kMain), b = c.allocate(200 * kMiB, kMain);
  t_operator = "relu";
  const auto d = c.allocate(200 * kMiB, kMain);
  t_operator = nullptr;
  const auto e = c.allocate(100 * kMiB, kMain);
  try {
    c.allocate(400 * kMiB, kMain);
    FAIL();
  } catch (const OutOfMemoryError& error) {
    in_order(error.what(),
             {"CUDA out of memory. Tried to allocate 400.00 MiB. cuda:0 (model) has 1.00 GiB, of "
              "which 224.00 MiB are free; this process holds 800.00 MiB: 800.00 MiB in 4 live "
              "blocks",
              "Largest holders by operator: mm 500.00 MiB (2 blocks), relu 200.00 MiB (1 block), "
              "(no operator) 100.00 MiB (1 block).",
              "Hint: (1) drop references", "no_grad", "(2) use a smaller batch", "(3) checkpoint",
              "(4) use bfloat16"});
    EXPECT_EQ(error.hint().find("empty_cache"), std::string::npos);
    EXPECT_EQ(error.hint().find("nvidia-smi"), std::string::npos);
  }
  c.model.held_by_others = 200 * kMiB;
  c.free(e);
  try {
    c.allocate(400 * kMiB, kMain);
    FAIL();
  } catch (const OutOfMemoryError& error) {
    // A hint from 1 GiB on only, which this device is too small for.
    EXPECT_EQ(error.hint().find("nvidia-smi"), std::string::npos);
  }
  c.model.held_by_others = 0;
  EXPECT_THROW(c.allocate(2 * kGiB, kMain), OutOfMemoryError);
  EXPECT_THROW(c.allocate(~size_t(0), kMain), OutOfMemoryError);
  EXPECT_EQ(c.allocator->stats().out_of_memory, 4);
  in_order(c.allocator->summary(), {"cuda:0 (model)", "allocated ", "700.00 MiB", "out-of-memory",
                                    "4", "stream 0, large", "mm", "500.00 MiB", "relu"});
  for (const auto& x : {a, b, d}) c.free(x);
  set_operator_source(nullptr);
  c.check_stats();
}

TEST(Allocator, names_other_holders_of_the_device) {
  Checked c(80 * kGiB);
  c.model.held_by_others = 60 * kGiB;
  try {
    c.allocate(30 * kGiB, kMain);
    FAIL();
  } catch (const OutOfMemoryError& error) {
    in_order(error.hint(), {"nvidia-smi", "60.00 GiB are held by other processes"});
  }
}

TEST(Allocator, keeps_to_its_fraction) {
  for (const bool plain : {false, true}) {
    Checked c(kGiB, plain);
    for (double f : {0.0, -1.0, 1.5, double(NAN)})
      EXPECT_THROW(c.allocator->set_memory_fraction(f), ValueError);
    c.allocator->set_memory_fraction(0.25);
    const auto a = c.allocate(100 * kMiB, kMain);
    c.free(c.allocate(100 * kMiB, kSide));
    const auto b = c.allocate(150 * kMiB, kMain);  // what the other stream cached is given back
    try {
      c.allocate(20 * kMiB, kMain);
      FAIL();
    } catch (const OutOfMemoryError& error) {
      in_order(error.what(), {"set_memory_fraction allows it 256.00 MiB",
                              "Hint:", "raise the limit of 256.00 MiB"});
    }
    EXPECT_LE(c.allocator->stats().peak_reserved, 256 * kMiB);
    c.allocator->set_memory_fraction(1);
    c.free(c.allocate(700 * kMiB, kMain));
    c.free(a);
    c.free(b);
    c.check_stats();
  }
}

// Of what one has the other has the less, whichever of them is told, and before the second is made.
TEST(Allocator, has_one_limit_with_those_beside_it) {
  for (const bool plain : {false, true}) {
    Checked c(kGiB, plain);
    c.allocator->set_memory_fraction(0.25);
    DeviceModel other_model(kGiB, true);  // of plain segments, as memory that processes share
    auto other = std::make_unique<CachingAllocator>(std::make_unique<ModelSource>(other_model),
                                                    "cuda:0 (beside)", 0, c.allocator.get());
    const auto a = c.allocate(150 * kMiB, kMain);
    EXPECT_THROW(other->allocate(120 * kMiB, kMain), OutOfMemoryError);
    void* const b = other->allocate(80 * kMiB, kMain);
    EXPECT_THROW(c.allocate(40 * kMiB, kMain), OutOfMemoryError);
    EXPECT_LE(c.allocator->stats().reserved + other->stats().reserved, 256 * kMiB);
    other->deallocate(b);
    EXPECT_THROW(c.allocate(40 * kMiB, kMain), OutOfMemoryError);  // it is not this one's to empty
    other->empty_cache();
    c.free(c.allocate(40 * kMiB, kMain));
    other->set_memory_fraction(0.5);
    c.free(c.allocate(300 * kMiB, kMain));
    c.free(a);
    c.allocator->empty_cache();
    void* const d = other->allocate(300 * kMiB, kMain);
    EXPECT_THROW(c.allocate(300 * kMiB, kMain), OutOfMemoryError);
    other->deallocate(d);
    other_model.closing = true;
    other.reset();
    c.free(c.allocate(500 * kMiB, kMain));  // nothing is held beside it any more
    c.check_stats();
  }
}

TEST(Allocator, knows_which_memory_is_its_own) {
  Checked c(kGiB);
  auto a = c.allocate(kMiB, kMain);
  char outside = 0;
  EXPECT_TRUE(c.allocator->note_use(a.p + 100, kMain));
  EXPECT_FALSE(c.allocator->note_use(&outside, kMain));
  c.free(a);
}

TEST(Allocator, notes_many_uses_at_once) {
  Checked c(kGiB);
  auto small = c.allocate(kKiB, kMain), other = c.allocate(kKiB, kMain),
       side = c.allocate(kKiB, kSide), large = c.allocate(8 * kMiB, kMain);
  char outside = 0;
  std::vector<const void*> used = {small.p, small.p + 512, side.p, large.p + kMiB};
  std::ranges::sort(used);
  EXPECT_TRUE(c.allocator->note_uses(used, kSide));
  EXPECT_TRUE(c.allocator->note_uses({}, kSide));
  used.push_back(&outside);
  std::ranges::sort(used);
  EXPECT_FALSE(c.allocator->note_uses(used, kSide));
  c.model.submit(kSide);
  for (auto* b : {&small, &large}) b->uses.push_back(kSide);
  for (const auto* b : {&small, &other, &side, &large}) c.free(*b);
  // Those that the other stream has not come to the end of wait, and nothing else does.
  EXPECT_EQ(c.allocator->stats().pending, 8 * kMiB + kKiB);
  EXPECT_TRUE(c.allocate_at(other.p, kKiB, kMain).p);
  EXPECT_TRUE(c.allocate_at(side.p, kKiB, kSide).p);
  EXPECT_FALSE(c.allocate_at(large.p, kKiB, kMain).p);
}

TEST(Allocator, keeps_private_pools_apart) {
  Checked c(kGiB);
  c.free(c.allocate(8 * kMiB, kMain));
  auto used = c.allocate(8 * kMiB, kSide);
  c.use(used, 0, kMain);
  const uint64_t pool = c.allocator->create_pool();
  EXPECT_THROW(c.allocator->begin_pool(pool + 1, kMain), ValueError);
  c.allocator->begin_pool(pool, kMain);
  EXPECT_THROW(c.allocator->begin_pool(pool, kMain), ValueError);
  c.model.capturing = 1;
  const auto a = c.allocate(8 * kMiB, kMain, pool), b = c.allocate(8 * kMiB, kMain, pool);
  c.free(a);
  const auto again = c.allocate(8 * kMiB, kMain, pool);
  EXPECT_EQ(again.p, a.p);
  c.free(used);  // waits until the capture has ended
  EXPECT_EQ(c.model.events, 0);
  c.allocator->empty_cache();
  c.model.capturing = 0;
  c.allocator->end_pool(kMain);
  EXPECT_EQ(c.model.events, 1);
  c.free(again);
  // Free memory of the pool stays for the graph.
  EXPECT_NE(c.allocate(8 * kMiB, kMain).p, a.p);
  c.allocator->empty_cache();
  EXPECT_THROW(c.allocate(kGiB - 8 * kMiB, kMain), OutOfMemoryError);
  EXPECT_TRUE(c.model.mapped.contains(uintptr_t(a.p) / kChunk));
  c.allocator->begin_pool(pool, kMain);
  const auto third = c.allocate(8 * kMiB, kMain, pool);
  EXPECT_EQ(third.p, a.p);
  c.allocator->end_pool(kMain);
  c.free(third);
  c.model.release_pool(pool);
  c.allocator->release_pool(pool);
  EXPECT_FALSE(c.model.mapped.contains(uintptr_t(a.p) / kChunk));
  EXPECT_TRUE(c.model.mapped.contains(uintptr_t(b.p) / kChunk));
  EXPECT_THROW(c.allocator->begin_pool(pool, kMain), ValueError);
  c.free(b);
  c.allocator->empty_cache();
  EXPECT_EQ(c.allocator->stats().reserved, 8 * kMiB);
  c.check_stats();
}

TEST(Allocator, captures_use_memory_of_their_own_pool_only) {
  Checked c(kGiB);
  const auto outside = c.allocate(8 * kMiB, kMain), dropped = c.allocate(8 * kMiB, kMain);
  const uint64_t pool = c.allocator->create_pool();
  c.allocator->begin_pool(pool, kMain);
  c.allocator->begin_pool(pool, kSide);
  c.model.capturing = 1;
  const auto inside = c.allocate(8 * kMiB, kMain, pool);
  EXPECT_TRUE(c.allocator->note_use(outside.p, kSide));
  EXPECT_TRUE(c.allocator->note_use(inside.p, kSide));
  EXPECT_TRUE(c.allocator->note_use(dropped.p, kSide));
  c.free(dropped);
  EXPECT_EQ(c.allocator->stats().pending, 0u);
  c.model.capturing = 0;
  c.allocator->end_pool(kMain);
  c.allocator->end_pool(kSide);
  c.free(outside);
  EXPECT_EQ(c.allocator->stats().pending, 0u);
  const auto again = c.allocate(8 * kMiB, kMain);
  EXPECT_EQ(again.p, outside.p);
  c.free(inside);
  EXPECT_EQ(c.allocator->stats().pending, 8 * kMiB);
  c.free(again);
}

TEST(Allocator, keeps_pools_of_scopes_apart) {
  Checked c(kGiB);
  c.free(c.allocate(8 * kMiB, kMain));
  const uint64_t outer = c.allocator->create_pool(), inner = c.allocator->create_pool();
  EXPECT_THROW(c.allocator->enter_pool(inner + 1), ValueError);
  c.allocator->enter_pool(outer);
  const auto a = c.allocate(8 * kMiB, kMain, outer);
  const auto side = c.allocate(kMiB, kSide, outer);  // whatever the stream
  c.allocator->enter_pool(inner);
  const auto b = c.allocate(8 * kMiB, kMain, inner);
  // Another thread has no part in it.
  std::thread([&] { c.free(c.allocate(8 * kMiB, kMain)); }).join();
  // What is captured comes from the graph's pool.
  const uint64_t graph = c.allocator->create_pool();
  c.allocator->begin_pool(graph, kSide);
  c.model.capturing = 1;
  c.free(c.allocate(kMiB, kSide, graph));
  c.model.capturing = 0;
  c.allocator->end_pool(kSide);
  c.allocator->leave_pool(inner);
  c.free(a);
  const auto again = c.allocate(8 * kMiB, kMain, outer);
  EXPECT_EQ(again.p, a.p);
  c.allocator->leave_pool(outer);
  c.free(again);
  EXPECT_NE(c.allocate(8 * kMiB, kMain).p, a.p);  // nor does what comes after

  using State = prim::PoolSegment::Block::State;
  size_t live = 0, mapped = 0;
  for (const prim::PoolSegment& s : c.allocator->segments(outer)) {
    size_t blocks = 0;
    for (const auto& block : s.blocks) {
      blocks += block.bytes;
      if (block.state == State::live) live += block.bytes;
    }
    EXPECT_EQ(blocks, s.bytes);
    EXPECT_TRUE(s.expandable);
    mapped += s.bytes;
  }
  EXPECT_EQ(live, kMiB);  // `side`
  EXPECT_EQ(mapped, 10 * kMiB);
  c.model.release_pool(outer);
  c.allocator->release_pool(outer);
  EXPECT_FALSE(c.model.mapped.contains(uintptr_t(a.p) / kChunk));
  EXPECT_TRUE(c.model.mapped.contains(uintptr_t(side.p) / kChunk));  // goes with its tensor
  EXPECT_THROW(c.allocator->enter_pool(outer), ValueError);
  c.free(side);
  c.free(b);
  c.allocator->empty_cache();
  EXPECT_FALSE(c.model.mapped.contains(uintptr_t(side.p) / kChunk));
  EXPECT_TRUE(c.model.mapped.contains(uintptr_t(b.p) / kChunk));  // its pool is there
  c.check_stats();
}

TEST(Allocator, borrows_from_pools_that_lend) {
  Checked c(64 * kMiB);
  for (const bool lends : {false, true}) {
    const uint64_t pool = c.allocator->create_pool();
    if (lends) c.allocator->lend_pool(pool);
    c.allocator->enter_pool(pool);
    const auto a = c.allocate(40 * kMiB, kMain, pool);
    c.allocator->leave_pool(pool);
    c.free(a);
    // Another stream's work would not come after what used it.
    EXPECT_THROW(c.allocate(40 * kMiB, kSide), OutOfMemoryError);
    if (lends) {
      const auto b = c.allocate(40 * kMiB, kMain, pool);
      EXPECT_EQ(b.p, a.p);
      c.free(b);
    } else {
      EXPECT_THROW(c.allocate(40 * kMiB, kMain), OutOfMemoryError);
    }
    c.model.release_pool(pool);
    c.allocator->release_pool(pool);
    EXPECT_EQ(c.allocator->stats().reserved, 0u);
  }
}

TEST(Allocator, lends_nothing_to_graphs) {
  Checked c(64 * kMiB);
  const uint64_t lent = c.allocator->create_pool(), graphs = c.allocator->create_pool();
  c.allocator->lend_pool(lent);
  c.allocator->enter_pool(lent);
  c.free(c.allocate(40 * kMiB, kMain, lent));
  c.allocator->leave_pool(lent);
  EXPECT_THROW(c.allocator->begin_pool(lent, kMain), ValueError);
  // Replays would use the memory whenever the pool has it back.
  c.allocator->begin_pool(graphs, kMain);
  c.model.capturing = 1;
  EXPECT_THROW(c.allocate(40 * kMiB, kMain, graphs), OutOfMemoryError);
  c.model.capturing = 0;
  c.allocator->end_pool(kMain);
  c.free(c.allocate(40 * kMiB, kMain, lent));
  c.model.release_pool(lent);
  c.allocator->release_pool(lent);
}

TEST(Allocator, passes_memory_of_destroyed_streams_on) {
  Checked c(kGiB);
  auto kept = c.allocate(8 * kMiB, kSide), other = c.allocate(8 * kMiB, kMain);
  c.free(c.allocate(400 * kMiB, kSide));
  c.use(other, 0, kSide);
  c.allocator->forget_stream(kSide);
  c.model.destroyed.insert(kSide);
  c.free(other);  // its other stream is gone
  EXPECT_EQ(c.allocate(8 * kMiB, kMain).p, other.p);
  // Another stream has its memory without waiting when reserved memory would grow too much.
  const auto big = c.allocate(380 * kMiB, kMain);
  EXPECT_LT(c.model.used, 500 * kMiB);
  EXPECT_EQ(c.model.synchronizations, 0);
  c.free(kept);
  // A new stream takes over what is left.
  const auto taken = c.allocate(8 * kMiB, stream_of(2));
  EXPECT_EQ(taken.p, kept.p);
  c.free(taken);
  c.free(big);
}

// Threads ---------------------------------------------------------------------------------------

/// Streams that are always idle; for tests with threads.
class QuietSource final : public MemorySource {
 public:
  size_t granularity() override { return kChunk; }
  void* reserve(size_t bytes) override {
    const uintptr_t p = next_;
    next_ += bytes;
    return reinterpret_cast<void*>(p);
  }
  void unreserve(void*, size_t) noexcept override {}
  bool map(void*, size_t) override { return true; }
  bool alias(void*, void*, size_t) override { return true; }
  void unmap(void*, size_t) noexcept override {}
  void* allocate(size_t) override { return nullptr; }
  void release(void*) noexcept override {}
  void memory_info(size_t* free, size_t* total) override { *free = *total = 64 * kGiB; }
  CUevent record(CUstream) override { return reinterpret_cast<CUevent>(uintptr_t(1)); }
  bool is_done(CUevent) override { return ++polls_ % 3 == 0; }
  void discard(CUevent) noexcept override {}
  void synchronize() override {}
  void synchronize(CUstream) override {}

 private:
  uintptr_t next_ = uintptr_t(1) << 40;
  int polls_ = 0;  // the allocator's lock guards it
};

TEST(AllocatorThreads, allocate_free_and_hand_over) {
  constexpr int kThreads = 4, kSteps = 20000;
  CachingAllocator allocator(std::make_unique<QuietSource>(), "cuda:0");
  struct Mailbox {
    std::mutex mutex;
    std::vector<void*> blocks;
  };
  Mailbox boxes[kThreads];
  std::atomic<int64_t> allocations = 0;
  const auto work = [&](int me) {
    std::mt19937 random(unsigned(me) + 1);
    std::vector<void*> mine;
    for (int i = 0; i < kSteps; ++i) {
      const unsigned what = random() % 16;
      if (what < 8 && mine.size() < 100) {
        const size_t bytes = random() % 4 ? random() % (64 * kKiB) + 1 : random() % (2 * kMiB) + 1;
        mine.push_back(allocator.allocate(bytes, stream_of(me)));
        ++allocations;
      } else if (what < 12 && !mine.empty()) {
        std::swap(mine[random() % mine.size()], mine.back());
        allocator.deallocate(mine.back());
        mine.pop_back();
      } else if (what < 14 && !mine.empty()) {
        const int to = int(random() % kThreads);
        allocator.note_use(mine.back(), stream_of(to));
        const std::lock_guard lock(boxes[to].mutex);
        boxes[to].blocks.push_back(mine.back());
        mine.pop_back();
      } else if (what == 14) {
        const std::lock_guard lock(boxes[me].mutex);
        for (void* p : boxes[me].blocks) allocator.deallocate(p);
        boxes[me].blocks.clear();
      } else if (random() % 500 == 0) {
        allocator.empty_cache();
      } else if (random() % 100 == 0) {
        allocator.summary();
      } else if (random() % 100 == 0) {
        EXPECT_GE(allocator.stats().reserved, allocator.stats().pending / 2);
      }
    }
    for (void* p : mine) allocator.deallocate(p);
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back(work, t);
  for (std::thread& t : threads) t.join();
  for (Mailbox& box : boxes)
    for (void* p : box.blocks) allocator.deallocate(p);
  for (int i = 0; i < 3; ++i) allocator.empty_cache();
  const prim::MemoryStats s = allocator.stats();
  EXPECT_EQ(s.allocated, 0u);
  EXPECT_EQ(s.blocks, 0);
  EXPECT_EQ(s.allocations, allocations.load());
  EXPECT_EQ(s.frees, allocations.load());
}

}  // namespace
}  // namespace arete::cuda
