// Data sets, samplers, the loader and the MNIST reader.
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>

#include "arete/data/dataset.h"
#include "arete/data/loader.h"
#include "arete/data/sampler.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/random.h"
#include "io_test_support.h"

namespace arete::data {
namespace {

using test::expect_error;
using test::TempDir;
using test::write_text;

// Example i is (i, 10 i).
DatasetPtr counting(int64_t n) {
  const Tensor x = arange(n);
  return std::make_shared<TensorDataset>(std::vector<Tensor>{x, x * 10});
}

std::vector<std::vector<int64_t>> walk(DataLoader& loader) {
  std::vector<std::vector<int64_t>> batches;
  for (const Batch& b : loader) {
    batches.push_back(b.input().to_vector<int64_t>());
    EXPECT_TRUE(equal(b.target(), b.input() * 10));
  }
  return batches;
}

std::vector<int64_t> iota_vector(int64_t n) {
  std::vector<int64_t> v(static_cast<size_t>(n));
  std::iota(v.begin(), v.end(), int64_t{0});
  return v;
}

std::vector<int64_t> sorted(std::vector<int64_t> v) {
  std::sort(v.begin(), v.end());
  return v;
}

std::vector<int64_t> joined(const std::vector<std::vector<int64_t>>& parts) {
  std::vector<int64_t> all;
  for (const auto& p : parts) all.insert(all.end(), p.begin(), p.end());
  return all;
}

// ---- data sets

TEST(Dataset, TensorDatasetGivesRows) {
  const Tensor x = arange(12, kFloat32).view({4, 3}), y = arange(4);
  const TensorDataset d({x, y});
  EXPECT_EQ(d.size(), 4);
  const Example e = d.get(2);
  ASSERT_EQ(e.size(), 2u);
  EXPECT_EQ(e[0].to_vector<double>(), (std::vector<double>{6, 7, 8}));
  EXPECT_EQ(e[1].item<int64_t>(), 2);
  const Batch b = d.get_batch({3, 0, 3});
  EXPECT_EQ(b.input().to_vector<double>(), (std::vector<double>{9, 10, 11, 0, 1, 2, 9, 10, 11}));
  EXPECT_EQ(b.target().to_vector<int64_t>(), (std::vector<int64_t>{3, 0, 3}));
}

TEST(Dataset, RefusesWrongIndicesAndSizes) {
  const DatasetPtr d = counting(4);
  for (const int64_t i : {int64_t{4}, int64_t{-1}}) {
    expect_error(ErrorKind::index, {"is out of range for a data set of 4 examples"},
                 [&] { d->get(i); });
    expect_error(ErrorKind::index, {"is out of range"}, [&] { d->get_batch({0, i}); });
  }
  expect_error(ErrorKind::value, {"Size mismatch between tensors", "4 rows"}, [] {
    TensorDataset({arange(4), arange(5)});
  });
  expect_error(ErrorKind::value, {"Size mismatch"}, [] { TensorDataset({arange(4), Tensor()}); });
  expect_error(ErrorKind::value, {"at least one tensor"}, [] { TensorDataset({}); });
  expect_error(ErrorKind::index, {"is out of range"}, [&] { Subset(d, {0, 4}); });
  expect_error(ErrorKind::value, {"null"}, [] { Subset(nullptr, {}); });
  expect_error(ErrorKind::value, {"null"}, [] { ConcatDataset({nullptr}); });
}

TEST(Dataset, SubsetAndConcatMapIndices) {
  const auto part = std::make_shared<Subset>(counting(10), std::vector<int64_t>{7, 1, 7});
  EXPECT_EQ(part->size(), 3);
  EXPECT_EQ(part->get_batch({0, 1, 2}).input().to_vector<int64_t>(),
            (std::vector<int64_t>{7, 1, 7}));
  const ConcatDataset both({counting(2), counting(0), part});
  EXPECT_EQ(both.size(), 5);
  EXPECT_EQ(both.get_batch({0, 1, 2, 3, 4}).input().to_vector<int64_t>(),
            (std::vector<int64_t>{0, 1, 7, 1, 7}));
  EXPECT_THROW(both.get(5), IndexError);
  EXPECT_EQ(ConcatDataset({}).size(), 0);
}

TEST(Dataset, RandomSplitCoversAllOnce) {
  const DatasetPtr d = counting(20);
  const auto parts = random_split(d, {13, 7}, 5);
  ASSERT_EQ(parts.size(), 2u);
  std::vector<int64_t> all;
  for (const DatasetPtr& p : parts)
    for (int64_t i = 0; i < p->size(); ++i) all.push_back(p->get(i)[0].item<int64_t>());
  EXPECT_NE(all, iota_vector(20));
  EXPECT_EQ(sorted(all), iota_vector(20));
  const auto again = random_split(d, {13, 7}, 5);
  for (int64_t i = 0; i < 7; ++i)
    EXPECT_EQ(again[1]->get(i)[0].item<int64_t>(), parts[1]->get(i)[0].item<int64_t>());
  expect_error(ErrorKind::value, {"Sum of input lengths does not equal", "20", "19"}, [&] {
    random_split(d, {13, 6});
  });
  expect_error(ErrorKind::value, {"must not be negative"}, [&] { random_split(d, {-1, 21}); });
}

TEST(Dataset, CollateStacksAndChecks) {
  const Batch b = collate({{zeros({2}), tensor(1)}, {ones({2}), tensor(2)}});
  EXPECT_EQ(b.input().sizes()[0], 2);
  EXPECT_EQ(b.target().to_vector<int64_t>(), (std::vector<int64_t>{1, 2}));
  expect_error(ErrorKind::value, {"stack expects each tensor to be equal size", "[2]", "[3]"}, [] {
    collate({{zeros({2})}, {zeros({3})}});
  });
  expect_error(ErrorKind::value, {"same number of tensors"}, [] {
    collate({{zeros({2})}, {zeros({2}), zeros({2})}});
  });
  expect_error(ErrorKind::value, {"no examples"}, [] { collate({}); });
  expect_error(ErrorKind::value, {"undefined"}, [] { collate({{Tensor()}}); });
}

// ---- samplers

TEST(Dataset, CollateOfMadeExamplesIsCollate) {
  const Tensor rows = arange(2 * 5 * 7 * 3, kUInt8).view({2, 5, 7, 3}).permute({0, 3, 1, 2});
  const std::vector<std::function<Example(int64_t)>> makers = {
      [&](int64_t i) {
        return Example{rows.select(0, i % 2), tensor(i)};
      },  // as decoded
      [&](int64_t i) { return Example{rows.select(0, i % 2).narrow(1, 1, 3).narrow(2, 2, 4)}; },
      [&](int64_t i) {
        return Example{rows.select(0, i % 2).flip({2}), rows.select(0, 0)};
      },
      [&](int64_t i) { return Example{rows.select(0, i % 2).transpose(1, 2)}; },
      [&](int64_t i) {
        return Example{rows.select(0, i % 2).contiguous().narrow(1, 1, 3).narrow(2, 2, 4)};
      },
      [&](int64_t i) { return Example{rows.select(0, i % 2).to(kFloat32)}; },
      [&](int64_t i) {
        return Example{i == 2 ? tensor(0.5) : tensor(i)};
      },  // another dtype later on
      [&](int64_t) {
        return Example{zeros({0, 3})};
      },
      [&](int64_t) { return Example{}; },
  };
  for (const auto& make : makers) {
    std::vector<Example> all;
    for (int64_t i = 0; i < 5; ++i) all.push_back(make(i));
    int64_t calls = 0;
    const Batch got = collate(5, [&](int64_t i) {
      EXPECT_EQ(i, calls++);
      return make(i);
    });
    const Batch want = collate(all);
    ASSERT_EQ(got.size(), want.size());
    for (size_t k = 0; k < want.size(); ++k) {
      EXPECT_EQ(got[k].dtype(), want[k].dtype());
      EXPECT_TRUE(got[k].is_contiguous());
      EXPECT_TRUE(equal(got[k], want[k]));
    }
  }
  const auto text = [](const auto& f) -> std::string {
    try {
      f();
    } catch (const ValueError& e) {
      return e.what();
    }
    return "no error";
  };
  const auto grown = [](int64_t i) { return Example{zeros({i / 2})}; };
  const std::string said = text([&] { collate(3, grown); });
  EXPECT_EQ(said, text([&] { collate({grown(0), grown(1), grown(2)}); }));
  EXPECT_NE(said.find("equal size"), std::string::npos) << said;
  EXPECT_EQ(text([&] { collate(0, grown); }), text([] { collate(std::vector<Example>{}); }));
  // What cannot be made comes before what does not fit.
  EXPECT_EQ(text([&] {
              collate(4, [&](int64_t i) -> Example {
                if (i == 3) throw ValueError("", "broken");
                return grown(i);
              });
            }),
            "broken");
}

TEST(Dataset, CollateOfMadeExamplesKeepsGradients) {
  const Tensor x = ones({2}).requires_grad_();
  Batch b = collate(3, [&](int64_t) { return Example{x * 2}; });
  b[0].sum().backward();
  EXPECT_TRUE(equal(x.grad(), full({2}, Scalar(6))));
}

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

// ---- loader

TEST(DataLoader, OrderDoesNotDependOnWorkers) {
  std::optional<std::vector<std::vector<int64_t>>> first, second;
  for (const int workers : {0, 1, 2, 5}) {
    DataLoader loader(counting(53),
                      {.batch_size = 8, .shuffle = true, .num_workers = workers, .seed = 3});
    EXPECT_EQ(loader.size(), 7);
    const auto a = walk(loader), b = walk(loader);
    EXPECT_EQ(a.size(), 7u);
    EXPECT_EQ(sorted(joined(a)), iota_vector(53));
    EXPECT_NE(a, b) << "each epoch has an order of its own";
    if (first) {
      EXPECT_EQ(a, *first) << workers;
      EXPECT_EQ(b, *second) << workers;
    }
    first = a;
    second = b;
  }
}

// Its first examples take longest.
class SlowStart final : public Dataset {
 public:
  int64_t size() const override { return 12; }
  Example get(int64_t i) const override {
    if (i < 4) std::this_thread::sleep_for(std::chrono::milliseconds(20 * (4 - i)));
    return {tensor(i), tensor(10 * i)};
  }
};

TEST(DataLoader, BatchesWaitForEarlierOnes) {
  DataLoader loader(std::make_shared<SlowStart>(), {.num_workers = 4, .prefetch_factor = 3});
  EXPECT_EQ(joined(walk(loader)), iota_vector(12));
  EXPECT_GT(loader.stats().consumer_wait, 0);
}

TEST(DataLoader, DropLastAndEmpty) {
  DataLoader loader(counting(10), {.batch_size = 4, .drop_last = true});
  EXPECT_EQ(loader.size(), 2);
  EXPECT_EQ(walk(loader), (std::vector<std::vector<int64_t>>{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  for (const int workers : {0, 2}) {
    DataLoader none(counting(0), {.batch_size = 4, .num_workers = workers});
    EXPECT_TRUE(walk(none).empty());
    EXPECT_TRUE(walk(none).empty());
  }
}

TEST(DataLoader, ResumesInTheMiddleOfAnEpoch) {
  const auto options = [](int workers) {
    return DataLoaderOptions{.batch_size = 4, .shuffle = true, .num_workers = workers, .seed = 8};
  };
  DataLoader whole(counting(30), options(0));
  walk(whole);
  const auto want = walk(whole);       // epoch 1
  const auto want_next = walk(whole);  // epoch 2
  for (const int workers : {0, 3}) {
    DataLoader first(counting(30), options(workers));
    walk(first);
    std::vector<std::vector<int64_t>> got;
    LoaderState state;
    for (const Batch& b : first) {
      got.push_back(b.input().to_vector<int64_t>());
      state = first.state();
      if (got.size() == 3) break;
    }
    EXPECT_EQ(state, (LoaderState{1, 3, Generator::State{8, 2}}));
    DataLoader second(counting(30), options(3 - workers));
    second.load_state(state);
    EXPECT_EQ(second.state(), state);
    for (const auto& b : walk(second)) got.push_back(b);
    EXPECT_EQ(got, want) << workers;
    EXPECT_EQ(walk(second), want_next);
  }
}

TEST(DataLoader, StateAtTheEndIsTheNextEpoch) {
  using State = Generator::State;
  DataLoader loader(counting(8), {.batch_size = 4, .seed = 6});
  EXPECT_EQ(loader.state(), (LoaderState{0, 0, State{6, 0}}));
  int seen = 0;
  for ([[maybe_unused]] const Batch& b : loader)
    EXPECT_EQ(loader.state(),
              (++seen == 2 ? LoaderState{1, 0, State{6, 1}} : LoaderState{0, 1, State{6, 0}}));
  EXPECT_EQ(loader.state(), (LoaderState{1, 0, State{6, 1}}));
  expect_error(ErrorKind::value, {"the saved position does not fit", "0..2", "batch 3"}, [&] {
    loader.load_state({0, 3, State{6, 0}});
  });
  EXPECT_THROW(loader.load_state({-1, 0}), ValueError);
  EXPECT_THROW(loader.load_state({0, 1, State{6, 0}, {1}}), ValueError);
  expect_error(ErrorKind::value, {"does not say where the generator was"}, [&] {
    loader.load_state({0, 1});
  });
  DataLoader programs(counting(8), {.batch_size = 4});
  EXPECT_EQ(programs.state(), LoaderState{});
  for ([[maybe_unused]] const Batch& b : programs)
    EXPECT_TRUE(seen++ % 2 || programs.state().generator);
  EXPECT_EQ(programs.state(), (LoaderState{1, 0}));
}

TEST(DataLoader, AnEpochLeftEarlyIsAbandoned) {
  for (const int workers : {0, 2}) {
    DataLoader loader(counting(40),
                      {.batch_size = 4, .shuffle = true, .num_workers = workers, .seed = 0});
    for ([[maybe_unused]] const Batch& b : loader) break;
    DataLoader other(counting(40), {.batch_size = 4, .shuffle = true, .seed = 0});
    walk(other);
    EXPECT_EQ(walk(loader), walk(other));  // both are epoch 1
  }
}

// Fails once at one example.
class Broken final : public Dataset {
 public:
  int64_t size() const override { return 20; }
  Example get(int64_t i) const override {
    if (i == 9 && failures_.fetch_sub(1) > 0) throw std::runtime_error("example 9 is broken");
    return {tensor(i), tensor(10 * i)};
  }

 private:
  mutable std::atomic<int> failures_{1};
};

TEST(DataLoader, ErrorsComeWhereTheirBatchWouldHave) {
  for (const int workers : {0, 1, 3}) {
    DataLoader loader(std::make_shared<Broken>(), {.batch_size = 4, .num_workers = workers});
    std::vector<int64_t> got;
    try {
      for (const Batch& b : loader)
        for (const int64_t v : b.input().to_vector<int64_t>()) got.push_back(v);
      ADD_FAILURE() << "no error with " << workers << " workers";
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), "example 9 is broken");
    }
    EXPECT_EQ(got, iota_vector(8));
    EXPECT_EQ(loader.state().batch, 2);
    const LoaderFailure failure = loader.failure();
    EXPECT_EQ(failure.batch, 2);
    EXPECT_EQ(failure.example, 9);
    EXPECT_EQ(failure.worker, workers == 0 ? -1 : 2 % workers);
    // The next walk tries that batch again.
    EXPECT_EQ(joined(walk(loader)),
              (std::vector<int64_t>{8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}));
  }
}

TEST(DataLoader, ErrorsSayWhichExampleAndWorker) {
  const auto sampler = std::make_shared<SubsetRandomSampler>(std::vector<int64_t>{0, 1, 2, 9});
  const Transform none = [](Example e, Generator&) { return e; };
  for (const Transform& transform : {Transform(), none}) {
    DataLoader loader(
        counting(5),
        {.batch_size = 4, .sampler = sampler, .num_workers = 2, .seed = 0, .transform = transform});
    const char* const where = transform ? "examples (example 9, batch 0, worker 0). Operator"
                                        : "examples (batch 0, worker 0). Operator";
    expect_error(ErrorKind::index, {"index 9 is out of range for a data set of 5", where},
                 [&] { walk(loader); });
  }
  DataLoader alone(counting(5), {.batch_size = 4, .sampler = sampler, .transform = none});
  expect_error(ErrorKind::index, {"examples (example 9, batch 0). Operator"}, [&] { walk(alone); });
  DataLoader sizes(counting(5),
                   {.batch_size = 2, .num_workers = 1, .transform = [](Example e, Generator&) {
                      e[0] = e[0].expand({e[0].item<int64_t>()});
                      return e;
                    }});
  expect_error(ErrorKind::value, {"equal size (batch 0, worker 0)"}, [&] { walk(sizes); });
}

TEST(DataLoader, IsDestroyedWithWorkersBusy) {
  DataLoader loader(counting(1000), {.batch_size = 2, .num_workers = 3, .prefetch_factor = 4});
  DataLoader moved = std::move(loader);
  auto it = moved.begin();
  ++it;
  EXPECT_EQ(it->input().to_vector<int64_t>(), (std::vector<int64_t>{2, 3}));
}

TEST(DataLoader, TransformsDoNotDependOnWorkers) {
  const auto noise = [](Example e, Generator& g) {
    e[0] = e[0].to(kFloat32) + rand({}, {}, &g);
    return e;
  };
  std::vector<std::vector<double>> runs;
  std::vector<double> second_epoch;
  for (const int workers : {0, 1, 4}) {
    DataLoader loader(
        counting(20),
        {.batch_size = 3, .shuffle = true, .num_workers = workers, .seed = 1, .transform = noise});
    std::vector<double> values;
    for (const Batch& b : loader)
      for (const double v : b.input().to_vector<double>()) values.push_back(v);
    runs.push_back(values);
    second_epoch.clear();
    for (const Batch& b : loader)
      for (const double v : b.input().to_vector<double>()) second_epoch.push_back(v);
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_EQ(runs[0], runs[2]);
  // Noise differs from example to example and from epoch to epoch.
  std::set<double> fractions;
  for (const double v : runs[0]) fractions.insert(v - std::floor(v));
  for (const double v : second_epoch) fractions.insert(v - std::floor(v));
  EXPECT_GT(fractions.size(), 35u);
}

// Draws from the default generator, as a data set may.
class Noisy final : public Dataset {
 public:
  explicit Noisy(bool slow) : slow_(slow) {}
  int64_t size() const override { return 20; }
  Example get(int64_t i) const override {
    return {tensor(double(i)) + (slow_ ? tensor(0.25) : rand({}))};
  }
  bool is_slow() const override { return slow_; }

 private:
  bool slow_;
};

std::vector<double> values_of(DataLoader& loader) {
  std::vector<double> values;
  for (const Batch& b : loader)
    for (const double v : b.input().to_vector<double>()) values.push_back(v);
  return values;
}

TEST(DataLoader, DefaultGeneratorIsTheBatchsOwnMeanwhile) {
  const Transform noise = [](Example e, Generator& g) {
    e[0] = e[0] + rand({}, {}, &g) + rand({});
    return e;
  };
  for (const bool slow : {false, true}) {
    std::set<std::vector<double>> seen;
    for (const int workers : {0, 1, 3}) {
      manual_seed(4);
      DataLoader loader(
          std::make_shared<Noisy>(slow),
          {.batch_size = 3, .shuffle = true, .num_workers = workers, .transform = noise});
      std::vector<double> values = values_of(loader);
      EXPECT_EQ(std::set<double>(values.begin(), values.end()).size(), 20u);
      // The program's numbers are moved by the epoch's two draws only.
      values.push_back(rand({}).item<double>());
      const std::vector<double> again = values_of(loader);
      EXPECT_FALSE(std::equal(again.begin(), again.end(), values.begin()));
      seen.insert(values);
    }
    EXPECT_EQ(seen.size(), 1u);
  }
}

TEST(DataLoader, ResumedEpochsLeaveTheProgramsNumbersAlone) {
  const auto set = std::make_shared<Noisy>(false);
  for (const int workers : {0, 2}) {
    const DataLoaderOptions options{.batch_size = 3, .shuffle = true, .num_workers = workers};
    manual_seed(4);
    DataLoader whole(set, options), first(set, options), second(set, options);
    const std::vector<double> want = values_of(whole);
    manual_seed(4);
    LoaderState state;
    std::vector<double> got;
    for (const Batch& b : first) {
      for (const double v : b.input().to_vector<double>()) got.push_back(v);
      state = first.state();
      if (state.batch == 4) break;
    }
    manual_seed(77);
    second.load_state(state);
    for (const double v : values_of(second)) got.push_back(v);
    EXPECT_EQ(got, want);
    EXPECT_EQ(default_generator().state(), (Generator::State{77, 0}));
  }
}

// Batches of the first worker come late.
class LateFirst final : public Dataset {
 public:
  int64_t size() const override { return 24; }
  Example get(int64_t i) const override {
    if (i / 2 % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(i == 0 ? 60 : 5));
    return {tensor(i), tensor(10 * i)};
  }
};

TEST(DataLoader, WithoutOrderBatchesComeAsTheyAreMade) {
  for (const std::optional<Device> device :
       {std::optional<Device>(), std::optional<Device>(kCPU)}) {
    DataLoaderOptions options{.batch_size = 2, .num_workers = 2, .device = device};
    options.in_order = false;
    DataLoader loader(std::make_shared<LateFirst>(), options);
    LoaderState state;
    std::vector<std::vector<int64_t>> got;
    for (const Batch& b : loader) {
      got.push_back(b.input().to_vector<int64_t>());
      state = loader.state();
      if (got.size() == 2) break;
    }
    EXPECT_NE(got[0], (std::vector<int64_t>{0, 1}));
    EXPECT_EQ(state.batch, 0);
    EXPECT_EQ(state.later.size(), 2u);
    for (const int workers : {0, 2}) {  // whoever goes on, nothing is lost or comes twice
      DataLoaderOptions ordered = options;
      ordered.num_workers = workers;
      ordered.in_order = workers == 2;
      DataLoader rest(std::make_shared<LateFirst>(), ordered);
      rest.load_state(state);
      auto all = walk(rest);
      EXPECT_EQ(all.front(), (std::vector<int64_t>{0, 1}));
      EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
      all.insert(all.end(), got.begin(), got.end());
      EXPECT_EQ(sorted(joined(all)), iota_vector(24));
      EXPECT_EQ(rest.state().epoch, 1);
    }
  }
}

TEST(DataLoader, OwnCollateAndSampler) {
  DataLoader loader(
      counting(6), {.batch_size = 4,
                    .sampler = std::make_shared<SubsetRandomSampler>(std::vector<int64_t>{1, 3, 5}),
                    .collate_fn = [](const std::vector<Example>& examples) {
                      return Batch{tensor(int64_t(examples.size()))};
                    }});
  EXPECT_EQ(loader.size(), 1);
  for (const Batch& b : loader) EXPECT_EQ(b[0].item<int64_t>(), 3);
}

TEST(DataLoader, RefusesWrongOptions) {
  const DatasetPtr d = counting(4);
  EXPECT_THROW(DataLoader(nullptr), ValueError);
  EXPECT_THROW(DataLoader(d, {.batch_size = 0}), ValueError);
  EXPECT_THROW(DataLoader(d, {.num_workers = -1}), ValueError);
  EXPECT_THROW(DataLoader(d, {.num_workers = 1, .prefetch_factor = 0}), ValueError);
  expect_error(ErrorKind::value, {"sampler option is mutually exclusive with shuffle"}, [&] {
    DataLoader(d, {.shuffle = true, .sampler = std::make_shared<SequentialSampler>(4)});
  });
  class Liar final : public Sampler {
    std::vector<int64_t> order(int64_t, Generator&) const override { return {0}; }
    int64_t size() const override { return 4; }
  };
  DataLoader loader(d, {.sampler = std::make_shared<Liar>()});
  expect_error(ErrorKind::value, {"4 indices", "1"}, [&] { loader.begin(); });
  DataLoader outside(d, {.sampler = std::make_shared<SequentialSampler>(5), .num_workers = 2});
  EXPECT_THROW(walk(outside), IndexError);
}

// ---- MNIST

std::string gzip(const std::string& s) {
  z_stream z{};
  deflateInit2(&z, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&z, s.size()) + 32, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(s.data()));
  z.avail_in = static_cast<uInt>(s.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

std::string big_endian(uint32_t v) {
  return {char(v >> 24), char(v >> 16 & 255), char(v >> 8 & 255), char(v & 255)};
}

std::string images_file(uint32_t n) {
  std::string s = big_endian(0x00000803) + big_endian(n) + big_endian(28) + big_endian(28);
  for (uint32_t i = 0; i < n * 784; ++i) s += char(i % 256);
  return s;
}

std::string labels_file(const std::vector<int>& labels) {
  std::string s = big_endian(0x00000801) + big_endian(uint32_t(labels.size()));
  for (const int l : labels) s += char(l);
  return s;
}

class MnistFiles : public testing::Test {
 protected:
  MnistFiles() { write(images_file(3), labels_file({7, 0, 9})); }
  void write(const std::string& images, const std::string& labels) {
    write_text(folder / "train-images-idx3-ubyte.gz", gzip(images));
    write_text(folder / "train-labels-idx1-ubyte.gz", gzip(labels));
  }
  void expect_bad(std::initializer_list<std::string_view> parts) {
    expect_error(ErrorKind::io, parts, [&] { MNIST(folder.path(), true); });
  }
  TempDir folder;
};

TEST_F(MnistFiles, GivesImagesAndLabels) {
  const MNIST d(folder.path(), true);
  EXPECT_EQ(d.size(), 3);
  EXPECT_EQ(d.images().dtype(), kUInt8);
  EXPECT_EQ(d.labels().to_vector<int64_t>(), (std::vector<int64_t>{7, 0, 9}));
  const Batch b = d.get_batch({2, 0});
  EXPECT_EQ(to_string(b.input().sizes()), "[2, 1, 28, 28]");
  EXPECT_EQ(b.input().dtype(), kFloat32);
  EXPECT_EQ(b.target().to_vector<int64_t>(), (std::vector<int64_t>{9, 7}));
  const float* x = b.input().data<float>();
  for (int p = 0; p < 784; ++p) {
    EXPECT_EQ(x[p], float((2 * 784 + p) % 256 / 255.0));
    EXPECT_EQ(x[784 + p], float(p % 256 / 255.0));
  }
  const Example e = d.get(1);
  EXPECT_EQ(to_string(e[0].sizes()), "[1, 28, 28]");
  EXPECT_EQ(e[1].item<int64_t>(), 0);
  EXPECT_THROW(d.get(3), IndexError);
  EXPECT_THROW(d.get_batch({0, -1}), IndexError);
}

TEST_F(MnistFiles, Normalises) {
  const MNIST d(folder.path(), true, 0.25, 0.5);
  EXPECT_EQ(d.get(0)[0].data<float>()[255], float((1.0 - 0.25) / 0.5));
  EXPECT_THROW(MNIST(folder.path(), true, 0, 0), ValueError);
}

TEST_F(MnistFiles, IsFloat32WhateverTheDefault) {
  set_default_dtype(kFloat64);
  const MNIST d(folder.path(), true);
  Batch b;
  EXPECT_NO_THROW(b = d.get_batch({0}));
  set_default_dtype(kFloat32);
  ASSERT_EQ(b.size(), 2u);
  EXPECT_EQ(b.input().dtype(), kFloat32);
}

TEST_F(MnistFiles, ReadsPlainFilesToo) {
  std::filesystem::remove(folder / "train-images-idx3-ubyte.gz");
  write_text(folder / "train-images-idx3-ubyte", images_file(3));
  EXPECT_EQ(MNIST(folder.path(), true).size(), 3);
}

TEST_F(MnistFiles, MissingFiles) {
  expect_error(ErrorKind::io, {"t10k-images-idx3-ubyte[.gz] is missing", folder.path()},
               [&] { MNIST(folder.path(), false); });
  std::filesystem::remove(folder / "train-labels-idx1-ubyte.gz");
  expect_bad({"train-labels-idx1-ubyte[.gz] is missing", folder.path()});
}

TEST_F(MnistFiles, TruncatedFiles) {
  const std::string good = gzip(images_file(3));
  write_text(folder / "train-images-idx3-ubyte.gz", good.substr(0, good.size() / 2));
  expect_bad({"train-images-idx3-ubyte.gz"});
  write_text(folder / "train-images-idx3-ubyte.gz", "");
  expect_bad({"train-images-idx3-ubyte.gz"});
  // Truncated before it was packed.
  write(images_file(3).substr(0, 2000), labels_file({7, 0, 9}));
  expect_bad({"train-images-idx3-ubyte.gz"});
  write(images_file(3), labels_file({7, 0, 9}).substr(0, 10));
  expect_bad({"train-labels-idx1-ubyte.gz"});
}

TEST_F(MnistFiles, CorruptGzip) {
  std::string bad = gzip(images_file(3));
  bad[bad.size() - 6] = char(bad[bad.size() - 6] ^ 1);  // the checksum
  write_text(folder / "train-images-idx3-ubyte.gz", bad);
  expect_bad({"train-images-idx3-ubyte.gz"});
  bad = gzip(images_file(3));
  for (size_t i = 20; i < 40; ++i) bad[i] = char(~bad[i]);
  write_text(folder / "train-images-idx3-ubyte.gz", bad);
  expect_bad({"train-images-idx3-ubyte.gz"});
}

TEST_F(MnistFiles, MislabelledFiles) {
  write(images_file(3), images_file(3));
  expect_bad({"train-labels-idx1-ubyte.gz", "one label byte per image"});
  write(labels_file({1, 2, 3}), labels_file({1, 2, 3}));
  expect_bad({"train-images-idx3-ubyte.gz", "images of 28 x 28 bytes"});
  write("<html>not found</html>", labels_file({1}));
  expect_bad({"train-images-idx3-ubyte.gz", "not an IDX file"});
}

TEST_F(MnistFiles, LabelsThatDoNotFit) {
  write(images_file(3), labels_file({7, 10, 9}));
  expect_bad({"label 10 of image 1 is not in 0..9", "train-labels-idx1-ubyte.gz"});
  write(images_file(3), labels_file({7, 1}));
  expect_bad({"numbers of images and labels differ", "3 labels", "2"});
}

TEST_F(MnistFiles, NoImagesAtAll) {
  write(images_file(0), labels_file({}));
  EXPECT_EQ(MNIST(folder.path(), true).size(), 0);
}

TEST_F(MnistFiles, FolderIsFoundOrTheErrorSaysWhere) {
  EXPECT_EQ(FashionMNIST::find_folder(folder.path()), folder.path());
  expect_error(ErrorKind::io, {"the data folder does not exist", "/nowhere"},
               [] { FashionMNIST::find_folder("/nowhere"); });
  const TempDir root;
  std::filesystem::create_directory(root / "fashion-mnist");
  const char* before = std::getenv("ARETE_DATA");
  const std::string saved = before ? before : "";
  setenv("ARETE_DATA", root.path().c_str(), 1);
  EXPECT_EQ(FashionMNIST::find_folder(), root / "fashion-mnist");
  before ? setenv("ARETE_DATA", saved.c_str(), 1) : unsetenv("ARETE_DATA");
  EXPECT_EQ(FashionMNIST::class_names().size(), 10u);
  EXPECT_EQ(FashionMNIST::class_names()[9], "Ankle boot");
}

}  // namespace
}  // namespace arete::data
