// Threads that make numbered batches ahead of the one who takes them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "arete/core/generator.h"
#include "arete/data/dataset.h"

namespace arete::data {

/// Note [Waking workers]
/// Waking a thread is a call of the system that its waker pays for, and the one who takes batches
/// is a training loop. A thread without a task therefore looks for one by itself every kLook,
/// kLooks times, before it sleeps; while plenty of batches are ready nobody wakes it.
inline constexpr std::chrono::milliseconds kLook(1);
inline constexpr int kLooks = 50;

/// Calls f(0), ..., f(n - 1), in any order and from several threads, and returns when all have
/// returned. If some threw, what the first of them threw is thrown.
using ForEach = std::function<void(int64_t n, const std::function<void(int64_t)>& f)>;

/// What batch `number` of an epoch draws from, whoever makes it and wherever a loop was resumed.
/// The 2^32 blocks from 0 on are left to what a worker draws before its first batch.
constexpr Generator::State stream_of_batch(uint64_t seed, int64_t number) {
  return {seed, (uint64_t(number) + 1) << 32};
}

/// Makes a batch of the examples `indices`; the generator is the worker's own. What needs no random
/// numbers may be shared with other workers by `for_each`. Called by several threads at once.
using BatchMaker =
    std::function<Batch(IntList indices, Generator& generator, const ForEach& for_each)>;

/// Threads, each with a queue of tasks and a generator of its own, which is seeded for each batch.
/// Who submits a task says which worker is to do it. In a maker's
/// for_each() they help each other, the batch with the lowest number first: when an epoch begins,
/// its first batch is there long before a single worker could have made it. Workers run tensor
/// loops inline, the cores belong to the training thread. The functions may be called from any
/// thread.
class WorkerPool {
 public:
  explicit WorkerPool(int workers);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// Forgets all tasks and results and begins an epoch, whose number it returns (1, 2, ...). A
  /// batch draws from stream_of_batch(`seed`, its number).
  int64_t start(BatchMaker maker, uint64_t seed);
  /// Puts batch `number` at the end of a worker's queue.
  void submit(int worker, int64_t number, std::vector<int64_t> indices);
  /// The rest of an epoch's batches at once, instead of submit(): the first `size` indices of
  /// `order` are batch `first`, and so on; the last one may be shorter. Worker n makes the batches
  /// n, n + workers, .... At most `ahead` of them are under way or waiting to be taken.
  void submit_all(std::vector<int64_t> order, int64_t size, int64_t ahead, int64_t first = 0);

  enum class State {
    ready,    ///< the batch can be taken
    pending,  ///< not yet
    gone      ///< the epoch is not the present one, or the pool is closed
  };
  static constexpr int64_t any = -1;
  /// Waits until batch `number` is there, or any one: then `number` becomes that one's. `pending`
  /// after so many seconds; with 0 it never waits.
  State wait(int64_t epoch, int64_t& number, double seconds) const;
  /// A batch for which wait() said `ready`; throws what its making threw.
  Batch take(int64_t number);
  /// How many batches of the epoch have been finished.
  int64_t finished() const;
  /// Seconds that the workers together have waited for tasks of the epoch, from its start to their
  /// latest task. Stays when another epoch begins.
  std::shared_ptr<const std::atomic<double>> waited() const;

  /// Ends the threads. Waits for what they are doing just now, but not longer than a few seconds:
  /// what hangs in a file system is left to itself.
  void close();

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace arete::data
