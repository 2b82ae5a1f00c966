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

// Bags of very different sizes: empty ones, some of a few entries, some of thousands, at the ends
// too; sums and means, with and without a row that does not count.
TEST(EmbeddingBag, LargeBagsAmongSmallOnes) {
  const TensorOptions f64(kFloat64, test_device()), ints(kInt64, test_device());
  const bool small = too_large_for_reference(1 << 21);
  const int64_t n = small ? 600 : 5000;
  const std::vector<std::vector<int64_t>> beginnings{
      {0, 2, 2, 9, n - 300, n},  // the last one is empty
      {0, n - 1},
      {0},
      {0, 255, 256, 511, 512, 600},
      {0, 0, 1, 258, 258, 514, 515}};
  for (const int64_t width : {3, 8, 260})
    for (const std::vector<int64_t>& begins : beginnings)
      for (const char* mode : {"sum", "mean"})
        for (const std::optional<int64_t> padding : {std::optional<int64_t>(), {4}}) {
          const int64_t bags = int64_t(begins.size());
          const Tensor weight = randn({11, width}, f64), index = randint(0, 11, {n}, ints);
          const Tensor offsets = tensor(begins, ints);
          const Tensor got = embedding_bag(index, weight, offsets, mode, {}, false, padding);
          const Tensor bag =
              searchsorted(offsets, arange(Scalar(n), ints), true).sub(Scalar(int64_t{1}));
          const Tensor counts = padding ? index.ne(Scalar(*padding)).to(kFloat64) : ones({n}, f64);
          const Tensor rows = weight.index_select(0, index).mul(counts.unsqueeze(1));
          Tensor want = zeros({bags, width}, f64).index_add(0, bag, rows);
          if (std::string_view(mode) == "mean")
            want = want.div(
                zeros({bags}, f64).index_add(0, bag, counts).clamp(Scalar(1.0)).unsqueeze(1));
          EXPECT_LE((got - want).abs().max().item<double>(), 1e-11)
              << "width " << width << " bags " << bags << " " << mode << " " << padding.has_value();
        }
  // Each row of an index of two dimensions is a bag.
  const Tensor weight = randn({11, 20}, f64), index = randint(0, 11, {3, n / 3}, ints);
  const Tensor want = weight.index_select(0, index.reshape({-1})).reshape({3, n / 3, 20}).mean({1});
  EXPECT_LE((embedding_bag(index, weight, {}, "mean") - want).abs().max().item<double>(), 1e-11);
}

}  // namespace
}  // namespace arete::test
