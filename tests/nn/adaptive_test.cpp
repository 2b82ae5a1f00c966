// The softmax over clusters of classes: what it says of targets is what it says of all classes.
#include "arete/nn/adaptive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "arete/autograd/engine.h"
#include "arete/core/generator.h"
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/random.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "tests/support/errors.h"

namespace arete::nn {
namespace {

TEST(AdaptiveLogSoftmaxWithLoss, TargetsHaveTheProbabilitiesOfTheirClasses) {
  manual_seed(1);
  AdaptiveLogSoftmaxWithLoss layer(8, 20, {4, 10}, {.div_value = 2, .head_bias = true});
  EXPECT_EQ(to_string(layer.named_parameters().at("tail.1.0.weight").sizes()), "[2, 8]");
  EXPECT_EQ(to_string(layer.named_parameters().at("head.bias").sizes()), "[6]");
  const Tensor x = randn({5, 8}), y = tensor(std::vector<int64_t>{0, 19, 5, 3, 10});
  const Tensor all = layer.log_prob(x);
  EXPECT_EQ(to_string(all.sizes()), "[5, 20]");
  EXPECT_TRUE(allclose(all.exp().sum({1}), ones({5}), 1e-5, 1e-6));
  const auto [output, loss] = layer(x, y);
  EXPECT_TRUE(allclose(output, all.gather(1, y.unsqueeze(1)).squeeze(1), 1e-5, 1e-6));
  EXPECT_TRUE(allclose(loss, -output.mean(), 1e-6, 0.0));
  EXPECT_TRUE(equal(layer.predict(x), all.argmax(1)));
  loss.backward();
  for (const auto& [name, p] : layer.named_parameters()) EXPECT_TRUE(p.grad().defined()) << name;
  const auto one = layer(x.select(0, 1), y.select(0, 1));
  EXPECT_EQ(one.output.dim(), 0);
  EXPECT_TRUE(allclose(one.output, output.select(0, 1), 1e-5, 1e-6));
}

TEST(AdaptiveLogSoftmaxWithLoss, Refusals) {
  for (const std::vector<int64_t>& cutoffs :
       {std::vector<int64_t>{}, {0, 3}, {3, 3}, {5, 3}, {3, 20}})
    EXPECT_THROW(AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs), ValueError);
  AdaptiveLogSoftmaxWithLoss layer(8, 20, {4});
  const auto classes = [](std::vector<int64_t> v) { return tensor(v); };
  EXPECT_THROW(layer(ones({2, 8}), classes({1, 20})), IndexError);
  EXPECT_THROW(layer(ones({2, 8}), classes({1, -1})), IndexError);
  EXPECT_THROW(layer(ones({3, 8}), classes({1, 2})), ValueError);
  EXPECT_THROW(layer(ones({8}), classes({1})), ValueError);
}

}  // namespace
}  // namespace arete::nn
