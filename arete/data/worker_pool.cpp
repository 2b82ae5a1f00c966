#include "arete/data/worker_pool.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "arete/base/thread_pool.h"

namespace arete::data {

using Clock = std::chrono::steady_clock;

// What the threads see; they keep it alive should they outlive the pool.
struct WorkerPool::Shared {
  struct Task {
    int64_t number;
    std::vector<int64_t> indices;
  };
  struct Worker {
    Generator generator;
    int64_t epoch = 0;
    std::deque<Task> tasks;
    std::condition_variable wake;
    bool sleeps = false;  // does not look for tasks
    std::thread thread;
  };
  struct Result {
    Batch batch;
    std::exception_ptr error;
  };

  std::mutex mutex;
  std::condition_variable arrived, ended;
  std::deque<Worker> workers;
  std::map<int64_t, Result> results;
  std::deque<int64_t> arrivals;  // numbers of results as they came; some may be taken already
  std::shared_ptr<const BatchMaker> maker;
  std::shared_ptr<std::atomic<double>> waited = std::make_shared<std::atomic<double>>(0.0);
  Clock::time_point started;
  int64_t epoch = 0, finished = 0;
  uint64_t seed = 0;
  // Of submit_all(): indices, how many a batch has, the first batch and the next one to be sent.
  std::vector<int64_t> order;
  int64_t order_size = 1, order_first = 0, order_next = 0;
  size_t plenty = SIZE_MAX;  // so many results need no more in a hurry
  int running = 0;
  bool closed = false;

  // What makers share: the calls of one for_each(), which lies on its worker's stack.
  struct Job {
    const std::function<void(int64_t)>& f;
    const int64_t calls;
    int64_t begun = 0, ended = 0, failed = INT64_MAX;  // failed: the first call that threw
    std::exception_ptr error;
  };
  std::mutex job_mutex;
  std::condition_variable job_ended;
  std::map<std::pair<int64_t, int64_t>, Job*> jobs;  // with calls to begin, by epoch and batch

  void work(size_t number);
  void send(size_t worker, Task task);
  bool send_next();
  void for_each(std::pair<int64_t, int64_t> batch, int64_t n,
                const std::function<void(int64_t)>& f);
};

void WorkerPool::Shared::send(size_t worker, Task task) {
  Worker& w = workers.at(worker);
  w.tasks.push_back(std::move(task));
  if (w.sleeps || results.size() < plenty) w.wake.notify_one();
}

/// False at the end of the order.
bool WorkerPool::Shared::send_next() {
  const int64_t begin = (order_next - order_first) * order_size, n = int64_t(order.size());
  if (begin >= n) return false;
  const auto first = order.begin() + begin;
  send(size_t(order_next) % workers.size(),
       {order_next, std::vector(first, first + std::min(order_size, n - begin))});
  ++order_next;
  return true;
}

void WorkerPool::Shared::for_each(std::pair<int64_t, int64_t> batch, int64_t n,
                                  const std::function<void(int64_t)>& f) {
  if (n <= 0) return;
  Job mine{f, n};
  std::unique_lock lock(job_mutex);
  jobs.emplace(batch, &mine);
  while (mine.ended < mine.calls) {
    // Of later batches nothing is taken: that would keep this one waiting.
    if (jobs.empty() || jobs.begin()->first > batch) {
      job_ended.wait(lock);
      continue;
    }
    const auto first = jobs.begin();
    Job& job = *first->second;
    const int64_t call = job.begun++;
    if (job.begun == job.calls) jobs.erase(first);
    lock.unlock();
    std::exception_ptr error;
    try {
      job.f(call);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error && call < job.failed) {
      job.failed = call;
      job.error = std::move(error);
    }
    // From here on the job may be gone.
    if (++job.ended == job.calls && &job != &mine) job_ended.notify_all();
  }
  if (mine.error) std::rethrow_exception(mine.error);
}

void WorkerPool::Shared::work(size_t number) {
  const SerialRegion serial;
  Worker& me = workers[number];
  std::unique_lock lock(mutex);
  while (true) {
    const auto begin = Clock::now();
    for (int looks = 0; !closed && me.tasks.empty(); ++looks) {
      me.sleeps = looks >= kLooks;
      if (me.sleeps)
        me.wake.wait(lock);
      else
        me.wake.wait_for(lock, kLook);
    }
    me.sleeps = false;
    if (closed) break;
    // The time between epochs does not count.
    const std::chrono::duration<double> idle = Clock::now() - std::max(begin, started);
    if (idle.count() > 0) waited->fetch_add(idle.count());
    me.epoch = epoch;
    Task task = std::move(me.tasks.front());
    me.tasks.pop_front();
    me.generator.set_state(stream_of_batch(seed, task.number));
    Result result;
    {
      const std::shared_ptr<const BatchMaker> make = maker;
      lock.unlock();
      const std::pair batch{me.epoch, task.number};
      try {
        result.batch = (*make)(task.indices, me.generator,
                               [&](int64_t n, const auto& f) { for_each(batch, n, f); });
      } catch (...) {
        result.error = std::current_exception();
      }
    }
    lock.lock();
    if (me.epoch == epoch && !closed) {
      results.emplace(task.number, std::move(result));
      arrivals.push_back(task.number);
      ++finished;
      arrived.notify_all();
    } else {
      lock.unlock();
      result = {};
      lock.lock();
    }
  }
  --running;
  ended.notify_all();
}

WorkerPool::WorkerPool(int workers) : shared_(std::make_shared<Shared>()) {
  for (int i = 0; i < workers; ++i) shared_->workers.emplace_back();
  try {
    for (size_t i = 0; i < shared_->workers.size(); ++i) {
      shared_->workers[i].thread = std::thread([shared = shared_, i] { shared->work(i); });
      const std::lock_guard lock(shared_->mutex);
      ++shared_->running;
    }
  } catch (...) {
    close();
    throw;
  }
}

WorkerPool::~WorkerPool() { close(); }

int64_t WorkerPool::start(BatchMaker maker, uint64_t seed) {
  Shared& s = *shared_;
  std::map<int64_t, Shared::Result> old;  // freed without the lock
  std::vector<int64_t> old_order;
  auto shared_maker = std::make_shared<const BatchMaker>(std::move(maker));
  const std::lock_guard lock(s.mutex);
  for (Shared::Worker& w : s.workers) w.tasks.clear();
  old.swap(s.results);
  s.arrivals.clear();
  old_order.swap(s.order);
  s.plenty = SIZE_MAX;
  s.maker.swap(shared_maker);
  s.waited = std::make_shared<std::atomic<double>>(0.0);
  s.started = Clock::now();
  s.seed = seed;
  s.finished = 0;
  return ++s.epoch;
}

void WorkerPool::submit(int worker, int64_t number, std::vector<int64_t> indices) {
  Shared& s = *shared_;
  const std::lock_guard lock(s.mutex);
  s.send(size_t(worker), {number, std::move(indices)});
}

void WorkerPool::submit_all(std::vector<int64_t> order, int64_t size, int64_t ahead,
                            int64_t first) {
  ARETE_CHECK(size > 0 && ahead > 0 && first >= 0,
              ValueError("WorkerPool::submit_all",
                         "size and ahead must be positive, and first must not be negative")
                  .got(std::to_string(size) + ", " + std::to_string(ahead) + " and " +
                       std::to_string(first)));
  Shared& s = *shared_;
  const std::lock_guard lock(s.mutex);
  s.order.swap(order);
  s.order_size = size;
  s.order_first = s.order_next = first;
  s.plenty = size_t(ahead + 1) / 2;
  for (int64_t i = 0; i < ahead && s.send_next();) ++i;
}

WorkerPool::State WorkerPool::wait(int64_t epoch, int64_t& number, double seconds) const {
  Shared& s = *shared_;
  std::unique_lock lock(s.mutex);
  const auto is_there = [&] {
    if (number != any) return s.results.contains(number);
    while (!s.arrivals.empty() && !s.results.contains(s.arrivals.front())) s.arrivals.pop_front();
    return !s.arrivals.empty();
  };
  const auto is_gone = [&] { return s.closed || s.epoch != epoch; };
  if (seconds > 0 && !is_gone() && !is_there())
    s.arrived.wait_for(lock, std::chrono::duration<double>(seconds),
                       [&] { return is_gone() || is_there(); });
  if (is_gone()) return State::gone;
  if (!is_there()) return State::pending;
  if (number == any) number = s.arrivals.front();
  return State::ready;
}

Batch WorkerPool::take(int64_t number) {
  Shared::Result result;
  {
    const std::lock_guard lock(shared_->mutex);
    auto node = shared_->results.extract(number);
    ARETE_CHECK(!node.empty(), ValueError("WorkerPool::take", "the batch is not there")
                                   .got("batch " + std::to_string(number)));
    result = std::move(node.mapped());
    while (!shared_->arrivals.empty() && !shared_->results.contains(shared_->arrivals.front()))
      shared_->arrivals.pop_front();
    shared_->send_next();
  }
  if (result.error) std::rethrow_exception(result.error);
  return std::move(result.batch);
}

int64_t WorkerPool::finished() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->finished;
}

std::shared_ptr<const std::atomic<double>> WorkerPool::waited() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->waited;
}

void WorkerPool::close() {
  Shared& s = *shared_;
  std::unique_lock lock(s.mutex);
  if (s.closed) return;
  s.closed = true;
  for (Shared::Worker& w : s.workers) w.wake.notify_all();
  s.arrived.notify_all();
  const bool all = s.ended.wait_for(lock, std::chrono::seconds(5), [&] { return s.running == 0; });
  std::map<int64_t, Shared::Result> old;
  old.swap(s.results);
  lock.unlock();
  for (Shared::Worker& w : s.workers) {
    if (!w.thread.joinable()) continue;
    if (all)
      w.thread.join();
    else
      w.thread.detach();
  }
}

}  // namespace arete::data
