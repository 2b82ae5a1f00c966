// The gradient of ctc_loss, which is meant to stand behind log_softmax.
#include <gtest/gtest.h>

#include "arete/autograd/gradcheck.h"
#include "arete/base/error.h"
#include "arete/ops/creation.h"
#include "arete/ops/loss.h"
#include "arete/ops/random.h"
#include "arete/ops/softmax.h"

namespace arete::test {
namespace {

Tensor ints(std::initializer_list<int64_t> v) { return tensor(std::vector<int64_t>(v)); }

TEST(CtcLoss, GradientBehindLogSoftmax) {
  manual_seed(3);
  Tensor x = rand({4, 2, 3}, TensorOptions(kFloat64)).requires_grad_();
  for (const char* reduction : {"mean", "sum", "none"}) {
    const autograd::CheckedFunction f = [&](const std::vector<Tensor>& in) {
      return std::vector<Tensor>{ctc_loss(log_softmax(in[0], 2), ints({1, 1, 2}), ints({4, 3}),
                                          ints({2, 1}), 0, reduction)};
    };
    EXPECT_EQ(autograd::gradcheck(f, {x}), "");
    EXPECT_EQ(autograd::gradgradcheck(f, {x}), "");
  }
}

TEST(CtcLoss, WhatDoesNotFitHasNoGradient) {
  Tensor x = rand({2, 1, 3}, TensorOptions(kFloat64)).requires_grad_();
  ctc_loss(log_softmax(x, 2), ints({1, 1}), ints({2}), ints({2}), 0, "sum", true).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), std::vector<double>(6, 0.0));
}

TEST(CtcLoss, LabelsThatAreNoClass) {
  const Tensor x = log_softmax(rand({4, 1, 3}, TensorOptions(kFloat32)), 2);
  EXPECT_THROW(ctc_loss(x, ints({1, 3}), ints({4}), ints({2})), IndexError);
  EXPECT_THROW(ctc_loss(x, ints({-1, 1}), ints({4}), ints({2})), IndexError);
  // What is behind the end of a target is none.
  EXPECT_NO_THROW(ctc_loss(x, ints({1, -100}).view({1, 2}), ints({4}), ints({1})));
}

}  // namespace
}  // namespace arete::test
