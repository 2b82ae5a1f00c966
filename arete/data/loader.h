// Batches from a data set: shuffled, prefetched by worker threads, in a fixed order, resumable.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>

#include "arete/data/dataset.h"
#include "arete/data/sampler.h"

namespace arete::data {

/// Changes one example (augmentation). The generator is seeded by loader seed, epoch and index, so
/// results do not depend on the number of workers.
using Transform = std::function<Example(Example, Generator&)>;

struct DataLoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false;
  SamplerPtr sampler = nullptr;  ///< instead of shuffle
  int num_workers = 0;           ///< threads; 0: batches are made when asked for
  int prefetch_factor = 2;       ///< batches each worker may be ahead
  bool drop_last = false;        ///< leave out a last batch that is not full
  uint64_t seed = 0;
  Transform transform = nullptr;
  std::function<Batch(const std::vector<Example>&)> collate_fn = nullptr;
  /// Batches are put into page-locked memory by those who make them, from where a GPU fetches them
  /// by itself. Without a GPU nothing happens.
  bool pin_memory = false;
  /// Batches arrive there, copied on a stream of their own; as soon as workers have the next one
  /// its copy runs beside the work on the one before. With a GPU, pin_memory is implied.
  std::optional<Device> device = std::nullopt;
};

/// Where a loader stands, to go on later: the next batch is number `batch` of epoch `epoch`.
struct LoaderState {
  int64_t epoch = 0, batch = 0;
  bool operator==(const LoaderState&) const = default;
};

/// Who waited for whom during the last epoch, in seconds.
struct LoaderStats {
  double consumer_wait = 0;  ///< the training loop waited for a batch, or made it without workers
  double worker_wait = 0;    ///< workers waited because enough batches were ready
};

/// Each begin() walks one epoch and moves to the next at its end. Batches come in the sampler's
/// order whatever the number of workers. An exception in a worker is thrown where its batch would
/// have come; the position is then still before that batch, and the next begin() tries it again.
/// Workers run tensor loops inline, the cores belong to the training thread.
class DataLoader {
 public:
  DataLoader(DatasetPtr dataset, DataLoaderOptions options = {});
  ~DataLoader();
  DataLoader(DataLoader&&) noexcept;
  DataLoader& operator=(DataLoader&&) noexcept;

  /// Batches in an epoch.
  int64_t size() const;
  const Dataset& dataset() const;

  /// The position after the batch that the loop body is working on.
  LoaderState state() const;
  /// The next begin() starts there. ValueError if the batch number is past the epoch's end.
  void load_state(LoaderState s);
  LoaderStats stats() const;

  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using iterator_category = std::input_iterator_tag;
    explicit Iterator(DataLoader* loader) : loader_(loader) { advance(); }
    const Batch& operator*() const { return batch_; }
    const Batch* operator->() const { return &batch_; }
    Iterator& operator++() {
      advance();
      return *this;
    }
    bool operator==(std::default_sentinel_t) const { return !loader_; }

   private:
    void advance();
    DataLoader* loader_;
    Batch batch_;
  };
  /// Starts (or resumes) the epoch; an epoch left early is abandoned.
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace arete::data
