// Gradients at points where central differences say nothing: kinks, and results that depend on an
// input by value but not by slope.
#include <gtest/gtest.h>

#include <cmath>

#include "arete/arete.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

Tensor leaf(std::initializer_list<double> values) {
  return tensor(std::vector<double>(values), TensorOptions(kFloat64, test_device()))
      .requires_grad_();
}
std::vector<double> slope(const Tensor& y, const Tensor& x) {
  return autograd::grad(y.sum(), x)[0].to(kCPU).to_vector<double>();
}

TEST(EdgeGradient, NormsChooseZeroAtTheOrigin) {
  for (double p : {0.5, 0.9, 1.0, 1.5, 2.0, 3.0, -1.0, -2.0}) {
    SCOPED_TRACE(p);
    const Tensor zeros = leaf({0, 0, 0});
    EXPECT_EQ(slope(zeros.norm(p), zeros), (std::vector<double>{0, 0, 0}));
  }
  // Elements that are zero among others: below p = 1 their own slopes are infinite.
  const Tensor x = leaf({0, 1, -2});
  for (double p : {0.5, 0.9, 1.5, 3.0}) EXPECT_EQ(slope(x.norm(p), x)[0], 0) << p;
  const Tensor nan = leaf({NAN, 0, 1});
  EXPECT_EQ(slope(nan.norm(HUGE_VAL), nan), (std::vector<double>{0, 0, 0}));
}

TEST(EdgeGradient, ConstantsOfAnInputHaveZeros) {
  const Tensor a = leaf({1, 2, 3, 5});
  const Tensor m = a.reshape({2, 2});
  EXPECT_EQ(slope(linalg::matrix_power(m, 0), a), (std::vector<double>{0, 0, 0, 0}));
  EXPECT_EQ(slope(std::get<0>(linalg::slogdet(m)), a), (std::vector<double>{0, 0, 0, 0}));
}

// The gradient is a sum of products of exponentials, none of which exceeds 1.
TEST(EdgeGradient, LogcumsumexpOfAWideRange) {
  const Tensor x = leaf({-HUGE_VAL, -800, 700, 0, 701});
  const std::vector<double> g = slope(logcumsumexp(x, 0), x);
  const double e = std::exp(-1.0);
  EXPECT_EQ(g[0], 0);
  EXPECT_NEAR(g[1], 1, 1e-15);
  EXPECT_NEAR(g[2], 2 + e / (1 + e), 1e-13);
  EXPECT_NEAR(g[3], 0, 1e-300);
  EXPECT_NEAR(g[4], 1 / (1 + e), 1e-13);  // y is 701.3, known to 1e-13
}

}  // namespace
}  // namespace arete::test
