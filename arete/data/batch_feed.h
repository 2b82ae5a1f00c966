// Batches on their way to a device.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "arete/data/worker_pool.h"
#include "arete/device/cuda.h"

namespace arete::data {

/// Tensors that are being copied to a device.
struct Copied {
  std::vector<Tensor> tensors;
  std::optional<cuda::Event> done;  ///< behind the copies, where they run beside other work
  /// Has the calling thread's stream wait for the copies.
  void await() const;
};

/// Copies to a device on a stream of their own. From any thread.
class CopyAhead {
 public:
  explicit CopyAhead(Device device);
  Copied copy(std::vector<Tensor> tensors) const;

 private:
  Device device_;
  std::optional<cuda::Stream> stream_;
};

/// Seconds of waiting in an epoch. Outlives the feed.
struct FeedWaits {
  std::atomic<double> consumer = 0;  ///< the loop, for batches on the device
  std::atomic<double> loader = 0;    ///< batches on the device, for the loop
  std::atomic<double> worker = 0;    ///< the feed, for workers
};

/// Note [Feeding a loop]
/// Code that runs once in a training step is cold: a dozen functions of Python and a few calls of
/// the driver are a share of a host-bound step (docs/benchmarks.md, Training from files). So a
/// thread takes the batches of a pool and starts their copies, and the loop takes what is there in
/// one call. As in Note [Waking workers], the loop wakes the thread only where it must.

/// Batches of a pool's epoch on a device, up to `ahead` of them before they are asked for. After
/// one that could not be made comes the end.
class BatchFeed {
 public:
  /// With `in_order` batches are given in the order in which their numbers were added, else as they
  /// come.
  BatchFeed(WorkerPool& pool, int64_t epoch, bool in_order, const CopyAhead& copies, int ahead);
  /// Ends the thread.
  ~BatchFeed();
  BatchFeed(const BatchFeed&) = delete;
  BatchFeed& operator=(const BatchFeed&) = delete;

  /// Batches that are to be given; `last`: the epoch has no more.
  void add(const std::vector<int64_t>& numbers, bool last);

  enum class State {
    ready,    ///< take() gives a batch
    pending,  ///< not yet
    over,     ///< there are no more
    gone      ///< the pool's epoch is another one by now, or the pool was closed
  };
  /// Waits for the next batch; `pending` after so many seconds. For one thread, like take().
  State wait(double seconds);
  struct Given {
    int64_t number = 0;
    Made made;
  };
  /// The calling thread's stream waits for the copy.
  Given take();

  void close();
  std::shared_ptr<FeedWaits> waits() const { return waits_; }

 private:
  struct Ready {
    int64_t number = 0;
    Made made;
    Copied copied;
    double since = 0;
  };
  void work();
  bool wait_for_turn(int64_t& number);
  bool wait_for_batch(int64_t& number);

  WorkerPool& pool_;
  const CopyAhead& copies_;
  const int64_t epoch_;
  const bool in_order_;
  const size_t ahead_;
  const std::shared_ptr<FeedWaits> waits_ = std::make_shared<FeedWaits>();
  double asked_ = 0, given_ = 0;  // when the loop came for this batch, and got the last one

  std::mutex mutex_;
  std::condition_variable arrived_, room_;
  std::deque<int64_t> numbers_;
  std::deque<Ready> batches_;
  std::atomic<bool> stop_ = false;
  bool last_ = false, sleeps_ = false, ended_ = false, gone_ = false;
  std::thread thread_;
};

}  // namespace arete::data
