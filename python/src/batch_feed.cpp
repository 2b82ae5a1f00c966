#include "batch_feed.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

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
  explicit CopyAhead(Device device) : device_(device.resolved()) {
    if (device_.is_cuda()) stream_.emplace(0, device_.index);
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
    const int number = free_event();
    cuda::Event& event = at(number);
    event.record(*stream_);
    return {std::move(tensors), number};
  }

  // Has the calling thread's stream wait for a copy. The event may be recorded anew from then on.
  void await(int event) {
    if (event < 0) return;
    cuda::current_stream(device_.index).wait_event(at(event));
    const std::lock_guard lock(mutex_);
    free_.push_back(event);
  }

 private:
  int free_event() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      events_.emplace_back();
      return int(events_.size()) - 1;
    }
    const int event = free_.back();
    free_.pop_back();
    return event;
  }
  cuda::Event& at(int event) {
    const std::lock_guard lock(mutex_);
    return events_[size_t(event)];
  }

  Device device_;
  std::optional<cuda::Stream> stream_;
  std::mutex mutex_;                // a prefetcher's thread copies while the loop awaits
  std::deque<cuda::Event> events_;  // which stay where they are
  std::vector<int> free_;
};

// Waits like a queue of Python's: what signals have to say is heard. `done(seconds)` waits so long
// for what is wanted. False after `timeout` seconds (0: never) in which the pool made nothing.
template <class Done>
bool wait_until(const data::WorkerPool& pool, double timeout, Done done) {
  if (done(0)) return true;  // mostly it is there: the interpreter's lock need not change hands
  double last = now();
  for (int64_t seen = pool.finished();;) {
    const double left = timeout > 0 ? last + timeout - now() : 1;
    if (left <= 0) return false;
    {
      const WithoutGil free;
      if (done(std::min(left, 0.1))) return true;
    }
    if (PyErr_CheckSignals() != 0) nb::raise_python_error();
    if (const int64_t count = pool.finished(); count != seen) {
      seen = count;
      last = now();
    }
  }
}

// Seconds of waiting in an epoch. Outlives the feed.
struct FeedWaits {
  std::atomic<double> consumer = 0;  // the loop, for batches on the device
  std::atomic<double> loader = 0;    // batches on the device, for the loop
  std::atomic<double> worker = 0;    // the feed, for workers
};

// Note [Feeding a loop]
// Code that runs once in a training step is cold: a dozen functions of Python and a few calls of
// the driver are a share of a host-bound step (docs/benchmarks.md, Training from files). So a
// thread without the interpreter's lock takes the batches of a loader's own threads and starts
// their copies, and the loop takes what is there in one call. As in Note [Waking workers], the loop
// wakes the thread only where it must.

// The batches of an epoch in order, on a device, up to `ahead` of them before they are asked for.
class BatchFeed {
 public:
  // Batches `first` to `end` - 1 of the pool's epoch.
  BatchFeed(data::WorkerPool& pool, int64_t epoch, int64_t first, int64_t end, CopyAhead& copies,
            int ahead, double timeout)
      : pool_(pool),
        copies_(copies),
        epoch_(epoch),
        first_(first),
        end_(end),
        ahead_(size_t(ahead)),
        timeout_(timeout),
        thread_([this] { work(); }) {}
  ~BatchFeed() { close(); }

  // Ends the thread.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    room_.notify_one();
    const WithoutGil free;
    if (thread_.joinable()) thread_.join();
  }

  // A list of tensors, or 0 after the last one; -1 and -2 are wait_for's. Throws what making the
  // batch threw.
  nb::object next() {
    const profile::RecordFunction span("enumerate(DataLoader)#BatchFeed.next");
    const double asked = now();
    std::optional<Ready> got;
    int64_t code = 0;
    bool wake = false;
    // Lets the mutex go before the interpreter's lock is taken again.
    const auto arrives = [&](double seconds) {
      std::unique_lock lock(mutex_);
      const auto is_there = [&] { return !batches_.empty() || ended_; };
      if (seconds > 0 && !is_there())
        arrived_.wait_for(lock, std::chrono::duration<double>(seconds), is_there);
      if (batches_.empty()) {
        code = gone_ ? -2 : 0;
        return ended_;
      }
      got = std::move(batches_.front());
      batches_.pop_front();
      wake = batches_.empty() || sleeps_;
      return true;
    };
    if (!wait_until(pool_, timeout_, arrives)) return nb::int_(-1);
    if (!got) return nb::int_(code);
    if (wake) room_.notify_one();
    Ready& batch = *got;
    if (batch.error) std::rethrow_exception(batch.error);
    copies_.await(batch.event);
    const double given = now();
    if (batch.since < asked) waits_->loader += asked - std::max(batch.since, given_);
    waits_->consumer += given - asked;
    given_ = given;
    return nb::cast(std::move(batch.tensors));
  }

  std::shared_ptr<FeedWaits> waits() const { return waits_; }

 private:
  struct Ready {
    std::vector<Tensor> tensors;
    int event = -1;
    double since = 0;
    std::exception_ptr error;
  };

  void work() {
    for (int64_t number = first_; number < end_ && !stop_; ++number) {
      Ready ready;
      if (!wait_for_room()) break;
      if (!wait_for_batch(number)) break;
      try {
        CopyAhead::Copied copied = copies_.copy(pool_.take(number));
        ready.tensors = std::move(copied.tensors);
        ready.event = copied.event;
      } catch (...) {
        ready.error = std::current_exception();
      }
      ready.since = now();
      const bool failed = bool(ready.error);
      {
        const std::lock_guard lock(mutex_);
        batches_.push_back(std::move(ready));
      }
      arrived_.notify_one();
      if (failed) break;
    }
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    arrived_.notify_one();
  }

  // False if there will be none.
  bool wait_for_room() {
    std::unique_lock lock(mutex_);
    for (int looks = 0; !stop_ && batches_.size() >= ahead_; ++looks) {
      sleeps_ = looks >= data::kLooks;
      if (sleeps_)
        room_.wait(lock);
      else
        room_.wait_for(lock, data::kLook);
    }
    sleeps_ = false;
    return !stop_;
  }

  bool wait_for_batch(int64_t number) {
    using State = data::WorkerPool::State;
    const double begin = now();
    State state = State::pending;
    while (state == State::pending && !stop_) state = pool_.wait(epoch_, number, 0.01);
    waits_->worker += now() - begin;
    if (state == State::gone) {
      const std::lock_guard lock(mutex_);
      gone_ = true;
    }
    return state == State::ready;
  }

  data::WorkerPool& pool_;
  CopyAhead& copies_;
  const int64_t epoch_, first_, end_;
  const size_t ahead_;
  const double timeout_;
  const std::shared_ptr<FeedWaits> waits_ = std::make_shared<FeedWaits>();
  double given_ = 0;  // when the loop got the last one

  std::mutex mutex_;
  std::condition_variable arrived_, room_;
  std::deque<Ready> batches_;
  std::atomic<bool> stop_ = false;
  bool sleeps_ = false, ended_ = false, gone_ = false;
  std::thread thread_;
};

}  // namespace

int64_t wait_for(const data::WorkerPool& pool, int64_t epoch, int64_t number, double timeout) {
  using State = data::WorkerPool::State;
  State state = State::pending;
  const auto done = [&](double seconds) {
    state = pool.wait(epoch, number, seconds);
    return state != State::pending;
  };
  if (!wait_until(pool, timeout, done)) return -1;
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
      .def_prop_ro("consumer_wait", [](const FeedWaits& w) { return w.consumer.load(); })
      .def_prop_ro("loader_wait", [](const FeedWaits& w) { return w.loader.load(); })
      .def_prop_ro("worker_wait", [](const FeedWaits& w) { return w.worker.load(); });
  nb::class_<BatchFeed>(m, "_BatchFeed", nb::is_weak_referenceable())
      .def(nb::init<data::WorkerPool&, int64_t, int64_t, int64_t, CopyAhead&, int, double>(),
           nb::keep_alive<1, 2>(), nb::keep_alive<1, 6>())
      .def("next", &BatchFeed::next)
      .def("close", &BatchFeed::close)
      .def_prop_ro("waits", &BatchFeed::waits);
}

}  // namespace arete::python
