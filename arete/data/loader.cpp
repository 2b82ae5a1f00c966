#include "arete/data/loader.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "arete/base/thread_pool.h"
#include "arete/core/cuda.h"
#include "arete/core/modes.h"

namespace arete::data {

namespace {
double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
}  // namespace

// A batch on its way to the device, one ahead of the loop.
struct Staged {
  Batch batch;
  LoaderState after;  // the position once the loop has it
  std::optional<cuda::Event> copied;
  std::exception_ptr error;
  bool end = false;
};

struct DataLoader::Impl {
  DatasetPtr dataset;
  DataLoaderOptions options;
  SamplerPtr sampler;

  // The epoch under way.
  std::vector<int64_t> order;
  LoaderState position;  // next batch to take from the workers
  bool running = false;
  std::optional<Staged> staged;  // with a device
  LoaderState handed;            // with a device: next batch to hand out
  std::optional<cuda::Stream> side;
  LoaderStats stats;

  // Workers: claim batch numbers in turn, put results here, stay within `window` of the consumer.
  struct Result {
    Batch batch;
    std::exception_ptr error;
  };
  std::mutex mutex;
  std::condition_variable ready, space;
  std::map<int64_t, Result> results;
  int64_t next_claim = 0;
  bool stop = false;
  std::vector<std::thread> workers;

  ~Impl() { join(); }

  int64_t batches() const {
    const int64_t n = sampler->size(), b = options.batch_size;
    return options.drop_last ? n / b : (n + b - 1) / b;
  }

  bool pins() const {
    return (options.pin_memory || (options.device && options.device->is_cuda())) &&
           cuda::is_available();
  }

  Batch make(int64_t number) const {
    Batch batch = make_on_host(number);
    if (pins())
      for (Tensor& t : batch)
        if (t.device().is_cpu()) t = t.pin_memory();
    return batch;
  }

  Batch make_on_host(int64_t number) const {
    const NoGradGuard no_grad;
    const int64_t first = number * options.batch_size;
    const int64_t last = std::min<int64_t>(first + options.batch_size, int64_t(order.size()));
    const IntList indices(order.data() + first, size_t(last - first));
    if (!options.transform && !options.collate_fn) return dataset->get_batch(indices);
    const auto example = [&](int64_t k) {
      const int64_t i = indices[size_t(k)];
      Example e = dataset->get(i);
      if (!options.transform) return e;
      Generator g(options.seed ^ (uint64_t(position.epoch) << 40) ^
                  uint64_t(i) * 0x9e3779b97f4a7c15u);
      return options.transform(std::move(e), g);
    };
    const auto n = int64_t(indices.size());
    if (!options.collate_fn) return collate(n, example, pins());
    std::vector<Example> examples;
    for (int64_t k = 0; k < n; ++k) examples.push_back(example(k));
    return options.collate_fn(examples);
  }

  void work() {
    const SerialRegion serial;
    const int64_t total = batches();
    const int64_t window = int64_t(options.num_workers) * options.prefetch_factor;
    std::unique_lock lock(mutex);
    while (true) {
      const double t = seconds();
      space.wait(lock, [&] {
        return stop || next_claim >= total || next_claim < position.batch + window;
      });
      stats.worker_wait += seconds() - t;
      if (stop || next_claim >= total) return;
      const int64_t mine = next_claim++;
      lock.unlock();
      Result r;
      try {
        r.batch = make(mine);
      } catch (...) {
        r.error = std::current_exception();
      }
      lock.lock();
      results.emplace(mine, std::move(r));
      ready.notify_all();
    }
  }

  void join() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    space.notify_all();
    for (std::thread& t : workers) t.join();
    workers.clear();
    results.clear();
    stop = false;
  }

  // Takes the next batch and starts its copy.
  void stage() {
    Staged s;
    try {
      s.end = !take(s.batch);
      if (!s.end) {
        const NoGradGuard no_grad;
        std::optional<cuda::StreamGuard> guard;
        if (options.device->is_cuda()) {
          if (!side) side.emplace(0, options.device->index);
          guard.emplace(*side);
        }
        for (Tensor& t : s.batch) t = t.to(*options.device, true);
        if (guard) s.copied = side->record_event();
      }
    } catch (...) {
      s.error = std::current_exception();
    }
    s.after = position;
    staged = std::move(s);
  }

  // The next batch, or the end, can be taken without waiting: only then is it staged ahead of a
  // loop that has work to begin with.
  bool is_ready() {
    if (options.num_workers == 0) return false;
    const std::lock_guard lock(mutex);
    return position.batch >= batches() || results.contains(position.batch);
  }

  bool next(Batch& batch) {
    if (!options.device) return take(batch);
    if (!staged) stage();
    Staged s = std::move(*staged);
    staged.reset();
    if (s.error) std::rethrow_exception(s.error);
    handed = s.after;
    if (s.end) return false;
    if (is_ready()) stage();
    if (s.copied) cuda::current_stream(options.device->index).wait_event(*s.copied);
    batch = std::move(s.batch);
    return true;
  }

  void start() {
    join();
    if (staged && !staged->end) {
      // What was taken ahead was not handed out: the epoch was left early.
      position = handed;
      running = true;
    }
    staged.reset();
    if (running) {
      // The last epoch was left early: a new begin() is a new epoch.
      ++position.epoch;
      position.batch = 0;
    }
    order = sampler->order(position.epoch);
    ARETE_CHECK(int64_t(order.size()) == sampler->size(),
                ValueError("DataLoader", "the sampler's order has another length than it says")
                    .expected(std::to_string(sampler->size()) + " indices")
                    .got(std::to_string(order.size())));
    next_claim = position.batch;
    stats = {};
    running = true;
    for (int i = 0; i < options.num_workers; ++i) workers.emplace_back([this] { work(); });
  }

  // False at the end of the epoch.
  bool take(Batch& batch) {
    if (position.batch >= batches()) {
      join();
      running = false;
      ++position.epoch;
      position.batch = 0;
      return false;
    }
    if (options.num_workers == 0) {
      // After an error the position is still that of the batch which could not be made.
      running = false;
      const double t = seconds();
      batch = make(position.batch);
      stats.consumer_wait += seconds() - t;
      running = true;
      ++position.batch;
      return true;
    }
    Result r;
    {
      std::unique_lock lock(mutex);
      const double t = seconds();
      ready.wait(lock, [&] { return results.contains(position.batch); });
      stats.consumer_wait += seconds() - t;
      r = std::move(results.extract(position.batch).mapped());
      if (!r.error) ++position.batch;
    }
    space.notify_all();
    if (r.error) {
      join();
      running = false;
      std::rethrow_exception(r.error);
    }
    batch = std::move(r.batch);
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
  impl_->sampler = options.sampler;
  if (!impl_->sampler) {
    if (options.shuffle)
      impl_->sampler = std::make_shared<RandomSampler>(dataset->size(), options.seed);
    else
      impl_->sampler = std::make_shared<SequentialSampler>(dataset->size());
  }
  impl_->dataset = std::move(dataset);
  impl_->options = std::move(options);
  if (auto& device = impl_->options.device) device = device->resolved();
}

DataLoader::~DataLoader() = default;
DataLoader::DataLoader(DataLoader&&) noexcept = default;
DataLoader& DataLoader::operator=(DataLoader&&) noexcept = default;

int64_t DataLoader::size() const { return impl_->batches(); }
const Dataset& DataLoader::dataset() const { return *impl_->dataset; }

LoaderState DataLoader::state() const {
  LoaderState s = impl_->options.device ? impl_->handed : impl_->position;
  if (s.batch >= impl_->batches()) s = {s.epoch + 1, 0};
  return s;
}

void DataLoader::load_state(LoaderState s) {
  ARETE_CHECK(s.epoch >= 0 && s.batch >= 0 && s.batch <= impl_->batches(),
              ValueError("DataLoader", "the saved position does not fit this data set")
                  .expected("a batch in 0.." + std::to_string(impl_->batches()))
                  .got("batch " + std::to_string(s.batch) + " of epoch " + std::to_string(s.epoch))
                  .hint("resume with the batch size and data the run began with"));
  impl_->join();
  impl_->running = false;
  impl_->staged.reset();
  impl_->position = impl_->handed = s;
}

LoaderStats DataLoader::stats() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->stats;
}

DataLoader::Iterator DataLoader::begin() {
  impl_->start();
  return Iterator(this);
}

void DataLoader::Iterator::advance() {
  if (loader_ && !loader_->impl_->next(batch_)) loader_ = nullptr;
}

}  // namespace arete::data
