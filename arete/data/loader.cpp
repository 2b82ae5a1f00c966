#include "arete/data/loader.h"

#include <algorithm>
#include <utility>

#include "arete/data/batch_feed.h"
#include "arete/data/clock_internal.h"
#include "arete/device/cuda.h"

namespace arete::data {

namespace {

// Waits without an end; `wait` is that of a pool or a feed.
template <class Wait>
auto wait_for(const Wait& wait) {
  auto state = wait(60.0);
  while (state == decltype(state)::pending) state = wait(60.0);
  return state;
}

constexpr int kAhead = 2;  // batches on the device before the loop wants them

}  // namespace

struct DataLoader::Impl {
  DatasetPtr dataset;
  DataLoaderOptions options;
  SamplerPtr sampler;
  BatchMaker maker;
  Generator own;    // with options.seed
  Generator batch;  // of batches that the loop makes

  LoaderState position;
  bool running = false;  // a loop is at `position`; else the next one begins there
  LoaderFailure failure;
  double consumer_wait = 0;

  // The epoch under way.
  std::vector<int64_t> order;
  uint64_t seed = 0;
  int64_t epoch = 0;  // its number in the pool
  std::optional<WorkerPool> pool;
  std::optional<CopyAhead> copies;
  std::optional<BatchFeed> feed;

  int64_t batches() const {
    const int64_t n = sampler->size(), b = options.batch_size;
    return options.drop_last ? n / b : (n + b - 1) / b;
  }

  bool pins() const {
    return (options.pin_memory || (options.device && options.device->is_cuda())) &&
           cuda::is_available();
  }

  LoaderState next_epoch() const {
    return {position.epoch + 1, 0, options.seed ? std::optional(own.state()) : std::nullopt, {}};
  }

  void start() {
    feed.reset();
    if (std::exchange(running, false)) position = next_epoch();  // the last one was left early
    // An epoch that is resumed leaves the program's numbers alone.
    Generator resumed;
    Generator& source = options.seed ? own : position.generator ? resumed : default_generator();
    if (position.generator) source.set_state(*position.generator);
    position.generator = source.state();
    seed = random_seed(source);
    order = sampler->order(position.epoch, source);
    ARETE_CHECK(int64_t(order.size()) == sampler->size(),
                ValueError("DataLoader", "the sampler's order has another length than it says")
                    .expected(std::to_string(sampler->size()) + " indices")
                    .got(std::to_string(order.size())));
    consumer_wait = 0;
    running = true;
    if (options.device && !copies) copies.emplace(*options.device);
    if (options.num_workers == 0) return;
    if (!pool) pool.emplace(options.num_workers);
    epoch = pool->start(maker, seed);
    const auto end =
        order.begin() + std::min<int64_t>(batches() * options.batch_size, int64_t(order.size()));
    const int64_t first =
        std::min(position.batch * options.batch_size, int64_t(end - order.begin()));
    pool->submit_all({order.begin() + first, end}, options.batch_size,
                     int64_t(options.num_workers) * options.prefetch_factor, position.batch,
                     position.later);
    if (!options.device) return;
    std::vector<int64_t> numbers;
    for (int64_t i = position.batch; i < batches(); ++i)
      if (!std::binary_search(position.later.begin(), position.later.end(), i))
        numbers.push_back(i);
    feed.emplace(*pool, epoch, options.in_order, *copies, kAhead);
    feed->add(numbers, true);
  }

  // The loop has this batch.
  void got(int64_t number) {
    auto& later = position.later;
    later.insert(std::upper_bound(later.begin(), later.end(), number), number);
    while (!later.empty() && later.front() == position.batch) {
      later.erase(later.begin());
      ++position.batch;
    }
  }

  // Number and batch.
  std::pair<int64_t, Made> take() {
    if (feed) {
      const auto state = wait_for([&](double seconds) { return feed->wait(seconds); });
      ARETE_ASSERT(state == BatchFeed::State::ready);
      BatchFeed::Given given = feed->take();
      return {given.number, std::move(given.made)};
    }
    if (options.num_workers > 0) {
      int64_t number = options.in_order ? position.batch : WorkerPool::any;
      const auto state =
          wait_for([&](double seconds) { return pool->wait(epoch, number, seconds); });
      ARETE_ASSERT(state == WorkerPool::State::ready);
      return {number, pool->take(number)};
    }
    const int64_t first = position.batch * options.batch_size,
                  n = std::min(options.batch_size, int64_t(order.size()) - first);
    Made made = make_batch(maker, IntList(order.data() + first, size_t(n)), seed, position.batch,
                           batch, one_by_one);
    if (copies && !made.error) {
      Copied copied = copies->copy(std::move(made.batch));
      copied.await();
      made.batch = std::move(copied.tensors);
    }
    return {position.batch, std::move(made)};
  }

  // False at the end of the epoch.
  bool next(Batch& result) {
    if (position.batch >= batches()) {
      position = next_epoch();
      running = false;
      return false;
    }
    const double asked = now();
    running = false;  // unless this goes well
    auto [number, made] = take();
    consumer_wait += now() - asked;
    std::string place = "batch " + std::to_string(number);
    if (made.error) {
      feed.reset();
      failure = {number, made.example,
                 options.num_workers > 0 ? int(number % options.num_workers) : -1};
      if (failure.worker >= 0) place += ", worker " + std::to_string(failure.worker);
    }
    result = made.get(place);
    got(number);
    running = true;
    return true;
  }
};

DataLoader::DataLoader(DatasetPtr dataset, DataLoaderOptions options)
    : impl_(std::make_unique<Impl>()) {
  ARETE_CHECK(dataset != nullptr, ValueError("DataLoader", "the data set is null"));
  ARETE_CHECK(options.batch_size > 0,
              ValueError("DataLoader", "batch_size should be a positive integer value")
                  .got(std::to_string(options.batch_size)));
  ARETE_CHECK(options.num_workers >= 0,
              ValueError("DataLoader",
                         "num_workers option should be non-negative; use num_workers=0 "
                         "to disable threads"));
  ARETE_CHECK(options.prefetch_factor > 0,
              ValueError("DataLoader", "prefetch_factor must be positive"));
  ARETE_CHECK(!(options.sampler && options.shuffle),
              ValueError("DataLoader", "sampler option is mutually exclusive with shuffle"));
  Impl& l = *impl_;
  l.sampler = options.sampler;
  if (!l.sampler) {
    if (options.shuffle)
      l.sampler = std::make_shared<RandomSampler>(dataset->size());
    else
      l.sampler = std::make_shared<SequentialSampler>(dataset->size());
  }
  l.dataset = std::move(dataset);
  l.options = std::move(options);
  l.maker = batch_maker(l.dataset, l.options.transform, l.options.collate_fn, l.pins());
  if (l.options.seed) {
    l.own.manual_seed(*l.options.seed);
    l.position.generator = l.own.state();
  }
  if (auto& device = l.options.device) device = device->resolved();
}

DataLoader::~DataLoader() = default;
DataLoader::DataLoader(DataLoader&&) noexcept = default;
DataLoader& DataLoader::operator=(DataLoader&&) noexcept = default;

int64_t DataLoader::size() const { return impl_->batches(); }
const Dataset& DataLoader::dataset() const { return *impl_->dataset; }

LoaderState DataLoader::state() const {
  const Impl& l = *impl_;
  return l.running && l.position.batch >= l.batches() ? l.next_epoch() : l.position;
}

void DataLoader::load_state(LoaderState s) {
  Impl& l = *impl_;
  const auto refused = [&](const char* why) {
    return ValueError("DataLoader", why)
        .got("batch " + std::to_string(s.batch) + " of epoch " + std::to_string(s.epoch))
        .hint("resume with the batch size and data the run began with");
  };
  const std::vector<int64_t>& later = s.later;
  ARETE_CHECK(s.epoch >= 0 && s.batch >= 0 && s.batch <= l.batches() &&
                  std::is_sorted(later.begin(), later.end()) &&
                  (later.empty() || (later.front() > s.batch && later.back() < l.batches())),
              refused("the saved position does not fit this data set")
                  .expected("a batch in 0.." + std::to_string(l.batches())));
  ARETE_CHECK(s.generator || (s.batch == 0 && s.later.empty()),
              refused("the saved position does not say where the generator was"));
  l.feed.reset();
  l.running = false;
  l.position = std::move(s);
}

LoaderStats DataLoader::stats() const {
  return {impl_->consumer_wait, impl_->pool ? impl_->pool->waited()->load() : 0.0};
}

LoaderFailure DataLoader::failure() const { return impl_->failure; }

DataLoader::Iterator DataLoader::begin() {
  impl_->start();
  return Iterator(this);
}

void DataLoader::Iterator::advance() {
  if (loader_ && !loader_->impl_->next(batch_)) loader_ = nullptr;
}

}  // namespace arete::data
