// Rows so long that their variance comes from one pass (Note [Statistics in one pass]): as the sum
// of squared differences in f64 has it.
#include <gtest/gtest.h>

#include "arete/arete.h"
#include "arete/ops/moments.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

void expect_moments(const Tensor& x, const Shape& dims, double tolerance) {
  const Tensor wide = x.to(kFloat64), m = wide.mean(dims, true), gap = wide.sub(m);
  double n = 1;
  for (int64_t d : dims) n *= double(x.size(d));
  const Tensor v = gap.mul(gap).sum(dims, true).div(Scalar(n - 1));
  const auto near = [&](const Tensor& got, const Tensor& exact) {
    return allclose(got.to(kFloat64), exact, tolerance, tolerance);
  };
  EXPECT_TRUE(near(var(x, dims, 1, true), v));
  EXPECT_TRUE(near(arete::std(x, dims, 1, true), v.sqrt()));
  const auto [spread, center] = std_mean(x, dims, 1, true);
  EXPECT_TRUE(near(spread, v.sqrt()));
  EXPECT_TRUE(near(center, m));
}

TEST(Moments, OfLongRowsAndColumns) {
  manual_seed(3);
  const int64_t n = 3 * ops::kOnePass + 17;
  for (double middle : {0.0, 1000.0}) {
    const Tensor x = randn({n, 3}, test_device()).add(Scalar(middle));
    for (const Tensor& t : {x, x.t(), x.to(kFloat64)}) {
      expect_moments(t, {0, 1}, 1e-4);
      expect_moments(t, {t.size(0) == n ? 0 : 1}, 1e-4);
    }
  }
  expect_moments(randn({n}, test_device()).to(kBFloat16), {0}, 1e-2);
}

TEST(Moments, WithPivotsFarFromTheOthers) {
  manual_seed(3);
  const int64_t n = 4 * ops::kOnePass;
  Tensor x = randn({n}, test_device());
  x.narrow(0, n / 4, 1).fill_(Scalar(1e4));  // one of the three candidates
  expect_moments(x, {0}, 1e-4);
}

}  // namespace
}  // namespace arete::test
