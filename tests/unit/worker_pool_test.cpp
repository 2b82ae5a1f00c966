// Threads that make numbered batches.
#include "arete/data/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "arete/base/error.h"
#include "arete/ops/creation.h"
#include "io_test_support.h"

namespace arete::data {
namespace {

using test::expect_error;

// A batch of one tensor: where the worker's generator is, from which it draws, then the indices.
Batch drawn(IntList indices, BatchContext& context) {
  if (indices[0] < 0) throw std::runtime_error("negative");
  EXPECT_EQ(&default_generator(), &context.generator);
  const Generator::State at = context.generator.reserve(3);
  std::vector<int64_t> values{int64_t(at.seed), int64_t(at.offset >> 32) - 1};
  EXPECT_EQ(at.offset & 0xffffffff, 0u);
  values.insert(values.end(), indices.begin(), indices.end());
  return {tensor(values)};
}

TEST(WorkerPool, EachBatchDrawsFromItsOwnStream) {
  WorkerPool pool(2);
  for (const uint64_t seed : {100, 300}) {
    const int64_t epoch = pool.start(drawn, seed);
    for (int64_t i = 0; i < 6; ++i) pool.submit(int(i % 2), i, {i});
    for (int64_t i = 5; i >= 0; --i) {
      int64_t number = i;
      ASSERT_EQ(pool.wait(epoch, number, 60), WorkerPool::State::ready);
      EXPECT_EQ(pool.take(i).get()[0].to_vector<int64_t>(),
                (std::vector<int64_t>{int64_t(seed), i, i}));
    }
    EXPECT_EQ(pool.finished(), 6);
  }
}

TEST(WorkerPool, AWholeEpochIsMadeAsFarAheadAsAsked) {
  WorkerPool pool(2);
  const int64_t left_early = pool.start(drawn, 0);
  pool.submit_all({7, 8, 9}, 1, 1);
  const int64_t epoch = pool.start(drawn, 50);
  EXPECT_GT(epoch, left_early);
  pool.submit_all({1, 2, -3, 4, 5, 6, 7}, 2, 3);
  const std::vector<std::vector<int64_t>> want{{50, 0, 1, 2}, {}, {50, 2, 5, 6}, {50, 3, 7}};
  int64_t number = 2;
  ASSERT_EQ(pool.wait(epoch, number, 60), WorkerPool::State::ready);
  number = 3;
  EXPECT_EQ(pool.wait(epoch, number, 0.05), WorkerPool::State::pending);  // three are waiting
  for (int64_t i = 0; i < 4; ++i) {
    number = i;
    ASSERT_EQ(pool.wait(epoch, number, 60), WorkerPool::State::ready);
    if (i == 1)
      EXPECT_THROW(pool.take(i).get(), std::runtime_error);
    else
      EXPECT_EQ(pool.take(i).get()[0].to_vector<int64_t>(), want[size_t(i)]);
  }
  number = WorkerPool::any;
  EXPECT_EQ(pool.wait(epoch, number, 0.05), WorkerPool::State::pending);
  EXPECT_EQ(pool.finished(), 4);
  expect_error(ErrorKind::value, {"must be positive", "0, 1 and 0"},
               [&] { pool.submit_all({1}, 0, 1); });
}

TEST(WorkerPool, TheRestOfAnEpochIsThatOfAWholeOne) {
  std::vector<int64_t> order(11);
  std::iota(order.begin(), order.end(), 100);
  for (const int workers : {1, 3}) {
    WorkerPool pool(workers);
    for (const int64_t first : {0, 2, 5}) {
      const int64_t epoch = pool.start(drawn, 9);
      pool.submit_all({order.begin() + 2 * first, order.end()}, 2, 4, first);
      for (int64_t i = first; i < 6; ++i) {
        int64_t number = i;
        ASSERT_EQ(pool.wait(epoch, number, 60), WorkerPool::State::ready);
        std::vector<int64_t> want{9, i, 100 + 2 * i};
        if (i < 5) want.push_back(101 + 2 * i);
        EXPECT_EQ(pool.take(i).get()[0].to_vector<int64_t>(), want);
      }
    }
  }
  WorkerPool pool(1);
  pool.start(drawn, 0);
  expect_error(ErrorKind::value, {"must not be negative", "1, 1 and -1"},
               [&] { pool.submit_all({1}, 1, 1, -1); });
}

TEST(WorkerPool, SomeOfTheRestMayBeLeftOut) {
  WorkerPool pool(2);
  const int64_t epoch = pool.start(drawn, 9);
  pool.submit_all({10, 11, 12, 13, 14}, 1, 2, 5, {6, 7, 9});
  for (int64_t number : {8, 5}) {
    ASSERT_EQ(pool.wait(epoch, number, 60), WorkerPool::State::ready);
    EXPECT_EQ(pool.take(number).get()[0].to_vector<int64_t>(),
              (std::vector<int64_t>{9, number, number + 5}));
  }
  int64_t number = WorkerPool::any;
  EXPECT_EQ(pool.wait(epoch, number, 0.05), WorkerPool::State::pending);
  EXPECT_EQ(pool.finished(), 2);
}

TEST(WorkerPool, GivenThreadsAskForTasks) {
  WorkerPool pool(2, WorkerPool::Threads::given);
  std::vector<std::thread> threads;
  for (const int worker : {0, 1})
    threads.emplace_back([&pool, worker] {
      while (const auto task = pool.next(worker))
        pool.finish(task->epoch, task->number, {{tensor(100 * worker + task->number)}});
    });
  const int64_t first = pool.start(nullptr, 0);
  pool.submit(0, 0);
  const int64_t epoch = pool.start(nullptr, 0);
  pool.finish(first, 7);  // of an epoch that is over
  for (int i = 0; i < 20; ++i) pool.submit(i % 2, i);
  pool.finish(epoch, 20, {{tensor(7)}});  // by nobody's thread
  for (int64_t i = 0; i < 20; ++i) {
    int64_t number = i;
    ASSERT_EQ(pool.wait(epoch, number, 60), WorkerPool::State::ready);
    EXPECT_EQ(pool.take(i).get()[0].item<int64_t>(), 100 * (i % 2) + i);
  }
  int64_t number = WorkerPool::any;
  ASSERT_EQ(pool.wait(epoch, number, 60), WorkerPool::State::ready);
  EXPECT_EQ(number, 20);
  EXPECT_EQ(pool.finished(), 21);
  pool.close();
  for (std::thread& t : threads) t.join();
  EXPECT_FALSE(pool.next(0));
}

TEST(WorkerPool, CloseDoesNotWaitForWhatHangs) {
  std::atomic<bool> begun = false, go = false;
  auto left = std::make_shared<std::atomic<bool>>(false);
  {
    WorkerPool pool(1);
    pool.start(
        [&begun, &go, left](IntList, BatchContext&) -> Batch {
          begun = true;
          while (!go) std::this_thread::yield();
          *left = true;
          return {};
        },
        0);
    pool.submit(0, 0, {0});
    while (!begun) std::this_thread::yield();
    pool.close(0.05);
    EXPECT_FALSE(*left);
  }
  go = true;
  while (!*left) std::this_thread::yield();
}

TEST(WorkerPool, ErrorsBelongToTheirBatch) {
  WorkerPool pool(1);
  const int64_t epoch = pool.start(drawn, 0);
  pool.submit(0, 0, {-1});
  pool.submit(0, 1, {1});
  int64_t number = 0;
  ASSERT_EQ(pool.wait(epoch, number, 60), WorkerPool::State::ready);
  EXPECT_THROW(pool.take(0).get(), std::runtime_error);
  number = WorkerPool::any;
  ASSERT_EQ(pool.wait(epoch, number, 60), WorkerPool::State::ready);
  EXPECT_EQ(number, 1);
  EXPECT_EQ(pool.take(1).get()[0].size(0), 3);
  expect_error(ErrorKind::value, {"the batch is not there"}, [&] { pool.take(1); });
  number = WorkerPool::any;
  EXPECT_EQ(pool.wait(epoch, number, 0.01), WorkerPool::State::pending);
}

TEST(WorkerPool, AnEpochThatIsOverLeavesNothing) {
  std::atomic<bool> go = false;
  WorkerPool pool(1);
  const int64_t first = pool.start(
      [&](IntList, BatchContext&) -> Batch {
        while (!go) std::this_thread::yield();
        return {tensor(1.0)};
      },
      0);
  pool.submit(0, 0, {0});
  pool.submit(0, 1, {0});
  const auto waited = pool.waited();
  const int64_t second = pool.start(drawn, 0);
  pool.submit(0, 1, {7});
  go = true;
  int64_t number = WorkerPool::any;
  EXPECT_EQ(pool.wait(first, number, 60), WorkerPool::State::gone);
  ASSERT_EQ(pool.wait(second, number, 60), WorkerPool::State::ready);
  EXPECT_EQ(number, 1);
  EXPECT_EQ(pool.take(1).get()[0].to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 7}));
  EXPECT_NE(pool.waited(), waited);
  pool.submit(0, 2, {3});
  pool.close();
  EXPECT_EQ(pool.wait(second, number, 60), WorkerPool::State::gone);
}

Batch take_when_ready(WorkerPool& pool, int64_t epoch, int64_t number) {
  EXPECT_EQ(pool.wait(epoch, number, 60), WorkerPool::State::ready);
  return pool.take(number).get();
}

TEST(WorkerPool, WorkersHelpTheFirstBatch) {
  WorkerPool pool(3);
  std::atomic<int> within = 0;
  std::atomic<bool> shared = false;
  const auto meet = [&](int64_t) {  // returns when three threads are in it
    shared = true;
    ++within;
    while (within < 3) std::this_thread::yield();
  };
  std::mutex mutex;
  std::vector<int64_t> order;  // of the batches that calls belong to
  const int64_t epoch = pool.start(
      [&](IntList indices, BatchContext& context) -> Batch {
        if (indices[0] == 0) {
          context.for_each(3, meet);
        } else {
          while (!shared) std::this_thread::yield();
          context.for_each(2, [&](int64_t) {
            const std::lock_guard lock(mutex);
            order.push_back(within);
          });
        }
        return {tensor(indices[0])};
      },
      0);
  for (const int i : {2, 1, 0}) pool.submit(i, i, {i});
  for (const int i : {0, 1, 2}) EXPECT_EQ(take_when_ready(pool, epoch, i)[0].item<int64_t>(), i);
  EXPECT_EQ(order, (std::vector<int64_t>{3, 3, 3, 3}));  // none before the first batch's calls
}

TEST(WorkerPool, EachCallIsMadeOnceAndTheFirstErrorIsThrown) {
  WorkerPool pool(4);
  const int64_t epoch = pool.start(
      [](IntList indices, BatchContext& context) -> Batch {
        std::vector<int64_t> calls(100, 0);
        context.for_each(0, [](int64_t) { FAIL(); });
        context.for_each(100, [&](int64_t i) {
          ++calls[size_t(i)];
          if (indices[0] % 2 == 1 && i % 30 == 7) throw std::runtime_error(std::to_string(i));
        });
        return {tensor(calls)};
      },
      0);
  for (int i = 0; i < 40; ++i) pool.submit(i % 4, i, {i});
  for (int i = 0; i < 40; ++i) {
    if (i % 2 == 0) {
      EXPECT_EQ(take_when_ready(pool, epoch, i)[0].to_vector<int64_t>(),
                std::vector<int64_t>(100, 1));
      continue;
    }
    try {
      take_when_ready(pool, epoch, i);
      FAIL() << i;
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), "7");
    }
  }
}

}  // namespace
}  // namespace arete::data
