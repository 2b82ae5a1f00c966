// multilabel_margin_loss by both of its ways to count: pairs of few classes, sorted ones of many.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "arete/arete.h"
#include "tests/support/test_device.h"

namespace arete {
namespace {

TEST(MultilabelMarginLoss, OfFewAndManyClasses) {
  const Device device = test::test_device();
  std::mt19937_64 rng(7);
  for (const int64_t classes : {5, 70, 1500}) {
    const int64_t rows = 2;
    std::vector<float> x(size_t(rows * classes));
    for (float& v : x) v = float(rng() % 4096) / 1024 - 2;
    std::vector<int64_t> labels(x.size(), -1);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < classes / 2; ++j)  // of which many repeat
        labels[size_t(r * classes + j)] = int64_t(rng() % uint64_t(classes * 2 / 3));
    double loss = 0;
    std::vector<double> gradient(x.size(), 0.0);
    const double share = 1 / double(rows * classes);
    for (int64_t r = 0; r < rows; ++r) {
      const auto at = [&](int64_t k) { return size_t(r * classes + k); };
      std::vector<char> own(size_t(classes), 0);
      for (int64_t j = 0; j < classes / 2; ++j) own[size_t(labels[at(j)])] = 1;
      for (int64_t j = 0; j < classes / 2; ++j)
        for (int64_t k = 0; k < classes; ++k) {
          const size_t y = at(labels[at(j)]);
          const double margin = 1 - double(x[y]) + double(x[at(k)]);
          if (own[size_t(k)] || margin <= 0) continue;
          loss += margin * share, gradient[y] -= share, gradient[at(k)] += share;
        }
    }
    const Shape sizes{rows, classes};
    Tensor input = tensor_from_host(x.data(), kFloat32, sizes, TensorOptions(kFloat32, device));
    input.requires_grad_();
    const Tensor target =
        tensor_from_host(labels.data(), kInt64, sizes, TensorOptions(kInt64, device));
    const Tensor got = multilabel_margin_loss(input, target);
    got.backward();
    EXPECT_NEAR(double(got.item<float>()), loss, 1e-5 * std::max(1.0, loss)) << classes;
    const std::vector<float> slope = input.grad().to_vector<float>();
    for (size_t i = 0; i < slope.size(); ++i)
      ASSERT_NEAR(double(slope[i]), gradient[i], 1e-5 * std::max(1.0, std::abs(gradient[i])))
          << classes << " " << i;
  }
}

}  // namespace
}  // namespace arete
