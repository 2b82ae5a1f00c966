// Saved programs: what a function may do, dynamic sizes, files, and what is refused.
#include <algorithm>

#include "arete/program/program.h"

#include <gtest/gtest.h>

#include "arete/arete.h"
#include "arete/base/file.h"
#include "arete/expr/assemble.h"
#include "arete/io/zip.h"
#include "arete/ops/call.h"
#include "arete/program/body_internal.h"
#include "tests/support/errors.h"
#include "tests/unit/io_test_support.h"

namespace arete {
namespace {

using program::Program;
using program::RecordOptions;
using program::StateKind;
using Tensors = std::vector<Tensor>;

void expect_same(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t k = 0; k < a.size(); ++k) {
    ASSERT_TRUE(std::ranges::equal(a[k].sizes(), b[k].sizes()));
    EXPECT_TRUE(equal(a[k], b[k])) << a[k].to_string() << "\n" << b[k].to_string();
  }
}

TensorList gradients(const Tensor& loss, const Tensors& of) {
  return autograd::grad({&loss, 1}, of, {}, false, false, false);
}

Program reloaded(const Program& p) {
  const test::TempDir folder;
  p.save(folder / "p.arete");
  return Program::load(folder / "p.arete");
}

RecordOptions with_state(const nn::Module& net) {
  RecordOptions o;
  for (const auto& [name, t] : net.named_parameters())
    o.state.push_back({name, t, StateKind::parameter});
  for (const auto& [name, t] : net.named_buffers()) o.state.push_back({name, t, StateKind::buffer});
  return o;
}

TEST(Program, RunsANetworkAndItsGradients) {
  nn::Sequential net(nn::Linear(4, 8), nn::GELU(), nn::Linear(8, 2));
  RecordOptions o = with_state(net);
  o.dynamic.push_back({"batch", 0, 0});
  const Program p = Program::record(
      [&](const Tensors& x) { return Tensors{net(x[0]).softmax(-1)}; }, {randn({3, 4})}, o);
  const Program q = reloaded(p);
  for (const int64_t n : {1, 3, 7}) {
    const Tensor x = randn({n, 4});
    const Tensor want = net(x).softmax(-1);
    expect_same(p({x}), {want});
    expect_same(q({x}), {want});
  }
  const Tensor x = randn({5, 4});
  const auto loss = [](const Tensor& y) { return y.square().sum(); };
  const auto grads = gradients(loss(net(x).softmax(-1)), net.parameters());
  std::vector<Tensor> weights;
  for (const program::State& s : q.state()) weights.push_back(s.tensor);
  EXPECT_EQ(q.state()[0].name, "0.weight");
  const auto mine = gradients(loss(q({x})[0]), weights);
  for (size_t k = 0; k < grads.size(); ++k) EXPECT_TRUE(equal(grads[k], mine[k]));
  EXPECT_NE(p.to_string().find("float32[batch, 8] = linear(%input_0, %0.weight, %0.bias)"),
            std::string::npos)
      << p.to_string();
  EXPECT_EQ(p.inputs()[0].sizes, (std::vector<std::string>{"batch", "4"}));
}

TEST(Program, SharesItsWeightsAndFollowsThem) {
  nn::Linear net(2, 2);
  const Program p =
      Program::record([&](const Tensors& x) { return Tensors{net(x[0])}; }, {ones({1, 2})});
  const Program copy = p.clone();
  const Tensors before = p({ones({1, 2})});
  {
    const NoGradGuard guard;
    net.parameters()[0].mul_(2);
  }
  expect_same(p({ones({1, 2})}), {net(ones({1, 2}))});
  expect_same(copy({ones({1, 2})}), before);
}

TEST(Program, ViewsAndInPlaceCalls) {
  const auto f = [](const Tensors& in) {
    Tensor x = in[0].clone();
    Tensor row = x.select(0, 1);
    row.add_(1);
    x.slice(1, 0, 2).mul_(in[0].slice(1, 0, 2));
    const Tensor flat = x.view({-1}).detach();
    std::vector<Tensor> parts = x.split(1, 0);
    Tensor out = empty({0});
    Tensor* const outs[] = {&out};
    ops::call_into(outs, *ops::find_record("add"),
                   std::initializer_list<ops::Arg>{x, parts[0], Scalar(1)});
    return Tensors{x, flat.sum(), cat({parts[2], parts[0]}, 0), out, in[0]};
  };
  const Tensor x = randn({3, 4});
  const Program p = Program::record(f, {x});
  expect_same(p({x}), f({x}));
  expect_same(reloaded(p)({x}), f({x}));
}

TEST(Program, WhatTheHostWritesIsAConstant) {
  const auto f = [](const Tensors& in) {
    Tensor t = empty({2});
    t.data<float>()[0] = 3, t.data<float>()[1] = 4;
    Tensor filled = empty({2});
    filled.fill_(2.0);
    return Tensors{in[0] * t, filled + in[0]};
  };
  const Program p = Program::record(f, {ones({2})});
  EXPECT_EQ(p.state().size(), 1u) << p.to_string();
  expect_same(reloaded(p)({ones({2})}), f({ones({2})}));
}

TEST(Program, WhatTheHostWritesLaterIsSeen) {
  const auto f = [](const Tensors& in) {
    Tensor a = zeros({2, 2});
    const Tensor row = a[1];
    float* const data = a.data<float>();
    data[0] = 3;
    const Tensor first = in[0] * row + a[0];
    data[2] = 5;
    const Tensor second = in[0] + row;
    // Whatever the host wrote is the same in each run.
    a.add_(in[0]);
    return Tensors{first, second, a.clone()};
  };
  const Program p = reloaded(Program::record(f, {ones({2})}));
  const Tensor x = randn({2});
  for (int k = 0; k < 2; ++k) expect_same(p({x}), f({x}));
}

TEST(Program, WhatOperatorsWriteBesidesTheirResultsIsKept) {
  // Running statistics that are inputs, or that calls made.
  const auto f = [](const Tensors& in) {
    const Tensor mean = zeros({3}), variance = ones({3});
    batch_norm(in[0], in[1], in[2], {}, {}, true);
    batch_norm(in[0], mean, variance, {}, {}, true);
    return Tensors{mean, variance};
  };
  const Tensor x = randn({8, 3});
  Tensors mine{zeros({3}), ones({3})}, want{zeros({3}), ones({3})};
  const Program p = Program::record(f, {x, mine[0], mine[1]});
  expect_same(p({x, mine[0], mine[1]}), f({x, want[0], want[1]}));
  expect_same(mine, want);
}

TEST(Program, GradientsAreThoseOfEagerCode) {
  const Tensor w = full({2}, 3.0).requires_grad_();
  const auto f = [&](const Tensors& in) {
    const Tensor& x = in[0];
    Tensor stopped = x * 2;
    stopped.detach_();
    const Tensor plain = x.detach();
    Tensor y = x * plain + w.detach() * x + x.variable_data() * w + stopped * x, without;
    {
      const NoGradGuard guard;
      without = x * w;
    }
    y = y + without * 0.5;
    const Tensor again = autograd::checkpoint(
        [](const Tensors& t) { return Tensors{t[0] * t[0].detach() * 3}; }, {x})[0];
    return Tensors{y * x + again, x.detach().requires_grad_() * w};
  };
  for (const bool records_with_grad : {false, true})
    for (const bool under_no_grad : {false, true}) {
      const Tensor example = full({2}, 0.5).requires_grad_(records_with_grad);
      const auto record = [&] {
        const ModesGuard guard;
        modes().grad_enabled = !under_no_grad;
        RecordOptions o;
        o.state.push_back({"w", w, StateKind::parameter});
        return Program::record(f, {example}, o);
      };
      const Program p = record();
      const Tensor x = randn({2}).requires_grad_();
      const Tensors got = p({x}), want = f({x});
      expect_same(got, want);
      for (size_t k = 0; k < 2; ++k) {
        EXPECT_EQ(got[k].requires_grad(), want[k].requires_grad());
        ASSERT_TRUE(got[k].requires_grad()) << p.to_string();
        const auto mine = gradients(got[k].sum(), {w}), eager = gradients(want[k].sum(), {w});
        EXPECT_TRUE(equal(mine[0], eager[0])) << k;
      }
      EXPECT_TRUE(equal(gradients(p({x})[0].sum(), {x})[0], gradients(f({x})[0].sum(), {x})[0]))
          << p.to_string();
    }
}

TEST(Program, ReusedMemoryIsAnotherValue) {
  const auto f = [](const Tensors& in) {
    Tensor out = empty({0});
    Tensor* const outs[] = {&out};
    // The memory it had is given back.
    ops::call_into(outs, *ops::find_record("cat"),
                   std::initializer_list<ops::Arg>{ops::Arg(std::span<const Tensor>(in)), 0});
    const Tensor other = ones({2});
    return Tensors{out + 1, in[0] * other};
  };
  const Tensors x{randn({2}), randn({2})};
  expect_same(Program::record(f, x)(x), f(x));
}

TEST(Program, ExamplesOfSizeOneAreChecked) {
  // Sizes of 1 are a case of their own: the program would be another one for the examples.
  const auto f = [](const Tensors& in) {
    return Tensors{in[0].size(0) == 1 ? in[0] * 2 : in[0] + 1};
  };
  RecordOptions o;
  o.maybe_dynamic.emplace_back(0, 0);
  expect_same(Program::record(f, {ones({1})}, o)({ones({1})}), {full({1}, 2.0)});
  o.maybe_dynamic.clear();
  o.dynamic.push_back({"n", 0, 0});
  EXPECT_NE(test::error_of([&] { Program::record(f, {ones({1})}, o); }).find("depend on the sizes"),
            std::string::npos);
}

TEST(Program, PlacesAndWindowsAreSaved) {
  const auto f = [](const Tensors& in) {
    const Tensor places = tensor({int64_t(2), int64_t(0)});
    return Tensors{index(in[0], {places}), index(in[0], {in[0].gt(0)}),
                   index(in[1], {kEllipsis, places, places}), im2col(in[1], {2, 2})};
  };
  const Tensors x{randn({3, 2}), randn({1, 2, 4, 4})};
  expect_same(reloaded(Program::record(f, x))(x), f(x));
}

TEST(Program, HooksOnGradientsAreRefused) {
  const Tensor x = ones({2}).requires_grad_();
  const auto f = [](const Tensors& in) {
    const Tensor h = in[0] * 2;
    h.register_hook([](const Tensor& g) { return g * 10; });
    return Tensors{h};
  };
  EXPECT_NE(test::error_of([&] { Program::record(f, {x}); }).find("hook"), std::string::npos);
}

TEST(Program, NamesAreApart) {
  const Tensor table = ones({4});
  RecordOptions o;
  o.input_names = {"constant_0"};
  o.dynamic.push_back({"s1", 0, 0});
  o.maybe_dynamic.emplace_back(0, 1);
  const Program p = reloaded(Program::record(
      [&](const Tensors& in) { return Tensors{in[0].sum() * table}; }, {ones({3, 5})}, o));
  expect_same(p({ones({2, 7})}), {full({4}, 14.0)});
  EXPECT_EQ(p.state()[0].name, "constant_1");
}

TEST(Program, InputsAreWrittenAsInEagerCode) {
  const auto f = [](const Tensors& in) {
    Tensor x = in[0];
    x.mul_(2);
    return Tensors{x + 1};
  };
  Tensor x = ones({2});
  const Program p = Program::record(f, {x});
  expect_same({x}, {ones({2})});  // recording wrote into a copy
  p({x});
  expect_same({x}, {full({2}, 2.0)});
}

TEST(Program, RecordingUndoesWhatItWrote) {
  nn::BatchNorm1d norm(3);
  const Tensor x = randn({8, 3});
  RecordOptions o = with_state(norm);
  o.dynamic.push_back({"batch", 0, 0});
  const Generator::State before = default_generator().state();
  const Program p =
      Program::record([&](const Tensors& in) { return Tensors{norm(in[0]) + rand({1})}; }, {x}, o);
  EXPECT_EQ(default_generator().state(), before);
  EXPECT_TRUE(equal(norm.get_buffer("running_mean"), zeros({3})));
  EXPECT_FALSE(p.written().empty());
  const Program q = reloaded(p);
  manual_seed(3);
  const Tensor want = norm(x) + rand({1});
  manual_seed(3);
  expect_same(q({x}), {want});
  for (const program::State& s : q.state()) {
    const auto mine = norm.state_dict();
    EXPECT_TRUE(equal(s.tensor.detach(), mine.at(s.name))) << s.name;
  }
}

TEST(Program, SizesAreSumsOfProducts) {
  const auto f = [](const Tensors& in) {
    const int64_t b = in[0].size(0), t = in[0].size(1), c = in[0].size(2);
    const Tensor flat = in[0].reshape({b * t, c});
    const Tensor position = arange(0, t, 1).unsqueeze(-1);
    return Tensors{flat.view({b, t, c}) + position, flat.slice(0, 0, 2 * t - 1).sum(0),
                   full({t, b + 1}, double(t)), flat.sum() * double(b)};
  };
  RecordOptions o;
  o.dynamic = {{"batch", 0, 0}, {"time", 0, 1, 1, 64}};
  const Program p = Program::record(f, {randn({4, 5, 3})}, o);
  for (const auto& [b, t] : {std::pair<int64_t, int64_t>{2, 3}, {4, 5}, {3, 9}, {6, 1}}) {
    const Tensor x = randn({b, t, 3});
    expect_same(p({x}), f({x}));
    expect_same(reloaded(p)({x}), f({x}));
  }
  EXPECT_NE(p.to_string().find("[batch*time, 3]"), std::string::npos) << p.to_string();
  EXPECT_NE(test::error_of([&] {
              p({randn({2, 65, 3})});
            }).find("Expected input 'input_0' at dimension 1 to be <= 64, but got 65"),
            std::string::npos);
  EXPECT_NE(test::error_of([&] {
              p({randn({2, 3, 4})});
            }).find("Expected input 'input_0' at dimension 2 to be equal to 3, but got 4"),
            std::string::npos);
  EXPECT_NE(test::error_of([&] {
              p({randn({2, 3})});
            }).find("to have 3 dimensions"),
            std::string::npos);
  EXPECT_NE(test::error_of([&] {
              p({ones({2, 3, 3}, kInt64)});
            }).find("to be of dtype float32"),
            std::string::npos);
  EXPECT_NE(test::error_of([&] { p({}); }).find("takes 1 tensors, but got 0"), std::string::npos);
}

TEST(Program, SizesHaveSquaresAndFollowFromOthers) {
  RecordOptions options;
  options.dynamic = {{"n", 0, 0}, {"h", 1, 0, 2, 8, 2, 1}};
  const auto f = [](const Tensors& x) {
    const int64_t n = x[0].size(0), h = (x[1].size(0) - 1) / 2;
    return Tensors{(x[0].unsqueeze(0) * x[0].unsqueeze(1)).view({n * n}), x[1].narrow(0, h, h + 1)};
  };
  const Program p = reloaded(Program::record(f, {ones({2}), ones({15})}, options));
  EXPECT_NE(p.to_string().find("%input_1: float32[2*h + 1]"), std::string::npos) << p.to_string();
  EXPECT_NE(p.to_string().find("[n*n]"), std::string::npos) << p.to_string();
  for (const int64_t n : {1, 5, 12}) {
    const Tensors x{arange(n).to(kFloat32), arange(n % 2 ? 17 : 5).to(kFloat32)};
    expect_same(p(x), f(x));
  }
  EXPECT_ERROR(p({ones({2}), ones({16})}), "to be 2*h + 1, but got 16");
  EXPECT_ERROR(p({ones({2}), ones({19})}), "to be <= 17, but got 19");
  options.dynamic[1].factor = 4;
  EXPECT_ERROR(Program::record(f, {ones({2}), ones({15})}, options),
               "is none of those that the dynamic size 'h' gives");
}

TEST(Program, CopiesThatAreNoneAreCalls) {
  const auto f = [](const Tensors& x) {
    const Tensor y = x[0].contiguous();
    Tensor(x[0]).mul_(2);
    return Tensors{y.view({-1}), x[0].to(kFloat32) + 1};
  };
  const auto of_columns = [] { return arange(6).to(kFloat32).view({3, 2}).t(); };
  for (const Tensor& example : {ones({2, 3}), of_columns()}) {
    const Program p = Program::record(f, {example});
    expect_same(p({of_columns()}), f({of_columns()}));
    expect_same(p({of_columns().contiguous()}), f({of_columns().contiguous()}));
  }
}

TEST(Program, FindsWhatMayDiffer) {
  const Tensor w = randn({3, 2});
  RecordOptions o;
  for (int64_t d = 0; d < 2; ++d)
    for (size_t i = 0; i < 2; ++i) o.maybe_dynamic.emplace_back(i, d);
  const Program p =
      Program::record([&](const Tensors& in) { return Tensors{(in[0] + in[1]).mm(w)}; },
                      {randn({1, 3}), randn({1, 3})}, o);
  expect_same(p({ones({5, 3}), ones({5, 3})}), {full({5, 3}, 2.0).mm(w)});
  EXPECT_THROW(p({ones({5, 3}), ones({4, 3})}), ValueError);
  EXPECT_THROW(p({ones({5, 4}), ones({5, 4})}), ValueError);
}

TEST(Program, RefusesWhatDependsOnValuesOrSizes) {
  const auto record = [](auto f, std::vector<program::DynamicSize> dynamic = {}) {
    RecordOptions o;
    o.dynamic = std::move(dynamic);
    return test::error_of([&] { Program::record(f, {ones({4, 2})}, o); });
  };
  const std::vector<program::DynamicSize> rows{{"rows", 0, 0}};
  EXPECT_NE(record([](const Tensors& in) {
              return Tensors{in[0].sum().item<float>() > 0 ? in[0] + 1 : in[0]};
            }).find("a value that depends on the inputs was looked at"),
            std::string::npos);
  // What does not depend on them is a number like any other.
  const auto takes = [](auto f) { Program::record(f, {ones({4, 2})}); };
  EXPECT_NO_THROW(takes(
      [](const Tensors& in) { return Tensors{in[0] * arange(0, 3, 1).sum().item<double>()}; }));
  EXPECT_NE(record(
                [](const Tensors& in) {
                  Tensor y = in[0];
                  for (int64_t k = 0; k < in[0].size(0); ++k) y = y + 1;
                  return Tensors{y};
                },
                rows)
                .find("the calls of the function depend on the sizes"),
            std::string::npos);
  EXPECT_NE(record(
                [](const Tensors& in) {
                  return Tensors{in[0].slice(0, 0, in[0].size(0) * in[0].size(0) / 3)};
                },
                rows)
                .find("is no sum of products"),
            std::string::npos);
  EXPECT_NO_THROW(takes([](const Tensors& in) { return Tensors{in[0] / double(in[0].size(0))}; }));
  EXPECT_NE(record([](const Tensors& in) { return Tensors{in[0] * (1.0 / in[0].size(0))}; }, rows)
                .find("no whole number"),
            std::string::npos);
  EXPECT_NE(
      record(
          [](const Tensors& in) {
            return Tensors{
                in[0] +
                tensor(std::vector<double>(size_t(in[0].size(0)), 1.0)).to(kFloat32).unsqueeze(-1)};
          },
          rows)
          .find("which no operator made, depends on the sizes"),
      std::string::npos);
  EXPECT_NE(record([](const Tensors& in) { return Tensors{in[0] + 1}; }, {{"rows", 0, 0, 4, 5}})
                .find("fewer than three sizes"),
            std::string::npos);
}

TEST(Program, ModesOfCallsAreKept) {
  nn::Linear net(2, 2);
  const auto f = [&](const Tensors& in) {
    Tensor a;
    {
      const NoGradGuard guard;
      a = net(in[0]);
    }
    const amp::Autocast region(kCPU, kBFloat16);
    return Tensors{a, net(in[0]), scaled_dot_product_attention(in[0], in[0], in[0])};
  };
  const Tensor x = randn({3, 2});
  const Program p = reloaded(Program::record(f, {x}));
  const Tensors got = p({x}), want = f({x});
  expect_same(got, want);
  for (size_t k = 0; k < 3; ++k) {
    EXPECT_EQ(got[k].dtype(), want[k].dtype());
    EXPECT_EQ(got[k].requires_grad(), want[k].requires_grad());
  }
}

struct Twice : autograd::Function<Twice> {
  static constexpr const char* name = "Twice";
  static Tensors forward(autograd::Context&, const Tensors& x) { return {x[0] * 2}; }
  static Tensors backward(autograd::Context&, const Tensors& g) { return {g[0] * 3}; }
};

TEST(Program, CustomFunctionsRunButHaveNoGradient) {
  const Program p = Program::record(
      [](const Tensors& in) { return Tensors{Twice::apply({in[0]})[0] + 1}; }, {ones({2})});
  expect_same(p({ones({2})}), {full({2}, 3.0)});
  EXPECT_NE(
      test::error_of([&] { p({ones({2}).requires_grad_()}); }).find("backward function of 'Twice'"),
      std::string::npos);
  const Program q = Program::record(
      [](const Tensors& in) {
        return autograd::checkpoint([](const Tensors& x) { return Tensors{x[0].square()}; }, in);
      },
      {ones({2})});
  Tensor x = full({2}, 3.0).requires_grad_();
  q({x})[0].sum().backward();
  EXPECT_TRUE(equal(x.grad(), full({2}, 6.0)));
}

TEST(Program, RecurrentLayersAreOneCall) {
  nn::LSTM lstm(3, 4, {.num_layers = 2});
  RecordOptions o = with_state(lstm);
  o.dynamic = {{"time", 0, 0}, {"batch", 0, 1}};
  const auto f = [&](const Tensors& in) {
    const auto [y, state] = lstm(in[0]);
    return Tensors{y, state.h, state.c};
  };
  const Program p = reloaded(Program::record(f, {randn({5, 2, 3})}, o));
  const Tensor x = randn({7, 3, 3});
  expect_same(p({x}), f({x}));
  // A gradient passes it.
  std::vector<Tensor> weights;
  for (const program::State& s : p.state()) weights.push_back(s.tensor);
  const auto mine = gradients(p({x})[0].sum(), weights);
  const auto want = gradients(f({x})[0].sum(), lstm.parameters());
  for (size_t k = 0; k < mine.size(); ++k) EXPECT_TRUE(equal(mine[k], want[k]));
}

TEST(Program, RunsInsideCompiledFunctionsAndOtherPrograms) {
  const Program p = Program::record(
      [](const Tensors& in) { return Tensors{(in[0] * 2 + 1).tanh()}; }, {ones({4})});
  auto compiled = compile::compile([&](const Tensor& x) { return p({x})[0] * 3; }, {.exact = true});
  const Tensor x = randn({4});
  for (int k = 0; k < 3; ++k) expect_same({compiled(x)}, {(x * 2 + 1).tanh() * 3});
  EXPECT_EQ(compiled.stats().plans, 1);
  const Program outer =
      Program::record([&](const Tensors& in) { return Tensors{p(in)[0] + 1}; }, {ones({4})});
  expect_same(outer({x}), {(x * 2 + 1).tanh() + 1});
}

TEST(Program, ElementwiseKernelsOfUsersAreKept) {
  const DType f32[] = {kFloat32, kFloat32};
  const expr::Type number[] = {expr::Type::f32};
  const expr::ProgramPtr kernel = expr::trace(
      [](std::span<const expr::Value> v) {
        return std::vector{where(v[0] < v[1], v[0] * v[1] + v[2], erf(v[1]))};
      },
      f32, number, {f32, 1});
  const auto f = [&](const Tensors& in) {
    const Scalar two(2.5);
    const ops::Results r = ops::apply_program(kernel, in, {&two, 1}, "my_kernel");
    return Tensors{r[0] + 1};
  };
  const Tensors in{randn({3}), randn({3})};
  const Program p = reloaded(Program::record(f, in));
  expect_same(p(in), f(in));
  // The very program: equal ones are one object.
  EXPECT_EQ(p.body().calls[0].args[0].program, kernel);
  std::vector<DType> inputs(kernel->inputs().begin(), kernel->inputs().end());
  std::vector<expr::Instruction> code(kernel->code().begin(), kernel->code().end());
  code.back().operand[0] = int32_t(code.size());
  EXPECT_THROW(expr::assemble(inputs, {expr::Type::f32}, code, {{0, kFloat32}}), ValueError);
}

TEST(Program, ErrorsSayWhereTheyHappened) {
  const Program p = Program::record(
      [](const Tensors& in) {
        return Tensors{in[0].exp(), in[0].index_select(0, in[1])};
      },
      {ones({3}), zeros({2}, kInt64)});
  const std::string error = test::error_of([&] { p({ones({3}), full({2}, 7, kInt64)}); });
  EXPECT_NE(error.find("in call 2 (index_select) of a program"), std::string::npos) << error;
}

// ---- files

std::string text_of(const Program& p) { return program::write_json(p.body()); }

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what << " in " << text;
  return at == std::string::npos ? text : text.replace(at, what.size(), by);
}

TEST(ProgramFiles, KeepEverything) {
  nn::Linear net(2, 3);
  RecordOptions o = with_state(net);
  o.input_names = {"x"};
  o.dynamic = {{"n", 0, 0, 1, 9}};
  Program p =
      Program::record([&](const Tensors& in) { return Tensors{net(in[0])}; }, {ones({2, 2})}, o);
  p.set_metadata("note", "a \"text\"");
  const Program q = reloaded(p);
  EXPECT_EQ(text_of(p), text_of(q));
  EXPECT_EQ(p.to_string(), q.to_string());
  EXPECT_EQ(q.metadata().at("note"), "a \"text\"");
  EXPECT_EQ(q.sizes()[0].max, 9);
  EXPECT_TRUE(q.state()[0].tensor.requires_grad());
  EXPECT_EQ(q.operators(), std::vector<std::string>{"linear"});
}

TEST(ProgramFiles, ArgumentsAreFoundByTheirNames) {
  const Program p = Program::record([](const Tensors& in) { return Tensors{in[0].sum({0}, true)}; },
                                    {ones({2, 3})});
  const std::string text = text_of(p);
  const auto& schema = p.body().calls[0].op->schema;
  // A schema of before: without an argument that has a default today.
  const size_t dtype = schema.find(", *, dtype? dtype=None");
  ASSERT_NE(dtype, std::string::npos) << schema;
  std::string older = schema;
  older.erase(dtype, std::string(", *, dtype? dtype=None").size());
  const program::Body b = program::read_json(
      replaced(replaced(text, schema, older), "{\"bool\":true},null]", "{\"bool\":true}]"), "t");
  expect_same(program::run(b, {ones({2, 3})}), p({ones({2, 3})}));
}

TEST(ProgramFiles, RefuseWhatIsNone) {
  RecordOptions o;
  o.dynamic = {{"n", 0, 0}};
  const Program p = Program::record(
      [](const Tensors& in) {
        const Tensor y = in[0].reshape({in[0].size(0) * 2}).add(in[1], Scalar(2));
        return Tensors{y.sum({0}), cat({y, y}, 0)};
      },
      {ones({4, 2}), ones({1})}, o);
  const std::string text = text_of(p);
  const auto refused = [&](const std::string& what, const std::string& by) {
    EXPECT_THROW(program::read_json(replaced(text, what, by), "t"), IoError) << what << by;
  };
  program::read_json(text, "t");
  refused("\"format\":1", "\"format\":3");
  refused("\"format\":1", "\"format\":-1");
  refused("\"format\":1", "\"format\":\"1\"");
  refused("\"device\":\"cpu\"", "\"device\":\"gpu\"");
  refused("\"op\":\"reshape\"", "\"op\":\"no_such\"");
  refused("\"reshape\":", "\"no_such\":");
  refused("{\"tensor\":0}", "{\"tensor\":2}");  // a result before its call
  refused("{\"tensor\":0}", "{\"tensor\":-1}");
  refused("{\"tensor\":0}", "{\"tensor\":99999999999}");
  refused("{\"tensor\":0}", "{\"tensor\":18446744073709551615}");
  refused("{\"tensor\":0}", "{\"tensor\":null}");
  refused("{\"tensor\":0}", "{\"str\":\"x\"}");
  refused("{\"tensor\":0}", "null");
  refused("[2,0]", "[2,5]");  // an unknown size
  refused("[2,0]", "[2,-1]");
  refused("[2,0]", "[2,0,0,0]");
  refused("[2,0]", "[2.5,0]");
  refused("{\"ints\":[[[2,0]]]}", "{\"int\":3}");
  refused("\"outputs\":[", "\"outputs\":[77,");
  refused("\"symbols\":[", "\"symbols\":[{\"name\":\"m\",\"min\":1},");  // of no input
  refused("\"min\":1", "\"min\":-1");
  refused("{\"tensors\":[", "{\"tensors\":[null,");
  refused("\"calls\":[", "\"calls\":[{\"op\":\"add\"},");
  refused("\"calls\":[", "\"calls\":[3,");
  refused("\"dtype\":\"float32\"", "\"dtype\":\"float33\"");
  EXPECT_THROW(program::read_json("", "t"), IoError);
  EXPECT_THROW(program::read_json("[]", "t"), IoError);
  EXPECT_THROW(program::read_json(std::string(100'000, '['), "t"), IoError);
  EXPECT_THROW(program::read_json(text.substr(0, text.size() / 2), "t"), IoError);

  // The archive and the weights.
  const test::TempDir folder;
  EXPECT_THROW(Program::load(folder / "none"), IoError);
  const auto archive = [&](auto&& fill) {
    io::AtomicFile file(folder / "p");
    io::ZipWriter zip(file);
    fill(zip);
    zip.finish();
    file.commit();
    return test::error_of([&] { Program::load(folder / "p"); });
  };
  const auto bytes = [](const std::string& s) { return std::as_bytes(std::span(s)); };
  EXPECT_NE(archive([](io::ZipWriter&) {}).find("it has no program.json"), std::string::npos);
  EXPECT_NE(archive([&](io::ZipWriter& z) {
              z.add("program.json", bytes(text));
            }).find("it has no weights.safetensors"),
            std::string::npos);
  const io::SafetensorsImage image({{"strange", ones({2})}});
  EXPECT_NE(archive([&](io::ZipWriter& z) {
              z.add("program.json", bytes(text));
              z.add("weights.safetensors", image.parts());
            }).find("has 0 constants"),
            std::string::npos);
}

}  // namespace
}  // namespace arete
