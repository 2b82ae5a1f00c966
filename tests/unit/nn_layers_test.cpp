// Layers against closed forms and plain loops.
#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "tests/unit/nn_test_support.h"

namespace arete {
namespace {

using test::error_of;
using test::expect_tensors;
using test::expect_values;
using test::has;

// Names of all operators that a result remembers.
std::set<std::string> history_of(const Tensor& t) {
  std::set<std::string> names;
  const std::function<void(const Node&)> visit = [&](const Node& node) {
    names.insert(node.name());
    for (const Edge& e : node.edges)
      if (e.node) visit(*e.node);
  };
  visit(*t.grad_fn());
  return names;
}

TEST(NnLinear, AffineMap) {
  nn::Linear layer(2, 3);
  layer.to(kFloat64);
  layer.load_state_dict(
      {{"weight", tensor({{1, 2}, {3, 4}, {5, 6}})}, {"bias", tensor({10, 20, 30})}});
  expect_values(layer(tensor({{1.0, -1.0}}, kFloat64)), {9, 19, 29});
  nn::Bilinear two(2, 1, 1);
  two.to(kFloat64).load_state_dict({{"weight", tensor({{{2}, {3}}})}, {"bias", tensor({1})}});
  expect_values(two(tensor({{4.0, 5.0}}, kFloat64), tensor({{6.0}}, kFloat64)), {(8 + 15) * 6 + 1});
}

// One pass for both must be what two passes are: values, gradients and statistics.
TEST(NnSequential, BatchNormBeforeReluIsFused) {
  manual_seed(4);
  for (const bool training : {true, false}) {
    nn::BatchNorm2d norm(3);
    const nn::Sequential fused(norm, nn::ReLU()), apart = clone(fused);
    apart[1].register_forward_hook([](nn::Module&, const Tensor&, const Tensor& y) { return y; });
    norm.weight.detach().copy_(tensor({0.5, -1.5, 2.0}));
    const_cast<nn::Sequential&>(apart).load_state_dict(fused.state_dict());
    for (const nn::Sequential* s : {&fused, &apart})
      const_cast<nn::Sequential*>(s)->train(training);
    const Tensor x = randn({4, 3, 5, 5}), g = randn({4, 3, 5, 5});
    std::vector<Tensor> results[2];
    for (int i = 0; i < 2; ++i) {
      nn::Sequential net = i ? apart : fused;
      Tensor in = x.clone().requires_grad_();
      const Tensor y = net(in);
      EXPECT_EQ(history_of(y).contains("relu"), i == 1 || !training);
      y.backward(g);
      results[i] = {y.detach(), in.grad()};
      for (const auto& [name, t] : net.named_parameters()) results[i].push_back(t.grad());
      for (const auto& [name, t] : net.named_buffers()) results[i].push_back(t.to(kFloat32));
    }
    ASSERT_EQ(results[0].size(), results[1].size());
    EXPECT_GT(results[0][0].eq(Scalar(0)).sum().item<int64_t>(), 0);
    for (size_t i = 0; i < results[0].size(); ++i)
      expect_tensors(results[0][i], results[1][i], 100);
  }
  nn::BatchNorm1d norm(2);
  norm.train();
  const Tensor x = randn({6, 2}), r = randn({6, 2});
  const Tensor sum = norm.forward_relu(x, r);
  expect_tensors(sum, relu(norm(x).add(r)), 10);
}

TEST(NnTransformer, FeedForwardInOneOperatorAgrees) {
  manual_seed(5);
  for (const char* activation : {"relu", "gelu"}) {
    nn::TransformerEncoderLayer layer(
        8, 2,
        {.dim_feedforward = 16, .dropout = 0.0, .activation = activation, .batch_first = true});
    nn::TransformerEncoderLayer apart = clone(layer);
    apart.linear1.register_forward_hook(
        [](nn::Module&, const Tensor&, const Tensor& y) { return y; });
    const Tensor x = randn({2, 3, 8}), g = randn({2, 3, 8});
    const Tensor y = layer(x), z = apart(x);
    EXPECT_TRUE(history_of(y).contains("feed_forward"));
    EXPECT_FALSE(history_of(z).contains("feed_forward"));
    expect_tensors(y, z, 100);
    y.backward(g);
    z.backward(g);
    for (const auto& [name, t] : layer.named_parameters())
      expect_tensors(t.grad(), apart.get_parameter(name).grad(), 200);
  }
}

TEST(NnInit, DefaultsStayInTheirBounds) {
  manual_seed(1);
  nn::Linear linear(100, 50);
  nn::Conv2d conv(8, 16, 3, {.groups = 2});
  const auto check = [](const Tensor& t, double bound) {
    EXPECT_LE(t.abs().max().item<double>(), bound * (1 + epsilon_of(kFloat32)));
    if (t.numel() > 500) {
      EXPECT_NEAR(t.std().item<double>(), bound / std::sqrt(3.0), bound / 20);
    }
  };
  check(linear.weight, 0.1);
  check(linear.bias, 0.1);
  check(conv.weight, 1 / std::sqrt(36.0));
  check(conv.bias, 1 / std::sqrt(36.0));
  check(nn::LSTM(30, 25).get_parameter("weight_hh_l0"), 0.2);
  nn::Embedding table(100, 20, {.padding_idx = -1});
  EXPECT_NEAR(table.weight.std().item<double>(), 1, 0.05);
  EXPECT_EQ(table.weight.select(0, 99).abs().max().item<double>(), 0);
}

TEST(NnInit, Distributions) {
  manual_seed(2);
  Tensor w = empty({400, 100}, kFloat64);
  const auto spread = [&] { return w.std().item<double>(); };
  EXPECT_NEAR((nn::init::xavier_uniform_(w, 2), spread()), 2 * std::sqrt(2.0 / 500), 0.002);
  EXPECT_NEAR((nn::init::xavier_normal_(w), spread()), std::sqrt(2.0 / 500), 0.001);
  EXPECT_NEAR((nn::init::kaiming_normal_(w, 0, "fan_out", "relu"), spread()), std::sqrt(2.0 / 400),
              0.001);
  EXPECT_NEAR((nn::init::kaiming_uniform_(w, 1), spread()), 0.1, 0.002);
  nn::init::trunc_normal_(w, 1, 2, 0, 2);
  EXPECT_GE(w.min().item<double>(), 0);
  EXPECT_LE(w.max().item<double>(), 2);
  // The standard deviation of a normal one cut at half a standard deviation on both sides.
  EXPECT_NEAR(w.mean().item<double>(), 1, 0.01);
  EXPECT_NEAR(spread(), 2 * std::sqrt(1 - 2 * 0.5 * 0.352065 / 0.382925), 0.01);
  for (const Shape& sizes : {Shape{3, 5}, Shape{6, 2, 2}}) {
    Tensor q = nn::init::orthogonal_(empty(sizes, kFloat64), 3).flatten(1);
    const bool wide = q.size(0) <= q.size(1);
    expect_tensors(wide ? q.mm(q.t()) : q.t().mm(q),
                   eye(std::min(q.size(0), q.size(1)), kFloat64) * 9, q.numel());
  }
  EXPECT_EQ(nn::init::calculate_gain("tanh"), 5.0 / 3);
  EXPECT_EQ(nn::init::calculate_gain("leaky_relu", 1), 1);
  EXPECT_TRUE(has(error_of([] { nn::init::calculate_gain("swish"); }), "Unsupported nonlinearity"));
  EXPECT_TRUE(
      has(error_of([] { nn::init::xavier_normal_(ones({3})); }), "fewer than 2 dimensions"));
}

// A convolution of one dimension by its definition, over an input padded already.
std::vector<double> conv_by_hand(const std::vector<double>& x, const std::vector<double>& w,
                                 double bias) {
  std::vector<double> y;
  for (size_t i = 0; i + w.size() <= x.size(); ++i) {
    double sum = bias;
    for (size_t k = 0; k < w.size(); ++k) sum += x[i + k] * w[k];
    y.push_back(sum);
  }
  return y;
}

TEST(NnConv, PaddingModes) {
  const Tensor x = tensor({1.0, 2.0, 3.0, 4.0}, kFloat64).view({1, 1, 4});
  const std::vector<double> w{1, 10, 100};
  const struct {
    const char* mode;
    std::vector<double> padded;
  } cases[] = {{"zeros", {0, 1, 2, 3, 4, 0}},
               {"reflect", {2, 1, 2, 3, 4, 3}},
               {"replicate", {1, 1, 2, 3, 4, 4}},
               {"circular", {4, 1, 2, 3, 4, 1}}};
  for (const auto& c : cases)
    for (Padding padding : {Padding(1), Padding("same")}) {
      nn::Conv1d conv(1, 1, 3, {.padding = padding, .padding_mode = c.mode});
      conv.to(kFloat64).load_state_dict(
          {{"weight", tensor(w).view({1, 1, 3})}, {"bias", tensor({5})}});
      expect_values(conv(x), conv_by_hand(c.padded, w, 5), 3);
    }
  nn::Conv1d even(1, 1, 2, {.padding = "same", .bias = false});  // one zero, at the end
  even.to(kFloat64).load_state_dict({{"weight", tensor({{{1, 10}}})}});
  expect_values(even(x), {21, 32, 43, 4}, 2);
  EXPECT_TRUE(has(error_of([] { nn::Conv1d(1, 1, 3, {.stride = 2, .padding = "same"}); }),
                  "not supported for strided"));
  EXPECT_TRUE(has(error_of([] { nn::Conv2d(1, 1, {3, 3, 3}); }), "kernel_size"));
}

TEST(NnConv, TransposeUndoesTheSize) {
  nn::Conv2d down(2, 4, 3, {.stride = 2, .padding = 1});
  nn::ConvTranspose2d up(4, 2, 3, {.stride = 2, .padding = 1});
  const Tensor x = randn({1, 2, 8, 7});
  const Tensor y = down(x);
  EXPECT_EQ(to_string(up(y).sizes()), "[1, 2, 7, 7]");
  EXPECT_EQ(to_string(up.forward(y, {8, 7}).sizes()), "[1, 2, 8, 7]");
  EXPECT_TRUE(has(error_of([&] { up.forward(y, {9, 7}); }), "from [7, 7] to [8, 8]"));
  // The adjoint of the same convolution: <conv(x), z> = <x, transpose(z)>.
  nn::Conv2d a(2, 3, 3, {.bias = false});
  nn::ConvTranspose2d b(3, 2, 3, {.bias = false});
  a.to(kFloat64);
  b.to(kFloat64).load_state_dict(a.state_dict());
  const Tensor u = randn({1, 2, 6, 5}, kFloat64), z = randn({1, 3, 4, 3}, kFloat64);
  expect_tensors((a(u) * z).sum(), (u * b(z)).sum(), 400);
}

TEST(NnNorm, BatchNormTrainsAndEvaluates) {
  const Tensor x = randn({6, 3, 4}, kFloat64) * 2 + 5;
  const auto stats = [&](int64_t c) {
    double mean = 0, var = 0;
    const std::vector<double> v = x.select(1, c).reshape({-1}).to_vector<double>();
    for (double e : v) mean += e / double(v.size());
    for (double e : v) var += (e - mean) * (e - mean) / double(v.size());
    return std::pair(mean, var);
  };
  nn::BatchNorm1d bn(3, {.momentum = 0.25});
  bn.to(kFloat64);
  nn::init::constant_(bn.weight, 2);
  nn::init::constant_(bn.bias, -1);
  const Tensor y = bn(x);
  std::vector<double> want_mean, want_var;
  for (int64_t c = 0; c < 3; ++c) {
    const auto [mean, var] = stats(c);
    expect_tensors(y.select(1, c), (x.select(1, c) - mean) / std::sqrt(var + 1e-5) * 2 - 1, 24);
    want_mean.push_back(0.25 * mean);
    want_var.push_back(0.75 + 0.25 * var * 24 / 23);
  }
  expect_values(bn.running_mean, want_mean, 24);
  expect_values(bn.running_var, want_var, 24);
  bn.eval();
  const Tensor z = bn(x);
  for (int64_t c = 0; c < 3; ++c)
    expect_tensors(
        z.select(1, c),
        (x.select(1, c) - want_mean[size_t(c)]) / std::sqrt(want_var[size_t(c)] + 1e-5) * 2 - 1,
        24);
  expect_values(bn.running_mean, want_mean, 24);
  EXPECT_EQ(bn.num_batches_tracked.item<int64_t>(), 1);
  EXPECT_TRUE(has(error_of([&] { nn::BatchNorm2d(3)(x); }), "expected 4D input (got 3D input)"));
}

TEST(NnNorm, BatchNormAveragesAndForgoes) {
  nn::BatchNorm1d average(1, {.momentum = {}, .affine = false});
  average.to(kFloat64);
  average(tensor({{1.0}, {3.0}}, kFloat64));
  average(tensor({{5.0}, {9.0}}, kFloat64));
  expect_values(average.running_mean, {(2 + 7) / 2.0}, 4);
  expect_values(average.running_var, {(2 + 8) / 2.0}, 4);
  EXPECT_TRUE(average.parameters().empty());
  nn::BatchNorm1d untracked(1, {.track_running_stats = false});
  EXPECT_TRUE(untracked.buffers().empty());
  untracked.eval();  // still by the batch
  expect_values(untracked(tensor({{1.0f}, {3.0f}})).sum(), {0}, 2);
}

TEST(NnNorm, LayerGroupInstanceRms) {
  const Tensor x = randn({2, 4, 3}, kFloat64);
  const auto normalized = [](const Tensor& t) {  // over everything but the first dimension
    const Tensor flat = t.reshape({t.size(0), -1});
    const Tensor centered = flat - flat.mean(1, true);
    return (centered / (centered.square().mean(1, true) + 1e-5).sqrt()).reshape(t.sizes());
  };
  nn::LayerNorm layer({4, 3});
  layer.to(kFloat64);
  expect_tensors(layer(x), normalized(x), 12);
  nn::GroupNorm group(2, 4);
  group.to(kFloat64);
  expect_tensors(group(x), normalized(x.reshape({4, 2, 3})).reshape({2, 4, 3}), 12);
  const Tensor single = ones({1, 4, 1}, kFloat64);
  EXPECT_TRUE(has(error_of([&] { nn::GroupNorm(4, 4, {.affine = false})(single); }),
                  "Expected more than 1 value per channel"));
  expect_tensors(group_norm(single, 4), zeros_like(single), 12);
  nn::InstanceNorm1d instance(4);
  expect_tensors(instance(x), normalized(x.reshape({8, 3})).reshape({2, 4, 3}), 12);
  expect_tensors(instance(x.select(0, 0)), normalized(x.select(0, 0)), 12);
  nn::RMSNorm rms(3, {.eps = 1e-3});
  rms.to(kFloat64);
  nn::init::constant_(rms.weight, 3);
  expect_tensors(rms(x), x / (x.square().mean(2, true) + 1e-3).sqrt() * 3, 3);
  EXPECT_EQ(nn::LayerNorm(5, {.bias = false}).state_dict().keys(),
            std::vector<std::string>{"weight"});
  EXPECT_TRUE(has(error_of([] { nn::GroupNorm(3, 4); }), "divisible by num_groups"));
}

TEST(NnDropout, InTrainingOnly) {
  manual_seed(4);
  nn::Dropout drop(0.25);
  const Tensor x = ones({4000});
  const Tensor y = drop(x);
  const double kept = (y != 0).to(kFloat32).mean().item<double>();
  EXPECT_NEAR(kept, 0.75, 0.04);
  EXPECT_NEAR(y.max().item<double>(), 1 / 0.75, test::tolerance(kFloat32, 1, 2));
  drop.eval();
  EXPECT_TRUE(equal(drop(x), x));
  nn::Dropout2d channels(0.5);
  const Tensor z = channels(ones({16, 8, 3, 3})).flatten(2);
  EXPECT_TRUE(equal(z.amin({2}), z.amax({2}))) << "whole channels";
  EXPECT_TRUE(has(error_of([] { nn::Dropout(1.5); }), "has to be between 0 and 1"));
}

TEST(NnEmbedding, LooksUp) {
  nn::Embedding table(5, 2, {.padding_idx = 0});
  const Tensor index = tensor({{1, 0}, {4, 1}});
  const Tensor y = table(index);
  EXPECT_EQ(to_string(y.sizes()), "[2, 2, 2]");
  y.sum().backward();
  expect_values(table.weight.grad(), {0, 0, 2, 2, 0, 0, 0, 0, 1, 1});
  auto fixed = nn::Embedding::from_pretrained(tensor({{1.0, 2.0}, {3.0, 4.0}}));
  EXPECT_FALSE(fixed.weight.requires_grad());
  expect_values(fixed(tensor({1})), {3, 4});
}

TEST(NnEmbedding, PaddingIsARowOfTheTable) {
  EXPECT_EQ(nn::Embedding(10, 3, {.padding_idx = -10}).extra_repr(), "10, 3, padding_idx=0");
  for (const int64_t row : {-11, 10}) {
    EXPECT_THROW(nn::Embedding(10, 3, {.padding_idx = row}), ValueError);
    EXPECT_THROW(nn::EmbeddingBag(10, 3, {.padding_idx = row}), ValueError);
  }
}

TEST(NnEmbedding, BagsBeginAtTheFirstIndex) {
  nn::EmbeddingBag bags(3, 2);
  const Tensor index = tensor({0, 1, 2});
  EXPECT_TRUE(has(error_of([&] { bags(index, tensor({1, 2})); }), "offsets[0] has to be 0"));
  EXPECT_TRUE(has(error_of([&] {
                    bags(index, tensor({0, 9}));
                  }),
                  "offsets[-1] can not be greater than input's length 3 but got offsets[-1] of 9"));
  EXPECT_EQ(to_string(bags(index, tensor({0, 3})).sizes()), "[2, 2]");
}

TEST(NnLoss, MultiLabelSoftMarginIsOverTheClassesOfItsInput) {
  const Tensor x = tensor({0.5, -1.0, 2.0}, kFloat64);
  const Tensor target = tensor({{1.0, 0.0, 1.0}, {0.0, 1.0, 1.0}}, kFloat64);
  const auto of = [](double v, double y) {
    return y * std::log1p(std::exp(-v)) + (1 - y) * std::log1p(std::exp(v));
  };
  expect_values(multilabel_soft_margin_loss(x, target, {}, "none"),
                {(of(0.5, 1) + of(0.5, 0)) / 3, (of(-1, 0) + of(-1, 1)) / 3, of(2, 1) * 2 / 3});
}

TEST(NnActivation, ModulesCallTheFunctions) {
  const Tensor x = linspace(-4, 4, 33, kFloat64);
  const auto check = [&](nn::Module&& m, double (*f)(double)) {
    std::vector<double> want;
    for (double v : x.to_vector<double>()) want.push_back(f(v));
    SCOPED_TRACE(m.to_string());
    expect_values(m(x), want);
  };
  check(nn::ReLU(), [](double v) { return std::max(v, 0.0); });
  check(nn::ReLU6(), [](double v) { return std::min(std::max(v, 0.0), 6.0); });
  check(nn::LeakyReLU(0.2), [](double v) { return v > 0 ? v : 0.2 * v; });
  check(nn::ELU(0.5), [](double v) { return v > 0 ? v : 0.5 * std::expm1(v); });
  check(nn::CELU(0.5), [](double v) { return v > 0 ? v : 0.5 * std::expm1(v / 0.5); });
  check(nn::GELU(), [](double v) { return v * 0.5 * std::erfc(-v / std::sqrt(2.0)); });
  check(nn::SiLU(), [](double v) { return v * test::logistic(v); });
  check(nn::Mish(), [](double v) { return v * std::tanh(std::log1p(std::exp(v))); });
  check(nn::Softplus(2, 3),
        [](double v) { return 2 * v > 3 ? v : std::log1p(std::exp(2 * v)) / 2; });
  check(nn::Hardswish(), [](double v) { return v * std::clamp(v / 6 + 0.5, 0.0, 1.0); });
  check(nn::Hardtanh(-2, 1), [](double v) { return std::clamp(v, -2.0, 1.0); });
  check(nn::Sigmoid(), [](double v) { return test::logistic(v); });
  check(nn::Tanh(), [](double v) { return std::tanh(v); });
  check(nn::Threshold(1, -7), [](double v) { return v > 1 ? v : -7.0; });
  nn::PReLU prelu;
  prelu.to(kFloat64);
  check(std::move(prelu), [](double v) { return v > 0 ? v : 0.25 * v; });
  Tensor y = x.clone();
  EXPECT_TRUE(nn::ReLU({.inplace = true})(y).is_same(y));
  EXPECT_EQ(y.min().item<double>(), 0);
  expect_tensors(nn::Softmax(0)(x).sum(), ones({}, kFloat64), 33);
  expect_tensors(nn::LogSoftmax(0)(x).exp().sum(), ones({}, kFloat64), 33);
}

TEST(NnPooling, ModulesCallTheFunctions) {
  const Tensor x = arange(16, kFloat64).view({1, 1, 4, 4});
  expect_values(nn::MaxPool2d(2)(x), {5, 7, 13, 15});
  expect_values(nn::MaxPool2d(2, {.stride = 1})(x), {5, 6, 7, 9, 10, 11, 13, 14, 15});
  expect_values(nn::AvgPool2d(2)(x), {2.5, 4.5, 10.5, 12.5}, 4);
  expect_values(nn::AvgPool2d({4, 2}, {.divisor_override = 2})(x), {26, 34}, 8);
  expect_values(nn::AdaptiveAvgPool2d(1)(x), {7.5}, 16);
  expect_values(nn::AdaptiveMaxPool2d({2, 1})(x), {7, 15});
  expect_values(nn::MaxPool1d(2)(x.view({1, 1, 16})).narrow(2, 0, 2), {1, 3});
  expect_values(nn::AvgPool3d(2)(arange(8, kFloat64).view({1, 1, 2, 2, 2})), {3.5}, 8);
}

TEST(NnReshape, FlattensAndResamples) {
  const Tensor x = arange(8, kFloat64).view({1, 4, 2});
  EXPECT_EQ(to_string(nn::Flatten()(x).sizes()), "[1, 8]");
  EXPECT_EQ(to_string(nn::Unflatten(1, {2, 2})(x).sizes()), "[1, 2, 2, 2]");
  expect_values(nn::Upsample({.scale_factor = {2}})(x.narrow(1, 0, 1)), {0, 0, 1, 1});
  const Tensor image = arange(4, kFloat64).view({1, 4, 1, 1});
  expect_values(nn::PixelShuffle(2)(image), {0, 1, 2, 3});
  expect_tensors(nn::PixelUnshuffle(2)(nn::PixelShuffle(2)(image)), image);
}

TEST(NnLoss, ModulesCallTheFunctions) {
  const Tensor x = tensor({{1.0, 2.0, 0.5}, {0.1, -1.0, 3.0}}, kFloat64);
  const Tensor y = tensor({1, 0});
  const auto log_sum = [](double a, double b, double c) {
    return std::log(std::exp(a) + std::exp(b) + std::exp(c));
  };
  const double first = log_sum(1, 2, 0.5) - 2, second = log_sum(0.1, -1, 3) - 0.1;
  expect_values(nn::CrossEntropyLoss()(x, y), {(first + second) / 2}, 6);
  expect_values(nn::CrossEntropyLoss({.reduction = "none"})(x, y), {first, second}, 6);
  nn::CrossEntropyLoss weighted({.weight = tensor({1.0, 3.0, 1.0}, kFloat64)});
  expect_values(weighted(x, y), {(3 * first + second) / 4}, 6);
  EXPECT_EQ(weighted.state_dict().keys(), std::vector<std::string>{"weight"});
  expect_values(nn::NLLLoss({.reduction = "sum"})(x.log_softmax(1), y), {first + second}, 6);
  const Tensor a = tensor({0.0, 2.0}, kFloat64), b = tensor({0.5, -1.0}, kFloat64);
  expect_values(nn::MSELoss()(a, b), {(0.25 + 9) / 2}, 2);
  expect_values(nn::L1Loss({.reduction = "sum"})(a, b), {3.5}, 2);
  expect_values(nn::SmoothL1Loss()(a, b), {(0.125 + 2.5) / 2}, 2);
  expect_values(nn::HuberLoss({.delta = 2})(a, b), {(0.125 + 2 * (3 - 1)) / 2}, 2);
  const Tensor t = tensor({1.0, 0.0}, kFloat64);
  const double bce = (-std::log(test::logistic(0)) - std::log(1 - test::logistic(2))) / 2;
  expect_values(nn::BCELoss()(a.sigmoid(), t), {bce}, 2);
  expect_values(nn::BCEWithLogitsLoss()(a, t), {bce}, 2);
  expect_values(
      nn::KLDivLoss({.reduction = "batchmean"})(tensor({{std::log(0.5), std::log(0.5)}}, kFloat64),
                                                tensor({{0.25, 0.75}}, kFloat64)),
      {0.25 * std::log(0.5) + 0.75 * std::log(1.5)}, 2);
  EXPECT_TRUE(has(error_of([&] { nn::MSELoss({.reduction = "average"})(a, b); }),
                  "not a valid value for reduction"));
}

}  // namespace
}  // namespace arete
