// Collectives with gradients, between threads.
#include "arete/distributed/functional.h"

#include <gtest/gtest.h>

#include "arete/arete.h"
#include "tests/distributed/rank_threads.h"

namespace arete::distributed {
namespace {

// Rank r has the numbers r + 1, 2 (r + 1), ... and weighs results by r + 1. Gives the gradients.
std::vector<Tensor> gradients(int size, const Shape& sizes,
                              const std::function<Tensor(const Tensor&, ProcessGroupPtr)>& f,
                              std::vector<Tensor>& results) {
  std::vector<Tensor> x(size);
  results.assign(size, {});
  test::with_ranks(
      size,
      [&](const ProcessGroupPtr& group) {
        const int r = group->rank();
        x[r] = ((arange(numel_of(sizes), kFloat64) + 1) * (r + 1)).reshape(sizes);
        x[r].requires_grad_();
        const Tensor y = f(x[r], group);
        (y * (r + 1)).sum().backward();
        results[r] = y.detach();
        x[r] = x[r].grad();
        group->barrier();
      },
      "store");
  return x;
}

using Numbers = std::vector<double>;

TEST(Functional, Reductions) {
  std::vector<Tensor> y;
  auto dx = gradients(
      3, {2},
      [](const Tensor& x, const ProcessGroupPtr& g) { return functional::all_reduce(x, kSum, g); },
      y);
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(y[r].to_vector<double>(), (Numbers{6, 12}));
    EXPECT_EQ(dx[r].to_vector<double>(), (Numbers{6, 6}));
  }
  dx = gradients(
      2, {2},
      [](const Tensor& x, const ProcessGroupPtr& g) {
        return functional::reduce(x, 1, ReduceOp(prim::ReduceKind::avg), g);
      },
      y);
  EXPECT_EQ(y[1].to_vector<double>(), (Numbers{1.5, 3}));
  for (int r = 0; r < 2; ++r) EXPECT_EQ(dx[r].to_vector<double>(), (Numbers{1, 1}));
  dx = gradients(
      2, {4},
      [](const Tensor& x, const ProcessGroupPtr& g) {
        return functional::reduce_scatter(x, ReduceOp(prim::ReduceKind::premul_sum, 2), g);
      },
      y);
  EXPECT_EQ(y[0].to_vector<double>(), (Numbers{6, 12}));
  EXPECT_EQ(y[1].to_vector<double>(), (Numbers{18, 24}));
  for (int r = 0; r < 2; ++r) EXPECT_EQ(dx[r].to_vector<double>(), (Numbers{2, 2, 4, 4}));
  EXPECT_THROW(gradients(
                   1, {1},
                   [](const Tensor& x, const ProcessGroupPtr& g) {
                     return functional::all_reduce(x, kMax, g);
                   },
                   y),
               ValueError);
}

TEST(Functional, Exchanges) {
  std::vector<Tensor> y;
  auto dx = gradients(
      2, {2},
      [](const Tensor& x, const ProcessGroupPtr& g) { return functional::all_gather(x, g); }, y);
  EXPECT_EQ(y[1].to_vector<double>(), (Numbers{1, 2, 2, 4}));
  for (int r = 0; r < 2; ++r) EXPECT_EQ(dx[r].to_vector<double>(), (Numbers{3, 3}));
  dx = gradients(
      2, {3},
      [](const Tensor& x, const ProcessGroupPtr& g) {
        const int64_t n = g->rank() + 1;
        return functional::all_to_all(x, {n, n}, {1, 2}, g);
      },
      y);
  EXPECT_EQ(y[0].to_vector<double>(), (Numbers{1, 2}));
  EXPECT_EQ(y[1].to_vector<double>(), (Numbers{2, 3, 4, 6}));
  for (int r = 0; r < 2; ++r) EXPECT_EQ(dx[r].to_vector<double>(), (Numbers{1, 2, 2}));
  dx = gradients(
      2, {2},
      [](const Tensor& x, const ProcessGroupPtr& g) { return functional::broadcast(x, 1, g); }, y);
  EXPECT_EQ(y[0].to_vector<double>(), (Numbers{2, 4}));
  EXPECT_EQ(dx[0].to_vector<double>(), (Numbers{0, 0}));
  EXPECT_EQ(dx[1].to_vector<double>(), (Numbers{3, 3}));
  dx = gradients(
      2, {1}, [](const Tensor& x, const ProcessGroupPtr& g) { return functional::gather(x, 1, g); },
      y);
  EXPECT_EQ(y[0].to_vector<double>(), (Numbers{0, 0}));
  EXPECT_EQ(y[1].to_vector<double>(), (Numbers{1, 2}));
  for (int r = 0; r < 2; ++r) EXPECT_EQ(dx[r].to_vector<double>(), (Numbers{2}));
  dx = gradients(
      2, {2, 1},
      [](const Tensor& x, const ProcessGroupPtr& g) { return functional::scatter(x, 0, g); }, y);
  EXPECT_EQ(y[1].to_vector<double>(), (Numbers{2}));
  EXPECT_EQ(dx[0].to_vector<double>(), (Numbers{1, 2}));
  EXPECT_EQ(dx[1].to_vector<double>(), (Numbers{0, 0}));
}

}  // namespace
}  // namespace arete::distributed
