#include "arete/distributed/threads_internal.h"

namespace arete::distributed {

TaskThreads::~TaskThreads() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    more_.notify_all();
  }
  for (std::thread& t : threads_) t.join();
}

void TaskThreads::submit(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  if (busy_ + tasks_.size() > threads_.size() && threads_.size() < most_) {
    try {
      threads_.emplace_back([this] { run(); });
    } catch (...) {
      tasks_.pop_back();
      throw;
    }
  }
  more_.notify_one();
}

bool TaskThreads::is_idle() {
  const std::lock_guard lock(mutex_);
  return busy_ == 0 && tasks_.empty();
}

bool TaskThreads::wait_idle(std::chrono::steady_clock::time_point until) {
  std::unique_lock lock(mutex_);
  return less_.wait_until(lock, until, [&] { return busy_ == 0 && tasks_.empty(); });
}

void TaskThreads::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    more_.wait(lock, [&] { return ends_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    ++busy_;
    lock.unlock();
    task();
    task = nullptr;  // what it holds goes before anybody hears of it
    lock.lock();
    if (--busy_ == 0 && tasks_.empty()) less_.notify_all();
  }
}

}  // namespace arete::distributed
