// Averaged weights, and the schedules of cyclic_lr.h. The rates are those of PyTorch's schedulers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "arete/nn/container.h"
#include "arete/nn/linear.h"
#include "arete/nn/norm.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/random.h"
#include "arete/optim/adam.h"
#include "arete/optim/cyclic_lr.h"
#include "arete/optim/sgd.h"
#include "arete/optim/swa_utils.h"
#include "tests/support/errors.h"

namespace arete::optim {
namespace {

using testing::DoubleNear;
using testing::Pointwise;

Tensor parameter() { return ones({1}).requires_grad_(); }

std::vector<double> rates(Optimizer& optimizer, LRScheduler& scheduler, int n) {
  std::vector<double> all;
  for (int i = 0; i < n; ++i) {
    all.push_back(scheduler.get_last_lr()[0]);
    EXPECT_DOUBLE_EQ(all.back(), optimizer.lr());
    scheduler.step();
  }
  return all;
}

void expect_rates(const std::vector<double>& got, const std::vector<double>& want) {
  EXPECT_THAT(got, Pointwise(DoubleNear(1e-9), want));
}

TEST(MoreSchedules, Multiplicative) {
  SGD sgd({parameter()}, {.lr = 0.8});
  MultiplicativeLR s(sgd, [](int64_t epoch) { return epoch == 2 ? 1.0 : 0.5; });
  expect_rates(rates(sgd, s, 4), {0.8, 0.4, 0.4, 0.2});
}

TEST(MoreSchedules, CyclesWithMomentum) {
  SGD sgd({parameter()}, {.lr = 9, .momentum = 0.9});
  CyclicLR s(sgd, {.base_lr = {0.2}, .max_lr = {0.8}, .step_size_up = 2});
  EXPECT_DOUBLE_EQ(sgd.param_groups()[0].get("momentum"), 0.9);
  expect_rates(rates(sgd, s, 6), {0.2, 0.5, 0.8, 0.5, 0.2, 0.5});
  EXPECT_DOUBLE_EQ(sgd.param_groups()[0].get("momentum"), 0.8);  // at the peak

  Adam adam({parameter()}, {});
  CyclicLR halves(adam, {.base_lr = {0.1},
                         .max_lr = {0.5},
                         .step_size_up = 1,
                         .step_size_down = 2,
                         .mode = "triangular2"});
  expect_rates(rates(adam, halves, 5), {0.1, 0.5, 0.3, 0.1, 0.3});
  SGD plain({parameter()}, {.lr = 1});
  CyclicLR shrinks(plain, {.base_lr = {0},
                           .max_lr = {1},
                           .step_size_up = 2,
                           .mode = "exp_range",
                           .gamma = 0.5,
                           .cycle_momentum = false});
  expect_rates(rates(plain, shrinks, 4), {0, 0.25, 0.25, 0.0625});
  EXPECT_THROW(CyclicLR(plain, {.base_lr = {0}, .max_lr = {1}, .mode = "square"}), ValueError);
  EXPECT_THROW(CyclicLR(plain, {.base_lr = {0}, .max_lr = {1, 2}}), ValueError);
}

TEST(MoreSchedules, ChainsAndTheirState) {
  const auto make = [](SGD& sgd) {
    return std::make_unique<ChainedScheduler>(
        sgd,
        std::vector<std::shared_ptr<LRScheduler>>{
            std::make_shared<ConstantLR>(sgd, ConstantLROptions{.factor = 0.5, .total_iters = 2}),
            std::make_shared<ExponentialLR>(sgd, 0.5)});
  };
  SGD sgd({parameter()}, {.lr = 0.8}), other({parameter()}, {.lr = 0.8});
  const auto s = make(sgd), resumed = make(other);
  expect_rates(rates(sgd, *s, 2), {0.4, 0.2});
  resumed->load_state_dict(s->state_dict());
  other.set_lr(sgd.lr());
  expect_rates(rates(other, *resumed, 2), {0.2, 0.1});
  EXPECT_THROW(ChainedScheduler(sgd, {}), ValueError);
  EXPECT_THROW(ChainedScheduler(sgd, {std::make_shared<ReduceLROnPlateau>(sgd)}), ValueError);
}

TEST(MoreSchedules, RatesOfAveragedWeights) {
  SGD sgd({parameter()}, {.lr = 0.8});
  SWALR s(sgd, {0.2}, 3, "linear");
  expect_rates(rates(sgd, s, 5), {0.8, 0.6, 0.4, 0.2, 0.2});
  SGD at_once({parameter()}, {.lr = 0.8});
  SWALR now(at_once, {0.2}, 0);
  expect_rates(rates(at_once, now, 2), {0.2, 0.2});
  EXPECT_THROW(SWALR(sgd, {0.2}, 3, "square"), ValueError);
}

TEST(AveragedModel, MeansAndExponentialAverages) {
  nn::Sequential net(nn::Linear(2, 2), nn::BatchNorm1d(2));
  AveragedModel mean(net), ema(net, {.decay = 0.75}), buffers(net, {.use_buffers = true});
  std::vector<Tensor> seen;
  for (int i = 0; i < 3; ++i) {
    Tensor weight = net.parameters()[0].detach();
    weight.copy_(randn({2, 2}));
    seen.push_back(weight.clone());
    net(randn({5, 2}));  // moves the running statistics
    mean.update_parameters(net);
    ema.update_parameters(net);
    buffers.update_parameters(net);
  }
  const auto close = [](const Tensor& a, const Tensor& b) { return allclose(a, b, 1e-5, 1e-6); };
  EXPECT_TRUE(close(mean.module.parameters()[0], (seen[0] + seen[1] + seen[2]) / 3));
  EXPECT_TRUE(
      close(ema.module.parameters()[0], 0.75 * (0.75 * seen[0] + 0.25 * seen[1]) + 0.25 * seen[2]));
  EXPECT_TRUE(equal(mean.module.buffers()[0], net.buffers()[0]));
  EXPECT_FALSE(close(buffers.module.buffers()[0], net.buffers()[0]));
  EXPECT_EQ(mean.state_dict().at("n_averaged").item<int64_t>(), 3);
  EXPECT_TRUE(mean.state_dict().contains("module.0.weight"));
  EXPECT_EQ(mean(ones({4, 2})).size(0), 4);
  EXPECT_THROW(AveragedModel(net, {.decay = 2.0}), ValueError);
  nn::Linear one(2, 2, {.bias = false});
  EXPECT_THROW(update_average(net, one, mean.n_averaged, {}), ValueError);
}

}  // namespace
}  // namespace arete::optim
