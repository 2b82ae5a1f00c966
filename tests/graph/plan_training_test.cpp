// Training steps as plans, against steps that are called: bit for bit over many steps.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>

#include "arete/arete.h"

namespace arete::test {
namespace plan_training {

constexpr int kSteps = 12, kEager = 2;

std::shared_ptr<nn::Sequential> make_net() {
  manual_seed(5);
  return std::make_shared<nn::Sequential>(
      nn::Conv2d(1, 4, 3), nn::BatchNorm2d(4), nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(),
      nn::Linear(4 * 5 * 5, 16), nn::LayerNorm(16), nn::GELU(), nn::Linear(16, 6));
}

std::vector<std::byte> bits(const Tensor& t) {
  const Tensor c = t.detach().contiguous();
  std::vector<std::byte> bytes(size_t(c.numel()) * size_of(c.dtype()));
  if (!bytes.empty()) std::memcpy(bytes.data(), c.data_ptr(), bytes.size());
  return bytes;
}

// The losses of all steps, then parameters and buffers.
using Bits = std::vector<std::vector<std::byte>>;
using MakeOptimizer =
    std::function<std::unique_ptr<optim::Optimizer>(const std::vector<Tensor>& params)>;

Bits train(const MakeOptimizer& make_optimizer, bool planned, bool autocast) {
  const auto net = make_net();
  const auto opt = make_optimizer(net->parameters());
  Tensor x = zeros({8, 1, 12, 12}), y = zeros({8}, TensorOptions(kInt64)), loss = zeros({});
  const auto step = [&] {
    opt->zero_grad();
    Tensor l;
    {
      std::optional<amp::Autocast> guard;
      if (autocast) guard.emplace(kCPU, kBFloat16);
      l = cross_entropy((*net)(x), y);
    }
    l.backward();
    opt->step();
    loss.copy_(l.detach());
  };
  Bits all;
  std::unique_ptr<compile::Plan> plan;
  for (int k = 0; k < kSteps; ++k) {
    manual_seed(uint64_t(100 + k));
    x.copy_(randn({8, 1, 12, 12}));
    y.copy_(randint(0, 6, {8}, TensorOptions(kInt64)));
    if (!planned || k < kEager) {
      step();
    } else if (!plan) {
      plan = compile::plan(step);
      EXPECT_LT(plan->stats().steps, plan->stats().recorded);
    } else {
      plan->run();
    }
    all.push_back(bits(loss));
  }
  for (const Tensor& p : net->parameters()) all.push_back(bits(p));
  for (const Tensor& b : net->buffers()) all.push_back(bits(b));
  return all;
}

void expect_same(const MakeOptimizer& make_optimizer) {
  for (const bool autocast : {false, true}) {
    SCOPED_TRACE(autocast ? "autocast" : "float32");
    EXPECT_EQ(train(make_optimizer, true, autocast), train(make_optimizer, false, autocast));
  }
}

TEST(PlanTraining, AdamW) {
  expect_same([](const std::vector<Tensor>& params) {
    return std::make_unique<optim::AdamW>(params,
                                          optim::AdamWOptions{.lr = 1e-2, .capturable = true});
  });
}

TEST(PlanTraining, SgdWithMomentum) {
  expect_same([](const std::vector<Tensor>& params) {
    return std::make_unique<optim::SGD>(params, optim::SGDOptions{.lr = 0.05, .momentum = 0.9});
  });
}

}  // namespace plan_training
}  // namespace arete::test
