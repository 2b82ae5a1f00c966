// Threads that make numbered batches ahead of the one who takes them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "arete/data/batch_maker.h"

namespace arete::data {

/// Note [Waking workers]
/// Waking a thread is a call of the system that its waker pays for, and the one who takes batches
/// is a training loop. A thread without a task therefore looks for one by itself every kLook,
/// kLooks times, before it sleeps; while plenty of batches are ready nobody wakes it.
inline constexpr std::chrono::milliseconds kLook(1);
inline constexpr int kLooks = 50;

/// Workers, each with a queue of tasks. Who submits a task says which worker is to do it. In a
/// maker's for_each() workers help each other, the batch with the lowest number first: when an
/// epoch begins, its first batch is there long before a single worker could have made it. The
/// pool's own threads run tensor loops inline, the cores belong to the training thread. The
/// functions may be called from any thread.
class WorkerPool {
 public:
  enum class Threads {
    own,   ///< the pool's: they make batches by the epoch's maker
    given  ///< the caller's: each asks next() for its tasks and says when they are finished
  };
  explicit WorkerPool(int workers, Threads threads = Threads::own);
  /// Waits for what its own threads are doing, unless close() was called before.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// Forgets all tasks and results and begins an epoch, whose number it returns (1, 2, ...). A
  /// batch draws from stream_of_batch(`seed`, its number).
  int64_t start(BatchMaker maker, uint64_t seed);
  /// Puts batch `number` at the end of a worker's queue.
  void submit(int worker, int64_t number, std::vector<int64_t> indices = {});
  /// The rest of an epoch's batches at once, instead of submit(): the first `size` indices of
  /// `order` are batch `first`, and so on, without those of the (sorted) numbers `without`; the
  /// last one may be shorter. Worker n makes the batches n, n + workers, .... At most `ahead` of
  /// them are under way or waiting to be taken.
  void submit_all(std::vector<int64_t> order, int64_t size, int64_t ahead, int64_t first = 0,
                  std::vector<int64_t> without = {});

  enum class State {
    ready,    ///< the batch can be taken
    pending,  ///< not yet
    gone      ///< the epoch is not the present one, or the pool is closed
  };
  static constexpr int64_t any = -1;
  /// Waits until batch `number` is there, or any one: then `number` becomes that one's. `pending`
  /// after so many seconds; with 0 it never waits.
  State wait(int64_t epoch, int64_t& number, double seconds) const;
  /// A batch for which wait() said `ready`.
  Made take(int64_t number);
  /// How many batches of the epoch have been finished.
  int64_t finished() const;
  /// Seconds that the workers together have waited for tasks of the epoch, from its start to their
  /// latest task. Stays when another epoch begins.
  std::shared_ptr<const std::atomic<double>> waited() const;

  struct Task {
    int64_t epoch = 0, number = 0;
    std::vector<int64_t> indices;
  };
  /// For threads that are not the pool's own: waits for a task of `worker`; nothing once the pool
  /// is closed, or without `wait` if there is none.
  std::optional<Task> next(int worker, bool wait = true);
  /// Batch `number` has been made, by a worker or by anyone else. Nothing happens if the epoch is
  /// over.
  void finish(int64_t epoch, int64_t number, Made made = {});

  /// Ends the threads. Waits for what its own are doing just now, but not longer than `seconds`:
  /// then what hangs in a file system, say, is left to itself.
  void close(double seconds = std::numeric_limits<double>::infinity());

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace arete::data
