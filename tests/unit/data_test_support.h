// What the tests of data sets, samplers and the loader share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include "arete/data/dataset.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "io_test_support.h"

namespace arete::data {

using test::expect_error;

// Example i is (i, 10 i).
inline DatasetPtr counting(int64_t n) {
  const Tensor x = arange(n);
  return std::make_shared<TensorDataset>(std::vector<Tensor>{x, x * 10});
}

inline std::vector<int64_t> iota_vector(int64_t n) {
  std::vector<int64_t> v(static_cast<size_t>(n));
  std::iota(v.begin(), v.end(), int64_t{0});
  return v;
}

inline std::vector<int64_t> sorted(std::vector<int64_t> v) {
  std::sort(v.begin(), v.end());
  return v;
}

inline std::vector<int64_t> joined(const std::vector<std::vector<int64_t>>& parts) {
  std::vector<int64_t> all;
  for (const auto& p : parts) all.insert(all.end(), p.begin(), p.end());
  return all;
}

}  // namespace arete::data
