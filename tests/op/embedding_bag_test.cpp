// Bags of so many embeddings that their rows are summed in parts, against the operators that they
// stand for.
#include <gtest/gtest.h>

#include "arete/arete.h"
#include "arete/autograd/engine.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

TEST(EmbeddingBag, SumsInParts) {
  const bool small = too_large_for_reference(1 << 21);
  const int64_t n = small                    ? 60
                    : test_device().is_cpu() ? 3000
                                             : 40000,
                width = small ? 7 : 513, bags = 41;
  const TensorOptions f64(kFloat64, test_device()), ints(kInt64, test_device());
  const Tensor weight = randn({50, width}, f64).requires_grad_();
  const Tensor index = randint(0, 50, {n}, ints);
  // Every second of a longer vector.
  const Tensor factors = randn({n, 2}, f64).select(1, 0).detach().requires_grad_();
  const Tensor bag = arange(Scalar(n), ints).mul(Scalar(bags)).floor_divide(Scalar(n));
  const Tensor offsets = searchsorted(bag, arange(Scalar(bags), ints));

  const Tensor got = embedding_bag(index, weight, offsets, "sum", factors);
  const Tensor rows = weight.index_select(0, index).mul(factors.unsqueeze(1));
  const Tensor want = zeros({bags, width}, f64).index_add(0, bag, rows);
  const auto far = [](const Tensor& a, const Tensor& b) {
    return (a - b).abs().max().item<double>();
  };
  EXPECT_EQ(to_string(got.sizes()), to_string(want.sizes()));
  EXPECT_LE(far(got.detach(), want.detach()), 1e-10);
  const Tensor seed = randn({bags, width}, f64);
  const std::vector<Tensor> inputs{weight, factors};
  const TensorList ours = autograd::grad({&got, 1}, inputs, {&seed, 1}),
                   theirs = autograd::grad({&want, 1}, inputs, {&seed, 1});
  for (size_t k = 0; k < inputs.size(); ++k) EXPECT_LE(far(ours[k], theirs[k]), 1e-9) << k;
}

}  // namespace
}  // namespace arete::test
