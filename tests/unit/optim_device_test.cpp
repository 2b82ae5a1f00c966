// Steps with counts on the device against steps with counts on the host, settings that are tensors,
// history through a step, optimizers that are more than one pass.
#include <algorithm>
#include <cmath>

#include "tests/unit/nn_test_support.h"

namespace arete {
namespace {

using test::error_of;
using test::expect_values;
using test::has;

constexpr int kManySteps = 50;

// Two groups of parameters from the same start; the second parameter misses every third step.
std::vector<Tensor> start(DType dtype, bool matrices = false) {
  manual_seed(3);
  std::vector<Tensor> params;
  for (const Shape& sizes : {Shape{3, 4}, matrices ? Shape{5, 2} : Shape{7}, Shape{2, 2}})
    params.push_back(randn(sizes, kFloat64).to(dtype).requires_grad_());
  return params;
}
template <class Options>
std::vector<optim::Group<Options>> groups(const std::vector<Tensor>& p, const Options& options) {
  Options other = options;
  other.lr = options.lr.value() / 2;
  return {{{p[0], p[1]}, options}, {{p[2]}, other}};
}
void set_gradients(const std::vector<Tensor>& params, int step, double scale = 1) {
  const NoGradGuard no_grad;
  for (size_t i = 0; i < params.size(); ++i) {
    const Tensor& p = params[i];
    const bool missing = i == 1 && step % 3 == 0;
    const Tensor g = (p * 0.7 + 0.3 * step).sin() * scale;
    p.set_grad(missing ? Tensor() : g.to(p.dtype()));
  }
}
std::vector<double> numbers(const std::vector<Tensor>& params) {
  std::vector<double> all;
  for (const Tensor& t : params) {
    const Tensor real = is_complex(t.dtype()) ? view_as_real(t) : t;
    for (double v : real.to_vector<double>()) all.push_back(v);
  }
  return all;
}

// 50 steps each with a schedule: counts on the host, on the device, and there with rates in
// tensors.
template <class O>
void compare(typename O::Options options, bool matrices = false) {
  for (DType dtype : {kFloat32, kFloat64, kBFloat16, kComplex64}) {
    if (dtype == kComplex64 && (matrices || std::is_same_v<O, optim::Adafactor>)) continue;
    std::vector<std::vector<double>> results;
    std::vector<optim::State> states;
    for (int way = 0; way < 3; ++way) {
      const std::vector<Tensor> params = start(dtype, matrices);
      if constexpr (requires { options.capturable; }) options.capturable = way > 0;
      O opt(groups(params, options));
      if (way == 2)
        for (optim::ParamGroup& g : opt.param_groups()) g.replace("lr", tensor({g.lr()}, kFloat64));
      for (int step = 1; step <= kManySteps; ++step) {
        set_gradients(params, step);
        opt.step();
        for (optim::ParamGroup& g : opt.param_groups()) g.set_lr(g.lr() * 0.98);
      }
      results.push_back(numbers(params));
      states.push_back(opt.state_dict());
    }
    for (int way = 1; way < 3; ++way) {
      for (size_t i = 0; i < results[0].size(); ++i)
        // pow() may differ by its last bit.
        EXPECT_NEAR(results[0][i], results[way][i], dtype == kFloat64 ? 1e-14 : 0)
            << O::Options::kOptimizer << " " << name_of(dtype) << " " << way;
      for (const auto& [name, value] : states[0].numbers) {
        if (!name.starts_with("state.")) continue;
        EXPECT_NEAR(value, states[way].numbers.at(name), 1e-7) << O::Options::kOptimizer << name;
      }
    }
  }
}

TEST(OptimOnDevice, FollowsTheHostsSteps) {
  compare<optim::SGD>({.lr = 0.05, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.1});
  compare<optim::Adam>({.lr = 0.05, .weight_decay = 0.1});
  compare<optim::AdamW>({.lr = 0.05, .amsgrad = true});
  compare<optim::NAdam>({.lr = 0.05, .weight_decay = 0.1, .momentum_decay = 0.3});
  compare<optim::RAdam>(
      {.lr = 0.05, .betas = {0.9, 0.95}, .weight_decay = 0.1, .decoupled_weight_decay = true});
  compare<optim::Adamax>({.lr = 0.05, .weight_decay = 0.1});
  compare<optim::RMSprop>({.lr = 0.01, .momentum = 0.9, .centered = true});
  compare<optim::Adagrad>({.lr = 0.1, .lr_decay = 0.05, .initial_accumulator_value = 0.5});
  compare<optim::Adadelta>({.weight_decay = 0.1});
  compare<optim::Lion>({.lr = 0.01, .weight_decay = 0.1});
  compare<optim::Rprop>({.lr = 0.05});
  compare<optim::ASGD>({.lr = 0.05, .lambd = 0.2, .t0 = 9});
  compare<optim::Adafactor>({.lr = 0.05, .weight_decay = 0.1});
  compare<optim::Muon>({.lr = 0.05}, true);
}

// Under a scaler, with overflows, as without one that has the same gradients and leaves them out.
template <class O>
void compare_scaled(typename O::Options options, bool matrices = false) {
  for (DType dtype : {kFloat32, kFloat64}) {
    const std::vector<Tensor> plain = start(dtype, matrices), scaled = start(dtype, matrices),
                              there = start(dtype, matrices);
    O one(groups(plain, options)), two(groups(scaled, options));
    if constexpr (requires { options.capturable; }) options.capturable = true;
    O three(groups(there, options));
    for (int step = 1; step <= kManySteps; ++step) {
      const bool overflow = step == 1 || step % 7 == 0;
      set_gradients(plain, step);
      if (!overflow) one.step();
      for (const auto& [params, opt] : {std::pair(&scaled, &two), std::pair(&there, &three)}) {
        set_gradients(*params, step, 1024);
        if (overflow && (*params)[0].grad().defined()) (*params)[0].grad()[0].fill_(INFINITY);
        opt->step_scaled(full({}, overflow ? 1.0 : 0.0), full({}, 1.0 / 1024));
        EXPECT_EQ((*params)[2].grad().template to_vector<double>(),
                  plain[2].grad().template to_vector<double>())
            << "unscaled";
      }
      ASSERT_EQ(numbers(scaled), numbers(plain)) << O::Options::kOptimizer << " " << step;
      const std::vector<double> a = numbers(plain), b = numbers(there);
      for (size_t i = 0; i < a.size(); ++i)
        ASSERT_NEAR(a[i], b[i], dtype == kFloat64 ? 1e-14 : 0) << O::Options::kOptimizer << step;
    }
  }
}

TEST(OptimOnDevice, UpdatesThatAreLeftOutCountNowhere) {
  compare_scaled<optim::SGD>({.lr = 0.05, .momentum = 0.9, .dampening = 0.3});
  compare_scaled<optim::Adam>({.lr = 0.05, .amsgrad = true});
  compare_scaled<optim::NAdam>({.lr = 0.05, .momentum_decay = 0.3});
  compare_scaled<optim::RAdam>({.lr = 0.05, .betas = {0.9, 0.95}});
  compare_scaled<optim::Adagrad>({.lr = 0.1, .lr_decay = 0.05});
  compare_scaled<optim::RMSprop>({.lr = 0.01, .momentum = 0.9, .centered = true});
  compare_scaled<optim::Rprop>({.lr = 0.05});
  compare_scaled<optim::ASGD>({.lr = 0.05, .lambd = 0.2, .t0 = 9});
  compare_scaled<optim::Adafactor>({.lr = 0.05});
  compare_scaled<optim::Muon>({.lr = 0.05}, true);
}

TEST(OptimOnDevice, StateOfOthers) {
  std::vector<Tensor> p = start(kFloat32);
  optim::Adam opt(p, {.lr = 0.1});
  set_gradients(p, 1);
  opt.step();
  EXPECT_EQ(opt.take_new_state().size(), 3u);
  set_gradients(p, 2);
  opt.step();
  EXPECT_TRUE(opt.take_new_state().empty());
  // Another tensor is used from the next step on.
  const Tensor mean = zeros({3, 4});
  opt.put_state(0, 0, 1, mean);
  set_gradients(p, 4);
  opt.step();
  EXPECT_GT(mean.abs().max().item<double>(), 0);
  // What is missing is made, but for counts, which would be wrong.
  opt.put_state(0, 0, 1, {});
  opt.step();
  EXPECT_TRUE(opt.state(0, 0, 1).defined());
  opt.put_state(0, 0, 0, {});
  EXPECT_TRUE(has(error_of([&] { opt.step(); }), "has no 'step'"));
  opt.put_state(0, 0, 0, zeros({}));
  opt.put_state(0, 0, 1, zeros({5}));
  EXPECT_TRUE(has(error_of([&] { opt.step(); }), "'exp_avg' does not fit to its parameter"));
  opt.put_state(0, 0, 1, zeros({3, 4}, kFloat64));
  EXPECT_TRUE(has(error_of([&] { opt.step(); }), "'exp_avg' does not fit to its parameter"));
}

TEST(OptimOnDevice, SettingsThatAreTensors) {
  Tensor w = ones({2}).requires_grad_();
  const Tensor rate = full({}, 0.5);
  optim::SGD opt({w}, {.lr = rate});
  w.set_grad(ones({2}));
  opt.step();
  expect_values(w, {0.5, 0.5});
  Tensor(rate).fill_(0.25);
  opt.step();
  expect_values(w, {0.25, 0.25});
  opt.set_lr(1);
  EXPECT_EQ(rate.item<double>(), 1) << "into the tensor";
  const optim::State saved = opt.state_dict();
  EXPECT_EQ(saved.numbers.at("param_groups.0.lr"), 1);
  opt.set_lr(2);
  opt.load_state_dict(saved);
  EXPECT_EQ(rate.item<double>(), 1) << "loaded into the tensor";
}

// With history the step is a function that gradients pass through.
TEST(OptimWithHistory, GradientsPassThroughAStep) {
  const auto run = [](auto make, const Tensor& w0, const Tensor& rate) {
    Tensor w = w0 * 1.0;
    auto opt = make(w, rate);
    for (int step = 0; step < 3; ++step) {
      w.set_grad((w * 0.7 + 0.2 * step).sin());
      opt->step();
    }
    return w;
  };
  const auto check = [&](auto make) {
    const Tensor start = tensor({0.4, -0.9, 1.3}, kFloat64), lr = tensor({0.1}, kFloat64);
    const auto loss = [&](const Tensor& w, const Tensor& r) {
      return (run(make, w, r) * tensor({1.0, 2.0, -3.0}, kFloat64)).sum();
    };
    Tensor w = start.clone().requires_grad_(), r = lr.clone().requires_grad_();
    loss(w, r).backward();
    const double h = 1e-6;
    for (int64_t i = 0; i < 3; ++i) {
      const NoGradGuard no_grad;
      const Tensor up = start.clone(), down = start.clone();
      up[i].add_(h), down[i].sub_(h);
      const double slope =
          (loss(up, lr).template item<double>() - loss(down, lr).template item<double>()) / (2 * h);
      EXPECT_NEAR(w.grad()[i].template item<double>(), slope, 1e-6 * (1 + std::fabs(slope)));
    }
    const double slope = (loss(start, lr + h).template item<double>() -
                          loss(start, lr - h).template item<double>()) /
                         (2 * h);
    EXPECT_NEAR(r.grad().item<double>(), slope, 1e-6 * (1 + std::fabs(slope)));
  };
  using P = const Tensor&;
  check([](P w, P lr) {
    return std::make_unique<optim::SGD>(
        std::vector{w}, optim::SGDOptions{.lr = lr, .momentum = 0.9, .differentiable = true});
  });
  check([](P w, P lr) {
    return std::make_unique<optim::Adam>(
        std::vector{w}, optim::AdamOptions{.lr = lr, .weight_decay = 0.1, .differentiable = true});
  });
  check([](P w, P lr) {
    return std::make_unique<optim::NAdam>(std::vector{w},
                                          optim::NAdamOptions{.lr = lr, .differentiable = true});
  });
  check([](P w, P lr) {
    return std::make_unique<optim::Adagrad>(
        std::vector{w}, optim::AdagradOptions{.lr = lr, .lr_decay = 0.1, .differentiable = true});
  });
}

// Adafactor beside plain loops.
TEST(OptimAdafactor, AllVariants) {
  for (double decay : {0.0, 0.1})
    for (bool maximize : {false, true}) {
      Tensor p = linspace(-1, 1, 6, kFloat64).view({2, 3}).requires_grad_();
      optim::Adafactor opt({p}, {.lr = 0.05,
                                 .beta2_decay = -0.7,
                                 .eps1 = 1e-6,
                                 .eps2 = 0.01,
                                 .d = 1.2,
                                 .weight_decay = decay,
                                 .maximize = maximize});
      std::vector<double> w = p.to_vector<double>(), row(2), column(3);
      for (int t = 1; t <= 12; ++t) {
        std::vector<double> g(6), u(6);
        for (size_t i = 0; i < 6; ++i) g[i] = std::sin(1.7 * double(i + 1) + 0.9 * t) + 0.3 * w[i];
        p.set_grad(tensor(g, kFloat64).view({2, 3}));
        opt.step();
        const double weight = std::pow(t, -0.7), rho = std::min(0.05, 1 / std::sqrt(double(t)));
        double norm = 0, length = 0, mean = 0;
        for (double v : w) norm += v * v / 6;
        const double alpha = std::max(0.01, std::sqrt(norm)) * rho;
        for (size_t r = 0; r < 2; ++r) {
          double square = 0;
          for (size_t c = 0; c < 3; ++c) square += g[3 * r + c] * g[3 * r + c] / 3;
          row[r] += weight * (square - row[r]);
          mean += row[r] / 2;
        }
        for (size_t c = 0; c < 3; ++c) {
          const double square = (g[c] * g[c] + g[3 + c] * g[3 + c]) / 2;
          column[c] += weight * (square - column[c]);
        }
        for (size_t i = 0; i < 6; ++i) {
          const double estimate = row[i / 3] * column[i % 3] / std::max(mean, 1e-6);
          u[i] = (maximize ? -g[i] : g[i]) / std::sqrt(std::max(estimate, 1e-12));
          length += u[i] * u[i] / 6;
        }
        const double shrink = std::max(1.0, std::sqrt(length) / 1.2);
        for (size_t i = 0; i < 6; ++i) w[i] = w[i] * (1 - 0.05 * decay) - alpha / shrink * u[i];
        expect_values(p, w, t * t * 100);
      }
    }
}

TEST(OptimMuon, StepsAreOrthogonal) {
  manual_seed(1);
  const Tensor g = randn({6, 3}, kFloat64);
  Tensor p = zeros({6, 3}, kFloat64).requires_grad_();
  optim::Muon opt({p}, {.lr = 1, .weight_decay = 0});
  p.set_grad(g);
  opt.step();
  // The singular values of the step lie near 1, times sqrt(rows / columns).
  const std::vector<double> values =
      linalg::svdvals(p.detach() / std::sqrt(2.0)).to_vector<double>();
  for (double v : values) EXPECT_NEAR(v, 1, 0.35);
  // It is made of the gradient's own directions.
  const Tensor aligned = matmul(g.t(), -p.detach());
  EXPECT_LT((aligned - aligned.t()).abs().max().item<double>(),
            0.02 * aligned.abs().max().item<double>());
  EXPECT_TRUE(has(error_of([] { optim::Muon({ones({3}).requires_grad_()}); }), "only supports 2D"));
  EXPECT_TRUE(has(error_of([&] { optim::Muon({p}, {.ns_steps = 100}); }), "less than 100"));
}

TEST(Optimizer, ZeroGradInPlaceAndThroughViews) {
  const Tensor flat = ones({6});
  Tensor a = zeros({2}).requires_grad_(), b = zeros({4}).requires_grad_();
  a.set_grad(flat.narrow(0, 0, 2));
  b.set_grad(flat.narrow(0, 2, 4));
  optim::SGD opt({a, b}, {.lr = 1});
  const Tensor before = b.grad();
  opt.zero_grad(false);
  EXPECT_EQ(b.grad().impl(), before.impl());
  expect_values(flat, std::vector<double>(6, 0));
  // Elements that share memory, and history.
  a.set_grad(ones({1}).expand({2}));
  Tensor x = ones({4}).requires_grad_();
  b.set_grad((x * 2.0).narrow(0, 0, 4));
  opt.zero_grad(false);
  expect_values(a.grad(), {0, 0});
  expect_values(b.grad(), {0, 0, 0, 0});
  EXPECT_FALSE(b.grad().requires_grad());
}

}  // namespace
}  // namespace arete
