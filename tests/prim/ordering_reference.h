// What sort, topk and arg_reduce mean, in a few lines: NaN is the largest, order is stable.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace arete::test {

/// Positions of `values` in sorted order.
inline std::vector<int64_t> sorted_positions(const std::vector<double>& values, bool descending) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  const auto less = [&](double a, double b) {
    if (std::isnan(a) || std::isnan(b)) return !std::isnan(a) && std::isnan(b);
    return a < b;
  };
  std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
    return descending ? less(values[size_t(j)], values[size_t(i)])
                      : less(values[size_t(i)], values[size_t(j)]);
  });
  return order;
}

/// Equal, or both NaN.
inline bool same_value(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

}  // namespace arete::test
