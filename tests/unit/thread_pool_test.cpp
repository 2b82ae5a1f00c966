#include "arete/base/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "arete/base/error.h"

namespace arete {
namespace {

class ThreadPool : public testing::Test {
 protected:
  void SetUp() override { previous_ = num_threads(); }
  void TearDown() override { set_num_threads(previous_); }
  int previous_ = 1;
};

std::vector<std::pair<int64_t, int64_t>> ranges(int64_t begin, int64_t end, int64_t grain) {
  std::mutex mutex;
  std::vector<std::pair<int64_t, int64_t>> out;
  parallel_for(begin, end, grain, [&](int64_t first, int64_t last) {
    std::lock_guard lock(mutex);
    out.push_back({first, last});
  });
  std::sort(out.begin(), out.end());
  return out;
}

TEST_F(ThreadPool, covers_every_element_once) {
  for (int threads : {1, 2, 3, 7}) {
    set_num_threads(threads);
    for (int64_t n : {0, 1, 2, 7, 100, 1001})
      for (int64_t grain : {1, 10, 5000}) {
        std::vector<std::atomic<int>> seen(static_cast<size_t>(n));
        parallel_for(0, n, grain, [&](int64_t first, int64_t last) {
          for (int64_t i = first; i < last; ++i) seen[size_t(i)].fetch_add(1);
        });
        for (auto& s : seen) ASSERT_EQ(s.load(), 1);
      }
  }
}

TEST_F(ThreadPool, splits_by_range_grain_and_threads_only) {
  set_num_threads(3);
  const auto outside = ranges(5, 1000, 10);
  EXPECT_EQ(outside.size(), 3u);
  EXPECT_EQ(ranges(5, 1000, 10), outside);
  SerialRegion serial;
  EXPECT_EQ(ranges(5, 1000, 10), outside);
}

TEST_F(ThreadPool, nested_and_serial_loops_run_inline) {
  set_num_threads(4);
  EXPECT_FALSE(in_parallel_region());
  std::atomic<int> inside{0}, other_thread{0};
  parallel_for(0, 8, 1, [&](int64_t, int64_t) {
    if (in_parallel_region()) ++inside;
    const auto self = std::this_thread::get_id();
    parallel_for(0, 100, 1, [&](int64_t, int64_t) {
      if (std::this_thread::get_id() != self) ++other_thread;
    });
  });
  EXPECT_EQ(inside, 4);
  EXPECT_EQ(other_thread, 0);
  {
    SerialRegion serial;
    EXPECT_TRUE(in_parallel_region());
    const auto self = std::this_thread::get_id();
    parallel_for(0, 100, 1, [&](int64_t, int64_t) {
      if (std::this_thread::get_id() != self) ++other_thread;
    });
  }
  EXPECT_EQ(other_thread, 0);
  EXPECT_FALSE(in_parallel_region());
}

TEST_F(ThreadPool, rethrows_one_exception_and_stays_usable) {
  set_num_threads(3);
  EXPECT_THROW(parallel_for(0, 30, 1, [](int64_t, int64_t) { throw std::runtime_error("x"); }),
               std::runtime_error);
  EXPECT_FALSE(in_parallel_region());
  EXPECT_EQ(ranges(0, 30, 1).size(), 3u);
}

TEST_F(ThreadPool, loops_of_several_threads_at_once) {
  set_num_threads(2);
  std::atomic<int64_t> total{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t)
    callers.emplace_back([&] {
      for (int k = 0; k < 50; ++k)
        parallel_for(0, 1000, 10, [&](int64_t first, int64_t last) { total += last - first; });
    });
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(total, 4 * 50 * 1000);
}

TEST_F(ThreadPool, grains_are_as_much_work_as_waking_a_thread_takes) {
  EXPECT_EQ(grain_for(1e9), 1);
  EXPECT_EQ(grain_for(0), grain_for(1));
  const char* const given = std::getenv("ARETE_THREAD_WORK");
  if (given)
    EXPECT_EQ(grain_for(1), std::atoll(given));
  else
    EXPECT_GE(grain_for(1), 1 << 16);
  EXPECT_NEAR(double(grain_for(1)), 1000.0 * double(grain_for(1000)), 1000.0);
}

TEST_F(ThreadPool, refuses_no_threads) {
  EXPECT_THROW(set_num_threads(0), ValueError);
  EXPECT_GE(num_threads(), 1);
}

}  // namespace
}  // namespace arete
