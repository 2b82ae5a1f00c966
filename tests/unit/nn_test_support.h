// Shared by the tests of nn and optim.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "arete/arete.h"
#include "tests/support/errors.h"
#include "tests/support/tolerance.h"

namespace arete::test {

/// Row-major values of `got` against `want`; `length`: how many terms each sums.
inline void expect_values(const Tensor& got, const std::vector<double>& want, int64_t length = 1) {
  const std::vector<double> values = got.to_vector<double>();
  ASSERT_EQ(values.size(), want.size()) << to_string(got.sizes());
  double scale = 1;
  for (double w : want) scale = std::max(scale, std::fabs(w));
  const double allowed = tolerance(got.dtype(), length, scale);
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(values[i], want[i], allowed) << "element " << i;
}

inline void expect_tensors(const Tensor& got, const Tensor& want, int64_t length = 1) {
  ASSERT_EQ(to_string(got.sizes()), to_string(want.sizes()));
  expect_values(got, want.to_vector<double>(), length);
}

inline double logistic(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace arete::test
