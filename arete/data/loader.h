// Batches from a data set: shuffled, prefetched by worker threads, in a fixed order, resumable.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "arete/data/batch_maker.h"
#include "arete/data/sampler.h"

namespace arete::data {

struct DataLoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false;
  SamplerPtr sampler = nullptr;  ///< instead of shuffle
  int num_workers = 0;           ///< threads; 0: batches are made when asked for
  int prefetch_factor = 2;       ///< batches each worker may be ahead
  bool drop_last = false;        ///< leave out a last batch that is not full
  /// Of a generator of the loader's own. Without it each epoch begins with numbers from the
  /// program's (manual_seed()).
  std::optional<uint64_t> seed = std::nullopt;
  Transform transform = nullptr;
  Collate collate_fn = nullptr;
  /// Batches are put into page-locked memory by those who make them, from where a GPU fetches them
  /// by itself. Without a GPU nothing happens.
  bool pin_memory = false;
  /// Batches arrive there, copied on a stream of their own; as soon as workers have the next ones
  /// their copies run beside the work on the one before. With a GPU, pin_memory is implied.
  std::optional<Device> device = std::nullopt;
  bool in_order = true;  ///< false: with workers, batches come as soon as they are made
};

/// Where a loader stands, to go on later, also with Python's loader: the next batch is number
/// `batch` of epoch `epoch`.
struct LoaderState {
  int64_t epoch = 0, batch = 0;
  /// Where the loader's generator was when the epoch began. Absent between the epochs of a loader
  /// that draws from the program's.
  std::optional<Generator::State> generator = std::nullopt;
  /// Batches after `batch` that came before it (without in_order), sorted.
  std::vector<int64_t> later = {};
  bool operator==(const LoaderState&) const = default;
};

/// Where a batch could not be made: its number, the example (-1: at none of them) and the worker
/// (-1: none, it was the loop).
struct LoaderFailure {
  int64_t batch = -1, example = -1;
  int worker = -1;
};

/// Who waited for whom during the last epoch, in seconds.
struct LoaderStats {
  double consumer_wait = 0;  ///< the training loop waited for a batch, or made it without workers
  double worker_wait = 0;    ///< workers waited because enough batches were ready
};

/// Each begin() walks one epoch and moves to the next at its end. Batches come in the sampler's
/// order, and with the same random numbers (Note [Random numbers of an epoch]), whatever the number
/// of workers; with the same seed, Python's loader gives the same ones. An exception in a worker is
/// thrown where its batch would have come, one of Arete's with the example and the worker in its
/// message; the position is then still before that batch, and the next begin() tries it again.
/// Workers run tensor loops inline, the cores belong to the training thread; they live as long as
/// the loader.
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
  /// The next begin() starts there. ValueError if the batch number is past the epoch's end, or the
  /// state is within an epoch and does not say where the generator was.
  void load_state(LoaderState s);
  LoaderStats stats() const;
  /// Of the latest exception that the loop threw.
  LoaderFailure failure() const;

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
