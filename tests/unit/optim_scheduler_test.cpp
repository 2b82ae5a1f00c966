// Schedulers against their formulae.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "tests/unit/nn_test_support.h"

namespace arete {
namespace {

using test::error_of;
using test::has;

constexpr double kPi = std::numbers::pi;

struct Fixture {
  Tensor a = ones({1}).requires_grad_(), b = ones({1}).requires_grad_();
  optim::SGD opt{std::vector<optim::Group<optim::SGDOptions>>{{{a}, {.lr = 0.4, .momentum = 0.9}},
                                                              {{b}, {.lr = 0.1, .momentum = 0.9}}}};
};

// The rates over epochs 0 to `epochs` are base * f(epoch); recursive forms add up their roundings.
template <class Scheduler, class F>
void follows(Scheduler& s, const optim::Optimizer& opt, int epochs, F&& f) {
  const double base[] = {0.4, 0.1};
  for (int e = 0; e <= epochs; ++e) {
    for (size_t g = 0; g < 2; ++g) {
      const double want = f(e, base[g]);
      EXPECT_NEAR(opt.param_groups()[g].lr(), want, test::tolerance(kFloat64, (e + 1) * (e + 1), 1))
          << "epoch " << e;
      EXPECT_EQ(s.get_last_lr()[g], opt.param_groups()[g].lr());
    }
    EXPECT_EQ(s.last_epoch(), e);
    if (e < epochs) s.step();
  }
}

TEST(OptimScheduler, Factors) {
  {
    Fixture x;
    optim::StepLR s(x.opt, 3, 0.5);
    follows(s, x.opt, 10, [](int e, double b) { return b * std::pow(0.5, e / 3); });
  }
  {
    Fixture x;
    optim::MultiStepLR s(x.opt, {6, 2, 6}, 0.5);
    follows(s, x.opt, 8, [](int e, double b) { return b * (e < 2 ? 1 : e < 6 ? 0.5 : 0.125); });
  }
  {
    Fixture x;
    optim::ExponentialLR s(x.opt, 0.9);
    follows(s, x.opt, 10, [](int e, double b) { return b * std::pow(0.9, e); });
  }
  {
    Fixture x;
    optim::ConstantLR s(x.opt, {.factor = 0.25, .total_iters = 4});
    follows(s, x.opt, 6, [](int e, double b) { return e < 4 ? b / 4 : b; });
  }
  {
    Fixture x;
    optim::LinearLR s(x.opt, {.start_factor = 0.2, .end_factor = 0.8, .total_iters = 6});
    follows(s, x.opt, 9, [](int e, double b) { return b * (0.2 + 0.1 * std::min(e, 6)); });
  }
  {
    Fixture x;
    optim::PolynomialLR s(x.opt, {.total_iters = 5, .power = 2});
    follows(s, x.opt, 8, [](int e, double b) { return b * std::pow(1 - std::min(e, 5) / 5.0, 2); });
  }
  {
    Fixture x;
    optim::LambdaLR s(x.opt, [](int64_t e) { return 1.0 / double(1 + e); });
    follows(s, x.opt, 5, [](int e, double b) { return b / (1 + e); });
  }
}

TEST(OptimScheduler, Cosines) {
  {
    Fixture x;
    optim::CosineAnnealingLR s(x.opt, 5, 0.01);
    follows(s, x.opt, 17,
            [](int e, double b) { return 0.01 + (b - 0.01) * (1 + std::cos(kPi * e / 5)) / 2; });
  }
  {
    Fixture x;
    optim::CosineAnnealingWarmRestarts s(x.opt, 2, 2, 0.01);
    follows(s, x.opt, 13, [](int e, double b) {
      const int begin = e < 2 ? 0 : e < 6 ? 2 : 6, length = e < 2 ? 2 : e < 6 ? 4 : 8;
      return 0.01 + (b - 0.01) * (1 + std::cos(kPi * (e - begin) / length)) / 2;
    });
  }
}

TEST(OptimScheduler, ChainedOnesMultiply) {
  Fixture x;
  optim::ExponentialLR first(x.opt, 0.9);
  optim::ConstantLR second(x.opt, {.factor = 0.5, .total_iters = 3});
  for (int e = 0; e < 6; ++e) {
    EXPECT_NEAR(x.opt.lr(), 0.4 * std::pow(0.9, e) * (e < 3 ? 0.5 : 1),
                test::tolerance(kFloat64, 100, 1));
    first.step();
    second.step();
  }
}

TEST(OptimScheduler, WarmUpThenCosine) {
  Fixture x;
  optim::SequentialLR s(x.opt, {4}, optim::LinearLR(x.opt, {.start_factor = 0.1, .total_iters = 4}),
                        optim::CosineAnnealingLR(x.opt, 10));
  follows(s, x.opt, 14, [](int e, double b) {
    return e < 4 ? b * (0.1 + 0.9 * e / 4) : b * (1 + std::cos(kPi * (e - 4) / 10)) / 2;
  });
  EXPECT_TRUE(has(error_of([&] {
                    optim::SequentialLR(x.opt, {}, optim::StepLR(x.opt, 1),
                                        optim::StepLR(x.opt, 1));
                  }),
                  "one more"));
}

TEST(OptimScheduler, OneCycle) {
  Fixture x;
  // Rises to epoch 0.3 * 21 - 1 = 5.3, falls to epoch 20.
  optim::OneCycleLR s(
      x.opt, {.max_lr = {1.0, 0.5}, .total_steps = 21, .div_factor = 10, .final_div_factor = 100});
  const auto anneal = [](double from, double to, double part) {
    return to + (from - to) / 2 * (1 + std::cos(kPi * part));
  };
  for (int e = 0; e <= 20; ++e) {
    const double peak = 5.3;
    for (size_t g = 0; g < 2; ++g) {
      const double top = g ? 0.5 : 1.0, low = top / 10, end = low / 100;
      const double lr =
          e <= peak ? anneal(low, top, e / peak) : anneal(top, end, (e - peak) / (20 - peak));
      const double m =
          e <= peak ? anneal(0.95, 0.85, e / peak) : anneal(0.85, 0.95, (e - peak) / (20 - peak));
      EXPECT_NEAR(x.opt.param_groups()[g].lr(), lr, test::tolerance(kFloat64, 100, 1));
      EXPECT_NEAR(x.opt.param_groups()[g].get("momentum"), m, test::tolerance(kFloat64, 100, 1));
    }
    if (e < 20) s.step();
  }
  EXPECT_TRUE(has(error_of([&] { s.step(); }), "Tried to step 22 times"));

  Tensor p = ones({1}).requires_grad_();
  optim::Adam adam({p});
  optim::OneCycleLR t(adam, {.max_lr = {1},
                             .epochs = 3,
                             .steps_per_epoch = 4,
                             .anneal_strategy = "linear",
                             .three_phase = true});
  std::vector<double> rates;
  for (int e = 0; e < 12; ++e) {
    rates.push_back(adam.lr());
    if (e < 11) t.step();
  }
  // Peak at 2.6, back at 5.2, end at 11.
  const double low = 1.0 / 25, end = low / 1e4;
  const double exact = test::tolerance(kFloat64, 100, 1);
  EXPECT_NEAR(rates[1], low + (1 - low) * 1 / 2.6, exact);
  EXPECT_NEAR(rates[4], 1 + (low - 1) * (4 - 2.6) / 2.6, exact);
  EXPECT_NEAR(rates[8], low + (end - low) * (8 - 5.2) / (11 - 5.2), exact);
  EXPECT_NEAR(rates[11], end, exact);
  EXPECT_NEAR(adam.param_groups()[0].get("beta1"), 0.95, exact);
}

TEST(OptimScheduler, PlateauWaitsAndCools) {
  Fixture x;
  optim::ReduceLROnPlateau s(x.opt, {.factor = 0.5, .patience = 1, .cooldown = 2, .min_lr = 0.04});
  const auto rate_after = [&](double metric) {
    s.step(metric);
    return x.opt.lr();
  };
  EXPECT_EQ(rate_after(1.0), 0.4);
  EXPECT_EQ(rate_after(0.99999), 0.4) << "below the threshold: bad 1";
  EXPECT_EQ(rate_after(1.0), 0.2) << "bad 2 > patience";
  EXPECT_EQ(x.opt.param_groups()[1].lr(), 0.05);
  EXPECT_EQ(rate_after(1.0), 0.2) << "cooling";
  EXPECT_EQ(rate_after(NAN), 0.2) << "cooling";
  EXPECT_EQ(rate_after(1.0), 0.2) << "bad 1";
  const auto saved = s.state_dict();
  EXPECT_EQ(rate_after(1.0), 0.1) << "bad 2";
  EXPECT_EQ(x.opt.param_groups()[1].lr(), 0.04) << "min_lr";

  Fixture y;
  y.opt.set_lr(0.2);
  optim::ReduceLROnPlateau t(y.opt, {.factor = 0.5, .patience = 1, .cooldown = 2});
  t.load_state_dict(saved);
  t.step(1.0);
  EXPECT_EQ(y.opt.lr(), 0.1);

  Fixture z;
  optim::ReduceLROnPlateau up(
      z.opt,
      {.mode = "max", .factor = 0.5, .patience = 0, .threshold = 0.1, .threshold_mode = "abs"});
  up.step(1.0);
  up.step(1.2);
  EXPECT_EQ(z.opt.lr(), 0.4);
  up.step(1.25);
  EXPECT_EQ(z.opt.lr(), 0.2);
}

TEST(OptimScheduler, GoesOnFromItsState) {
  const auto make = [](optim::Optimizer& opt) {
    return optim::SequentialLR(opt, {3}, optim::LinearLR(opt, {.total_iters = 3}),
                               optim::CosineAnnealingLR(opt, 8));
  };
  Fixture x, y;
  auto one = make(x.opt);
  for (int i = 0; i < 5; ++i) one.step();
  auto two = make(y.opt);
  two.load_state_dict(one.state_dict());
  y.opt.load_state_dict(x.opt.state_dict());
  for (int i = 0; i < 5; ++i) {
    one.step();
    two.step();
    EXPECT_EQ(x.opt.lr(), y.opt.lr());
    EXPECT_EQ(one.get_last_lr(), two.get_last_lr());
  }
  auto state = one.state_dict();
  state.erase("base_lr.1");
  EXPECT_TRUE(has(error_of([&] { two.load_state_dict(state); }), "base_lr.1"));
}

}  // namespace
}  // namespace arete
