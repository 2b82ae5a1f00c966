// Timing done right: warm-up, waiting for devices, enough runs for a figure that means something.
//
//   Measurement m = benchmark::Timer([&] { y = x.exp(); }).blocked_autorange();
//   std::puts(m.to_string().c_str());
#pragma once

#include <functional>

#include "arete/core/device.h"
#include "arete/profile/measurement.h"

namespace arete::benchmark {

/// Seconds on a steady clock, after all GPUs that this process uses have done their work.
double now();

/// Keeps the compiler from leaving out the computation of a value that nobody reads.
template <class T>
inline void keep(const T& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

/// Runs a task so many times and returns the seconds.
using Runner = std::function<double(int64_t number)>;
/// Told of each block of runs while a measurement goes on: how many runs, how many seconds.
using Progress = std::function<void(int64_t number, double seconds)>;

/// One time of `number` runs, after some to warm up.
Measurement timeit(const Runner& run, int64_t number, const TaskSpec& spec = {});
/// Times blocks of runs until they took `min_run_time` seconds together. A block is so large that
/// reading the clock costs nothing beside it, but no larger, so that there are many.
Measurement blocked_autorange(const Runner& run, double min_run_time = 0.2,
                              const TaskSpec& spec = {}, const Progress& progress = {});
/// Times blocks until their spread (iqr) is below `threshold` times the median, for at least
/// `min_run_time` and at most `max_run_time` seconds.
Measurement adaptive_autorange(const Runner& run, double threshold = 0.1,
                               double min_run_time = 0.01, double max_run_time = 10,
                               const TaskSpec& spec = {}, const Progress& progress = {});

/// Measures a function. `spec` says what it is in texts and tables; its num_threads is the number
/// of threads that operators on the CPU use meanwhile.
class Timer {
 public:
  explicit Timer(std::function<void()> function, TaskSpec spec = {},
                 std::function<void()> setup = {});

  /// With fewer than 1 run: ValueError.
  Measurement timeit(int64_t number = 1000000) const;
  Measurement blocked_autorange(double min_run_time = 0.2, const Progress& progress = {}) const;
  Measurement adaptive_autorange(double threshold = 0.1, double min_run_time = 0.01,
                                 double max_run_time = 10, const Progress& progress = {}) const;

  /// Each run by itself, `repetitions` times, as the device sees it: between two events on the
  /// current stream of a GPU, on the CPU by the clock. `flush_cache`: what the caches hold (L2 of a
  /// GPU, all of a CPU's) is overwritten before each run, outside the time measured.
  Measurement device_time(Device device, int repetitions = 20, bool flush_cache = false) const;

 private:
  Runner runner() const;
  std::function<void()> function_, setup_;
  TaskSpec spec_;
};

}  // namespace arete::benchmark
