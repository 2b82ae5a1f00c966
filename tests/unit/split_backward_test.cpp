// A backward pass in two parts: the same bits as in one.
#include "arete/autograd/split_backward.h"

#include <gtest/gtest.h>

#include "arete/arete.h"

namespace arete {
namespace {

using autograd::SplitBackward;

struct SplitBackwards : testing::Test {
  Tensor weight = leaf({4, 3}), bias = leaf({4}), scale = leaf({4}), shift = leaf({4});
  Tensor last = leaf({4, 4}), alone = leaf({2, 4}), x = leaf({2, 3});
  const std::vector<Tensor> leaves = {weight, bias, scale, shift, last, alone};
  static Tensor leaf(Shape sizes) { return randn(sizes).requires_grad_(); }

  // Products, a normalization, a weight in two places and behind a view, and one that no input
  // comes near.
  Tensor result() const {
    Tensor y = linear(x, weight, bias);
    y = layer_norm(y, {4}, scale, shift);
    y = matmul(y.tanh(), last);
    y = linear(y, last.transpose(0, 1), scale);
    return (y * matmul(alone, last)).sum() + x.sum() * 2;
  }
  std::vector<std::vector<float>> gradients() const {
    std::vector<std::vector<float>> all;
    for (const Tensor& t : leaves)
      all.push_back(t.grad().defined() ? t.grad().to_vector<float>() : std::vector<float>());
    return all;
  }
  void clear() const {
    for (const Tensor& t : leaves) t.set_grad(Tensor());
    x.set_grad(Tensor());
  }
};

TEST_F(SplitBackwards, BothPartsGiveTheBitsOfOnePass) {
  result().backward();
  const auto whole = gradients();
  const auto of_input = x.grad().to_vector<float>();
  clear();
  const Tensor y = result();
  SplitBackward split({&y, 1}, {}, {&x, 1});
  EXPECT_EQ(split.input_gradients()[0].to_vector<float>(), of_input);
  for (const auto& g : gradients()) EXPECT_TRUE(g.empty());
  split.accumulate();
  EXPECT_EQ(gradients(), whole);
  EXPECT_FALSE(x.grad().defined());
  EXPECT_THROW(split.accumulate(), AutogradError);
  EXPECT_THROW(SplitBackward({&y, 1}, {}, {&x, 1}), AutogradError);  // its history is used up
}

TEST_F(SplitBackwards, WithoutInputsEverythingIsLater) {
  result().backward();
  const auto whole = gradients();
  clear();
  const Tensor y = result();
  SplitBackward split({&y, 1}, {}, {});
  for (const auto& g : gradients()) EXPECT_TRUE(g.empty());
  split.accumulate();
  EXPECT_EQ(gradients(), whole);
}

TEST_F(SplitBackwards, HooksRunOnceAndTheirGradientsCount) {
  const auto hooked = [&](int& calls) {
    const Tensor y = linear(x, weight, bias);
    y.register_hook([&calls](const Tensor& g) {
      ++calls;
      return g * 2;
    });
    return (y * y).sum();
  };
  int calls = 0, accumulated = 0;
  hooked(calls).backward();
  const auto whole = gradients();
  clear();
  const uint64_t id =
      autograd::register_post_accumulate_grad_hook(weight, [&](const Tensor&) { ++accumulated; });
  const Tensor y = hooked(calls);
  SplitBackward split({&y, 1}, {}, {&x, 1});
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(accumulated, 0);
  split.accumulate();
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(accumulated, 1);
  EXPECT_EQ(gradients(), whole);
  autograd::remove_post_accumulate_grad_hook(weight, id);
}

TEST_F(SplitBackwards, HooksOfAnInputRunOnceWhereMoreComesBeforeIt) {
  int calls = 0;
  const auto run = [&](bool parts) {
    const Tensor y = linear(x, weight, bias);
    y.register_hook([&calls](const Tensor& g) {
      ++calls;
      return g * 2;
    });
    y.retain_grad();
    const Tensor z = (y * y).sum();
    if (!parts) {
      z.backward();
      return y.grad().to_vector<float>();
    }
    SplitBackward split({&z, 1}, {}, {&y, 1});
    const auto of_input = split.input_gradients()[0].to_vector<float>();
    split.accumulate();
    EXPECT_EQ(y.grad().to_vector<float>(), of_input);
    return of_input;
  };
  const auto of_input = run(false);
  const auto whole = gradients();
  clear();
  EXPECT_EQ(run(true), of_input);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(gradients(), whole);
}

TEST_F(SplitBackwards, AnInputThatNothingReachesHasNoGradient) {
  const Tensor y = linear(ones({1, 3}), weight).sum();
  SplitBackward split({&y, 1}, {}, {&x, 1});
  EXPECT_FALSE(split.input_gradients()[0].defined());
  split.accumulate();
  EXPECT_EQ(weight.grad().sum().item<float>(), 12);
}

}  // namespace
}  // namespace arete
