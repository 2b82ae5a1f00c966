// vmap from C++, and gradients inside, outside and between its levels.
#include <gtest/gtest.h>

#include "arete/arete.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

using Tensors = std::vector<Tensor>;

Tensor numbers(IntList sizes) {
  return arange(double(numel_of(sizes)), TensorOptions(kFloat64, test_device())).reshape(sizes) *
         0.25;
}
void expect_equal(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(Shape(a.sizes()), Shape(b.sizes()));
  EXPECT_TRUE(allclose(a.detach(), b.detach()));
}

TEST(Vmap, RunsForTheWholeBatch) {
  const Tensor x = numbers({3, 4}), w = numbers({4, 2});
  const auto f = [&](const Tensors& in) { return Tensors{tanh(in[0].matmul(w)).sum(0)}; };
  expect_equal(vmap(f, {x})[0], tanh(x.matmul(w)).sum(1));
  expect_equal(vmap(f, {x.t()}, {1})[0], tanh(x.matmul(w)).sum(1));
  const auto outer = [](const Tensors& in) {
    return vmap([&](const Tensors& inner) { return Tensors{in[0] * inner[0]}; }, {in[1]});
  };
  expect_equal(vmap(outer, {x.select(1, 0), x.select(1, 1)}, {0, std::nullopt})[0],
               x.select(1, 0).unsqueeze(1) * x.select(1, 1));
}

TEST(Vmap, GradientsInsideAndOutside) {
  const Tensor x = numbers({3, 4});
  const auto inside = [](const Tensors& in) {
    const Tensor v = in[0].detach().requires_grad_();
    return Tensors{autograd::grad(v.pow(3).sum(), v)[0]};
  };
  expect_equal(vmap(inside, {x})[0], 3 * x.square());
  const Tensor leaf = x.clone().requires_grad_();
  const Tensor made =
      vmap([](const Tensors& in) { return Tensors{in[0].pow(3).sum()}; }, {leaf})[0];
  expect_equal(autograd::grad(made.sum(), leaf)[0], 3 * x.square());
}

TEST(Vmap, RefusesLooksAndSharedWrites) {
  const Tensor x = numbers({3, 4});
  Tensor shared = zeros({4}, x.options());
  EXPECT_THROW(
      vmap([](const Tensors& in) { return Tensors{in[0] * in[0].sum().item<double>()}; }, {x}),
      AutogradError);
  EXPECT_THROW(vmap([&](const Tensors& in) { return Tensors{shared.add_(in[0])}; }, {x}),
               AutogradError);
  EXPECT_EQ(shared.abs().sum().item<double>(), 0);
  EXPECT_THROW(vmap([](const Tensors& in) { return Tensors{in[0] + rand({4})}; }, {x}),
               AutogradError);
}

}  // namespace
}  // namespace arete::test
