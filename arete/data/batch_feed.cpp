#include "arete/data/batch_feed.h"

#include <algorithm>

#include "arete/data/clock_internal.h"

namespace arete::data {

CopyAhead::CopyAhead(Device device) : device_(device.resolved()) {
  if (device_.is_cuda()) stream_.emplace(0, device_.index);
}

Copied CopyAhead::copy(std::vector<Tensor> tensors) const {
  Copied copied;
  std::optional<cuda::StreamGuard> guard;
  if (stream_) {
    for (Tensor& t : tensors)
      if (t.device().is_cpu()) t = t.pin_memory();  // what is pinned stays as it is
    guard.emplace(*stream_);
  }
  for (Tensor& t : tensors) t = t.to(device_, true);
  if (stream_) copied.done = stream_->record_event();
  copied.tensors = std::move(tensors);
  return copied;
}

void Copied::await() const {
  if (done) cuda::current_stream(done->device()).wait_event(*done);
}

BatchFeed::BatchFeed(WorkerPool& pool, int64_t epoch, bool in_order, const CopyAhead& copies,
                     int ahead)
    : pool_(pool),
      copies_(copies),
      epoch_(epoch),
      in_order_(in_order),
      ahead_(size_t(ahead)),
      thread_([this] { work(); }) {}

BatchFeed::~BatchFeed() { close(); }

void BatchFeed::close() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  room_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void BatchFeed::add(const std::vector<int64_t>& numbers, bool last) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    numbers_.insert(numbers_.end(), numbers.begin(), numbers.end());
    last_ = last;
    wake = sleeps_ || batches_.empty();
  }
  if (wake) room_.notify_one();
}

BatchFeed::State BatchFeed::wait(double seconds) {
  if (asked_ == 0) asked_ = now();
  std::unique_lock lock(mutex_);
  const auto is_there = [&] { return !batches_.empty() || ended_; };
  if (seconds > 0 && !is_there())
    arrived_.wait_for(lock, std::chrono::duration<double>(seconds), is_there);
  if (!batches_.empty()) return State::ready;
  if (!ended_) return State::pending;
  return gone_ ? State::gone : State::over;
}

BatchFeed::Given BatchFeed::take() {
  Ready ready;
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    ARETE_ASSERT(!batches_.empty());
    ready = std::move(batches_.front());
    batches_.pop_front();
    wake = batches_.empty() || sleeps_;
  }
  if (wake) room_.notify_one();
  ready.copied.await();
  if (!ready.made.error) ready.made.batch = std::move(ready.copied.tensors);
  const double given = now();
  if (ready.since < asked_) waits_->loader += asked_ - std::max(ready.since, given_);
  waits_->consumer += given - asked_;
  given_ = given;
  asked_ = 0;
  return {ready.number, std::move(ready.made)};
}

void BatchFeed::work() {
  while (true) {
    Ready ready;
    if (!wait_for_turn(ready.number) || !wait_for_batch(ready.number)) break;
    try {
      ready.made = pool_.take(ready.number);
      if (!ready.made.error) ready.copied = copies_.copy(std::move(ready.made.batch));
    } catch (...) {
      ready.made.error = std::current_exception();
    }
    ready.since = now();
    const bool failed = bool(ready.made.error);
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

// For room and a number; false if there will be none.
bool BatchFeed::wait_for_turn(int64_t& number) {
  std::unique_lock lock(mutex_);
  const auto waits = [&] { return batches_.size() >= ahead_ || (numbers_.empty() && !last_); };
  for (int looks = 0; !stop_ && waits(); ++looks) {
    sleeps_ = looks >= kLooks;
    if (sleeps_)
      room_.wait(lock);
    else
      room_.wait_for(lock, kLook);
  }
  sleeps_ = false;
  if (stop_ || numbers_.empty()) return false;
  number = in_order_ ? numbers_.front() : WorkerPool::any;
  numbers_.pop_front();
  return true;
}

bool BatchFeed::wait_for_batch(int64_t& number) {
  using PoolState = WorkerPool::State;
  const double begin = now();
  PoolState state = PoolState::pending;
  while (state == PoolState::pending && !stop_) state = pool_.wait(epoch_, number, 0.01);
  waits_->worker += now() - begin;
  if (state == PoolState::gone) {
    const std::lock_guard lock(mutex_);
    gone_ = true;
  }
  return state == PoolState::ready;
}

}  // namespace arete::data
