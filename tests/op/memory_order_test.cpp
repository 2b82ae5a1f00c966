// Tensors whose dimensions lie in memory in another order, in sizes where GPUs have ways of their
// own: what is computed of them, and how the results lie.
#include <gtest/gtest.h>

#include <functional>

#include "arete/arete.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

using Function = std::function<Tensor(const Tensor&)>;

// Values and gradients on the test's device against f64 on the CPU, row-major. `gradient`: what
// arrives at the result, whose dimensions may lie otherwise than the argument's.
void expect_same(const char* name, const Function& f, const Tensor& x, const Tensor& gradient) {
  SCOPED_TRACE(name);
  const Tensor on_device = x.detach().clone().to(test_device()).requires_grad_();
  const Tensor wide = x.detach().contiguous().to(kFloat64).requires_grad_();
  EXPECT_EQ(Shape(on_device.strides()), Shape(x.strides()));
  const Tensor got = f(on_device), want = f(wide);
  ASSERT_EQ(Shape(got.sizes()), Shape(want.sizes()));
  EXPECT_TRUE(allclose(got.detach().to(kCPU).to(kFloat64), want.detach(), 1e-4, 1e-4));
  if (!gradient.defined()) return;
  got.backward(gradient.to(test_device()));
  want.backward(gradient.contiguous().to(kFloat64));
  EXPECT_TRUE(allclose(on_device.grad().to(kCPU).to(kFloat64), wide.grad(), 1e-4, 1e-4));
}

const Shape kSizes{64, 72, 80};
Tensor turned(const Tensor& t) { return t.mT().contiguous().mT(); }

TEST(MemoryOrder, SoftmaxOfTransposedTensors) {
  if (too_large_for_reference(numel_of(kSizes))) GTEST_SKIP();
  manual_seed(1);
  const Tensor x = turned(randn(kSizes)), dy = randn(kSizes);
  expect_same(
      "softmax", [](const Tensor& t) { return softmax(t, 0); }, x, dy);
  expect_same(
      "softmax", [](const Tensor& t) { return softmax(t, 2); }, x, turned(dy));
  expect_same(
      "log_softmax", [](const Tensor& t) { return log_softmax(t, 1); }, x, dy);
}

// More than GPUs copy into another order at a time.
TEST(MemoryOrder, LargeTensorsGoInSlices) {
  const Shape sizes{3, 1400, 1101};
  if (too_large_for_reference(numel_of(sizes))) GTEST_SKIP();
  manual_seed(5);
  const Tensor x = turned(randn(sizes)), dy = randn(sizes);
  expect_same(
      "softmax", [](const Tensor& t) { return softmax(t, 0); }, x, dy);
  expect_same(
      "log_softmax", [](const Tensor& t) { return log_softmax(t, 2); }, x, dy);
}

TEST(MemoryOrder, NormsOfTransposedAndChannelsLastTensors) {
  const Shape sizes{4, 32, 50, 48};
  if (too_large_for_reference(numel_of(sizes))) GTEST_SKIP();
  manual_seed(2);
  const Tensor plain = randn(sizes), dy = randn(sizes);
  const Function instance = [](const Tensor& t) { return instance_norm(t); };
  const Function group = [](const Tensor& t) { return group_norm(t, 4); };
  const Function batch = [](const Tensor& t) { return batch_norm(t, {}, {}, {}, {}, true); };
  for (const Tensor& x : {turned(plain), plain.contiguous(MemoryFormat::channels_last)}) {
    expect_same("instance_norm", instance, x, dy);
    expect_same("instance_norm", instance, x, dy.contiguous(MemoryFormat::channels_last));
    expect_same("group_norm", group, x, dy);
    expect_same("batch_norm", batch, x, dy);
    EXPECT_EQ(Shape(instance(x).strides()), Shape(x.strides()));
  }
}

TEST(MemoryOrder, ReductionsKeepTheOrderInTheirGradients) {
  if (too_large_for_reference(numel_of(kSizes))) GTEST_SKIP();
  manual_seed(3);
  const Tensor x = turned(rand(kSizes).add(0.5));
  for (const int64_t dim : {0, 1}) {
    const Function log_sum = [=](const Tensor& t) { return logsumexp(t, dim, true); };
    const Function length = [=](const Tensor& t) { return t.norm(1.5, {dim}); };
    const Function product = [=](const Tensor& t) { return t.mul(0.9).prod(dim); };
    expect_same("logsumexp", log_sum, x, randn(log_sum(x).sizes()));
    expect_same("norm", length, x, randn(length(x).sizes()));
    expect_same("prod", product, x, Tensor());
  }
  const Tensor leaf = x.clone().to(test_device()).requires_grad_();
  logsumexp(leaf, 0).sum().backward();
  EXPECT_EQ(Shape(leaf.grad().strides()), Shape(x.strides()));
  const Tensor other = turned(rand(kSizes));
  for (const double p : {1.5, 2.0})
    expect_same(
        "dist", [&](const Tensor& t) { return dist(t, other.to(t.dtype()).to(t.device()), p); }, x,
        ones({}));
}

TEST(MemoryOrder, RowsThatAreNotAligned) {
  if (too_large_for_reference(60 * 510)) GTEST_SKIP();
  manual_seed(4);
  const auto close = [](const Tensor& got, const Tensor& want) {
    return allclose(got.to(kCPU).to(kFloat64), want, 1e-4, 1e-4);
  };
  const Tensor buffer = rand({60, 514}).add(0.5).to(test_device());
  for (const bool sliced : {false, true}) {
    const Tensor part = buffer.narrow(1, 1, 510), x = sliced ? part : part.contiguous();
    const Tensor wide = x.contiguous().to(kCPU).to(kFloat64);
    EXPECT_TRUE(close(x.norm(1.5, {1}), wide.norm(1.5, {1})));
    EXPECT_TRUE(close(x.norm(5, {1}), wide.norm(5, {1})));
    EXPECT_TRUE(close(x.sum(1), wide.sum(1)));
    EXPECT_TRUE(close(x.mul(0.9).prod(1), wide.mul(0.9).prod(1)));
    EXPECT_TRUE(close(x.prod(0), wide.prod(0)));
    EXPECT_TRUE(close(x.amax({1}), wide.amax({1})));
    EXPECT_TRUE(close(x.unsqueeze(1).amax({1}), wide));
    EXPECT_TRUE(close(x.unsqueeze(1).sum(1), wide));
    EXPECT_TRUE(close(nansum(x.unsqueeze(1), {1}), wide));
    EXPECT_TRUE(x.unsqueeze(1).any({1}).all().item<bool>());
    for (const int64_t dim : {0, 1}) {
      const auto low = cummin(x, dim), want = cummin(wide, dim);
      EXPECT_TRUE(close(std::get<0>(low), std::get<0>(want)));
      EXPECT_TRUE(equal(std::get<1>(low).to(kCPU), std::get<1>(want)));
      EXPECT_TRUE(close(x.cumsum(dim), wide.cumsum(dim)));
    }
    EXPECT_TRUE(
        close(dot(x.select(0, 0), x.select(0, 1)), dot(wide.select(0, 0), wide.select(0, 1))));
    EXPECT_TRUE(close(x.floor_divide(Scalar(0.3)),
                      wide.to(kFloat32).floor_divide(Scalar(0.3)).to(kFloat64)));
  }
}

}  // namespace
}  // namespace arete::test
