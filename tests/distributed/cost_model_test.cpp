// Times of messages and plans: what is known by arithmetic.
#include "arete/distributed/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "arete/base/error.h"

namespace arete::distributed {
namespace {

TEST(CostModel, TimesOfCollectives) {
  const Link link{1e-6, 1e9};
  EXPECT_DOUBLE_EQ(link.message(1e6), 1e-6 + 1e-3);
  EXPECT_DOUBLE_EQ(all_reduce_seconds(8e6, 4, link), 2 * 3 * 1e-6 + 2 * 8e-3 * 3 / 4);
  EXPECT_DOUBLE_EQ(all_gather_seconds(8e6, 4, link), 3 * 1e-6 + 8e-3 * 3 / 4);
  EXPECT_EQ(all_reduce_seconds(8e6, 1, link), 0);
}

TEST(CostModel, LinksAreFitted) {
  const Link link{2e-5, 3e9};
  std::vector<std::pair<double, double>> measured;
  for (const double bytes : {1e3, 1e5, 1e7}) measured.emplace_back(bytes, link.message(bytes));
  const Link found = fit_link(measured);
  EXPECT_NEAR(found.latency, link.latency, 1e-9);
  EXPECT_NEAR(found.bandwidth / link.bandwidth, 1, 1e-6);
  EXPECT_THROW(fit_link({{1e3, 1e-3}}), ValueError);
  EXPECT_THROW(fit_link({{1e3, 1e-3}, {1e3, 2e-3}}), ValueError);
  EXPECT_THROW(fit_link({{1e3, 2e-3}, {1e6, 1e-3}}), ValueError);
}

TEST(CostModel, SizesOfModels) {
  const auto giga = [](const char* name) { return transformer_of(name).parameters() / 1e9; };
  EXPECT_NEAR(giga("gpt2"), 0.124, 0.002);
  EXPECT_NEAR(giga("gpt2-xl"), 1.56, 0.02);
  EXPECT_NEAR(giga("llama-7b"), 6.74, 0.02);
  EXPECT_NEAR(giga("llama-70b"), 70.6, 0.3);
  EXPECT_NEAR(giga("llama-405b"), 405.9, 1);
  EXPECT_THROW(transformer_of("bert"), ValueError);
  EXPECT_THROW(machine_of("b300"), ValueError);
  const TransformerSize m = transformer_of("llama-7b");
  // Two operations for each weight that is not the embedding, and half of the scores.
  EXPECT_NEAR(m.flops(2048), 2 * (m.parameters() - 32000. * 4096) + 32 * 2. * 2048 * 4096,
              1e-3 * m.flops(2048));
}

PlanRequest request(const char* model, int gpus, int64_t batch) {
  return {transformer_of(model), machine_of("h100"), gpus, batch, 4096};
}

TEST(Plans, OneGpuHasNoChoice) {
  const auto plans = parallel_plans({transformer_of("gpt2"), machine_of("h100"), 1, 16, 1024});
  for (const auto& p : plans) {
    EXPECT_EQ(p.data * p.tensor * p.pipeline, 1);
    EXPECT_EQ(p.bubble, 0);
    EXPECT_EQ(p.exposed, 0);
    EXPECT_LE(p.utilization, 0.5);  // what products reach
  }
  EXPECT_GT(plans[0].utilization, 0.48);
}

TEST(Plans, AreOrderedFitAndUseAllGpus) {
  const auto plans = parallel_plans(request("llama-70b", 64, 256));
  ASSERT_GT(plans.size(), 10u);
  for (const auto& p : plans) {
    EXPECT_EQ(p.data * p.tensor * p.pipeline, 64);
    EXPECT_EQ(p.data * p.microbatch * p.microbatches, 256);
    EXPECT_LE(p.memory, 80e9);
    EXPECT_GT(p.memory, 16 * 70e9 / 64);  // weights, gradients and states of AdamW
    EXPECT_GE(p.bubble, 0);
    EXPECT_GE(p.exposed, 0);
    EXPECT_LE(p.utilization, 0.5);
  }
  EXPECT_TRUE(std::ranges::is_sorted(plans, std::greater<>(), &ParallelPlan::tokens));
  EXPECT_THROW(parallel_plans(request("llama-405b", 8, 8)), ValueError);  // too large
  EXPECT_THROW(parallel_plans(request("llama-7b", 67, 1)), ValueError);   // nobody divides it
}

TEST(Plans, MoreOfEverythingIsFaster) {
  auto r = request("llama-7b", 256, 1024);
  const double before = parallel_plans(r)[0].tokens;
  r.machine.network.bandwidth /= 20;
  EXPECT_LT(parallel_plans(r)[0].tokens, before);
  r = request("llama-7b", 512, 1024);
  const double twice = parallel_plans(r)[0].tokens;
  EXPECT_GT(twice, 1.5 * before);
  EXPECT_LE(twice, 2 * before);
}

TEST(Plans, UpToFourThousandGpus) {
  const auto plans = parallel_plans(request("llama-405b", 4096, 2048));
  EXPECT_EQ(plans[0].data * plans[0].tensor * plans[0].pipeline, 4096);
  EXPECT_GT(plans[0].tokens, 0);
}

}  // namespace
}  // namespace arete::distributed
