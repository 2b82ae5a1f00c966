// The loader.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "arete/data/loader.h"
#include "arete/ops/random.h"
#include "data_test_support.h"

namespace arete::data {
namespace {

std::vector<std::vector<int64_t>> walk(DataLoader& loader) {
  std::vector<std::vector<int64_t>> batches;
  for (const Batch& b : loader) {
    batches.push_back(b.input().to_vector<int64_t>());
    EXPECT_TRUE(equal(b.target(), b.input() * 10));
  }
  return batches;
}

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

}  // namespace
}  // namespace arete::data
