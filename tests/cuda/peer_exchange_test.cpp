// What ranks copy and add, by threads in the place of streams and host memory in that of GPUs'.
#include "arete/backend/cuda/lib/peer_exchange.h"

#include <gtest/gtest.h>

#include <barrier>
#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace arete::cuda {
namespace {

using prim::CollectiveArgs;
using prim::CollectiveKind;
using prim::ReduceKind;
using prim::View;

const int64_t kOne = 1;

View view(std::vector<float>& values, const int64_t& size, int64_t offset = 0) {
  return {reinterpret_cast<std::byte*>(values.data() + offset), kFloat32, IntList(&size, 1),
          IntList(&kOne, 1)};
}

// As slow as they like, so that who does not wait for others finds what is not there yet: what is
// in different sets of rooms two threads do, or one, as in a graph.
class ThreadSteps final : public PeerSteps {
 public:
  ThreadSteps(std::span<std::barrier<>* const> barriers, int ranks, int rank, bool in_one)
      : barriers_(barriers),
        ranks_(ranks),
        rank_(rank),
        in_one_(in_one),
        work_(in_one ? 1 : barriers.size()) {}
  void begin_round(int set) override {
    set_ = size_t(set);
    stream_ = in_one_ ? 0 : set_;
    begun.push_back(set);
  }
  void copy(std::byte* to, const std::byte* from, size_t bytes) override {
    work_[stream_].push_back([=] {
      if (bytes > 0) std::memcpy(to, from, bytes);
    });
  }
  void meet() override {
    work_[stream_].push_back([barrier = barriers_[set_]] { barrier->arrive_and_wait(); });
    ++meetings;
  }
  void add(const PeerSum& sum) override {
    work_[stream_].push_back([sum, ranks = ranks_] {
      for (int64_t i = 0; i < sum.count; ++i) {
        float total = 0;
        for (int r = 0; r < ranks; ++r)
          total += reinterpret_cast<const float*>(sum.parts[size_t(r)])[i] * float(sum.scale);
        reinterpret_cast<float*>(sum.out)[i] = total;
        if (sum.shared) reinterpret_cast<float*>(sum.shared)[i] = total;
      }
    });
  }
  void run(const PeerExchange& exchange, const CollectiveArgs& call) {
    set_ = stream_ = 0;
    exchange.run(call, *this);
    std::vector<std::thread> streams;
    for (auto& work : work_)
      streams.emplace_back([&work, seed = ++seed_ * 8 + rank_] {
        std::minstd_rand random{unsigned(seed)};
        for (const auto& f : work) {
          std::this_thread::sleep_for(std::chrono::microseconds(random() % 40));
          f();
        }
        work.clear();
      });
    for (auto& t : streams) t.join();
  }
  int meetings = 0;
  std::vector<int> begun;
  size_t sets() const { return barriers_.size(); }

 private:
  const std::span<std::barrier<>* const> barriers_;
  const int ranks_, rank_;
  const bool in_one_;
  std::vector<std::vector<std::function<void()>>> work_;
  size_t set_ = 0, stream_ = 0;
  int seed_ = 0;
};

class PeerExchangeTest : public testing::TestWithParam<int> {
 protected:
  static constexpr size_t kPlace = 512;
  // The values of a rank, so that sums are exact.
  static float value(int rank, int64_t i, int call) {
    return float((i * (rank + 3) + 7 * rank + call) % 61);
  }
  // With one set of rooms, with two, and with two of which every second rank takes one stream.
  void on_ranks(const std::function<void(const PeerExchange&, ThreadSteps&)>& f) {
    const int n = GetParam();
    for (const auto& [n_sets, in_one] :
         std::vector<std::pair<int, bool>>{{1, false}, {2, false}, {2, true}}) {
      std::vector<std::vector<std::byte>> memory(size_t(n_sets * n),
                                                 std::vector<std::byte>(size_t(n) * kPlace));
      std::vector<std::vector<std::byte*>> rooms(static_cast<size_t>(n_sets));
      for (size_t k = 0; k < memory.size(); ++k) rooms[k / size_t(n)].push_back(memory[k].data());
      std::barrier<> one(n), two(n);
      std::barrier<>* const barriers[] = {&one, &two};
      std::vector<std::thread> threads;
      for (int r = 0; r < n; ++r)
        threads.emplace_back([&, r, n_sets, in_one] {
          const PeerExchange exchange(r, rooms, kPlace);
          ThreadSteps steps({barriers, size_t(n_sets)}, n, r, in_one && r % 2 == 0);
          f(exchange, steps);
        });
      for (auto& t : threads) t.join();
    }
  }
};

TEST_P(PeerExchangeTest, CallsOfAnySizesFollowEachOther) {
  const int n = GetParam();
  on_ranks([n](const PeerExchange& exchange, ThreadSteps& steps) {
    const int me = exchange.rank();
    int call = 0;
    for (const int64_t size : {1, 2, 31, 32, 33, 127, 128, 1000, 1024, 1025, 4099})
      for (const bool in_place : {true, false}) {
        ++call;
        const auto total = [&](int64_t i) {
          float sum = 0;
          for (int r = 0; r < n; ++r) sum += value(r, i, call);
          return sum;
        };
        // all_reduce
        std::vector<float> x(size, 0.F), y(size, -1.F);
        for (int64_t i = 0; i < size; ++i) x[size_t(i)] = value(me, i, call);
        const View in = view(x, size), out = in_place ? in : view(y, size);
        steps.run(exchange, {.kind = CollectiveKind::all_reduce, .in = {&in, 1}, .out = {&out, 1}});
        const int rounds = int((size_t(size) * 4 + n * kPlace - 1) / (n * kPlace));
        ASSERT_EQ(std::exchange(steps.meetings, 0), 2 * rounds);
        for (int64_t i = 0; i < size; ++i) {
          ASSERT_EQ((in_place ? x : y)[size_t(i)], total(i)) << n << " " << size << " " << i;
          if (!in_place) {
            ASSERT_EQ(x[size_t(i)], value(me, i, call));
          }
        }
        // all_gather and reduce_scatter of parts that differ in size
        std::vector<int64_t> sizes, begins = {0};
        for (int r = 0; r < n; ++r) {
          sizes.push_back(size + (call % 3 == 0 ? 0 : (r * 37) % 50));
          begins.push_back(begins.back() + sizes.back());
        }
        std::vector<float> all(begins.back(), -1.F), own(sizes[size_t(me)], 0.F);
        std::vector<View> parts;
        for (int r = 0; r < n; ++r) parts.push_back(view(all, sizes[size_t(r)], begins[size_t(r)]));
        const View mine = in_place ? parts[size_t(me)] : view(own, sizes[size_t(me)]);
        for (int64_t i = 0; i < sizes[size_t(me)]; ++i) mine.as<float>()[i] = value(me, i, call);
        steps.run(exchange, {.kind = CollectiveKind::all_gather, .in = {&mine, 1}, .out = parts});
        for (int r = 0; r < n; ++r)
          for (int64_t i = 0; i < sizes[size_t(r)]; ++i)
            ASSERT_EQ(parts[size_t(r)].as<float>()[i], value(r, i, call)) << r << " " << i;
        for (int64_t i = 0; i < begins.back(); ++i) all[size_t(i)] = value(me, i, call);
        std::vector<float> part(sizes[size_t(me)], -1.F);
        const View to = view(part, sizes[size_t(me)]);
        steps.run(exchange, {.kind = CollectiveKind::reduce_scatter, .in = parts, .out = {&to, 1}});
        for (int64_t i = 0; i < sizes[size_t(me)]; ++i)
          ASSERT_EQ(part[size_t(i)], total(begins[size_t(me)] + i));
        steps.meetings = 0;
      }
  });
}

TEST_P(PeerExchangeTest, ARoundSendsBeforeTheOneBeforeItFetches) {
  on_ranks([](const PeerExchange& exchange, ThreadSteps& steps) {
    const int64_t size = int64_t(kPlace) / 4 * exchange.size() * 3;
    std::vector<float> x(size, 1.F);
    const View v = view(x, size);
    steps.run(exchange, {.kind = CollectiveKind::all_reduce, .in = {&v, 1}, .out = {&v, 1}});
    const std::vector<int> one(6, 0), two = {0, 1, 0, 0, 1, 0};
    EXPECT_EQ(steps.begun, steps.sets() == 2 ? two : one);
  });
}

TEST_P(PeerExchangeTest, SumsAreScaled) {
  on_ranks([](const PeerExchange& exchange, ThreadSteps& steps) {
    const int n = exchange.size();
    const int64_t size = 600;
    for (const ReduceKind kind : {ReduceKind::avg, ReduceKind::premul_sum}) {
      std::vector<float> x(size_t(size), float(exchange.rank() + 1));
      const View v = view(x, size);
      steps.run(exchange, {.kind = CollectiveKind::all_reduce,
                           .in = {&v, 1},
                           .out = {&v, 1},
                           .reduce = kind,
                           .factor = 0.5});
      const float sum = float(n * (n + 1)) / 2;
      for (const float f : x)
        ASSERT_FLOAT_EQ(f, kind == ReduceKind::avg ? sum / float(n) : sum / 2);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, PeerExchangeTest, testing::Values(2, 3, 4, 8));

TEST(PeerExchange, TakesWhatIsLargeAndAddsUp) {
  std::vector<float> memory(4096);
  const int64_t many = 4096, half = 2048;
  const View v = view(memory, many), part = view(memory, half);
  const View parts[] = {part, view(memory, half, 2048)};
  const auto takes = [](const CollectiveArgs& a) { return PeerExchange::takes(a, 2, 16384); };
  CollectiveArgs reduce{.kind = CollectiveKind::all_reduce, .in = {&v, 1}, .out = {&v, 1}};
  EXPECT_TRUE(takes(reduce));
  EXPECT_FALSE(PeerExchange::takes(reduce, 2, 16385));
  EXPECT_FALSE(PeerExchange::takes(reduce, 9, 16384));
  for (const ReduceKind kind : {ReduceKind::avg, ReduceKind::premul_sum}) {
    reduce.reduce = kind;
    EXPECT_TRUE(takes(reduce));
  }
  for (const ReduceKind kind : {ReduceKind::max, ReduceKind::product}) {
    reduce.reduce = kind;
    EXPECT_FALSE(takes(reduce));
  }
  View whole = v;
  whole.dtype = kInt32;
  EXPECT_FALSE(takes({.kind = CollectiveKind::all_reduce, .in = {&whole, 1}, .out = {&whole, 1}}));
  EXPECT_TRUE(takes({.kind = CollectiveKind::all_gather, .in = {&part, 1}, .out = parts}));
  EXPECT_TRUE(takes({.kind = CollectiveKind::reduce_scatter, .in = parts, .out = {&part, 1}}));
  EXPECT_FALSE(takes({.kind = CollectiveKind::reduce, .in = {&v, 1}, .out = {&v, 1}}));
  EXPECT_FALSE(takes({.kind = CollectiveKind::broadcast, .out = {&v, 1}}));
}

}  // namespace
}  // namespace arete::cuda
