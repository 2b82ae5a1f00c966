#include "bench/row.h"

#include <algorithm>
#include <chrono>

#include "arete/base/error.h"

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
    case Unit::images_per_s:
    case Unit::sequences_per_s:
      return amount / seconds;
  }
  ARETE_BUG("no such unit");
}

double measure(const Row& row, int repetitions) {
  using Clock = std::chrono::steady_clock;
  constexpr int kWarmUp = 2;
  const std::function<void()> call = row.prepare();
  std::vector<double> seconds;
  for (int i = -kWarmUp; i < repetitions; ++i) {
    const Clock::time_point begin = Clock::now();
    for (int c = 0; c < row.calls; ++c) call();
    const std::chrono::duration<double> time = Clock::now() - begin;
    if (i >= 0) seconds.push_back(time.count() / row.calls);
  }
  std::sort(seconds.begin(), seconds.end());
  const size_t middle = seconds.size() / 2;
  if (seconds.size() % 2) return seconds[middle];
  return (seconds[middle - 1] + seconds[middle]) / 2;
}

}  // namespace arete::bench
