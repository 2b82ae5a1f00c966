// What plans join besides element-wise calls: rows, products with what follows them, conversions,
// copies, the order of channels. How many kernels are left is part of it.
#include <algorithm>
#include <functional>

#include "arete/autograd/engine.h"
#include "arete/compile/plan.h"
#include "arete/ops/activation.h"
#include "arete/ops/conv.h"
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/linalg.h"
#include "arete/ops/loss.h"
#include "arete/ops/matmul.h"
#include "arete/ops/nn.h"
#include "arete/ops/norm.h"
#include "arete/ops/pool.h"
#include "arete/ops/random.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "arete/ops/softmax.h"
#include "arete/prim/recorder.h"
#include "tests/op/recording.h"

namespace arete::test {
namespace {

std::vector<Tensor> grads(const Tensor& loss, std::vector<Tensor> of) {
  const TensorList all = autograd::grad({&loss, 1}, of);
  return {all.begin(), all.end()};
}

struct Joined {
  int steps;
  std::string text;
  size_t arena;
  int recomputed;
  int convolutions = 0, channels_last = 0;
};
using Function = std::function<std::vector<Tensor>(std::span<const Tensor>)>;

/// Runs `f` called and as a plan, twice with other inputs; values agree up to `rounding`.
Joined run_with(const compile::PlanOptions& options, std::span<const Tensor> inputs,
                const Function& f, double rounding) {
  std::vector<Tensor> results;
  const auto plan = compile::plan([&] { results = f(inputs); }, options);
  for (Tensor& t : results) t = t.detach();
  for (int round = 0; round < 2; ++round) {
    plan->run();
    const std::vector<Tensor> want = f(inputs);
    for (size_t k = 0; k < want.size(); ++k) {
      EXPECT_EQ(results[k].layout().sizes, want[k].layout().sizes);
      const double far =
          (results[k].to(kFloat64) - want[k].detach().to(kFloat64)).abs().max().item<double>();
      const double large = want[k].detach().to(kFloat64).abs().max().item<double>();
      EXPECT_LE(far, rounding * std::max(1.0, large)) << "result " << k << "\n"
                                                      << plan->to_string();
    }
    const NoGradGuard no_history;
    for (const Tensor& t : inputs)
      if (t.is_floating_point()) Tensor(t).mul_(-0.75);
  }
  Joined joined{plan->stats().steps, plan->to_string(), plan->stats().arena,
                plan->stats().recomputed};
  plan->for_each_step([&](prim::RecordedCall& call) {
    if (call.primitive() != prim::Primitive::conv) return;
    const auto& conv = *static_cast<const prim::ConvArgs*>(call.args());
    ++joined.convolutions;
    joined.channels_last += conv.x.strides[1] == 1 && conv.y.strides[1] == 1;
  });
  return joined;
}

Joined run_in_bands(std::span<const Tensor> inputs, const Function& f, double rounding,
                    size_t band) {
  return run_with({.exact = false, .band = band}, inputs, f, rounding);
}

/// Of the plan without bands, which keeps everything. Others are right, too.
Joined run_both(std::span<const Tensor> inputs, const Function& f, double rounding) {
  for (const size_t band : {64, 2048}) run_in_bands(inputs, f, rounding, band);
  for (const double budget : {0.0, 0.6})
    run_with({.exact = false, .memory_budget = budget}, inputs, f, rounding);
  run_with({.exact = false, .band = 64, .memory_budget = 0}, inputs, f, rounding);
  return run_in_bands(inputs, f, rounding, SIZE_MAX);
}

Tensor input(IntList sizes, DType dtype = kFloat32) {
  return (randn(sizes, TensorOptions(kFloat32)) * 0.5).to(dtype).to(test_device());
}

TEST(PlanJoins, RowsOfMeansAreOneKernel) {
  const Tensor x = input({96, 3, 40}), w = input({40});
  const Tensor inputs[] = {x, w};
  const auto rms = [](std::span<const Tensor> in) {
    const Tensor &x = in[0], &w = in[1];
    return std::vector{x * (x.square().mean({-1}, true) + 1e-5).rsqrt() * w};
  };
  EXPECT_EQ(run_both(inputs, rms, 1e-5).steps, 1);
  const auto standardized = [](std::span<const Tensor> in) {
    const Tensor centred = in[0] - in[0].mean({-1}, true);
    return std::vector{centred / (centred.square().mean({-1}, true) + 1e-5).sqrt() + in[1]};
  };
  EXPECT_EQ(run_both(inputs, standardized, 1e-5).steps, 1);
  const auto softmax_by_hand = [](std::span<const Tensor> in) {
    const Tensor e = (in[0] - in[0].amax({-1}, true)).exp();
    return std::vector{e / e.sum({-1}, true)};
  };
  EXPECT_EQ(run_both(inputs, softmax_by_hand, 1e-5).steps, 1);
  // Without keeping the dimension, and with other results that are stored.
  const auto several = [](std::span<const Tensor> in) {
    const Tensor doubled = in[0] * 2, mean = doubled.mean({-1});
    return std::vector{doubled, mean, (doubled - mean.unsqueeze(-1)).relu()};
  };
  EXPECT_EQ(run_both(inputs, several, 1e-5).steps, 1);
}

TEST(PlanJoins, NormsTakeWhatIsAroundThem) {
  const Tensor inputs[] = {input({4, 32, 48}), input({4, 32, 48}), input({48}), input({48})};
  const auto block = [](std::span<const Tensor> in) {
    const Tensor sum = in[0] + in[1];
    return std::vector{sum, layer_norm(sum, {48}, in[2], in[3]).to(kBFloat16)};
  };
  EXPECT_EQ(run_both(inputs, block, 1e-2).steps, 1);
  const auto backward = [](std::span<const Tensor> in) {
    const Tensor x = in[0].detach().requires_grad_(), w = in[2].detach().requires_grad_();
    const Tensor y = x + layer_norm(x, {48}, w, in[3]).to(kBFloat16).to(kFloat32) * in[1];
    return grads((y * in[1]).sum(), {x, w});
  };
  const Joined joined = run_both(inputs, backward, 2e-2);
  EXPECT_LE(joined.steps, 6) << joined.text;
}

TEST(PlanJoins, BatchNormsTakeResidualsAndActivations) {
  // As many pictures as channels, too: which of them rows are says the memory, not the sizes.
  for (const int64_t pictures : {4, 16})
    for (const bool channels_last : {true, false}) {
      const auto picture = [&] {
        return channels_last ? input({pictures, 6, 5, 16}).permute({0, 3, 1, 2})
                             : input({pictures, 16, 6, 5});
      };
      const Tensor inputs[] = {picture(), picture(), input({16}), input({16})};
      const auto block = [](std::span<const Tensor> in) {
        return std::vector{(batch_norm(in[0], {}, {}, in[2], in[3], true) + in[1]).relu()};
      };
      const Joined joined = run_both(inputs, block, 1e-5);
      EXPECT_EQ(joined.steps, 1) << joined.text;
      // Each has its own norm, and both write over the statistics.
      const auto two = [](std::span<const Tensor> in) {
        const Tensor mean = in[2] * 1, variance = in[3].square() + 1;
        const Tensor first = batch_norm(in[0], mean, variance, in[2], in[3], true),
                     second = batch_norm(in[1], mean, variance, in[2], in[3], true);
        return std::vector{(first + second).relu(), mean, variance};
      };
      EXPECT_LE(run_both(inputs, two, 1e-5).steps, 5);
    }
}

// Memory that is read at other positions, too, does not say how the dimensions lie.
TEST(PlanJoins, RowsMeetTheirInputTransposedOnEitherSide) {
  const Tensor inputs[] = {input({256, 256})};
  const auto behind = [](std::span<const Tensor> in) {
    return std::vector{softmax(in[0], -1) + in[0].t()};
  };
  const auto before = [](std::span<const Tensor> in) {
    return std::vector{in[0].t() - softmax(in[0], -1)};
  };
  for (const Function& f : {Function(behind), Function(before)}) {
    const Joined joined = run_both(inputs, f, 1e-5);
    EXPECT_EQ(joined.steps, 1) << joined.text;
  }
}

// What a kernel reads and writes over takes two of its operands: it has room for twelve such.
TEST(PlanJoins, ManyTensorsAreWrittenOver) {
  const NoGradGuard no_history;
  for (const int count : {11, 12, 13, 24})
    for (const char* behind : {"sum", "softmax", "nothing"}) {
      SCOPED_TRACE(std::to_string(count) + " tensors, behind them " + behind);
      const auto f = [&](const std::vector<Tensor>& tensors) {
        Tensor all;
        for (Tensor t : tensors) {
          t.mul_(1.25).add_(0.5);
          all = all.defined() ? all + t : t * 1;
        }
        if (*behind == 'n') return all;
        return behind == std::string_view("sum") ? all.sum({-1}) : softmax(all, -1);
      };
      std::vector<Tensor> tensors, others;
      for (int k = 0; k < count; ++k) tensors.push_back(input({64, 96}));
      Tensor result;
      const auto plan = compile::plan([&] { result = f(tensors); }, {.exact = false});
      for (int round = 0; round < 2; ++round) {
        others.clear();
        for (const Tensor& t : tensors) others.push_back(t.clone());
        plan->run();
        const Tensor expected = f(others);
        const auto far = [](const Tensor& a, const Tensor& b) {
          return (a - b).abs().max().item<float>();
        };
        EXPECT_LE(far(result, expected), 1e-3) << plan->to_string();
        for (size_t k = 0; k < tensors.size(); ++k)
          EXPECT_LE(far(tensors[k], others[k]), 1e-6) << k << "\n" << plan->to_string();
      }
    }
}

TEST(PlanJoins, SumsOverAllRowsStayRight) {
  // What is written over, and sums that would need a value of their row.
  const Tensor inputs[] = {input({64, 48}), input({64, 48}), input({48})};
  const auto f = [](std::span<const Tensor> in) {
    const Tensor x = in[0].detach().requires_grad_(), w = in[2].detach().requires_grad_();
    const Tensor g = grads((layer_norm(x, {48}, w) * in[1]).sum(), {x, w})[0];
    Tensor centred = g - g.mean({-1}, true);
    const Tensor sums = centred.sum({0});
    return std::vector{centred, sums, g.sum({0}), Tensor(centred.add_(1))};
  };
  const Joined joined = run_both(inputs, f, 1e-4);
  EXPECT_LE(joined.steps, 7) << joined.text;
}

TEST(PlanJoins, FewLogitsAreOneKernelForwardAndBackward) {
  for (const auto& [classes, ignored] : {std::pair{4, false}, {4, true}, {10, false}, {10, true}}) {
    const Tensor inputs[] = {input({64, 16}), input({classes, 16}),
                             arange(0, 64, 1, {kInt64, test_device()}).remainder(Scalar(classes))};
    const auto head = [&](std::span<const Tensor> in) {
      const Tensor w = in[1].detach().requires_grad_();
      const Tensor loss = cross_entropy(matmul(in[0], w.t()), in[2], {}, ignored ? 3 : -100);
      return std::vector{loss, grads(loss, {w})[0]};
    };
    // The product, a look at the targets, all that is made of logits, the weight's gradient. Ten
    // classes are many to CPUs: rows, sums and gradients are apart.
    const Joined joined = run_both(inputs, head, 1e-5);
    EXPECT_EQ(joined.steps, classes > 4 && test_device().is_cpu() ? 6 : 4) << joined.text;
    // Logits and their gradients, which are written here and there, are temporaries, in one place
    // where one kernel reads those and writes these, and where before what the look gives was.
    const size_t logits = size_t(64 * classes) * sizeof(float), column = 64 * sizeof(float);
    if (test_device().is_cpu())
      EXPECT_EQ(joined.arena, logits + (classes > 4 ? 3 : 4) * column) << joined.text;
    else
      EXPECT_GE(joined.arena, logits) << joined.text;
  }
}

// Rows and their gradient are one kernel also where something reads the rows' sums in between, and
// something else that the gradient needs is made there: that goes first.
TEST(PlanJoins, StepsInBetweenGoBeforeOrBehind) {
  const Tensor inputs[] = {input({64, 16}), input({16, 500}), input({64, 16}), input({16, 500})};
  const auto head = [](std::span<const Tensor> in) {
    const Tensor scores = matmul(in[0], in[1]), lse = logsumexp(scores, {-1}, true);
    const Tensor loss = matmul(lse.t(), in[2]);
    const Tensor scale = matmul(in[2], in[3]);
    const Tensor gradient = (scores - lse).exp() * scale;
    return std::vector{loss, matmul(gradient, in[1].t())};
  };
  const Joined joined = run_both(inputs, head, 1e-4);
  EXPECT_EQ(joined.steps, 5) << joined.text;
  EXPECT_EQ(joined.text.find("fused"), joined.text.rfind("fused")) << joined.text;
}

TEST(PlanJoins, GradientsOfATableThatIsUsedTwiceAreAddedUpInPlace) {
  const Tensor inputs[] = {input({40, 16}), input({24, 40}),
                           arange(0, 24, 1, {kInt64, test_device()}).remainder(Scalar(7))};
  // As a language model with tied weights: the product's gradient first, then rows.
  const auto tied = [](std::span<const Tensor> in) {
    const Tensor table = in[0].detach().requires_grad_();
    const Tensor words = embedding(in[2], table);
    return grads((linear(words, table) * in[1]).sum(), {table});
  };
  const Joined joined = run_both(inputs, tied, 1e-5);
  EXPECT_EQ(joined.text.find("fill"), std::string::npos) << joined.text;
  EXPECT_NE(joined.text.find("add_rows"), std::string::npos) << joined.text;
  // What is read before the rows are there, and what is filled with another number, stays.
  const auto others = [](std::span<const Tensor> in) {
    const Tensor grad = in[1].t().matmul(in[1]).matmul(in[0]);  // 40 x 16
    const Tensor rows = matmul(in[1], in[0]);
    const TensorOptions options(kFloat32, test_device());
    const Tensor more = index_add(full({40, 16}, 1.0, options), 0, in[2], rows);
    const Tensor sums = index_add(zeros({40, 16}, options), 0, in[2], rows);
    return std::vector{grad + more, grad * 2 + sums, grad + sums};
  };
  run_both(inputs, others, 1e-5);
}

TEST(PlanJoins, ProductsAreConvertedAndActivatedOnTheirWay) {
  const Tensor inputs[] = {input({64, 32}, kBFloat16), input({48, 32}), input({48}),
                           input({64, 48}, kBFloat16)};
  const auto gradient = [](std::span<const Tensor> in) {
    const Tensor w = in[1].detach().requires_grad_(), b = in[2].detach().requires_grad_();
    const Tensor y = linear(in[0], w.to(kBFloat16), b.to(kBFloat16));
    return grads((y * in[3]).to(kFloat32).sum(), {w, b});
  };
  const Joined joined = run_both(inputs, gradient, 3e-2);
  EXPECT_NE(joined.text.find("-> float32[48, 32])"), std::string::npos) << joined.text;
  EXPECT_NE(joined.text.find("-> float32[48, 1])"), std::string::npos) << joined.text;

  const auto activated = [](std::span<const Tensor> in) {
    const Tensor x = in[0].detach().requires_grad_();
    const Tensor y = linear(gelu(linear(x, in[1].to(kBFloat16), in[2].to(kBFloat16)), "tanh"),
                            in[1].t().contiguous().to(kBFloat16));
    return std::vector{y, grads(y.to(kFloat32).square().sum(), {x})[0]};
  };
  const Joined both = run_both(inputs, activated, 3e-2);
  if (test_device().is_cpu()) return;
  EXPECT_EQ(both.text.find("pointwise(bfloat16[64, 48]"), std::string::npos) << both.text;
}

TEST(PlanJoins, ProductsOfOneMatrixWithSeveralAreABatch) {
  for (const DType dtype : {kFloat32, kBFloat16})
    for (const bool has_bias : {true, false}) {
      // Weights at equal distances, the first of them last; a fourth one elsewhere.
      const Tensor x = input({2, 12, 32}, dtype), w = input({3, 48, 32}, dtype),
                   b = input({3, 48}, dtype), other = input({48, 32}, dtype);
      const Tensor inputs[] = {x, w, b, other};
      const auto f = [&](std::span<const Tensor> in) {
        const Tensor x = in[0] + 1;
        const auto product = [&](int64_t k) {
          return linear(x, in[1][k], has_bias ? in[2][k] : Tensor());
        };
        const Tensor v = product(2), q = product(0), k = product(1), rest = linear(x, in[3]);
        return std::vector{softmax(matmul(q, k.transpose(1, 2)), -1).matmul(v), rest * 2};
      };
      const Joined joined = run_both(inputs, f, dtype == kFloat32 ? 1e-4 : 3e-2);
      const std::string name = dtype == kFloat32 ? "float32" : "bfloat16";
      const auto count = [&](const std::string& what) {
        int n = 0;
        for (size_t at = joined.text.find(what); at != std::string::npos;
             at = joined.text.find(what, at + 1))
          ++n;
        return n;
      };
      EXPECT_EQ(count("-> " + name + "[3, 24, 48])"), 1) << joined.text;
      EXPECT_EQ(count("-> " + name + "[2, 12, 48])"), 3)
          << joined.text;  // with two of one batch each
      // A plan that may not count on where they are, and one of all bits, leave them as they are.
      for (const compile::PlanOptions& options :
           {compile::PlanOptions{.exact = false, .may_pin = false}, compile::PlanOptions{}})
        EXPECT_EQ(
            run_with(options, inputs, f, dtype == kFloat32 ? 1e-4 : 3e-2).text.find("[3, 24, 48]"),
            std::string::npos);
      // What is written meanwhile stays apart.
      const auto changes = [&](std::span<const Tensor> in) {
        const NoGradGuard no_history;
        const Tensor first = linear(in[0], in[1][0]), changed = Tensor(in[1][1]).mul_(0.5);
        return std::vector{first * 2 + linear(in[0], changed) + linear(in[0], in[1][2])};
      };
      std::vector<Tensor> results;
      const auto plan = compile::plan([&] { results = changes(inputs); }, {.exact = false});
      EXPECT_EQ(plan->to_string().find("[3, 24, 48]"), std::string::npos) << plan->to_string();
    }
}

TEST(PlanJoins, ConversionsAreMadeByThoseWhoRead) {
  const Tensor inputs[] = {input({64, 96}, kBFloat16)};
  const auto f = [](std::span<const Tensor> in) {
    const Tensor wide = (in[0] * 1).to(kFloat32);
    return std::vector{softmax(wide, -1), wide.exp().sum({-1}),
                       wide.gather(1, full({64, 1}, 3, TensorOptions(kInt64, wide.device()))),
                       wide.tanh()};
  };
  const Joined joined = run_both(inputs, f, 1e-2);
  EXPECT_NE(joined.text.find("gather(bfloat16[64, 96]"), std::string::npos) << joined.text;
  EXPECT_EQ(joined.text.find("(float32[64, 96]"), std::string::npos) << joined.text;
}

TEST(PlanJoins, PartsAreMadeWhereTheyGo) {
  const Tensor inputs[] = {input({2, 4, 16, 24}), input({2, 4, 24, 32})};
  const auto f = [](std::span<const Tensor> in) {
    std::vector<Tensor> parts;
    for (int k = 0; k < 3; ++k) parts.push_back(matmul(in[0] + k, in[1]));
    return std::vector{
        stack(parts, 0).permute({1, 3, 0, 2, 4}).contiguous().view({2 * 16, 3 * 4 * 32})};
  };
  const Joined joined = run_both(inputs, f, 1e-4);
  EXPECT_EQ(joined.text.find("copy("), std::string::npos) << joined.text;
}

TEST(PlanJoins, ConvolutionsFindTheirOrder) {
  for (const DType dtype : {kFloat32, kBFloat16}) {
    const Tensor inputs[] = {input({4, 3, 12, 10}, dtype), input({16, 3, 3, 3}),
                             input({8, 16, 1, 1}), input({16}), input({16})};
    const auto net = [&](std::span<const Tensor> in) {
      std::vector<Tensor> w;
      for (const Tensor& t : in.subspan(1)) w.push_back(t.detach().requires_grad_());
      Tensor y = conv2d(in[0], w[0].to(dtype), {}, 1, 1);
      y = batch_norm_relu(y, {}, {}, w[2], w[3], true);
      y = max_pool2d(y, 2);
      y = conv2d(y + y.tanh(), w[1].to(dtype));
      const Tensor loss = y.relu().mean({2, 3}).to(kFloat32).square().sum();
      std::vector<Tensor> all{loss, y};
      for (const Tensor& g : grads(loss, {w[0], w[1], w[2], w[3]})) all.push_back(g);
      return all;
    };
    const Joined joined = run_both(inputs, net, dtype == kFloat32 ? 1e-4 : 0.05);
    EXPECT_EQ(joined.convolutions, 5);
    // The first one's input and the last one's result are no temporaries.
    if (test_device().is_cuda() && dtype == kFloat32) continue;  // as tf32 is allowed or not
    const auto& backend = prim::backend_for(test_device());
    const bool wanted = backend.wants_channels_last(
        {.pass = prim::ConvArgs::Pass::forward, .x = prim::View(nullptr, dtype, {}, {})});
    EXPECT_EQ(joined.channels_last > 0, wanted) << joined.text;
  }
}

TEST(PlanJoins, ReductionsReadSomething) {
  const Tensor inputs[] = {input({96, 5})};
  const auto f = [](std::span<const Tensor> in) {
    const Tensor ones = full({96, 5}, 1, TensorOptions(kFloat32, in[0].device()));
    return std::vector{ones.sum({-1}), (ones * 2).sum({0}),
                       (full({96, 5}, 3, in[0].options()) - in[0].isnan()).mean({-1}, true) + 1};
  };
  const Joined joined = run_both(inputs, f, 1e-5);
  EXPECT_EQ(joined.text.find("reduce(->"), std::string::npos) << joined.text;
  EXPECT_EQ(joined.text.find("fused(->"), std::string::npos) << joined.text;
}

TEST(PlanJoins, OneElementIsMadeByThoseWhoReadIt) {
  const Tensor inputs[] = {input({64, 5}), input({1})};
  const auto f = [](std::span<const Tensor> in) {
    const Tensor scale = (in[1] * 2 + 1).tanh();
    return std::vector{in[0] * scale + 1};
  };
  EXPECT_EQ(run_both(inputs, f, 1e-5).steps, 1);
}

// ---- bands

TEST(PlanJoins, RowsOfAFewElementsAreSeenOneByOne) {
  // Bodies that attract each other, and other reductions of three and two numbers.
  const Tensor places = randn({150, 3}), pairs = randn({80, 90, 2});
  const auto bodies = [](std::span<const Tensor> in) -> std::vector<Tensor> {
    const Tensor d = in[0].unsqueeze(0) - in[0].unsqueeze(1);
    const Tensor inverse = (d.pow(Scalar(2)).sum({-1}) + Scalar(1e-2)).rsqrt();
    return {(d * inverse.pow(Scalar(3)).unsqueeze(-1)).sum({1})};
  };
  EXPECT_EQ(run_both({&places, 1}, bodies, 1e-5).steps, 1);
  const auto others = [](std::span<const Tensor> in) -> std::vector<Tensor> {
    const Tensor x = in[0].tanh();
    const Tensor large = x.amax({-1}, true), low = x.prod({-1}, true);
    const Tensor positive = (x > Scalar(0)).to(kFloat32).amax({-1}, true);
    return {(x * large).sum({1}), (x - low).amax({0}), (x * positive).mean({1})};
  };
  run_both({&pairs, 1}, others, 1e-5);
  // What is needed besides stays a kernel of rows.
  const auto kept = [](std::span<const Tensor> in) -> std::vector<Tensor> {
    const Tensor x = in[0] * in[0].sum({-1}, true);
    return {x, x.sum({1})};
  };
  run_both({&pairs, 1}, kept, 1e-5);
}

TEST(PlanJoins, ExtremesOfSmallIntegersAreReadAsTheyAreKept) {
  for (const DType dtype : {kUInt8, kInt16, kInt32, kInt64}) {
    const Tensor numbers = (randn({12, 9}) * Scalar(9)).abs().to(dtype).to(test_device());
    const auto choice = [](std::span<const Tensor> in) -> std::vector<Tensor> {
      const auto [low, high] = aminmax(in[0], 1);
      return {where(low.lt(Scalar(3)), high, low)};
    };
    run_both({&numbers, 1}, choice, 0);
  }
}

TEST(PlanBands, ScoresOfALanguageModelAreMadeInBands) {
  constexpr int64_t kTokens = 96, kWords = 512, kWidth = 16;
  for (const DType dtype : {kFloat32, kBFloat16}) {
    const size_t scores = size_t(kTokens * kWords) * size_of(dtype);
    const Tensor inputs[] = {input({4, kTokens / 4, kWidth}, dtype), input({kWords, kWidth}, dtype),
                             arange(0, kTokens * 5, 5, {kInt64, test_device()})};
    // On CPUs targets may be refused while results are written already, so there are none.
    const bool has_targets = !test_device().is_cpu();
    const auto head = [&](std::span<const Tensor> in) {
      const Tensor x = in[0].detach().requires_grad_(), w = in[1].detach().requires_grad_();
      const Tensor scores = matmul(x, w.t()).reshape({-1, kWords}).to(kFloat32);
      const Tensor loss = has_targets ? cross_entropy(scores, in[2])
                                      : (logsumexp(scores, {-1}) - scores.mean({-1})).mean();
      std::vector<Tensor> all = grads(loss, {x, w});
      all.push_back(loss);
      return all;
    };
    const double rounding = dtype == kFloat32 ? 1e-5 : 2e-2;
    const Joined whole = run_in_bands(inputs, head, rounding, SIZE_MAX);
    // Gradients are in place of the logits; a sum for each row, and of all, takes one spot or two.
    if (test_device().is_cpu())
      EXPECT_EQ(whole.arena, scores + 512) << whole.text;
    else
      EXPECT_GE(whole.arena, scores) << whole.text;
    const Joined bands = run_in_bands(inputs, head, rounding, scores / 4);
    EXPECT_GT(bands.steps, whole.steps + 10) << bands.text;
    // Two bands at a time, and what is small beside them; half types sum the weight's in f32.
    EXPECT_LE(bands.arena, scores / 4 * 2 + scores / 4 + 4 * kWords * kWidth) << bands.text;
    EXPECT_EQ(bands.text.find("[96, 512]"), std::string::npos) << bands.text;
  }
}

TEST(PlanBands, BatchesAreDividedAsFarAsTheyCanBe) {
  // Three matrices, of which bands of a few rows would be parts.
  const Tensor inputs[] = {input({3, 32, 16}), input({3, 16, 32}), input({3, 32, 16})};
  const auto attention = [](std::span<const Tensor> in) {
    return std::vector{matmul(matmul(in[0], in[1]).softmax(-1), in[2])};
  };
  const size_t scores = 3 * 32 * 32 * sizeof(float);
  EXPECT_EQ(run_in_bands(inputs, attention, 1e-5, SIZE_MAX).arena, scores);
  const Joined bands = run_in_bands(inputs, attention, 1e-5, 256);
  EXPECT_LE(bands.arena, scores / 3 * 2) << bands.text;  // two matrices at a time
}

TEST(PlanBands, WhatNeedsAllRowsIsNotDivided) {
  const Tensor inputs[] = {input({64, 16}), input({16, 64}), input({64, 8})};
  // The largest of all elements is needed by each.
  const auto all_rows = [](std::span<const Tensor> in) {
    const Tensor scores = matmul(in[0], in[1]);
    return std::vector{matmul((scores / scores.amax()).exp(), in[2])};
  };
  EXPECT_NE(run_in_bands(inputs, all_rows, 1e-5, 1024).text.find("[64, 64]"), std::string::npos);
  // Rows that other rows need.
  const auto others = [](std::span<const Tensor> in) {
    const Tensor scores = matmul(in[0], in[1]).tanh();
    return std::vector{matmul(scores.flip({0}).sin(), in[2]), matmul(scores.t().cos(), in[2])};
  };
  run_in_bands(inputs, others, 1e-5, 1024);
  // Written again, in place, by columns.
  const auto columns = [](std::span<const Tensor> in) {
    Tensor scores = matmul(in[0], in[1]);
    scores.mul_(scores.sum({0})).t().add_(in[0].sum({1}));
    return std::vector{matmul(scores, in[2])};
  };
  run_in_bands(inputs, columns, 1e-5, 1024);
}

// ---- memory

TEST(PlanMemory, WhatIsCheapIsComputedAgain) {
  const auto network = [](std::span<const Tensor> in) {
    const Tensor x = in[0].detach().requires_grad_();
    std::vector<Tensor> all{x};
    Tensor h = x;
    for (size_t k = 1; k < in.size(); ++k) {
      all.push_back(in[k].detach().requires_grad_());
      h = matmul(gelu(matmul(h, all.back()), "tanh"), all.back());
    }
    return grads(h.square().mean(), all);
  };
  for (const DType dtype : {kFloat32, kBFloat16}) {
    std::vector<Tensor> inputs{input({80, 32}, dtype)};
    for (int k = 0; k < 6; ++k) inputs.push_back(input({32, 32}, dtype) * 0.5);
    const double rounding = dtype == kFloat32 ? 1e-5 : 5e-2;
    for (const bool exact : {false, true}) {
      const Joined all = run_with({.exact = exact}, inputs, network, exact ? 0 : rounding);
      const Joined half =
          run_with({.exact = exact, .memory_budget = 0.7}, inputs, network, exact ? 0 : rounding);
      const Joined least =
          run_with({.exact = exact, .memory_budget = 0}, inputs, network, exact ? 0 : rounding);
      EXPECT_EQ(all.recomputed, 0);
      EXPECT_GT(half.recomputed, 0);
      EXPECT_GE(least.recomputed, half.recomputed);
      EXPECT_LT(double(half.arena), 0.8 * double(all.arena)) << half.text;
      EXPECT_LT(double(least.arena), 0.8 * double(all.arena)) << least.text;
    }
  }
}

TEST(PlanMemory, WhatChangesMeanwhileIsKept) {
  const Tensor inputs[] = {input({64, 64}), input({64, 64})};
  const auto f = [](std::span<const Tensor> in) {
    Tensor x = in[0] * 2;
    const Tensor y = x.sin();  // of what is written over
    x.mul_(3);
    Tensor m = y;
    for (int k = 0; k < 4; ++k) m = matmul(m, in[1]).softmax(-1);
    return std::vector{matmul(y, m), x};
  };
  for (const bool exact : {false, true})
    run_with({.exact = exact, .memory_budget = 0}, inputs, f, exact ? 0 : 1e-4);
}

}  // namespace
}  // namespace arete::test
