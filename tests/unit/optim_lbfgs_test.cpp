// L-BFGS on functions whose minima are known.
#include <cmath>

#include "tests/unit/nn_test_support.h"

namespace arete {
namespace {

using test::error_of;
using test::expect_values;
using test::has;

// A bent valley; its minimum is 0 at (1, 1, ..., 1).
Tensor rosenbrock(const Tensor& x) {
  const int64_t n = x.size(0);
  const Tensor a = x.narrow(0, 0, n - 1), b = x.narrow(0, 1, n - 1);
  return (100.0 * (b - a * a).square() + (1.0 - a).square()).sum();
}

struct Valley {
  explicit Valley(std::vector<double> start, const optim::LBFGSOptions& options,
                  DType dtype = kFloat64)
      : x(tensor(start, dtype).requires_grad_()), opt({x}, options) {}
  Tensor closure() {
    ++calls;
    opt.zero_grad();
    const Tensor loss = rosenbrock(x);
    loss.backward();
    return loss;
  }
  Tensor step() {
    return opt.step([this] { return closure(); });
  }
  Tensor x;
  optim::LBFGS opt;
  int calls = 0;
};

TEST(OptimLBFGS, FollowsABentValley) {
  Valley run({-1.2, 1.0, -0.5, 0.8}, {.max_iter = 100, .strong_wolfe = true});
  const Tensor first = run.step();
  EXPECT_EQ(first.item<double>(),
            rosenbrock(tensor({-1.2, 1.0, -0.5, 0.8}, kFloat64)).item<double>());
  EXPECT_LT(rosenbrock(run.x).item<double>(), 1e-9);  // as tolerance_change has it
  EXPECT_LT((run.x - 1.0).abs().max().item<double>(), 1e-4);
  EXPECT_LT(run.calls, 100);
  EXPECT_EQ(run.opt.state_dict().numbers.at("state.0.func_evals"), run.calls);
  // At the minimum a step is one look.
  const int before = run.calls;
  run.step();
  EXPECT_LE(run.calls, before + 2);
}

TEST(OptimLBFGS, KeepsToItsLimits) {
  Valley few({-1.2, 1.0}, {.max_iter = 3, .max_eval = 100, .strong_wolfe = true});
  few.step();
  EXPECT_EQ(few.opt.state_dict().numbers.at("state.0.n_iter"), 3);
  Valley calls({-1.2, 1.0}, {.max_iter = 50, .max_eval = 6, .strong_wolfe = true});
  calls.step();
  EXPECT_GE(calls.calls, 6);
  EXPECT_LE(calls.calls, 6 + 25);  // a search is not broken off
  EXPECT_LT(calls.opt.state_dict().numbers.at("state.0.n_iter"), 7);
  Valley plain({-1.2, 1.0},
               {.lr = 0.001, .max_iter = 5});  // one look per iteration, none at the end
  plain.step();
  EXPECT_EQ(plain.calls, 5);
  Valley memory({-1.2, 1.0, 0.3}, {.max_iter = 12, .history_size = 2, .strong_wolfe = true});
  memory.step();
  const optim::State s = memory.opt.state_dict();
  EXPECT_TRUE(s.tensors.contains("state.0.old_dirs.1"));
  EXPECT_FALSE(s.tensors.contains("state.0.old_dirs.2"));
}

TEST(OptimLBFGS, GoesOnFromItsState) {
  for (bool search : {false, true}) {
    const optim::LBFGSOptions options{
        .lr = search ? 1.0 : 0.01, .max_iter = 4, .history_size = 3, .strong_wolfe = search};
    Valley whole({-1.2, 1.0, 0.4}, options);
    for (int i = 0; i < 4; ++i) whole.step();
    Valley first({-1.2, 1.0, 0.4}, options);
    first.step();
    first.step();
    optim::State saved = first.opt.state_dict();
    saved.numbers = optim::numbers_from_text(optim::numbers_to_text(saved.numbers));
    Valley second(first.x.to_vector<double>(), {});
    second.opt.load_state_dict(saved);
    EXPECT_EQ(second.opt.param_groups()[0].get("history_size"), 3);
    second.step();
    second.step();
    EXPECT_EQ(second.x.to_vector<double>(), whole.x.to_vector<double>());
    saved.tensors["state.0.d"] = zeros({7});
    saved.numbers.erase("state.0.t");
    const std::string text = error_of([&] { second.opt.load_state_dict(saved); });
    EXPECT_TRUE(has(text, "state.0.t is missing") && has(text, "size mismatch for state.0.d"))
        << text;
  }
}

TEST(OptimLBFGS, SeveralParametersOfSeveralShapes) {
  manual_seed(7);
  const Tensor x = randn({20, 3}), y = x.sum(1, true) * 2.0 + 1.0;
  nn::Linear net(3, 1);
  optim::LBFGS opt(net.parameters(), {.strong_wolfe = true});
  const auto closure = [&] {
    opt.zero_grad();
    const Tensor loss = mse_loss(net(x), y);
    loss.backward();
    return loss;
  };
  opt.step(closure);
  EXPECT_LT(closure().item<double>(), 1e-8);
}

// A slope that leads nowhere: the search gives up, and nothing becomes NaN.
TEST(OptimLBFGS, SurvivesBadFunctions) {
  Tensor x = tensor({1.0}, kFloat64).requires_grad_();
  optim::LBFGS opt({x}, {.strong_wolfe = true});
  opt.step([&] {
    opt.zero_grad();
    const Tensor loss = (x * x).sum();
    x.set_grad(tensor({-2.0}, kFloat64));  // uphill
    return loss;
  });
  EXPECT_TRUE(std::isfinite(x.item<double>()));
  EXPECT_NEAR(x.item<double>(), 1.0, 1e-6);
  // Infinite losses are walls.
  Tensor z = tensor({0.5}, kFloat64).requires_grad_();
  optim::LBFGS wall({z}, {.lr = 30, .strong_wolfe = true});
  wall.step([&] {
    wall.zero_grad();
    const Tensor loss = (z - (z + 2.0).log()).sum();  // least at -1; NaN below -2
    loss.backward();
    return loss;
  });
  EXPECT_NEAR(z.item<double>(), -1.0, 1e-5);
}

TEST(OptimLBFGS, MistakesAreNamed) {
  Tensor p = ones({1}).requires_grad_();
  optim::LBFGS opt({p});
  EXPECT_TRUE(has(error_of([&] { opt.step(); }), "needs a closure"));
  EXPECT_TRUE(has(error_of([&] { opt.step_scaled(zeros({}), ones({})); }), "GradScaler"));
  EXPECT_TRUE(has(error_of([&] { optim::LBFGS({p}, {.history_size = 0}); }), "history_size"));
}

}  // namespace
}  // namespace arete
