// The orders of samplers.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "arete/data/sampler.h"
#include "data_test_support.h"

namespace arete::data {
namespace {

// The order of a new generator with this seed.
std::vector<int64_t> order_of(const Sampler& s, uint64_t seed = 1, int64_t epoch = 0) {
  Generator g(seed);
  return s.order(epoch, g);
}

TEST(Sampler, PermutationIsOneAndDependsOnTheGenerator) {
  Generator g(3);
  for (const int64_t n : {0, 1, 2, 100}) EXPECT_EQ(sorted(permutation(n, g)), iota_vector(n));
  Generator one(1), again(1), two(2);
  const auto p = permutation(100, one);
  EXPECT_EQ(permutation(100, again), p);
  EXPECT_NE(permutation(100, again), p);
  EXPECT_NE(permutation(100, two), p);
  EXPECT_THROW(permutation(-1, g), ValueError);
}

TEST(Sampler, AnEpochTakesOneBlock) {
  const RandomSampler all(50), drawn(50, true, 70);
  const SubsetRandomSampler some({4, 8, 15});
  const WeightedRandomSampler weighted({1, 2}, 9);
  Generator g(5);
  for (const Sampler* s : std::initializer_list<const Sampler*>{&all, &drawn, &some, &weighted}) {
    const uint64_t before = g.state().offset;
    const auto order = s->order(0, g);
    EXPECT_EQ(g.state().offset, before + 1);
    EXPECT_EQ(int64_t(order.size()), s->size());
    EXPECT_NE(s->order(0, g), order);
    g.set_state({5, before});
    EXPECT_EQ(s->order(7, g), order);
  }
  const Generator::State before = g.state();
  EXPECT_EQ(SequentialSampler(3).order(1, g), iota_vector(3));
  EXPECT_NE(DistributedSampler(9, 1, 0).order(1, g), DistributedSampler(9, 1, 0).order(2, g));
  EXPECT_EQ(g.state(), before);
}

TEST(Sampler, PermutationIsUniform) {
  // Each of the 6 orders of 3 things about equally often: 6000 draws, standard deviation 29.
  std::map<std::vector<int64_t>, int> count;
  Generator g(11);
  for (int i = 0; i < 6000; ++i) ++count[permutation(3, g)];
  ASSERT_EQ(count.size(), 6u);
  for (const auto& [order, n] : count) EXPECT_NEAR(n, 1000, 150);
}

TEST(Sampler, RandomWithReplacement) {
  const RandomSampler s(5, true, 1000);
  EXPECT_EQ(s.size(), 1000);
  const auto order = order_of(s);
  ASSERT_EQ(order.size(), 1000u);
  EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()), (std::set<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_NE(order_of(s, 2), order);
  const auto some = order_of(RandomSampler(10, false, 4));
  EXPECT_EQ(std::set<int64_t>(some.begin(), some.end()).size(), 4u);
  EXPECT_THROW(RandomSampler(3, false, 4), ValueError);
  EXPECT_THROW(RandomSampler(0, true, 4), ValueError);
  EXPECT_THROW(RandomSampler(3, true, -4), ValueError);
}

TEST(Sampler, SubsetAndWeighted) {
  const auto order = order_of(SubsetRandomSampler({4, 8, 15, 16, 23, 42}));
  EXPECT_EQ(sorted(order), (std::vector<int64_t>{4, 8, 15, 16, 23, 42}));
  std::vector<int> count(4);
  for (const int64_t i : order_of(WeightedRandomSampler({1, 0, 3, 0}, 4000))) ++count[size_t(i)];
  EXPECT_EQ(count[1] + count[3], 0);
  EXPECT_NEAR(count[0], 1000, 150);
  for (const std::vector<double>& bad :
       {std::vector<double>{}, {0, 0}, {1, -1}, {1, NAN}, {INFINITY}, {1e308, 1e308}})
    EXPECT_THROW(WeightedRandomSampler(bad, 1), ValueError);
}

TEST(Sampler, DistributedSharesCoverAll) {
  for (const bool shuffle : {false, true})
    for (const bool drop : {false, true})
      for (const int64_t n : {0, 1, 3, 10, 12}) {
        std::vector<int64_t> all;
        for (int rank = 0; rank < 4; ++rank) {
          const DistributedSampler s(n, 4, rank, shuffle, 9, drop);
          const auto mine = order_of(s, 1, 2);
          EXPECT_EQ(int64_t(mine.size()), s.size());
          EXPECT_EQ(s.size(), drop ? n / 4 : (n + 3) / 4);
          all.insert(all.end(), mine.begin(), mine.end());
        }
        const std::set<int64_t> seen(all.begin(), all.end());
        if (drop)
          EXPECT_EQ(int64_t(seen.size()), n / 4 * 4);  // none twice
        else
          EXPECT_EQ(std::vector<int64_t>(seen.begin(), seen.end()), iota_vector(n));
      }
  expect_error(ErrorKind::value, {"Invalid rank 4, rank should be in the interval [0, 3]"},
               [] { DistributedSampler(10, 4, 4); });
}

}  // namespace
}  // namespace arete::data
