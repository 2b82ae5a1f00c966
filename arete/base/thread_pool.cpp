#include "arete/base/thread_pool.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <strings.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "arete/base/error.h"

#ifdef ARETE_THREADS_STD
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>
#else
#include <omp.h>
#endif

namespace arete {
namespace {

thread_local bool t_inline = false;  // loops of this thread run inline
std::atomic<int> g_threads{0};       // 0: not determined yet

int positive_env(const char* name) {
  const char* text = std::getenv(name);
  if (!text) return 0;
  // OMP_NUM_THREADS may be a list, one number per nesting level: the first counts.
  const long value = std::strtol(text, nullptr, 10);
  return value > 0 && value <= 4096 ? int(value) : 0;
}

/// CPUs that the control group's quota amounts to, rounded up; 0 if there is no quota.
int cgroup_cpus() {
  double quota = 0, period = 0;
  if (std::FILE* f = std::fopen("/sys/fs/cgroup/cpu.max", "r")) {
    if (std::fscanf(f, "%lf %lf", &quota, &period) != 2) quota = 0;  // "max" is no number
    std::fclose(f);
  } else {
    auto read = [](const char* path, double& out) {
      if (std::FILE* file = std::fopen(path, "r")) {
        if (std::fscanf(file, "%lf", &out) != 1) out = 0;
        std::fclose(file);
      }
    };
    read("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", quota);
    read("/sys/fs/cgroup/cpu/cpu.cfs_period_us", period);
  }
  return quota > 0 && period > 0 ? std::max(1, int(quota / period + 0.999)) : 0;
}

int default_threads() {
  if (int n = positive_env("ARETE_NUM_THREADS")) return n;
  if (int n = positive_env("OMP_NUM_THREADS")) return n;
  int n = 1;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) n = std::max(1, CPU_COUNT(&set));
  if (int quota = cgroup_cpus()) n = std::min(n, quota);
  return n;
}

/// One parallel loop: chunk k is [begin + k * step, ...), the same whoever runs it.
struct Loop {
  int64_t begin, end, step;
  int chunks;
  detail::RangeFunction f;
  void* context;

  void run(int chunk) const {
    const int64_t first = begin + chunk * step;
    const int64_t last = std::min(end, first + step);
    if (first < last) f(context, first, last);
  }
};

struct InlineScope {
  bool previous = t_inline;
  InlineScope() { t_inline = true; }
  ~InlineScope() { t_inline = previous; }
};

/// Keeps the first exception of several threads.
class FirstError {
 public:
  template <class F>
  void guard(F&& body) noexcept {
    try {
      body();
    } catch (...) {
      if (!taken_.test_and_set(std::memory_order_acq_rel)) error_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::atomic_flag taken_ = ATOMIC_FLAG_INIT;
  std::exception_ptr error_;
};

#ifdef ARETE_THREADS_STD

/// Threads waiting for loops; thread sanitizers understand every synchronisation here.
class Pool {
 public:
  ~Pool() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& t : workers_) t.join();
  }

  /// False if another thread's loop has the pool.
  bool run(const Loop& loop, FirstError& error) {
    std::unique_lock owner(owner_, std::try_to_lock);
    if (!owner) return false;
    {
      std::lock_guard lock(mutex_);
      while (int(workers_.size()) < loop.chunks - 1) workers_.emplace_back([this] { work(); });
      loop_ = &loop;
      error_ = &error;
      next_ = 1;
      pending_ = loop.chunks - 1;
    }
    wake_.notify_all();
    error.guard([&] { loop.run(0); });
    std::unique_lock lock(mutex_);
    while (next_ < loop.chunks) {  // help with what no worker has taken
      const int chunk = next_++;
      lock.unlock();
      error.guard([&] { loop.run(chunk); });
      lock.lock();
      --pending_;
    }
    done_.wait(lock, [&] { return pending_ == 0; });
    loop_ = nullptr;
    return true;
  }

 private:
  void work() {
    t_inline = true;
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return stop_ || (loop_ && next_ < loop_->chunks); });
      if (stop_) return;
      const Loop& loop = *loop_;
      FirstError& error = *error_;
      const int chunk = next_++;
      lock.unlock();
      error.guard([&] { loop.run(chunk); });
      lock.lock();
      if (--pending_ == 0) done_.notify_all();
    }
  }

  std::mutex owner_, mutex_;
  std::condition_variable wake_, done_;
  std::vector<std::thread> workers_;
  const Loop* loop_ = nullptr;
  FirstError* error_ = nullptr;
  int next_ = 0, pending_ = 0;
  bool stop_ = false;
};

void run_parallel(const Loop& loop) {
  static Pool pool;
  FirstError error;
  InlineScope scope;
  if (!pool.run(loop, error)) {
    for (int k = 0; k < loop.chunks; ++k) loop.run(k);
  }
  error.rethrow();
}

void tell_libraries(int) {}

#else

void run_parallel(const Loop& loop) {
  FirstError error;
#pragma omp parallel num_threads(loop.chunks)
  {
    InlineScope scope;
    // The runtime may give fewer threads than asked for; the chunks stay the same.
    const int team = omp_get_num_threads();
    for (int k = omp_get_thread_num(); k < loop.chunks; k += team)
      error.guard([&] { loop.run(k); });
  }
  error.rethrow();
}

void tell_libraries(int n) { omp_set_num_threads(n); }

#endif

// After a fork: see set_num_threads() in the header.

bool has_several_threads() {
  DIR* const tasks = opendir("/proc/self/task");
  if (!tasks) return true;
  int entries = 0;  // with "." and ".."
  while (entries < 4 && readdir(tasks)) ++entries;
  closedir(tasks);
  return entries > 3;
}

bool g_forks_threads = false, g_is_serial = false;

void watch_forks() {
  static const int watched =
      pthread_atfork([] { g_forks_threads = has_several_threads(); }, nullptr,
                     [] {
                       if (!g_forks_threads) return;
                       g_is_serial = true;
                       g_threads.store(1, std::memory_order_relaxed);
                       tell_libraries(1);
                     });
  static_cast<void>(watched);
}

}  // namespace

bool threads_are_openmp() noexcept {
#ifdef ARETE_THREADS_STD
  return false;
#else
  return true;
#endif
}

int num_threads() noexcept {
  int n = g_threads.load(std::memory_order_relaxed);
  if (n == 0) [[unlikely]] {
    const int found = default_threads();
    if (g_threads.compare_exchange_strong(n, found)) {
      watch_forks();
      tell_libraries(found);
      n = found;
    }
  }
  return n;
}

void set_num_threads(int n) {
  ARETE_CHECK(n >= 1, ValueError("set_num_threads", "expected a positive number of threads")
                          .argument("n")
                          .expected("at least 1")
                          .got(std::to_string(n)));
  ARETE_CHECK(n == 1 || !g_is_serial,
              ValueError("set_num_threads",
                         "this process was forked from one with threads, and can have one only")
                  .got(std::to_string(n))
                  .hint("start processes with multiprocessing.get_context('spawn')"));
  watch_forks();
  g_threads.store(n, std::memory_order_relaxed);
  tell_libraries(n);
}

bool in_parallel_region() noexcept {
#ifdef ARETE_THREADS_STD
  return t_inline;
#else
  return t_inline || omp_in_parallel();
#endif
}

int64_t grain_for(double work) noexcept {
  static const double pays = [] {
    if (const char* const work = std::getenv("ARETE_THREAD_WORK"))
      return std::max(1.0, std::atof(work));
    const char* const policy = std::getenv("OMP_WAIT_POLICY");
    const char* const rounds = std::getenv("GOMP_SPINCOUNT");
    const bool asleep = !threads_are_openmp() || (policy && strcasecmp(policy, "passive") == 0) ||
                        (rounds && rounds[0] == '0');
    return double(asleep ? 1 << 19 : 1 << 17);
  }();
  return std::max<int64_t>(1, int64_t(pays / std::max(work, 1.0)));
}

SerialRegion::SerialRegion() noexcept : previous_(t_inline) { t_inline = true; }
SerialRegion::~SerialRegion() { t_inline = previous_; }

namespace detail {

void parallel_for(int64_t begin, int64_t end, int64_t grain, RangeFunction f, void* context) {
  const int64_t n = end - begin;
  if (n <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  const int64_t wanted = (n + grain - 1) / grain;
  const int chunks = int(std::min<int64_t>(num_threads(), wanted));
  const Loop loop{begin, end, (n + chunks - 1) / chunks, chunks, f, context};
  if (chunks == 1 || in_parallel_region()) {
    for (int k = 0; k < chunks; ++k) loop.run(k);
    return;
  }
  run_parallel(loop);
}

}  // namespace detail
}  // namespace arete
