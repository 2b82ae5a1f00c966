#include "batch_feed.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>

#include <chrono>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>

#include "arete/core/cuda.h"
#include "arete/profile/profiler.h"
#include "bindings.h"
#include "caster.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace arete::python {

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Copies to a device on a stream of their own, each behind an event that is used again.
class CopyAhead {
 public:
  explicit CopyAhead(Device device) : device_(device) {
    if (device.is_cuda()) stream_.emplace(0, device.index);
  }

  struct Copied {
    std::vector<Tensor> tensors;
    int event;
  };
  // The tensors on the device, and the number of the event that says when they are there.
  Copied copy(std::vector<Tensor> tensors) {
    if (!stream_) {
      for (Tensor& t : tensors) t = t.to(device_, true);
      return {std::move(tensors), -1};
    }
    for (Tensor& t : tensors)
      if (t.device().is_cpu()) t = t.pin_memory();  // what is pinned stays as it is
    const cuda::StreamGuard guard(*stream_);
    for (Tensor& t : tensors) t = t.to(device_, true);
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      events_.emplace_back();
      free_.push_back(int(events_.size()) - 1);
    }
    const int event = free_.back();
    free_.pop_back();
    events_[size_t(event)].record(*stream_);
    return {std::move(tensors), event};
  }

  // Has the calling thread's stream wait for a copy. The event may be recorded anew from then on.
  void await(int event) {
    if (event < 0) return;
    const std::lock_guard lock(mutex_);
    cuda::current_stream(device_.index).wait_event(events_[size_t(event)]);
    free_.push_back(event);
  }

 private:
  Device device_;
  std::optional<cuda::Stream> stream_;
  std::mutex mutex_;  // a prefetcher's thread copies while the loop awaits
  std::deque<cuda::Event> events_;
  std::vector<int> free_;
};

// Seconds of waiting in an epoch. Outlives the feed.
struct FeedWaits {
  double consumer = 0;  // the loop, for batches on the device
  double loader = 0;    // batches on the device, for the loop
  double worker = 0;    // the feed, for workers
};

// Note [Feeding a loop]
// Code that runs once in a training step is cold, and a dozen cold functions of Python are dearer
// than what they do. So what a DevicePrefetcher does for each batch of a loader's own threads is
// one call here.

// The batches of an epoch in order, on a device; the copies of up to `ahead` later ones that are
// ready are started before a batch is given.
class BatchFeed {
 public:
  // Batches `first` to `end` - 1 of the pool's epoch.
  BatchFeed(data::WorkerPool& pool, int64_t epoch, int64_t first, int64_t end, CopyAhead& copies,
            int ahead, double timeout)
      : pool_(pool),
        copies_(copies),
        epoch_(epoch),
        next_(first),
        end_(end),
        ahead_(size_t(ahead)),
        timeout_(timeout) {}

  // A list of tensors, or 0 after the last one; -1 and -2 are wait_for's. Throws what making the
  // batch threw.
  nb::object next() {
    const double asked = now();
    if (was_ready_) waits_->loader += asked - given_;
    was_ready_ = false;
    if (batches_.empty()) {
      if (next_ == end_) return nb::int_(0);
      const int64_t got = fetch(timeout_);
      if (got < 0) return nb::int_(got);
    }
    Ready batch = std::move(batches_.front());
    batches_.pop_front();
    if (batch.error) std::rethrow_exception(batch.error);
    copies_.await(batch.event);
    while (batches_.size() < ahead_ && next_ < end_ &&
           !(batches_.size() && batches_.back().error) && is_ready() && fetch(0) >= 0) {
    }
    was_ready_ = !batches_.empty();
    given_ = now();
    waits_->consumer += given_ - asked;
    return nb::cast(std::move(batch.tensors));
  }

  std::shared_ptr<FeedWaits> waits() const { return waits_; }

 private:
  bool is_ready() const {
    int64_t number = next_;
    return pool_.wait(epoch_, number, 0) != data::WorkerPool::State::pending;
  }

  struct Ready {
    std::vector<Tensor> tensors;
    int event = -1;
    std::exception_ptr error;
  };

  // Starts the copy of the next batch. What wait_for() says.
  int64_t fetch(double timeout) {
    const profile::RecordFunction span("enumerate(DataLoader)#BatchFeed.next");
    const double begin = now();
    const int64_t got = wait_for(pool_, epoch_, next_, timeout);
    waits_->worker += now() - begin;
    if (got < 0) return got;
    ++next_;
    const WithoutGil free;
    Ready ready;
    try {
      CopyAhead::Copied copied = copies_.copy(pool_.take(got));
      ready.tensors = std::move(copied.tensors);
      ready.event = copied.event;
    } catch (...) {
      ready.error = std::current_exception();
    }
    batches_.push_back(std::move(ready));
    return got;
  }

  data::WorkerPool& pool_;
  CopyAhead& copies_;
  const int64_t epoch_;
  int64_t next_;
  const int64_t end_;
  const size_t ahead_;
  const double timeout_;
  std::deque<Ready> batches_;
  const std::shared_ptr<FeedWaits> waits_ = std::make_shared<FeedWaits>();
  double given_ = 0;
  bool was_ready_ = false;
};

}  // namespace

int64_t wait_for(const data::WorkerPool& pool, int64_t epoch, int64_t number, double timeout) {
  using State = data::WorkerPool::State;
  State state = pool.wait(epoch, number, 0);  // mostly it is there: the lock need not change hands
  double last = now();
  int64_t seen = pool.finished();
  while (state == State::pending) {
    const double left = timeout > 0 ? last + timeout - now() : 1;
    if (left <= 0) return -1;
    {
      const WithoutGil free;
      state = pool.wait(epoch, number, std::min(left, 0.1));
    }
    if (state == State::pending && PyErr_CheckSignals() != 0) nb::raise_python_error();
    if (const int64_t count = pool.finished(); count != seen) {
      seen = count;
      last = now();
    }
  }
  return state == State::ready ? number : -2;
}

void bind_batch_feed(nb::module_& m) {
  nb::class_<CopyAhead>(m, "_CopyAhead")
      .def(nb::init<Device>())
      .def("copy",
           [](CopyAhead& c, std::vector<Tensor> tensors) {
             CopyAhead::Copied copied;
             {
               const WithoutGil free;
               copied = c.copy(std::move(tensors));
             }
             return std::pair(std::move(copied.tensors), copied.event);
           })
      .def("wait", &CopyAhead::await);
  nb::class_<FeedWaits>(m, "_FeedWaits")
      .def_ro("consumer_wait", &FeedWaits::consumer)
      .def_ro("loader_wait", &FeedWaits::loader)
      .def_ro("worker_wait", &FeedWaits::worker);
  nb::class_<BatchFeed>(m, "_BatchFeed")
      .def(nb::init<data::WorkerPool&, int64_t, int64_t, int64_t, CopyAhead&, int, double>(),
           nb::keep_alive<1, 2>(), nb::keep_alive<1, 6>())
      .def("next", &BatchFeed::next)
      .def_prop_ro("waits", &BatchFeed::waits);
}

}  // namespace arete::python
