// The rules of differentiation: accumulation, graphs, in-place writes, views, hooks, modes.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "arete/autograd/engine.h"
#include "arete/autograd/function.h"
#include "arete/autograd/gradcheck.h"
#include "arete/core/modes.h"
#include "arete/ops/activation.h"
#include "arete/ops/creation.h"
#include "arete/ops/loss.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/random.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "arete/prim/recorder.h"
#include "tests/support/errors.h"

namespace arete {
namespace {

using Values = std::vector<double>;

Tensor leaf(const Values& v) { return tensor(v, kFloat64).requires_grad_(); }
Values values(const Tensor& t) { return t.to_vector<double>(); }

TEST(Autograd, AccumulatesInLeaves) {
  Tensor x = leaf({1, 2, 3});
  (x * x).sum().backward();
  EXPECT_EQ(values(x.grad()), (Values{2, 4, 6}));
  (x * 2).sum().backward();
  EXPECT_EQ(values(x.grad()), (Values{4, 6, 8}));
}

TEST(Autograd, GradientsOfOneTensorUsedTwiceDoNotShareMemory) {
  Tensor x = leaf({1, 2}), y = leaf({3, 4});
  (x + y).sum().backward();
  EXPECT_NE(x.grad().data_ptr(), y.grad().data_ptr());
  x.grad().add_(1);
  EXPECT_EQ(values(y.grad()), (Values{1, 1}));
}

TEST(Autograd, BroadcastGradientsAreSummed) {
  Tensor x = leaf({1, 2, 3});
  Tensor w = leaf({2});
  (x * w).sum().backward();
  EXPECT_EQ(values(w.grad()), (Values{6}));
  EXPECT_EQ(values(x.grad()), (Values{2, 2, 2}));
}

TEST(Autograd, NeedsAScalarOrAGradient) {
  Tensor x = leaf({1, 2});
  EXPECT_ERROR((x * 2).backward(), "grad can be implicitly created only for scalar outputs");
  (x * 2).backward(tensor(Values{1, 10}, kFloat64));
  EXPECT_EQ(values(x.grad()), (Values{2, 20}));
  EXPECT_ERROR((x * 2).backward(ones({3}, kFloat64)), "Mismatch in shape");
}

TEST(Autograd, WithoutHistoryIsAnError) {
  EXPECT_ERROR(ones({}).backward(), "element 0 of tensors does not require grad");
}

TEST(Autograd, SecondPassNeedsRetainGraph) {
  Tensor x = leaf({2});
  Tensor y = (x * x).sum();
  y.backward({}, true);
  y.backward();
  EXPECT_EQ(values(x.grad()), (Values{8}));
  EXPECT_ERROR(y.backward(), "Trying to backward through the graph a second time");
}

TEST(Autograd, HigherOrders) {
  Tensor x = leaf({2, -1});
  Tensor y = (x * x * x).sum();
  const Tensor first = autograd::grad(y, x, true)[0];
  EXPECT_EQ(values(first), (Values{12, 3}));
  const Tensor second = autograd::grad(first.sum(), x, true)[0];
  EXPECT_EQ(values(second), (Values{12, -6}));
  const Tensor third = autograd::grad(second.sum(), x)[0];
  EXPECT_EQ(values(third), (Values{6, 6}));
  EXPECT_FALSE(x.grad().defined()) << "grad() must not touch the leaves";
}

TEST(Autograd, GradOfIntermediateAndUnused) {
  Tensor x = leaf({3}), unused = leaf({1});
  Tensor h = x * 2;
  Tensor y = (h * h).sum();
  EXPECT_EQ(values(autograd::grad({&y, 1}, {&h, 1}, {}, true)[0]), (Values{12}));
  EXPECT_ERROR(autograd::grad({&y, 1}, {&unused, 1}, {}, true), "appears to not have been used");
  EXPECT_FALSE(autograd::grad({&y, 1}, {&unused, 1}, {}, true, false, true)[0].defined());
}

TEST(Autograd, DetachAndModes) {
  Tensor x = leaf({1, 2});
  EXPECT_FALSE(x.detach().requires_grad());
  EXPECT_EQ(x.detach().data_ptr(), x.data_ptr());
  {
    NoGradGuard no_grad;
    EXPECT_FALSE((x * 2).requires_grad());
    EnableGradGuard grad;
    EXPECT_TRUE((x * 2).requires_grad());
  }
  EXPECT_TRUE((x * 2).requires_grad());
  Tensor inference;
  {
    InferenceModeGuard mode;
    inference = x.detach() * 2;
  }
  EXPECT_TRUE(inference.is_inference());
  EXPECT_ERROR(inference.add_(1), "Inplace update to inference tensor");
  EXPECT_ERROR(x * inference, "Inference tensors cannot be saved for backward");
}

TEST(Autograd, DeepGraphsNeedNoStack) {
  Tensor x = leaf({1});
  Tensor y = x;
  for (int i = 0; i < 200000; ++i) y = y + 1;
  y.sum().backward();
  EXPECT_EQ(values(x.grad()), (Values{1}));
}

TEST(Autograd, GraphsAreFreedWithTheirTensors) {
  Tensor x = leaf({1, 2});
  const int64_t before = x.storage()->use_count();
  {
    Tensor y = (x * x).exp();
    EXPECT_GT(x.storage()->use_count() + x.impl()->use_count(), before + 1);
  }
  EXPECT_EQ(x.storage()->use_count(), before);
  EXPECT_EQ(x.impl()->use_count(), 1);
}

// ---- in-place writes

TEST(InPlace, LeafThatRequiresGrad) {
  Tensor x = leaf({1, 2});
  EXPECT_ERROR(x.add_(1),
               "a leaf Variable that requires grad is being used in an in-place operation");
  EXPECT_ERROR(x.view({2, 1}).add_(1), "a view of a leaf Variable that requires grad");
  NoGradGuard no_grad;
  x.add_(1);
  EXPECT_EQ(values(x), (Values{2, 3}));
}

TEST(InPlace, SavedValueModified) {
  Tensor x = leaf({1, 2});
  Tensor y = x * 1;
  Tensor z = y * y;
  y.add_(1);
  EXPECT_ERROR(z.sum().backward(), "modified by an inplace operation");
}

TEST(InPlace, SavedThroughAnotherViewModified) {
  Tensor x = leaf({1, 2, 3, 4});
  Tensor y = x * 1;
  Tensor z = y.view({2, 2}) * x.view({2, 2});
  y.detach().zero_();
  EXPECT_ERROR(z.sum().backward(), "modified by an inplace operation");
}

TEST(InPlace, ChainsWithHistory) {
  Tensor x = leaf({1, 2, 3});
  Tensor y = x * 2;
  y.mul_(3).add_(x);
  y.sum().backward();
  EXPECT_EQ(values(x.grad()), (Values{7, 7, 7}));
}

// A gradient that needs the values written over: they are kept.
TEST(InPlace, OverwrittenValuesAreKept) {
  const Tensor a = tensor({1.0, -2.0, 3.0}).requires_grad_(),
               b = tensor({4.0, 5.0, -6.0}).requires_grad_();
  Tensor z = a * 2.0;
  z.mul_(b).square_();
  z.narrow(0, 0, 2).mul_(b.narrow(0, 0, 2));
  z.sum().backward();
  // z = (2 a b)^2, times b for the first two.
  const auto da = [](double x, double y, double factor) { return 8 * x * y * y * factor; };
  const std::vector<double> ga = a.grad().to_vector<double>(), gb = b.grad().to_vector<double>();
  EXPECT_NEAR(ga[0], da(1, 4, 4), 1e-4);
  EXPECT_NEAR(ga[1], da(-2, 5, 5), 1e-3);
  EXPECT_NEAR(ga[2], da(3, -6, 1), 1e-3);
  EXPECT_NEAR(gb[0], 12.0 * 1 * 1 * 4 * 4, 1e-4);  // (4 a^2 b^3)' = 12 a^2 b^2
  EXPECT_NEAR(gb[1], 12.0 * 4 * 25, 1e-3);
  EXPECT_NEAR(gb[2], 8.0 * 9 * -6, 1e-3);  // (4 a^2 b^2)'
}

TEST(InPlace, OutputSavingOperators) {
  Tensor x = leaf({-1, 0.5, 2});
  Tensor y = x * 1;
  y.relu_();
  (y * 3).sum().backward();
  EXPECT_EQ(values(x.grad()), (Values{0, 3, 3}));
  Tensor w = leaf({0.5});
  Tensor v = w * 1;
  v.exp_();
  v.sum().backward();
  EXPECT_NEAR(values(w.grad())[0], std::exp(0.5), 1e-15);
}

// They read what they have written, or a copy of what was there where that does not say enough.
TEST(InPlace, GradientsByResults) {
  const Tensor x = leaf({-30, -2, -0.25, 0, 0.5, 3}), weight = tensor({3.0, -1, 2, 5, 0.5, 1});
  const auto expect_same = [&](const Tensor& y, const Tensor& z) {
    Tensor first[2], second[2];
    for (int k = 0; k < 2; ++k) {
      first[k] = autograd::grad(((k ? z : y) * weight).sum(), x, true)[0];
      // Beside x, of which the slope may be constant.
      second[k] = autograd::grad((first[k] * weight + x).sum(), x)[0];
    }
    EXPECT_EQ(values(y), values(z));
    EXPECT_LE((first[0] - first[1]).abs().max().item<double>(), 1e-14);
    EXPECT_LE((second[0] - second[1]).abs().max().item<double>(), 1e-14);
  };
  for (double alpha : {1.0, 0.5, 0.0, -0.5}) {
    SCOPED_TRACE(alpha);
    Tensor y = x * 1, z = x * 1;
    expect_same(elu_(y, alpha), elu(x, alpha));
    expect_same(leaky_relu_(z, alpha), leaky_relu(x, alpha));
    if (alpha == 0) continue;
    Tensor w = x * 1;
    expect_same(celu_(w, alpha), celu(x, alpha));
  }
  Tensor y = x * 1;
  expect_same(selu_(y), selu(x));
}

TEST(InPlace, WriteThroughAViewReachesTheBase) {
  Tensor x = leaf({1, 2, 3, 4});
  Tensor w = leaf({5, 6});
  Tensor base = x * 1;
  base.narrow(0, 1, 2).mul_(10).add_(w * w);
  EXPECT_EQ(values(base), (Values{1, 45, 66, 4}));
  (base * base).sum().backward();
  EXPECT_EQ(values(x.grad()), (Values{2, 2 * 45 * 10, 2 * 66 * 10, 8}));
  EXPECT_EQ(values(w.grad()), (Values{2 * 45 * 2 * 5, 2 * 66 * 2 * 6}));
}

TEST(InPlace, OtherViewsSeeTheWrite) {
  Tensor x = leaf({1, 2, 3, 4});
  Tensor base = x * 1;
  Tensor early = base.view({2, 2});
  base.mul_(10);
  (early * early).sum().backward();
  EXPECT_EQ(values(x.grad()), (Values{200, 400, 600, 800}));
}

TEST(InPlace, BaseWithoutHistoryGetsIt) {
  Tensor base = zeros({4}, kFloat64);
  Tensor w = leaf({2, 3});
  Tensor view = base.view({2, 2});
  base.narrow(0, 2, 2).add_(w);
  EXPECT_TRUE(base.requires_grad());
  EXPECT_TRUE(view.requires_grad());
  view.select(0, 1).sum().backward();
  EXPECT_EQ(values(w.grad()), (Values{1, 1}));
}

TEST(InPlace, CopyIntoASliceOfATransposedBase) {
  Tensor x = leaf({1, 2, 3, 4, 5, 6}), w = leaf({7, 8});
  const auto f = [](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    Tensor base = (in[0] * 1).view({2, 3}).t() * 2;
    base.select(0, 1).copy_(in[1] * in[1]);
    return {base * base};
  };
  EXPECT_EQ(autograd::gradcheck(f, {x, w}), "");
  EXPECT_EQ(autograd::gradgradcheck(f, {x, w}), "");
}

TEST(InPlace, OverlappingViewsOfAWrittenBaseSumTheirGradients) {
  Tensor x = leaf({1, 2, 3});
  const auto f = [](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    Tensor base = in[0] * 1;
    Tensor wide = base.expand({2, 3}), windows = base.unfold(0, 2, 1);
    base.mul_(3);
    return {wide * wide, windows * windows};
  };
  EXPECT_EQ(autograd::gradcheck(f, {x}), "");
  EXPECT_EQ(autograd::gradgradcheck(f, {x}), "");
}

TEST(InPlace, MultiOutputViewsAndNoGradViews) {
  Tensor x = leaf({1, 2, 3, 4});
  Tensor y = x * 1;
  EXPECT_ERROR(y.chunk(2)[0].add_(1), "is a view and is being modified inplace");
  Tensor view;
  {
    NoGradGuard no_grad;
    view = y.view({2, 2});
  }
  EXPECT_ERROR(view.mul_(x.view({2, 2})), "A view was created in no_grad mode");
}

TEST(InPlace, OverlappingTargets) {
  Tensor x = zeros({1}, kFloat64).expand({4});
  EXPECT_ERROR(x.add_(1),
               "more than one element of the written-to tensor refers to a single memory location");
}

TEST(InPlace, ShapeAndDtypeMustFit) {
  Tensor x = zeros({2}, kInt64);
  EXPECT_ERROR(x.add_(0.5), "can't be cast to the desired output type");
  EXPECT_ERROR(x.add_(ones({3, 2}, kInt64)), "doesn't match the broadcast shape");
}

TEST(InPlace, ReadsOfOverlappingMemoryComeFirst) {
  // Longer than any vector register: one load too early would hide a missing copy.
  Tensor x = arange(1000, kFloat64);
  x.narrow(0, 1, 999).add_(x.narrow(0, 0, 999));
  EXPECT_TRUE(equal(x.narrow(0, 1, 999), arange(999, kFloat64) * 2 + 1));
  Tensor y = arange(6, kFloat64).view({2, 3});
  y.select(0, 0).copy_(y.select(0, 1) + y.select(0, 0)).mul_(y.select(0, 0));
  EXPECT_EQ(values(y), (Values{9, 25, 49, 3, 4, 5}));
}

// ---- hooks, custom functions, anomaly, threads

TEST(Hooks, ReplaceAndObserve) {
  Tensor x = leaf({1, 2});
  Tensor h = x * 3;
  h.retain_grad();
  const uint64_t id = h.register_hook([](const Tensor& g) { return g * 10; });
  (h * 2).sum().backward();
  EXPECT_EQ(values(h.grad()), (Values{20, 20})) << "what the hooks leave is retained";
  EXPECT_EQ(values(x.grad()), (Values{60, 60}));
  Tensor y = leaf({1});
  int calls = 0;
  y.register_hook([&](const Tensor&) {
    ++calls;
    return Tensor();
  });
  (y + y).sum().backward();
  EXPECT_EQ(calls, 1) << "a hook sees the finished gradient once";
  h.remove_hook(id);
}

TEST(Hooks, AfterAccumulation) {
  Tensor x = leaf({1, 2});
  std::vector<Values> seen;
  const uint64_t id = autograd::register_post_accumulate_grad_hook(x, [&](const Tensor& g) {
    seen.push_back(values(g));
    if (seen.size() == 2) x.set_grad(Tensor());
  });
  (x * 3 + x).sum().backward();
  x.sum().backward();
  EXPECT_EQ(seen, (std::vector<Values>{{4, 4}, {5, 5}}));
  EXPECT_FALSE(x.grad().defined());
  autograd::remove_post_accumulate_grad_hook(x, id);
  x.sum().backward();
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_THROW(autograd::register_post_accumulate_grad_hook(x * 2, [](const Tensor&) {}),
               AutogradError);
  EXPECT_THROW(autograd::register_post_accumulate_grad_hook(ones({2}), [](const Tensor&) {}),
               AutogradError);
}

TEST(Hooks, OfInputsAlone) {
  Tensor x = leaf({1, 2}), y = leaf({3, 4});
  int of_x = 0, of_y = 0;
  autograd::register_post_accumulate_grad_hook(x, [&](const Tensor&) { ++of_x; });
  y.register_hook([&](const Tensor&) {
    ++of_y;
    return Tensor();
  });
  Tensor h = x * y;
  const Tensor out = (h + y).sum();
  autograd::backward({&out, 1}, {}, true, false, {&x, 1});
  EXPECT_EQ(values(x.grad()), (Values{3, 4}));
  EXPECT_FALSE(y.grad().defined());
  const std::vector<Tensor> both{h, x};
  autograd::backward({&out, 1}, {}, false, false, both);
  EXPECT_EQ(values(x.grad()), (Values{6, 8}));
  EXPECT_EQ(values(h.grad()), (Values{1, 1}));
  EXPECT_EQ(of_x, 2);
  EXPECT_EQ(of_y, 0);
  const Tensor constant = ones({2}), again = x.sum();
  EXPECT_THROW(autograd::backward({&again, 1}, {}, false, false, {&constant, 1}), AutogradError);
}

// Says when it runs, forward and backward, and which inputs want a gradient.
struct Noted : autograd::Function<Noted> {
  static constexpr const char* name = "Noted";
  static inline std::vector<std::string> log{};
  static std::vector<Tensor> forward(autograd::Context& c, const std::vector<Tensor>& in) {
    c.save_for_backward({in[0], in[1]});
    return {in[0] * in[1]};
  }
  static std::vector<Tensor> backward(autograd::Context& c, const std::vector<Tensor>& g) {
    const auto saved = c.saved_tensors();
    log.push_back(std::string("backward") + (c.needs_input_grad(0) ? " input" : "") +
                  (c.needs_input_grad(1) ? " weight" : ""));
    return {c.needs_input_grad(0) ? g[0] * saved[1] : Tensor(),
            c.needs_input_grad(1) ? g[0] * saved[0] : Tensor()};
  }
};

// A leaf's gradient is complete when the last function that uses the leaf has run; hooks need not
// wait for the rest of the pass. A tied weight waits for all of its uses.
TEST(Hooks, OfALeafRunAsSoonAsItsGradientIsComplete) {
  Tensor x = leaf({2}), first = leaf({3}), tied = leaf({5}), last = leaf({7});
  const auto note = [](const Tensor& t, const char* name) {
    autograd::register_post_accumulate_grad_hook(
        t, [name](const Tensor&) { Noted::log.push_back(name); });
  };
  note(first, "first"), note(tied, "tied"), note(last, "last"), note(x, "x");
  for (int pass = 0; pass < 2; ++pass) {  // the accumulators are new, then old
    Tensor y = Noted::apply({x, first})[0];
    y = Noted::apply({y, tied})[0];
    y = Noted::apply({y, last})[0];
    y = y * tied;
    Noted::log.clear();
    y.backward();
    EXPECT_EQ(Noted::log,
              (std::vector<std::string>{"backward input weight", "last", "backward input weight",
                                        "tied", "backward input weight", "x", "first"}));
  }
  EXPECT_EQ(values(tied.grad()), (Values{2 * 2 * 3 * 7 * 2 * 5}));
}

TEST(Autograd, OnlyWhatIsAskedForIsComputed) {
  Tensor x = leaf({2}), w = leaf({3}), v = leaf({5});
  const Tensor y = Noted::apply({Noted::apply({x, w})[0], v})[0];
  const auto run = [&](std::vector<Tensor> inputs) {
    Noted::log.clear();
    const TensorList g = autograd::grad({&y, 1}, inputs, {}, true);
    EXPECT_EQ(g.size(), inputs.size());
    return Noted::log;
  };
  using Log = std::vector<std::string>;
  EXPECT_EQ(run({x}), (Log{"backward input", "backward input"}));
  EXPECT_EQ(run({w}), (Log{"backward input", "backward weight"}));
  EXPECT_EQ(run({v}), (Log{"backward weight"}));
  EXPECT_EQ(run({x, v}), (Log{"backward input weight", "backward input"}));
  Noted::log.clear();
  autograd::backward({&y, 1}, {}, false, false, {&w, 1});
  EXPECT_EQ(Noted::log, (Log{"backward input", "backward weight"}));
  EXPECT_FALSE(x.grad().defined() || v.grad().defined());
  EXPECT_EQ(values(w.grad()), (Values{10}));
}

// Passes on the gradient of one of its inputs.
struct Half : autograd::Function<Half> {
  static constexpr const char* name = "Half";
  static std::vector<Tensor> forward(autograd::Context&, const std::vector<Tensor>& in) {
    return {in[0] * 1.0, in[1] * 1.0};
  }
  static std::vector<Tensor> backward(autograd::Context&, const std::vector<Tensor>& g) {
    return {g[0], Tensor()};
  }
};

// Functions that come late in a graph and get no gradient do not keep their inputs waiting.
TEST(Autograd, FunctionsWithoutAGradientSettleTheirInputs) {
  Tensor x = leaf({2}), w = leaf({3});
  const Tensor shared = x * w;
  const auto both = Half::apply({shared * 2, shared * 3});
  (both[0] + both[1] * shared).backward();
  // d/ds of 2 s + 3 s * s where the path through 3 s is cut: 2 + 3 s = 20
  EXPECT_EQ(values(x.grad()), (Values{60}));
  EXPECT_EQ(values(w.grad()), (Values{40}));
}

TEST(Hooks, AtTheEndOfAPass) {
  Tensor x = leaf({1});
  std::vector<int> order;
  x.register_hook([&](const Tensor&) {
    EXPECT_EQ(autograd::passes_under_way().size(), 1u);
    order.push_back(1);
    autograd::at_end_of_pass([&] { order.push_back(2); });
    return Tensor();
  });
  x.sum().backward();
  EXPECT_EQ(order, (std::vector{1, 2}));
  EXPECT_TRUE(autograd::passes_under_way().empty());
  EXPECT_THROW(autograd::at_end_of_pass([] {}), AutogradError);
}

TEST(Hooks, RetainGradOfIntermediates) {
  Tensor x = leaf({1, 2});
  Tensor h = x * 3;
  h.retain_grad();
  (h * h).sum().backward();
  EXPECT_EQ(values(h.grad()), (Values{6, 12}));
}

struct Cube : autograd::Function<Cube> {
  static constexpr const char* name = "Cube";
  static std::vector<Tensor> forward(autograd::Context& context, const std::vector<Tensor>& in) {
    context.save_for_backward({in[0]});
    return {in[0] * in[0] * in[0]};
  }
  static std::vector<Tensor> backward(autograd::Context& context, const std::vector<Tensor>& g) {
    const Tensor x = context.saved_tensors()[0];
    return {g[0] * 3 * x * x};
  }
};

TEST(CustomFunction, FirstAndSecondOrder) {
  Tensor x = leaf({2, -3});
  const auto f = [](const std::vector<Tensor>& in) { return Cube::apply(in); };
  EXPECT_EQ(autograd::gradcheck(f, {x}), "");
  EXPECT_EQ(autograd::gradgradcheck(f, {x}), "");
  EXPECT_EQ(Cube::apply({x})[0].grad_fn()->name(), "Cube");
}

TEST(CustomFunction, SavedInputModified) {
  Tensor x = leaf({2});
  Tensor h = x * 1;
  Tensor y = Cube::apply({h})[0];
  h.add_(1);
  EXPECT_ERROR(y.sum().backward(), "modified by an inplace operation");
}

TEST(Checkpoint, EqualsThePlainCallBitForBit) {
  manual_seed(3);
  Tensor x = randn({8, 8}).requires_grad_(), w = randn({8, 8}).requires_grad_();
  const auto f = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    return {(in[0] * w).tanh() * rand({8, 8})};
  };
  manual_seed(5);
  f({x})[0].sum().backward();
  const auto plain_x = x.grad().to_vector<float>(), plain_w = w.grad().to_vector<float>();
  x.set_grad({});
  w.set_grad({});
  manual_seed(5);
  autograd::checkpoint(f, {x})[0].sum().backward();
  EXPECT_EQ(x.grad().to_vector<float>(), plain_x);
  EXPECT_EQ(w.grad().to_vector<float>(), plain_w);
}

TEST(Checkpoint, GradOfInputsAndOfWhatTheFunctionHolds) {
  const Tensor x = leaf({2, 3}), w = leaf({2, 3});
  const Tensor h = x * w;  // given to the function, which holds it, too
  const auto f = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    return {(in[0] * w + h).tanh()};
  };
  const Tensor inputs[] = {x, w, h};
  const auto gradients = [&](const Tensor& y) {
    std::vector<std::vector<double>> values;
    const Tensor total = y.sum();
    const TensorList first = autograd::grad({&total, 1}, inputs, {}, true, true);
    for (const Tensor& g : first) values.push_back(g.to_vector<double>());
    const Tensor squares = first[1].square().sum();
    for (const Tensor& g : autograd::grad({&squares, 1}, inputs, {}, true))
      values.push_back(g.to_vector<double>());
    return values;
  };
  const auto plain = gradients(f({h})[0]), again = gradients(autograd::checkpoint(f, {h})[0]);
  ASSERT_EQ(plain.size(), again.size());
  for (size_t i = 0; i < plain.size(); ++i)
    for (size_t j = 0; j < plain[i].size(); ++j) EXPECT_NEAR(plain[i][j], again[i][j], 1e-12);
  EXPECT_FALSE(x.grad().defined() || w.grad().defined());
}

TEST(Checkpoint, AnotherTensorTheSecondTimeIsAnError) {
  Tensor x = leaf({1, 2}), w = leaf({3, 4}), other = leaf({3, 4});
  Tensor held = w * 1;
  const auto f = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    return {in[0] * held};
  };
  const Tensor y = autograd::checkpoint(f, {x})[0].sum();
  held = other * 1;
  EXPECT_ERROR(y.backward(), "whose gradient would be lost: [2] float64");
}

TEST(Checkpoint, WhatIsKeptFromTheFirstRunIsMadeOfTensorsWithoutHistory) {
  for (const bool detaches : {false, true}) {
    Tensor x = leaf({1, 2}), w = leaf({3, 4}), kept;
    const auto f = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
      EXPECT_TRUE(autograd::checkpoint_is_under_way());
      if (!kept.defined()) {
        const NoGradGuard no_grad;
        kept = (detaches ? w.detach() : w).sum();
      }
      return {in[0] * kept};
    };
    const Tensor y = autograd::checkpoint(f, {x})[0].sum();
    EXPECT_FALSE(autograd::checkpoint_is_under_way());
    if (!detaches) {
      EXPECT_ERROR(y.backward(), "also under no_grad(), take detach()");
      continue;
    }
    y.backward();
    EXPECT_EQ(x.grad().to_vector<double>(), std::vector<double>({7, 7}));
  }
}

TEST(Gradcheck, FindsAWrongGradient) {
  const autograd::FunctionDef wrong{"Wrong",
                                    [](autograd::Context& c, const std::vector<Tensor>& in) {
                                      c.save_for_backward({in[0]});
                                      return std::vector<Tensor>{in[0] * in[0]};
                                    },
                                    [](autograd::Context& c, const std::vector<Tensor>& g) {
                                      return std::vector<Tensor>{g[0] * c.saved_tensors()[0]};
                                    }};
  const auto f = [&](const std::vector<Tensor>& in) { return autograd::apply(wrong, in); };
  EXPECT_NE(autograd::gradcheck(f, {leaf({1.5})}).find("Jacobian mismatch for output 0"),
            std::string::npos);
}

TEST(Anomaly, NamesTheOperator) {
  Tensor x = leaf({0.0});
  const autograd::AnomalyGuard guard;
  EXPECT_ERROR((x * 0.0 - 1.0).log(), "Function 'log' returned nan values");
  // Forward is finite, backward is 0 * inf.
  EXPECT_ERROR((x.sqrt() * 0.0).sum().backward(), "Backward' returned nan values");
}

TEST(Threads, IndependentGraphsInParallel) {
  std::vector<std::thread> threads;
  std::vector<double> results(4);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t, &results] {
      for (int i = 0; i < 50; ++i) {
        Tensor x = leaf({double(t + 1)});
        (x * x * x).sum().backward();
        results[size_t(t)] = values(x.grad())[0];
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(results, (std::vector<double>{3, 12, 27, 48}));
}

// A thread's own objects are destroyed in the opposite order: this one after all that the calls of
// the thread made.
TEST(Threads, HistoryOutlivesTheOtherObjectsOfItsThread) {
  std::thread([] {
    thread_local std::vector<Tensor> kept;
    kept.reserve(100);
    for (int i = 0; i < 100; ++i) {
      Tensor x = leaf({1.0, 2.0});
      for (int k = 0; k < 20; ++k) x = x * x;  // not kept: its history is deleted now
      kept.push_back(leaf({double(i)}).exp().sin());
    }
  }).join();
}

// The calls of grad(y, inputs).
std::string calls_of_gradient(const Tensor& y, const std::vector<Tensor>& inputs) {
  prim::Recorder recorder;
  const Tensor seed = ones(y.sizes(), y.options());
  {
    const ModesGuard guard;
    modes().capture = &recorder;
    modes().word |= Modes::kCapture;
    autograd::grad({&y, 1}, inputs, {&seed, 1}, true);
  }
  return recorder.to_string();
}

TEST(Autograd, ProgramsGiveTheGradientsThatAreAskedFor) {
  const Tensor x = leaf({1, 2, 3}), w = leaf({4, 5, 6});
  const std::string f = "float64[3]",
                    two = "pointwise(" + f + ", " + f + ", " + f + " -> " + f + ", " + f + ")\n";
  // One whose derivative is that of its program, and one that has its own.
  const Tensor product = x * w, root = hypot(x, w), seed = full({3}, 2, kFloat64);
  EXPECT_EQ(calls_of_gradient(product, {x, w}), two);
  EXPECT_EQ(calls_of_gradient(product, {x}), "pointwise(" + f + ", " + f + " -> " + f + ")\n");
  EXPECT_EQ(values(autograd::grad({&root, 1}, {&w, 1}, {&seed, 1}, true)[0]),
            values(autograd::grad({&root, 1}, std::vector<Tensor>{x, w}, {&seed, 1}, true)[1]));
  const Tensor loss = binary_cross_entropy(x * 0.25, w * 0.125, {}, "none");
  const auto outputs = [&](const std::vector<Tensor>& inputs) {
    const std::string calls = calls_of_gradient(loss, inputs);
    return calls.substr(0, calls.find('\n'));
  };
  EXPECT_TRUE(outputs({x, w}).ends_with("-> " + f + ", " + f + ")")) << outputs({x, w});
  EXPECT_TRUE(outputs({x}).ends_with("-> " + f + ")")) << outputs({x});
  EXPECT_TRUE(outputs({w}).ends_with("-> " + f + ")")) << outputs({w});
}

}  // namespace
}  // namespace arete
