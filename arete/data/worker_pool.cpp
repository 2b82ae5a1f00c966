#include "arete/data/worker_pool.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "arete/base/thread_pool.h"

namespace arete::data {

using Clock = std::chrono::steady_clock;

// What the threads see; they keep it alive should they outlive the pool.
struct WorkerPool::Shared {
  struct Worker {
    std::deque<Task> tasks;
    std::condition_variable wake;
    bool sleeps = false;  // does not look for tasks
    std::thread thread;
  };

  std::mutex mutex;
  std::condition_variable arrived, ended;
  std::deque<Worker> workers;
  std::map<int64_t, Made> results;
  std::deque<int64_t> arrivals;  // numbers of results as they came; some may be taken already
  std::shared_ptr<const BatchMaker> maker;
  std::shared_ptr<std::atomic<double>> waited = std::make_shared<std::atomic<double>>(0.0);
  Clock::time_point started;
  int64_t epoch = 0, finished = 0;
  uint64_t seed = 0;
  // Of submit_all(): indices, how many a batch has, the first batch, those to be left out, and the
  // next one to be sent.
  std::vector<int64_t> order, order_without;
  int64_t order_size = 1, order_first = 0, order_next = 0;
  size_t plenty = SIZE_MAX;  // so many results need no more in a hurry
  int running = 0;           // of our own threads
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

  void work(int worker);
  std::optional<Task> next(int worker, bool wait);
  void finish(int64_t batch_epoch, int64_t number, Made made);
  std::condition_variable* send(size_t worker, Task task);
  bool send_next(std::condition_variable*& wake);
  void for_each(std::pair<int64_t, int64_t> batch, int64_t n,
                const std::function<void(int64_t)>& f);
};

// What is to be notified, if anything is: after the lock has gone, or who wakes would wait for it.
std::condition_variable* WorkerPool::Shared::send(size_t worker, Task task) {
  Worker& w = workers.at(worker);
  w.tasks.push_back(std::move(task));
  return w.sleeps || results.size() < plenty ? &w.wake : nullptr;
}

// False at the end of the order.
bool WorkerPool::Shared::send_next(std::condition_variable*& wake) {
  while (std::binary_search(order_without.begin(), order_without.end(), order_next)) ++order_next;
  const int64_t begin = (order_next - order_first) * order_size, n = int64_t(order.size());
  if (begin >= n) return false;
  const auto first = order.begin() + begin;
  const int64_t number = order_next++;
  wake = send(size_t(number) % workers.size(),
              {epoch, number, std::vector(first, first + std::min(order_size, n - begin))});
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

std::optional<WorkerPool::Task> WorkerPool::Shared::next(int worker, bool wait) {
  Worker& me = workers.at(size_t(worker));
  std::unique_lock lock(mutex);
  const auto begin = Clock::now();
  for (int looks = 0; wait && !closed && me.tasks.empty(); ++looks) {
    me.sleeps = looks >= kLooks;
    if (me.sleeps)
      me.wake.wait(lock);
    else
      me.wake.wait_for(lock, kLook);
  }
  me.sleeps = false;
  if (closed || me.tasks.empty()) return std::nullopt;
  // The time between epochs does not count.
  const std::chrono::duration<double> idle = Clock::now() - std::max(begin, started);
  if (idle.count() > 0) waited->fetch_add(idle.count());
  Task task = std::move(me.tasks.front());
  me.tasks.pop_front();
  return task;
}

// A batch that nobody waits for is freed without the lock.
void WorkerPool::Shared::finish(int64_t batch_epoch, int64_t number, Made made) {
  {
    const std::lock_guard lock(mutex);
    if (batch_epoch != epoch || closed) return;
    results.insert_or_assign(number, std::move(made));
    arrivals.push_back(number);
    ++finished;
  }
  arrived.notify_all();
}

void WorkerPool::Shared::work(int worker) {
  const SerialRegion serial;
  Generator generator;
  while (std::optional<Task> task = next(worker, true)) {
    std::shared_ptr<const BatchMaker> make;
    uint64_t of_epoch = 0;
    {
      const std::lock_guard lock(mutex);
      if (task->epoch != epoch) continue;
      make = maker;
      of_epoch = seed;
    }
    const std::pair batch{task->epoch, task->number};
    finish(task->epoch, task->number,
           make_batch(*make, task->indices, of_epoch, task->number, generator,
                      [&](int64_t n, const auto& f) { for_each(batch, n, f); }));
  }
  const std::lock_guard lock(mutex);
  --running;
  ended.notify_all();
}

WorkerPool::WorkerPool(int workers, Threads threads) : shared_(std::make_shared<Shared>()) {
  for (int i = 0; i < workers; ++i) shared_->workers.emplace_back();
  if (threads == Threads::given) return;
  try {
    for (int i = 0; i < workers; ++i) {
      shared_->workers[size_t(i)].thread = std::thread([shared = shared_, i] { shared->work(i); });
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
  std::map<int64_t, Made> old;  // freed without the lock
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
  std::unique_lock lock(s.mutex);
  std::condition_variable* const wake =
      s.send(size_t(worker), {s.epoch, number, std::move(indices)});
  lock.unlock();
  if (wake) wake->notify_one();
}

void WorkerPool::submit_all(std::vector<int64_t> order, int64_t size, int64_t ahead, int64_t first,
                            std::vector<int64_t> without) {
  ARETE_CHECK(size > 0 && ahead > 0 && first >= 0,
              ValueError("WorkerPool::submit_all",
                         "size and ahead must be positive, and first must not be negative")
                  .got(std::to_string(size) + ", " + std::to_string(ahead) + " and " +
                       std::to_string(first)));
  Shared& s = *shared_;
  const std::lock_guard lock(s.mutex);
  s.order.swap(order);
  s.order_without.swap(without);
  s.order_size = size;
  s.order_first = s.order_next = first;
  s.plenty = size_t(ahead + 1) / 2;
  std::condition_variable* wake = nullptr;
  for (int64_t i = 0; i < ahead && s.send_next(wake); ++i)
    if (wake) wake->notify_one();
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

Made WorkerPool::take(int64_t number) {
  std::unique_lock lock(shared_->mutex);
  auto node = shared_->results.extract(number);
  ARETE_CHECK(!node.empty(), ValueError("WorkerPool::take", "the batch is not there")
                                 .got("batch " + std::to_string(number)));
  while (!shared_->arrivals.empty() && !shared_->results.contains(shared_->arrivals.front()))
    shared_->arrivals.pop_front();
  std::condition_variable* wake = nullptr;
  shared_->send_next(wake);
  lock.unlock();
  if (wake) wake->notify_one();
  return std::move(node.mapped());
}

std::optional<WorkerPool::Task> WorkerPool::next(int worker, bool wait) {
  return shared_->next(worker, wait);
}

void WorkerPool::finish(int64_t epoch, int64_t number, Made made) {
  shared_->finish(epoch, number, std::move(made));
}

int64_t WorkerPool::finished() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->finished;
}

std::shared_ptr<const std::atomic<double>> WorkerPool::waited() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->waited;
}

void WorkerPool::close(double seconds) {
  Shared& s = *shared_;
  std::unique_lock lock(s.mutex);
  if (s.closed) return;
  s.closed = true;
  for (Shared::Worker& w : s.workers) w.wake.notify_all();
  s.arrived.notify_all();
  const auto over = [&] { return s.running == 0; };
  bool all = true;
  if (std::isfinite(seconds))
    all = s.ended.wait_for(lock, std::chrono::duration<double>(seconds), over);
  else
    s.ended.wait(lock, over);
  std::map<int64_t, Made> old;
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
