#include "arete/prim/plan_cache.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>
#include <vector>

namespace arete::prim {
namespace {

struct Key {
  int64_t sizes[3];
  int32_t dtype, unused;
};
Key key_of(int64_t n) { return {{n, 2, 3}, 1, 0}; }
auto maker(int value) {
  return [value] { return std::make_unique<int>(value); };
}

TEST(PlanCache, KeepsThePlansUsedLast) {
  PlanCache<Key, int> cache(3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(*cache.get(key_of(i), maker(i)), i);
  EXPECT_EQ(*cache.get(key_of(0), maker(-1)), 0);  // a hit: 1 is the oldest now
  EXPECT_EQ(*cache.get(key_of(3), maker(3)), 3);
  EXPECT_EQ(cache.find(key_of(1)), nullptr);
  for (int i : {0, 2, 3}) EXPECT_EQ(*cache.find(key_of(i)), i);
  const PlanCacheStatistics s = cache.statistics();
  EXPECT_EQ(s.hits, 4);
  EXPECT_EQ(s.misses, 5);
  EXPECT_EQ(s.evictions, 1);
  EXPECT_EQ(s.size, 3u);
  EXPECT_EQ(s.capacity, 3u);
}

TEST(PlanCache, DroppedPlansLiveWhileInUse) {
  PlanCache<Hash128, int> cache(1);
  const std::shared_ptr<int> held = cache.get(Hash128{1, 2}, maker(5));
  cache.get(Hash128{3, 4}, maker(6));
  EXPECT_EQ(*held, 5);
  EXPECT_EQ(held.use_count(), 1);
  cache.clear();
  EXPECT_EQ(cache.statistics().size, 0u);
}

TEST(PlanCache, KeepsNothingWhereMakingFails) {
  PlanCache<Key, int> cache(2);
  EXPECT_THROW(
      cache.get(key_of(1), []() -> std::unique_ptr<int> { throw std::runtime_error("no plan"); }),
      std::runtime_error);
  EXPECT_EQ(cache.statistics().size, 0u);
  EXPECT_EQ(*cache.get(key_of(1), maker(1)), 1);
}

TEST(PlanCache, MayBeUsedByManyThreads) {
  PlanCache<Key, int> cache(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&cache, t] {
      for (int i = 0; i < 5000; ++i) {
        const int n = i * (t + 1) % 7;
        EXPECT_EQ(*cache.get(key_of(n), maker(n)), n);
      }
    });
  for (std::thread& t : threads) t.join();
  const PlanCacheStatistics s = cache.statistics();
  EXPECT_EQ(s.hits + s.misses, 20000);
  EXPECT_LE(s.size, 4u);
}

}  // namespace
}  // namespace arete::prim
