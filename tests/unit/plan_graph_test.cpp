// Plans as graphs of GPUs that are none: what an error between two parts of a graph leaves.
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>

#include "arete/arete.h"
#include "arete/ops/call.h"
#include "arete/prim/effect.h"
#include "arete/prim/recorder.h"
#include "tests/support/fake_gpus.h"
#include "tests/support/gpu.h"

namespace arete::test {
namespace {

struct PlanGraph : testing::Test {
  void SetUp() override {
    NEEDS_NO_GPU();
    prim::register_provider(DeviceType::cuda, &fake_gpus(1));
  }
  void TearDown() override {
    if (IsSkipped()) return;
    prim::register_backend(Device(DeviceType::cuda, 0), nullptr);
    prim::register_provider(DeviceType::cuda, nullptr);
  }
};

/// Doubles float32s, or fails: a graph is cut there.
struct Doubling final : prim::Effect {
  bool fails = false;
  const char* name() const override { return "doubling"; }
  std::shared_ptr<PendingCopy> start(std::span<const prim::View>, std::span<const prim::View> out,
                                     double, bool) const override {
    if (fails) throw std::runtime_error("an error between the parts");
    for (int64_t k = 0; k < out[0].numel(); ++k) out[0].as<float>()[k] *= 2;
    return nullptr;
  }
};

TEST_F(PlanGraph, AnErrorBetweenPartsLeavesTheNumbersOfLaterLaunchesRight) {
  const auto effect = std::make_shared<Doubling>();
  const Tensor x = randn({8, 8}).cuda();
  const auto first = [&](double a) { return cumsum(cumsum(x, 0) * a, 1); };
  const auto second = [&](const Tensor& y, double a) { return cumsum(cumsum(y, 0) + a, 1); };
  Tensor seen;
  auto f = compile::compile(
      [&](double a) {
        const Tensor y = first(a);
        const prim::View view = ops::view_of(y);
        prim::putting_off()->take(
            y.device(), {.effect = effect.get(), .in = {}, .out = {&view, 1}, .updates = true});
        return seen = second(y, a);
      },
      {.exact = true});
  const auto expect_right = [&](double a) {
    EXPECT_TRUE(equal(f(a).cpu(), second(first(a) * 2, a).cpu())) << a;
  };
  for (int k = 1; k < 10; ++k) expect_right(k);
  ASSERT_NE(f.explain().find(", one graph"), std::string::npos) << f.explain();
  for (int round = 1; round <= 3; ++round) {
    effect->fails = true;
    EXPECT_THROW(f(100 * round), std::runtime_error);
    EXPECT_THROW(seen.cpu(), ValueError);  // and no result that was not written
    effect->fails = false;
    for (int k = 1; k < 4; ++k) expect_right(100 * round + k);
  }
  EXPECT_NE(f.explain().find(", one graph"), std::string::npos) << f.explain();
}

}  // namespace
}  // namespace arete::test
