#include "arete/profile/benchmark.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "arete/base/error.h"
#include "arete/base/thread_pool.h"
#include "arete/device/cuda.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/prim/backend.h"
#include "arete/profile/ceilings.h"

namespace arete::benchmark {

namespace {

// A block of runs is large enough when reading the clock is so small a part of it.
constexpr double kClockShare = 1e-4;
// Blocks of an adaptive measurement: small, since its end is looked for after each.
constexpr double kAdaptiveBlock = 0.05;

double clock_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The number of threads of a task while it is measured.
class Threads {
 public:
  explicit Threads(int n) : previous_(num_threads()) { set_num_threads(n); }
  ~Threads() { set_num_threads(previous_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int previous_;
};

int64_t block_size(const Runner& run, double min_run_time) {
  run(1);  // what only the first run does would pass for the time of all
  std::vector<double> empty;
  for (int i = 0; i < 5; ++i) empty.push_back(run(0));
  std::nth_element(empty.begin(), empty.begin() + 2, empty.end());
  const double overhead = empty[2];
  for (int64_t n = 1;; n *= 10) {
    const double t = run(n);
    if (t > min_run_time || n > std::numeric_limits<int32_t>::max() / 10) return n;
    if (overhead <= kClockShare * t && t >= min_run_time / 1000) return n;
  }
}

Measurement timed_blocks(const Runner& run, int64_t number, double min_run_time,
                         double max_run_time, const TaskSpec& spec, const Progress& progress,
                         const std::function<bool(const std::vector<double>&)>& enough) {
  std::vector<double> times;
  double total = 0;
  while (total < min_run_time || !enough(times)) {
    times.push_back(run(number));
    total += times.back();
    if (progress) progress(number, times.back());
    if (total >= max_run_time) break;
  }
  return Measurement(number, std::move(times), spec);
}

/// Overwrites what a device's caches hold.
class CacheFlush {
 public:
  explicit CacheFlush(Device device) {
    const size_t cache = profile::cache_bytes(device);
    // Twice the size: nothing of before is left, however lines are replaced.
    const size_t bytes = std::max(2 * cache, size_t(8) << 20);
    buffer_ = empty({int64_t(bytes / 4)}, TensorOptions(kInt32, device));
  }
  void operator()() { buffer_.fill_(++value_); }

 private:
  Tensor buffer_;
  int value_ = 0;
};

}  // namespace

double now() {
  // Only what is in use already: to look for GPUs would start CUDA.
  for (int i = 0; i < 128; ++i)
    if (prim::Backend* b = prim::used_backend(Device(DeviceType::cuda, i))) b->synchronize();
  return clock_now();
}

Measurement timeit(const Runner& run, int64_t number, const TaskSpec& spec) {
  ARETE_CHECK(number > 0, ValueError("timeit", "the number of runs must be positive")
                              .argument("number")
                              .got(std::to_string(number)));
  run(std::max(number / 100, int64_t(2)));
  return Measurement(number, {run(number)}, spec);
}

Measurement blocked_autorange(const Runner& run, double min_run_time, const TaskSpec& spec,
                              const Progress& progress) {
  const int64_t number = block_size(run, min_run_time);
  return timed_blocks(run, number, min_run_time, std::numeric_limits<double>::infinity(), spec,
                      progress, [](const std::vector<double>& t) { return !t.empty(); });
}

Measurement adaptive_autorange(const Runner& run, double threshold, double min_run_time,
                               double max_run_time, const TaskSpec& spec,
                               const Progress& progress) {
  const int64_t number = block_size(run, kAdaptiveBlock);
  return timed_blocks(run, number, min_run_time, max_run_time, spec, progress,
                      [&](const std::vector<double>& times) {
                        // The quartiles of fewer say nothing.
                        return times.size() > 3 &&
                               Measurement(number, times).meets_confidence(threshold);
                      });
}

Timer::Timer(std::function<void()> function, TaskSpec spec, std::function<void()> setup)
    : function_(std::move(function)), setup_(std::move(setup)), spec_(std::move(spec)) {
  ARETE_CHECK(function_, ValueError("Timer", "there is no function to measure"));
  ARETE_CHECK(spec_.num_threads > 0, ValueError("Timer", "the number of threads must be positive")
                                         .argument("num_threads")
                                         .got(std::to_string(spec_.num_threads)));
}

Runner Timer::runner() const {
  return [this](int64_t number) {
    const Threads threads(spec_.num_threads);
    if (setup_) setup_();
    const double begin = now();
    for (int64_t i = 0; i < number; ++i) function_();
    return now() - begin;
  };
}

Measurement Timer::timeit(int64_t number) const {
  return benchmark::timeit(runner(), number, spec_);
}
Measurement Timer::blocked_autorange(double min_run_time, const Progress& progress) const {
  return benchmark::blocked_autorange(runner(), min_run_time, spec_, progress);
}
Measurement Timer::adaptive_autorange(double threshold, double min_run_time, double max_run_time,
                                      const Progress& progress) const {
  return benchmark::adaptive_autorange(runner(), threshold, min_run_time, max_run_time, spec_,
                                       progress);
}

Measurement Timer::device_time(Device device, int repetitions, bool flush_cache) const {
  ARETE_CHECK(repetitions > 0, ValueError("device_time", "the repetitions must be positive")
                                   .argument("repetitions")
                                   .got(std::to_string(repetitions)));
  ARETE_CHECK(!device.is_meta(),
              DeviceError("device_time", "the meta device computes nothing: it has no times")
                  .expected("cpu or cuda")
                  .got("meta"));
  const Threads threads(spec_.num_threads);
  if (setup_) setup_();
  std::optional<CacheFlush> flush;
  if (flush_cache) flush.emplace(device);
  for (int i = 0; i < 2; ++i) function_();
  std::vector<double> times;
  if (!device.is_cuda()) {
    for (int i = 0; i < repetitions; ++i) {
      if (flush) (*flush)();
      const double begin = now();
      function_();
      times.push_back(now() - begin);
    }
    return Measurement(1, std::move(times), spec_);
  }
  const cuda::DeviceGuard guard(device.index);
  // All are queued before the first is waited for, so that the host never holds up the device.
  std::vector<std::pair<cuda::Event, cuda::Event>> events;
  for (int i = 0; i < repetitions; ++i) {
    if (flush) (*flush)();
    events.emplace_back(cuda::Event(true), cuda::Event(true));
    events.back().first.record();
    function_();
    events.back().second.record();
  }
  for (const auto& [begin, end] : events) times.push_back(begin.elapsed_time(end) / 1000);
  return Measurement(1, std::move(times), spec_);
}

}  // namespace arete::benchmark
