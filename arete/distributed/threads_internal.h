// Threads that do tasks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace arete::distributed {

/// Up to `most` threads, started when all others are busy; with one, tasks follow each other.
class TaskThreads {
 public:
  explicit TaskThreads(size_t most) : most_(most) {}
  /// Waits for the tasks that were submitted.
  ~TaskThreads();
  TaskThreads(const TaskThreads&) = delete;
  TaskThreads& operator=(const TaskThreads&) = delete;
  /// Tasks throw nothing. If no thread can be started for it, this throws and the task is not done.
  void submit(std::function<void()> task);
  /// Whether there is nothing to do any more.
  bool is_idle();
  /// The same once it is so, or at `until`.
  bool wait_idle(std::chrono::steady_clock::time_point until);

 private:
  void run();
  const size_t most_;
  std::mutex mutex_;
  std::condition_variable more_, less_;
  std::deque<std::function<void()>> tasks_;
  std::vector<std::thread> threads_;
  size_t busy_ = 0;
  bool ends_ = false;
};

}  // namespace arete::distributed
