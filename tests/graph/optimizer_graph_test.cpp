// Steps that are recorded into a graph and replayed against steps that are called, bit for bit;
// what cannot be recorded. The device is one made of the CPU: what GPUs add is in python/tests.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <utility>

#include "arete/arete.h"
#include "tests/graph/recording_device.h"
#include "tests/support/errors.h"

namespace arete {
namespace {

using test::error_of;
using test::has;

constexpr int kSteps = 50, kEager = 3;
const Device kGpu(DeviceType::cuda, 0);

struct Programs : testing::Test {
  Programs() { test::RecordingDevice::install(); }
};
using OptimizerGraph = Programs;

// Parameters with gradients in fixed places, and where a program has its inputs.
struct Net {
  std::vector<Tensor> params, grads;
  Tensor x, factor;
  explicit Net(DType dtype = kFloat32, bool matrices = false)
      : x(zeros({}, {kFloat32, kGpu})), factor(ones({}, {kFloat32, kGpu})) {
    double shift = 0.1;
    for (const Shape& sizes : {Shape{3, 4}, matrices ? Shape{2, 5} : Shape{7}, Shape{2, 2}}) {
      const Tensor start = linspace(-1, 1 + (shift += 0.2), numel_of(sizes), kFloat64).view(sizes);
      params.push_back(start.to(kGpu, dtype).requires_grad_());
      grads.push_back(zeros(sizes, {dtype, kGpu}));
      params.back().set_grad(grads.back());
    }
  }
  // The gradients of some loss, times a scale.
  void backward(const Tensor& scale = {}) const {
    const NoGradGuard no_grad;
    for (size_t i = 0; i < params.size(); ++i) {
      Tensor g = (params[i].to(kFloat32) * 0.7 + x * double(i + 1)).sin() * factor;
      if (scale.defined()) g = g * scale;
      Tensor(grads[i]).copy_(g);
    }
  }
  // The next batch; some overflow.
  void feed(int step, bool overflows) {
    x.fill_(0.3 * step);
    factor.fill_(overflows && step % 7 == 2 ? INFINITY : 1.0);
  }
  std::vector<double> values() const {
    std::vector<double> all;
    for (const Tensor& p : params)
      for (double v : p.detach().cpu().to_vector<double>()) all.push_back(v);
    return all;
  }
};

enum class Rate { fixed, scheduled, tensor_here, tensor_there };
struct Way {
  DType dtype = kFloat32;
  Rate rate = Rate::fixed;
  bool scaler = false, clips = false, twice = false, matrices = false;
};

// What 50 steps end with: each called, or all but three replayed.
template <class O>
std::vector<double> train(const typename O::Options& options, const Way& way, bool replays) {
  Net net(way.dtype, way.matrices);
  typename O::Options other = options;
  other.lr = options.lr.value() / 2;
  O opt({{{net.params[0], net.params[1]}, options}, {{net.params[2]}, other}});
  if (way.rate == Rate::tensor_here || way.rate == Rate::tensor_there)
    for (optim::ParamGroup& g : opt.param_groups())
      g.replace("lr", full({}, g.lr(), {kFloat64, way.rate == Rate::tensor_here ? kCPU : kGpu}));
  amp::GradScaler scaler({.init_scale = 64, .growth_interval = 4});
  if (way.scaler) scaler.scale(ones({}, {kFloat32, kGpu}));
  const auto step = [&] {
    for (int i = 0; i < 1 + way.twice; ++i) {
      net.backward(way.scaler ? scaler.scale_tensor() : Tensor());
      if (way.scaler && way.clips) scaler.unscale_(opt);
      if (way.clips) nn::utils::clip_grad_norm_(net.params, 0.5);
      if (way.scaler) {
        scaler.step(opt);
        scaler.update();
      } else {
        opt.step();
      }
    }
  };
  cuda::Graph graph;
  for (int i = 1; i <= kSteps; ++i) {
    if (replays && i == kEager + 1) {
      cuda::GraphCapture capture(graph);
      step();
      capture.end();
    }
    net.feed(i, way.scaler);
    if (graph.is_ready())
      graph.replay();
    else
      step();
    if (way.rate != Rate::fixed)
      for (optim::ParamGroup& g : opt.param_groups()) g.set_lr(g.lr() * 0.97);
  }
  std::vector<double> result = net.values();
  for (const auto& [name, value] : opt.state_dict().numbers)
    if (!std::isnan(value)) result.push_back(value);  // what is not given
  for (const auto& [name, value] : opt.state_dict().tensors)
    for (double v : value.cpu().template to_vector<double>()) result.push_back(v);
  if (way.scaler) {
    EXPECT_EQ(scaler.num_skipped(), 7 * (1 + way.twice));
    for (double v : {scaler.get_scale(), double(scaler.num_steps()), double(scaler.num_skipped()),
                     double(scaler.get_growth_tracker())})
      result.push_back(v);
  }
  return result;
}

template <class O>
void compare(typename O::Options options, bool matrices = false) {
  if constexpr (requires { options.capturable; }) options.capturable = true;
  std::vector<Way> ways{{},
                        {.rate = Rate::scheduled},
                        {.rate = Rate::tensor_here},
                        {.rate = Rate::tensor_there},
                        {.rate = Rate::scheduled, .scaler = true},
                        {.clips = true},
                        {.scaler = true, .clips = true},
                        {.dtype = kFloat64, .rate = Rate::scheduled},
                        {.rate = Rate::scheduled, .twice = true}};
  if constexpr (requires { options.master_weights; }) {
    ways.push_back({.dtype = kBFloat16, .rate = Rate::scheduled});
    ways.push_back({.dtype = kFloat16, .rate = Rate::scheduled, .scaler = true});
  }
  for (size_t i = 0; i < ways.size(); ++i) {
    if constexpr (requires { options.master_weights; })
      options.master_weights = size_of(ways[i].dtype) < 4;
    ways[i].matrices = matrices;
    const std::vector<double> called = train<O>(options, ways[i], false),
                              replayed = train<O>(options, ways[i], true);
    EXPECT_EQ(called, replayed) << O::Options::kOptimizer << ", way " << i;
  }
}

TEST_F(OptimizerGraph, SGD) {
  compare<optim::SGD>({.lr = 0.05});
  compare<optim::SGD>({.lr = 0.05, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.1});
}
TEST_F(OptimizerGraph, Adam) { compare<optim::Adam>({.lr = 0.05, .weight_decay = 0.1}); }
TEST_F(OptimizerGraph, AdamW) { compare<optim::AdamW>({.lr = 0.05, .amsgrad = true}); }
TEST_F(OptimizerGraph, NAdam) { compare<optim::NAdam>({.lr = 0.05, .momentum_decay = 0.3}); }
TEST_F(OptimizerGraph, RAdam) { compare<optim::RAdam>({.lr = 0.05, .betas = {0.9, 0.95}}); }
TEST_F(OptimizerGraph, Adamax) { compare<optim::Adamax>({.lr = 0.05}); }
TEST_F(OptimizerGraph, RMSprop) {
  compare<optim::RMSprop>({.lr = 0.01, .momentum = 0.9, .centered = true});
}
TEST_F(OptimizerGraph, Adagrad) { compare<optim::Adagrad>({.lr = 0.1, .lr_decay = 0.05}); }
TEST_F(OptimizerGraph, Adadelta) { compare<optim::Adadelta>({}); }
TEST_F(OptimizerGraph, Lion) { compare<optim::Lion>({.lr = 0.01, .weight_decay = 0.1}); }
TEST_F(OptimizerGraph, Rprop) { compare<optim::Rprop>({.lr = 0.05}); }
TEST_F(OptimizerGraph, ASGD) { compare<optim::ASGD>({.lr = 0.05, .lambd = 0.2, .t0 = 9}); }
TEST_F(OptimizerGraph, Adafactor) { compare<optim::Adafactor>({.lr = 0.05}); }
TEST_F(OptimizerGraph, Muon) { compare<optim::Muon>({.lr = 0.05}, true); }

// Two optimizers in one graph, and calls between its replays.
TEST_F(OptimizerGraph, SeveralInOneAndStepsBetween) {
  const auto run = [](bool replays) {
    Net net;
    optim::Adam first({net.params[0], net.params[1]}, {.lr = 0.05, .capturable = true});
    optim::SGD second({net.params[2]}, {.lr = 0.1, .momentum = 0.9});
    const auto step = [&] {
      net.backward();
      first.step();
      second.step();
    };
    cuda::Graph graph;
    for (int i = 1; i <= 20; ++i) {
      if (replays && i == 3) {
        cuda::GraphCapture capture(graph);
        step();
        capture.end();
      }
      net.feed(i, false);
      if (graph.is_ready() && i % 5 != 0)
        graph.replay();
      else
        step();
      if (i == 8) first.set_lr(0.01);
      if (i == 12) second.param_groups()[0].set("momentum", 0.5);
      if (i == 14) first.param_groups()[0].set("weight_decay", 0.1);
    }
    return net.values();
  };
  EXPECT_EQ(run(true), run(false));
}

// The page is written where a setting has changed, and not again.
TEST_F(OptimizerGraph, SettingsAreHandedOverOnce) {
  Net net;
  optim::Adam opt(net.params, {.lr = 0.05, .capturable = true});
  opt.step();
  cuda::Graph graph;
  {
    cuda::GraphCapture capture(graph);
    opt.step();
  }
  const auto calls = [&] {
    const int64_t before = test::RecordingDevice::install().calls;
    graph.replay();
    return test::RecordingDevice::install().calls - before;
  };
  const int64_t plain = calls();
  EXPECT_EQ(calls(), plain);
  opt.set_lr(0.01);
  EXPECT_EQ(calls(), plain + 1);
  EXPECT_EQ(calls(), plain);
}

std::string said_in_capture(const std::function<void()>& f) {
  cuda::Graph graph;
  return error_of([&] {
    cuda::GraphCapture capture(graph);
    f();
    capture.end();
  });
}

TEST_F(OptimizerGraph, WhatCannotBeRecordedIsRefused) {
  Net net;
  optim::Adam adam(net.params, {.lr = 0.05});
  adam.step();
  EXPECT_TRUE(has(said_in_capture([&] { adam.step(); }),
                  "Attempting CUDA graph capture of step() for an instance of Adam but "
                  "param_groups' capturable is False."));
  optim::Adam fresh(net.params, {.lr = 0.05, .capturable = true});
  EXPECT_TRUE(has(said_in_capture([&] { fresh.step(); }), "run one step before the capture"));
  optim::SGD momentum(net.params, {.lr = 0.05, .momentum = 0.9});
  EXPECT_TRUE(has(said_in_capture([&] { momentum.step(); }), "run one step before the capture"));
  optim::LBFGS lbfgs({net.params});
  EXPECT_TRUE(has(said_in_capture([&] { lbfgs.step([&] { return zeros({}); }); }),
                  "capture of step() is impossible for LBFGS"));
  amp::GradScaler scaler;
  EXPECT_TRUE(has(said_in_capture([&] { scaler.scale(net.x); }), "run one step with the scaler"));
  optim::SGD history(net.params, {.lr = 0.05, .differentiable = true});
  EXPECT_TRUE(has(said_in_capture([&] { history.step(); }), "differentiable=True cannot be"));
  // One that keeps nothing needs no step before.
  optim::SGD plain(net.params, {.lr = 0.05});
  cuda::Graph graph;
  {
    cuda::GraphCapture capture(graph);
    plain.step();
  }
  graph.replay();
}

TEST_F(OptimizerGraph, ReplaysNameWhatChanged) {
  Net net;
  auto opt = std::make_unique<optim::Adam>(net.params, optim::AdamOptions{.capturable = true});
  opt->step();
  cuda::Graph graph;
  {
    cuda::GraphCapture capture(graph);
    opt->step();
  }
  graph.replay();
  opt->param_groups()[0].set("maximize", 1);
  EXPECT_TRUE(
      has(error_of([&] { graph.replay(); }), "the setting 'maximize' of the optimizer Adam"));
  opt->param_groups()[0].set("maximize", 0);
  graph.replay();
  const Tensor mean = opt->state(0, 1, 1);
  opt->put_state(0, 1, 1, zeros_like(mean));
  EXPECT_TRUE(has(error_of([&] { graph.replay(); }), "the state 'exp_avg' of a parameter"));
  opt->put_state(0, 1, 1, mean);
  graph.replay();
  StoragePtr& memory = net.params[1].impl()->storage;  // what Python's w.data = t writes
  const StoragePtr before = std::exchange(memory, zeros_like(net.params[1]).storage());
  EXPECT_TRUE(
      has(error_of([&] { graph.replay(); }), "the memory of a parameter of the optimizer Adam"));
  memory = before;
  graph.replay();
  const optim::State saved = opt->state_dict();
  opt->load_state_dict(saved);
  EXPECT_TRUE(has(error_of([&] { graph.replay(); }), "changed since its step() was recorded"));
  opt.reset();
  EXPECT_TRUE(has(error_of([&] { graph.replay(); }), "the optimizer Adam whose step()"));
}

TEST_F(OptimizerGraph, FunctionsBeforeReplays) {
  cuda::Graph graph;
  EXPECT_TRUE(has(error_of([&] { graph.before_replay([] {}); }), "holds nothing"));
  std::vector<int> order;
  const Tensor x = zeros({}, {kFloat32, kGpu});
  Tensor y;
  EXPECT_EQ(cuda::GraphCapture::current(0), nullptr);
  {
    cuda::GraphCapture capture(graph);
    EXPECT_EQ(cuda::GraphCapture::current(0), &capture);
    capture.before_replay([&] { order.push_back(1); });
    y = x + 1.0;
    capture.end();
    EXPECT_EQ(cuda::GraphCapture::current(0), nullptr);
  }
  cuda::Graph copy = graph;  // one and the same
  copy.before_replay([&] {
    order.push_back(2);
    Tensor(x).fill_(double(order.size()));
  });
  EXPECT_TRUE(order.empty());
  graph.replay();
  EXPECT_EQ(order, (std::vector{1, 2}));
  EXPECT_EQ(y.item<double>(), 3);
  // One that adds another, for the next replay, and one that forgets the graph, which still runs.
  graph.before_replay([&, added = false]() mutable {
    if (!std::exchange(added, true)) graph.before_replay([&] { order.push_back(3); });
  });
  order.clear();
  graph.replay();
  EXPECT_EQ(order, (std::vector{1, 2}));
  order.clear();
  graph.replay();
  EXPECT_EQ(order, (std::vector{1, 2, 3}));
  cuda::Graph forgotten;
  Tensor z;
  {
    cuda::GraphCapture capture(forgotten);
    z = x + 5.0;
    capture.end();
  }
  forgotten.before_replay([&] { forgotten.reset(); });
  forgotten.replay();
  EXPECT_FALSE(forgotten.is_ready());
  EXPECT_EQ(z.item<double>(), 7);
  graph.before_replay([] { throw ValueError("test", "no"); });
  EXPECT_TRUE(has(error_of([&] { graph.replay(); }), "no"));
  EXPECT_EQ(y.item<double>(), 3);
  graph.reset();
  EXPECT_TRUE(has(error_of([&] { copy.before_replay({}), copy.replay(); }), "no"));
}

}  // namespace
}  // namespace arete
