#include "bench/row.h"

#include <algorithm>
#include <chrono>

#include "arete/base/error.h"
#include "arete/device/cuda.h"

namespace arete::bench {

std::string_view name_of(Unit unit) {
  switch (unit) {
    case Unit::ns:
      return "ns";
    case Unit::us:
      return "us";
    case Unit::ms:
      return "ms";
    case Unit::gb_per_s:
      return "GB/s";
    case Unit::gflop_per_s:
      return "GFLOP/s";
    case Unit::tflop_per_s:
      return "TFLOP/s";
    case Unit::images_per_s:
      return "img/s";
    case Unit::sequences_per_s:
      return "seq/s";
  }
  ARETE_BUG("no such unit");
}

bool is_rate(Unit unit) { return unit != Unit::ns && unit != Unit::us && unit != Unit::ms; }

double Row::figure(double seconds) const {
  switch (unit) {
    case Unit::ns:
      return seconds * 1e9;
    case Unit::us:
      return seconds * 1e6;
    case Unit::ms:
      return seconds * 1e3;
    case Unit::gb_per_s:
    case Unit::gflop_per_s:
      return amount / seconds / 1e9;
    case Unit::tflop_per_s:
      return amount / seconds / 1e12;
    case Unit::images_per_s:
    case Unit::sequences_per_s:
      return amount / seconds;
  }
  ARETE_BUG("no such unit");
}

namespace {

/// Seconds of `row.calls` calls, by the host's clock.
double wall_seconds(const Row& row, const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  if (row.timing != Timing::wall) cuda::synchronize();
  const Clock::time_point begin = Clock::now();
  for (int c = 0; c < row.calls; ++c) call();
  if (row.timing == Timing::host_and_device) cuda::synchronize();
  const std::chrono::duration<double> time = Clock::now() - begin;
  return time.count();
}

/// The same between two events on the current stream.
double event_seconds(const Row& row, const std::function<void()>& call) {
  cuda::Event begin(true), end(true);
  begin.record();
  for (int c = 0; c < row.calls; ++c) call();
  end.record();
  end.synchronize();
  return begin.elapsed_time(end) / 1e3;
}

}  // namespace

double measure(const Row& row, int repetitions) {
  const int warm_up = row.timing == Timing::wall ? 2 : 5;
  const std::function<void()> call = row.prepare();
  std::vector<double> seconds;
  for (int i = -warm_up; i < repetitions; ++i) {
    const double s =
        row.timing == Timing::device ? event_seconds(row, call) : wall_seconds(row, call);
    if (i >= 0) seconds.push_back(s / row.calls);
  }
  std::sort(seconds.begin(), seconds.end());
  const size_t middle = seconds.size() / 2;
  if (seconds.size() % 2) return seconds[middle];
  return (seconds[middle - 1] + seconds[middle]) / 2;
}

}  // namespace arete::bench
