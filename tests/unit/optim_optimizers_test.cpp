// Every optimizer against a plain re-implementation of its rule in f64, element by element.
#include <algorithm>
#include <cmath>

#include "tests/unit/nn_test_support.h"

namespace arete {
namespace {

using test::error_of;
using test::expect_values;
using test::has;

constexpr int kSteps = 12;

// Gradients that change sign and size from step to step.
double gradient_at(int step, size_t i, double p) {
  return std::sin(1.7 * double(i + 1) + 0.9 * step) + 0.3 * p;
}

// Steps `opt` over two parameters of different shapes; `scalar(step, i, p, g)` updates element i of
// a plain copy, which must stay equal.
template <class Scalar>
void compare(optim::Optimizer& opt, std::vector<Tensor>& params, Scalar&& scalar, int from_step = 1,
             int steps = kSteps) {
  std::vector<double> plain;
  for (const Tensor& t : params)
    for (double v : t.to_vector<double>()) plain.push_back(v);
  for (int step = from_step; step < from_step + steps; ++step) {
    size_t i = 0;
    std::vector<double> grads;
    for (Tensor& t : params) {
      std::vector<double> g;
      for (double p : t.to_vector<double>()) g.push_back(gradient_at(step, i++, p));
      grads.insert(grads.end(), g.begin(), g.end());
      t.set_grad(tensor(g, kFloat64).view(t.sizes()));
    }
    opt.step();
    for (size_t k = 0; k < plain.size(); ++k) scalar(step, k, plain[k], grads[k]);
    size_t at = 0;
    for (const Tensor& t : params) {
      const std::vector<double> want(plain.begin() + int64_t(at),
                                     plain.begin() + int64_t(at) + t.numel());
      at += size_t(t.numel());
      // Errors of all steps so far add up.
      expect_values(t, want, int64_t(step) * step * 100);
    }
  }
}

std::vector<Tensor> make_params() {
  std::vector<Tensor> params{linspace(-1, 1, 6, kFloat64).view({2, 3}),
                             tensor({0.5, -2.0}, kFloat64)};
  for (Tensor& p : params) p.requires_grad_();
  return params;
}
using State = std::vector<double>;

// Counts and numbers of states are f32 unless this is the default.
struct DoubleNumbers {
  DoubleNumbers() { set_default_dtype(kFloat64); }
  ~DoubleNumbers() { set_default_dtype(kFloat32); }
};

// The gradient that moments are made of; weight decay is part of it, or is taken off `p` here.
double decayed(double& p, double g, double lr, double decay, bool decoupled, bool maximize) {
  if (maximize) g = -g;
  if (decoupled)
    p *= 1 - lr * decay;
  else
    g += decay * p;
  return g;
}

TEST(OptimSGD, AllVariants) {
  for (double momentum : {0.0, 0.9})
    for (double dampening : {0.0, 0.4})
      for (double decay : {0.0, 0.1})
        for (bool nesterov : {false, true})
          for (bool maximize : {false, true}) {
            if (nesterov && (momentum == 0 || dampening != 0)) continue;
            std::vector<Tensor> params = make_params();
            optim::SGD opt(params, {.lr = 0.05,
                                    .momentum = momentum,
                                    .dampening = dampening,
                                    .weight_decay = decay,
                                    .nesterov = nesterov,
                                    .maximize = maximize});
            State v(8);
            compare(opt, params, [&](int step, size_t i, double& p, double g) {
              if (maximize) g = -g;
              g += decay * p;
              if (momentum != 0) {
                v[i] = step == 1 ? g : momentum * v[i] + (1 - dampening) * g;
                g = nesterov ? g + momentum * v[i] : v[i];
              }
              p -= 0.05 * g;
            });
          }
}

TEST(OptimAdam, AllVariants) {
  for (bool decoupled : {false, true})
    for (bool amsgrad : {false, true})
      for (double decay : {0.0, 0.1})
        for (bool maximize : {false, true}) {
          std::vector<Tensor> params = make_params();
          std::unique_ptr<optim::Optimizer> opt;
          if (decoupled)
            opt = std::make_unique<optim::AdamW>(params, optim::AdamWOptions{.lr = 0.05,
                                                                             .betas = {0.8, 0.95},
                                                                             .eps = 1e-6,
                                                                             .weight_decay = decay,
                                                                             .amsgrad = amsgrad,
                                                                             .maximize = maximize});
          else
            opt = std::make_unique<optim::Adam>(params, optim::AdamOptions{.lr = 0.05,
                                                                           .betas = {0.8, 0.95},
                                                                           .eps = 1e-6,
                                                                           .weight_decay = decay,
                                                                           .amsgrad = amsgrad,
                                                                           .maximize = maximize});
          State m(8), v(8), top(8);
          compare(*opt, params, [&](int t, size_t i, double& p, double g) {
            g = decayed(p, g, 0.05, decay, decoupled, maximize);
            m[i] = 0.8 * m[i] + 0.2 * g;
            v[i] = 0.95 * v[i] + 0.05 * g * g;
            top[i] = std::max(top[i], v[i]);
            const double m_hat = m[i] / (1 - std::pow(0.8, t));
            const double v_hat = (amsgrad ? top[i] : v[i]) / (1 - std::pow(0.95, t));
            p -= 0.05 * m_hat / (std::sqrt(v_hat) + 1e-6);
          });
        }
}

TEST(OptimLion, FollowsTheSign) {
  for (double decay : {0.0, 0.1}) {
    std::vector<Tensor> params = make_params();
    optim::Lion opt(params, {.lr = 0.01, .betas = {0.9, 0.99}, .weight_decay = decay});
    State m(8);
    compare(opt, params, [&](int, size_t i, double& p, double g) {
      p *= 1 - 0.01 * decay;
      const double c = 0.9 * m[i] + 0.1 * g;
      p -= 0.01 * (c > 0 ? 1 : c < 0 ? -1 : 0);
      m[i] = 0.99 * m[i] + 0.01 * g;
    });
  }
}

TEST(OptimRMSprop, AllVariants) {
  for (double momentum : {0.0, 0.9})
    for (bool centered : {false, true})
      for (double decay : {0.0, 0.1}) {
        std::vector<Tensor> params = make_params();
        optim::RMSprop opt(params, {.lr = 0.01,
                                    .alpha = 0.9,
                                    .eps = 1e-4,
                                    .weight_decay = decay,
                                    .momentum = momentum,
                                    .centered = centered});
        State v(8), mean(8), buffer(8);
        compare(opt, params, [&](int, size_t i, double& p, double g) {
          g += decay * p;
          v[i] = 0.9 * v[i] + 0.1 * g * g;
          mean[i] = 0.9 * mean[i] + 0.1 * g;
          const double spread = centered ? v[i] - mean[i] * mean[i] : v[i];
          const double step = g / (std::sqrt(spread) + 1e-4);
          buffer[i] = momentum * buffer[i] + step;
          p -= 0.01 * (momentum > 0 ? buffer[i] : step);
        });
      }
}

TEST(OptimAdagrad, DecaysItsRate) {
  std::vector<Tensor> params = make_params();
  optim::Adagrad opt(params, {.lr = 0.1,
                              .lr_decay = 0.05,
                              .weight_decay = 0.1,
                              .initial_accumulator_value = 0.5,
                              .eps = 1e-6});
  State sum(8, 0.5);
  compare(opt, params, [&](int t, size_t i, double& p, double g) {
    g += 0.1 * p;
    sum[i] += g * g;
    p -= 0.1 / (1 + (t - 1) * 0.05) * g / (std::sqrt(sum[i]) + 1e-6);
  });
}

TEST(OptimAdadelta, NeedsNoRate) {
  std::vector<Tensor> params = make_params();
  optim::Adadelta opt(params, {.lr = 1, .rho = 0.9, .eps = 1e-3, .weight_decay = 0.1});
  State v(8), u(8);
  compare(opt, params, [&](int, size_t i, double& p, double g) {
    g += 0.1 * p;
    v[i] = 0.9 * v[i] + 0.1 * g * g;
    const double d = std::sqrt(u[i] + 1e-3) / std::sqrt(v[i] + 1e-3) * g;
    u[i] = 0.9 * u[i] + 0.1 * d * d;
    p -= d;
  });
}

TEST(OptimNAdam, AllVariants) {
  const DoubleNumbers exact;
  for (bool decoupled : {false, true})
    for (double decay : {0.0, 0.1})
      for (bool maximize : {false, true}) {
        std::vector<Tensor> params = make_params();
        optim::NAdam opt(params, {.lr = 0.05,
                                  .betas = {0.8, 0.95},
                                  .eps = 1e-6,
                                  .weight_decay = decay,
                                  .momentum_decay = 0.3,
                                  .decoupled_weight_decay = decoupled,
                                  .maximize = maximize});
        State m(8), v(8), product(8, 1.0);
        compare(opt, params, [&](int t, size_t i, double& p, double g) {
          g = decayed(p, g, 0.05, decay, decoupled, maximize);
          const double now = 0.8 * (1 - 0.5 * std::pow(0.96, 0.3 * t)),
                       next = 0.8 * (1 - 0.5 * std::pow(0.96, 0.3 * (t + 1)));
          product[i] *= now;
          m[i] = 0.8 * m[i] + 0.2 * g;
          v[i] = 0.95 * v[i] + 0.05 * g * g;
          const double ahead =
              next * m[i] / (1 - product[i] * next) + (1 - now) * g / (1 - product[i]);
          p -= 0.05 * ahead / (std::sqrt(v[i] / (1 - std::pow(0.95, t))) + 1e-6);
        });
        EXPECT_EQ(opt.state_dict().numbers.at("state.1.mu_product"), product[7]);
      }
}

TEST(OptimRAdam, AllVariants) {
  for (bool decoupled : {false, true})
    for (double decay : {0.0, 0.1})
      for (bool maximize : {false, true}) {
        std::vector<Tensor> params = make_params();
        optim::RAdam opt(params, {.lr = 0.05,
                                  .betas = {0.8, 0.95},
                                  .eps = 1e-6,
                                  .weight_decay = decay,
                                  .decoupled_weight_decay = decoupled,
                                  .maximize = maximize});
        State m(8), v(8);
        int rectified = 0;
        compare(opt, params, [&](int t, size_t i, double& p, double g) {
          g = decayed(p, g, 0.05, decay, decoupled, maximize);
          m[i] = 0.8 * m[i] + 0.2 * g;
          v[i] = 0.95 * v[i] + 0.05 * g * g;
          const double b = std::pow(0.95, t), end = 2 / 0.05 - 1, rho = end - 2 * t * b / (1 - b);
          double step = m[i] / (1 - std::pow(0.8, t));
          if (rho > 5) {
            ++rectified;
            step *= std::sqrt((rho - 4) * (rho - 2) * end / ((end - 4) * (end - 2) * rho)) *
                    std::sqrt(1 - b) / (std::sqrt(v[i]) + 1e-6);
          }
          p -= 0.05 * step;
        });
        EXPECT_TRUE(0 < rectified && rectified < kSteps * 8) << "both kinds of steps";
      }
}

TEST(OptimAdamax, AllVariants) {
  for (double decay : {0.0, 0.1})
    for (bool maximize : {false, true}) {
      std::vector<Tensor> params = make_params();
      optim::Adamax opt(params, {.lr = 0.05,
                                 .betas = {0.8, 0.95},
                                 .eps = 1e-6,
                                 .weight_decay = decay,
                                 .maximize = maximize});
      State m(8), u(8);
      compare(opt, params, [&](int t, size_t i, double& p, double g) {
        if (maximize) g = -g;
        g += decay * p;
        m[i] = 0.8 * m[i] + 0.2 * g;
        u[i] = std::max(0.95 * u[i], std::fabs(g) + 1e-6);
        p -= 0.05 / (1 - std::pow(0.8, t)) * m[i] / u[i];
      });
    }
}

TEST(OptimRprop, StepSizesFollowTheSigns) {
  for (bool maximize : {false, true}) {
    std::vector<Tensor> params = make_params();
    optim::Rprop opt(params, {.lr = 0.05,
                              .eta_minus = 0.4,
                              .eta_plus = 1.5,
                              .step_min = 0.01,
                              .step_max = 0.2,
                              .maximize = maximize});
    State last(8), size(8, 0.05);
    int grown = 0, turned = 0;
    compare(opt, params, [&](int, size_t i, double& p, double g) {
      if (maximize) g = -g;
      if (g * last[i] > 0) size[i] *= 1.5, ++grown;
      if (g * last[i] < 0) size[i] *= 0.4, g = 0, ++turned;
      size[i] = std::min(std::max(size[i], 0.01), 0.2);
      p -= g > 0 ? size[i] : g < 0 ? -size[i] : 0;
      last[i] = g;
    });
    EXPECT_TRUE(grown > 0 && turned > 0);
  }
}

TEST(OptimASGD, Averages) {
  const DoubleNumbers exact;
  for (double decay : {0.0, 0.1})
    for (bool maximize : {false, true}) {
      std::vector<Tensor> params = make_params();
      optim::ASGD opt(params, {.lr = 0.05,
                               .lambd = 0.2,
                               .alpha = 0.6,
                               .t0 = 4,
                               .weight_decay = decay,
                               .maximize = maximize});
      State eta(8, 0.05), mu(8, 1.0), average(8);
      compare(opt, params, [&](int t, size_t i, double& p, double g) {
        if (maximize) g = -g;
        g += decay * p;
        p = p - 0.2 * eta[i] * p - eta[i] * g;
        average[i] += mu[i] * (p - average[i]);
        eta[i] = 0.05 / std::pow(1 + 0.2 * 0.05 * t, 0.6);
        mu[i] = 1 / std::max(1.0, double(t - 4));
      });
      const optim::State state = opt.state_dict();
      EXPECT_DOUBLE_EQ(state.numbers.at("state.0.mu"), mu[0]);
      expect_values(state.tensors.at("state.1.ax"), {average[6], average[7]},
                    kSteps * kSteps * 100);
    }
}

// The numbers of the state go on from where they were, too, and under a scaler they count the
// updates that took place.
TEST(Optimizer, NumbersOfTheState) {
  const auto grads_of = [](const Tensor& p, int step) {
    return (p * 0.3).sin() + double(step) * 0.1;
  };
  const auto run = [&](auto make) {
    Tensor whole = linspace(-1, 1, 5, kFloat64).requires_grad_(), half = whole.detach().clone();
    half.requires_grad_();
    auto one = make(whole);
    auto two = make(half);
    for (int step = 0; step < 8; ++step) {
      const NoGradGuard no_grad;
      whole.set_grad(grads_of(whole, step));
      one->step();
      half.set_grad(grads_of(half, step) * 1024.0);
      if (step % 3 == 1) {
        const optim::State before = two->state_dict();
        const std::vector<double> values = half.to_vector<double>();
        two->step_scaled(ones({}), full({}, 1.0 / 1024));
        EXPECT_EQ(half.to_vector<double>(), values);
        EXPECT_EQ(half.grad().to_vector<double>(), whole.grad().to_vector<double>());
        half.set_grad(half.grad() * 1024.0);
        EXPECT_EQ(two->state_dict().numbers, before.numbers);
      }
      two->step_scaled(zeros({}), full({}, 1.0 / 1024));
      if (step == 4) {
        optim::State saved = two->state_dict();
        saved.numbers = optim::numbers_from_text(optim::numbers_to_text(saved.numbers));
        two = make(half);
        two->load_state_dict(saved);
        saved.numbers.erase(std::find_if(saved.numbers.begin(), saved.numbers.end(), [](auto& n) {
          return n.first == "state.0.mu" || n.first == "state.0.mu_product";
        }));
        EXPECT_TRUE(has(error_of([&] { two->load_state_dict(saved); }), "is missing"));
      }
      EXPECT_EQ(half.to_vector<double>(), whole.to_vector<double>()) << step;
    }
    EXPECT_EQ(two->state_dict().numbers, one->state_dict().numbers);
  };
  run([](const Tensor& p) {
    return std::make_unique<optim::NAdam>(std::vector{p}, optim::NAdamOptions{.lr = 0.1});
  });
  run([](const Tensor& p) {
    return std::make_unique<optim::ASGD>(std::vector{p}, optim::ASGDOptions{.lr = 0.1, .t0 = 3});
  });
}

// Least squares, from the same start.
TEST(Optimizer, TheyConverge) {
  const auto loss_after = [](auto make, int steps) {
    manual_seed(4);
    const Tensor x = randn({32, 3}, kFloat64), y = matmul(x, tensor({1.0, -2.0, 0.5}, kFloat64));
    Tensor w = zeros({3}, kFloat64).requires_grad_();
    auto opt = make(w);
    const auto loss = [&] { return mse_loss(matmul(x, w), y); };
    for (int i = 0; i < steps; ++i)
      opt.step([&] {
        opt.zero_grad();
        const Tensor l = loss();
        l.backward();
        return l;
      });
    return loss().template item<double>();
  };
  using P = Tensor;
  EXPECT_LT(loss_after([](P w) { return optim::NAdam({w}, {.lr = 0.1}); }, 300), 1e-6);
  EXPECT_LT(loss_after([](P w) { return optim::RAdam({w}, {.lr = 0.1}); }, 400), 1e-6);
  EXPECT_LT(loss_after([](P w) { return optim::Adamax({w}, {.lr = 0.1}); }, 400), 1e-6);
  EXPECT_LT(loss_after([](P w) { return optim::Rprop({w}); }, 100), 1e-6);
  EXPECT_LT(loss_after([](P w) { return optim::ASGD({w}, {.lr = 0.3}); }, 300), 1e-6);
  EXPECT_LT(loss_after([](P w) { return optim::Adadelta({w}); }, 6000), 1e-2);
  EXPECT_LT(loss_after([](P w) { return optim::LBFGS({w}); }, 3), 1e-9);
}

TEST(Optimizer, GoesOnFromItsState) {
  std::vector<Tensor> params = make_params();
  optim::Adam opt(params, {.lr = 0.05, .amsgrad = true});
  State m(8), v(8), top(8);
  const auto rule = [&](int t, size_t i, double& p, double g) {
    m[i] = 0.9 * m[i] + 0.1 * g;
    v[i] = 0.999 * v[i] + 0.001 * g * g;
    top[i] = std::max(top[i], v[i]);
    p -= 0.05 / (1 - std::pow(0.9, t)) * m[i] /
         (std::sqrt(top[i]) / std::sqrt(1 - std::pow(0.999, t)) + 1e-8);
  };
  compare(opt, params, rule, 1, 5);
  // As a program would write and read it.
  optim::State saved = opt.state_dict();
  saved.numbers = optim::numbers_from_text(optim::numbers_to_text(saved.numbers));
  std::vector<Tensor> copies;
  for (const Tensor& p : params) copies.push_back(p.detach().clone().requires_grad_());
  optim::Adam resumed(copies, {.lr = 1});
  resumed.load_state_dict(saved);
  EXPECT_EQ(resumed.lr(), 0.05);
  for (auto& [name, value] : saved.tensors) {
    ASSERT_EQ(value.data_ptr(), opt.state_dict().tensors.at(name).data_ptr()) << "not a copy";
    EXPECT_NE(value.data_ptr(), resumed.state_dict().tensors.at(name).data_ptr()) << "a copy";
  }
  compare(resumed, copies, rule, 6, 5);
}

TEST(Optimizer, LoadingNamesWhatDoesNotFit) {
  std::vector<Tensor> params = make_params();
  optim::Adam opt(params);
  params[0].set_grad(ones({2, 3}, kFloat64));
  opt.step();
  optim::State state = opt.state_dict();
  EXPECT_EQ(state.numbers.at("state.0.step"), 1);
  EXPECT_FALSE(state.numbers.contains("state.1.step")) << "no gradient, no update";
  state.tensors.erase("state.0.exp_avg");
  state.tensors["state.0.exp_avg_sq"] = zeros({5});
  state.tensors["state.9.exp_avg"] = zeros({5});
  state.numbers["param_groups.1.lr"] = 1;
  const std::string text = error_of([&] { opt.load_state_dict(state); });
  EXPECT_TRUE(has(text, "state.0.exp_avg is missing")) << text;
  EXPECT_TRUE(has(text, "size mismatch for state.0.exp_avg_sq")) << text;
  EXPECT_TRUE(has(text, "unexpected tensor state.9.exp_avg")) << text;
  EXPECT_TRUE(has(text, "unexpected number param_groups.1.lr")) << text;
  EXPECT_EQ(opt.state_dict().tensors.at("state.0.exp_avg").size(0), 2) << "unchanged";
  EXPECT_TRUE(has(error_of([] { optim::numbers_from_text({{"lr", "fast"}}); }), "'lr'"));
}

TEST(Optimizer, GroupsHaveTheirOwnSettings) {
  Tensor a = ones({2}).requires_grad_(), b = ones({2}).requires_grad_();
  optim::SGD opt({{.params = {a}, .options = {.lr = 0.5}},
                  {.params = {b}, .options = {.lr = 0.25, .weight_decay = 1}}});
  a.set_grad(ones({2}));
  b.set_grad(ones({2}));
  opt.step();
  expect_values(a, {0.5, 0.5});
  expect_values(b, {0.5, 0.5});
  opt.param_groups()[1].set_lr(0);
  opt.step();
  expect_values(a, {0, 0});
  expect_values(b, {0.5, 0.5});
  opt.zero_grad(false);
  expect_values(a.grad(), {0, 0});
  opt.zero_grad();
  EXPECT_FALSE(a.grad().defined());
  EXPECT_TRUE(
      has(error_of([&] { opt.param_groups()[0].set("speed", 1); }), "one of: lr, momentum"));
  // A flag stays one, which recorded steps cannot follow.
  opt.param_groups()[0].replace("nesterov", 0.0);
  EXPECT_TRUE(opt.param_groups()[0].setting("nesterov").is_fixed());
}

TEST(Optimizer, ParametersThatMissStepsCountTheirOwn) {
  Tensor a = tensor({1.0}, kFloat64).requires_grad_(), b = tensor({1.0}, kFloat64).requires_grad_();
  optim::Adam both({a, b}, {.lr = 0.1});
  Tensor alone = tensor({1.0}, kFloat64).requires_grad_();
  optim::Adam single({alone}, {.lr = 0.1});
  for (int i = 0; i < 6; ++i) {
    both.zero_grad();
    a.set_grad(tensor({0.3 + i}, kFloat64));
    if (i % 2) {
      b.set_grad(tensor({0.7 - i}, kFloat64));
      alone.set_grad(tensor({0.7 - i}, kFloat64));
      single.step();
    }
    both.step();
  }
  EXPECT_EQ(b.item<double>(), alone.item<double>());
  EXPECT_EQ(both.state_dict().numbers.at("state.1.step"), 3);
}

TEST(Optimizer, HalfParametersAndInPlaceRules) {
  Tensor p = ones({64}, kBFloat16).requires_grad_();
  optim::SGD opt({p}, {.lr = 0.5});
  const uint64_t version = p.version();
  const void* data = p.data_ptr();
  p.set_grad(ones({64}, kBFloat16));
  opt.step();
  EXPECT_GT(p.version(), version);
  EXPECT_EQ(p.data_ptr(), data);
  EXPECT_TRUE(p.is_leaf() && p.requires_grad());
  expect_values(p, std::vector<double>(64, 0.5));
  // A graph that saved the parameter notices.
  Tensor x = ones({64}, kBFloat16).requires_grad_();
  const Tensor y = (p * x).sum();
  opt.step();
  EXPECT_TRUE(has(error_of([&] { y.backward(); }), "modified"));
}

TEST(Optimizer, ClosureRunsWithHistory) {
  Tensor p = tensor({2.0}).requires_grad_();
  optim::SGD opt({p}, {.lr = 0.1});
  const NoGradGuard outside;
  const Tensor loss = opt.step([&] {
    opt.zero_grad();
    const Tensor l = (p * p).sum();
    l.backward();
    return l;
  });
  EXPECT_EQ(loss.item<double>(), 4);
  expect_values(p, {2 - 0.1 * 4});
}

TEST(Optimizer, MistakesAreNamed) {
  EXPECT_TRUE(has(error_of([] { optim::SGD(std::vector<Tensor>{}); }), "empty parameter list"));
  Tensor p = ones({1}).requires_grad_();
  EXPECT_TRUE(has(error_of([&] { optim::SGD({p, p}); }), "more than one parameter group"));
  EXPECT_TRUE(has(error_of([&] { optim::SGD({p * 2}); }), "can't optimize a non-leaf Tensor"));
  EXPECT_TRUE(has(error_of([&] { optim::SGD({p}, {.lr = -1}); }), "Invalid learning rate: -1"));
  EXPECT_TRUE(has(error_of([&] { optim::SGD({p}, {.lr = ones({2})}); }), "must be 1-element"));
  EXPECT_TRUE(has(error_of([&] { optim::SGD({p}, {.nesterov = true}); }), "Nesterov"));
  EXPECT_TRUE(has(error_of([&] {
                    optim::Adam({p}, {.betas = {1.0, 0.9}});
                  }),
                  "Invalid beta parameter at index 0: 1.0"));
  EXPECT_TRUE(has(error_of([&] { optim::NAdam({p}, {.momentum_decay = -1}); }), "momentum_decay"));
  EXPECT_TRUE(has(error_of([&] { optim::Rprop({p}, {.eta_plus = 0.9}); }), "Invalid eta values"));
}

}  // namespace
}  // namespace arete
