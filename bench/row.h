// One row of the benchmark: what is run, in which unit it is reported, what it should reach.
#pragma once

#include <benchmark/benchmark.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace arete::bench {

/// How a time becomes the figure of a row.
enum class Unit {
  ns,
  us,
  ms,
  gb_per_s,
  gflop_per_s,
  tflop_per_s,
  images_per_s,
  sequences_per_s,
};
std::string_view name_of(Unit unit);
/// Rates are better when larger, times when smaller.
bool is_rate(Unit unit);

/// How a call is timed. host: only what issuing costs, the device being drained before and after,
/// not timed. device: between two events on the stream, one pair around each call.
/// host_and_device: as host, but until the device is done with the last call.
enum class Timing { wall, host, device, host_and_device };

/// What a row has to reach: a figure of its own unit, or a multiple of the peer's speed.
struct Goal {
  enum class Kind { none, figure, ratio } kind = Kind::none;
  double value = 0;
};
inline Goal at_most(double figure) { return {Goal::Kind::figure, figure}; }
inline Goal at_least(double figure) { return {Goal::Kind::figure, figure}; }
inline Goal times_the_peer(double ratio) { return {Goal::Kind::ratio, ratio}; }

struct Row {
  std::string name;  ///< without the "cpu2/" in front that rows of the CPU have
  Unit unit;
  /// What one call does in units of the figure: bytes, FLOPs or samples (times: not used).
  double amount = 0;
  /// The least one call has to move or compute: for ratios to the machine where there is no peer.
  double bytes = 0, flops = 0;
  int calls = 1;  ///< in one measurement
  int repetitions = 9;
  bool has_peer = true;
  Timing timing = Timing::wall;
  Goal goal{};
  /// Makes the data and returns one call.
  std::function<std::function<void()>()> prepare;

  /// The figure for a call of that many seconds.
  double figure(double seconds) const;
};

/// A call that makes a tensor and drops it.
template <class F>
std::function<void()> dropping(F f) {
  return [f = std::move(f)] {
    auto result = f();
    benchmark::DoNotOptimize(result);
  };
}

/// Median seconds of one call: two measurements to warm up, then `repetitions`.
double measure(const Row& row, int repetitions);

std::vector<Row> operator_rows();
std::vector<Row> overhead_rows();
std::vector<Row> training_rows();
std::vector<Row> cuda_rows();

}  // namespace arete::bench
