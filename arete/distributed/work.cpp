#include "arete/distributed/work.h"

#include <chrono>
#include <string>
#include <thread>

#include "arete/distributed/call_internal.h"
#include "arete/distributed/store_internal.h"
#include "arete/prim/backend.h"
#include "arete/prim/recorder.h"

namespace arete::distributed {

// What was put off is done then, or has failed.
void Work::make() const {
  if (put_off_) put_off_->writable_data();
}

bool Work::is_completed() const {
  make();
  const std::lock_guard lock(mutex_);
  return done_ || (end_ && end_->is_done());
}

void Work::wait(std::optional<Milliseconds> timeout) {
  if (put_off_) {
    const prim::Capture* const capture = prim::putting_off();
    if (timeout || !capture || put_off_->promiser() != capture->promiser()) make();
    return;
  }
  if (end_) {
    if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
    prim::Backend& gpu = prim::backend_for(device_);
    const bool waits = timeout || on_host_;
    if (waits) check_no_capture(gpu);
    const prim::StreamHandle current = gpu.current_stream();
    end_->hold(current);
    if (current == owner_) let_go();
    if (!waits) return;
    if (!wait_done(timeout.value_or(Milliseconds::max()))) throw_late(*timeout);
    if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
    return;
  }
  std::unique_lock lock(mutex_);
  if (!timeout) {
    finished_.wait(lock, [&] { return done_; });
  } else if (!finished_.wait_for(lock, *timeout, [&] { return done_; })) {
    throw_late(*timeout);
  }
  if (error_) std::rethrow_exception(error_);
}

void Work::wait_unless_readers_do() {
  if (!is_for_stream() || put_off_ || prim::backend_for(device_).is_capturing()) wait(std::nullopt);
}

void Work::throw_late(Milliseconds timeout) {
  throw DistributedError(
      Failure::backend, "",
      "Operation timed out! It did not complete within " + std::to_string(timeout.count()) + " ms");
}

bool Work::wait_done(Milliseconds most) {
  make();
  if (end_) {
    check_no_capture(prim::backend_for(device_));
    const auto begun = std::chrono::steady_clock::now();
    while (!is_completed()) {
      // In milliseconds: the most of them are more than a clock's ticks can say.
      if (std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - begun) >=
          most)
        return false;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return true;
  }
  std::unique_lock lock(mutex_);
  return finished_.wait_for(lock, most, [&] { return done_; });
}

std::exception_ptr Work::exception() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

int Work::source_rank() const {
  const std::lock_guard lock(mutex_);
  return source_;
}

void Work::finish(std::exception_ptr error, int source) {
  const std::lock_guard lock(mutex_);
  done_ = true;
  error_ = std::move(error);
  source_ = source;
  finished_.notify_all();
}

void Work::let_go() noexcept {
  std::vector<StoragePtr> memory;
  const std::lock_guard lock(mutex_);
  memory.swap(memory_);
}

}  // namespace arete::distributed
