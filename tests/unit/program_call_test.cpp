// Programs without a record of their own are calls like all others: whoever listens to calls hears
// them, and modes act on them.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "arete/arete.h"
#include "arete/autograd/function.h"
#include "arete/core/tracing.h"
#include "arete/ops/call.h"
#include "arete/ops/foreach.h"
#include "arete/ops/multi.h"
#include "arete/profile/profiler.h"
#include "tests/unit/nn_test_support.h"

namespace arete {
namespace {

using expr::Value;
using test::error_of;
using test::has;
using Values = std::span<const Value>;

expr::ProgramPtr product() {
  const DType f32[] = {kFloat32, kFloat32};
  return expr::trace([](Values v) { return std::vector{v[0] * v[1]}; }, f32, {}, {f32, 1});
}

Tensor multiply(const Tensor& a, const Tensor& b) {
  const Tensor inputs[] = {a, b};
  return ops::apply_program(product(), inputs, {}, "my_product")[0];
}

// What a listener hears of one name.
class Heard final : public tracing::ThreadListener {
 public:
  explicit Heard(std::string name) : name_(std::move(name)) {}
  uint64_t begin_call(const ops::OpRecord& op, tracing::Items<ops::Arg> args,
                      bool) noexcept override {
    all += 1;
    if (op.name != name_) return 0;
    for (size_t i = 0; i < args.size; ++i)
      if (args.data[i].kind() == ops::Arg::Kind::tensors)
        for (const Tensor& t : args.data[i].tensors()) inputs.push_back(t);
    return 0;
  }
  void end_call(uint64_t, const ops::OpRecord& op, tracing::Items<ops::Arg>,
                tracing::Items<Tensor> results) noexcept override {
    if (op.name == name_) outputs.insert(outputs.end(), results.data, results.data + results.size);
  }
  int all = 0;
  std::vector<Tensor> inputs, outputs;

 private:
  std::string name_;
};

TEST(ProgramCall, ListenersHearIt) {
  const Tensor a = ones({2, 3}), b = full({3}, 2.0);
  Heard outer("my_product");
  Tensor y;
  {
    Heard inner("my_product");
    y = multiply(a, b);
    ASSERT_EQ(inner.inputs.size(), 2u);
    EXPECT_TRUE(inner.inputs[1].is_same(b));
    ASSERT_EQ(inner.outputs.size(), 1u);
    EXPECT_TRUE(inner.outputs[0].is_same(y));
  }
  multiply(a, b);
  EXPECT_EQ(outer.outputs.size(), 2u);
}

TEST(ProgramCall, ListenersEndInTurn) {
  EXPECT_FALSE(modes().word & Modes::kObserve);
  {
    const Heard outer("x");
    { const Heard inner("x"); }
    ones({1});
    EXPECT_GT(outer.all, 0);
  }
  EXPECT_FALSE(modes().word & Modes::kObserve);
}

TEST(ProgramCall, CheckpointFindsTensorsThatAreHeld) {
  const Tensor w = full({3}, 2.0).requires_grad_(), x = full({3}, 5.0).requires_grad_();
  const auto f = [&](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{multiply(in[0], w)};
  };
  autograd::checkpoint(f, {x})[0].sum().backward();
  ASSERT_TRUE(w.grad().defined());
  EXPECT_EQ(w.grad().to_vector<float>(), (std::vector<float>{5, 5, 5}));
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{2, 2, 2}));
}

TEST(ProgramCall, CheckpointFindsWhatCustomFunctionsUse) {
  const Tensor w = full({3}, 2.0).requires_grad_(), x = full({3}, 5.0).requires_grad_();
  autograd::FunctionDef twice;
  twice.name = "twice";
  twice.forward = [](autograd::Context&, const std::vector<Tensor>& in) {
    return std::vector<Tensor>{in[0].detach() * 2.0};
  };
  twice.backward = [](autograd::Context&, const std::vector<Tensor>& g) {
    return std::vector<Tensor>{g[0] * 2.0};
  };
  Heard heard("twice");
  const auto f = [&](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{in[0] * autograd::apply(twice, {w})[0]};
  };
  autograd::checkpoint(f, {x})[0].sum().backward();
  ASSERT_TRUE(w.grad().defined());
  EXPECT_EQ(w.grad().to_vector<float>(), (std::vector<float>{10, 10, 10}));
  EXPECT_EQ(heard.outputs.size(), 2u);  // forward, and again
}

TEST(ProgramCall, ProfilersSeeACallWithItsCost) {
  const Tensor a = ones({2, 3}).requires_grad_(), b = full({3}, 2.0);
  profile::Profiler p(profile::Options{.record_shapes = true});
  p.start();
  multiply(a, b).sum().backward();
  p.stop();
  int seen = 0;
  for (const profile::Event& e : p.trace().events) {
    if (e.name == "my_product") {
      ++seen;
      EXPECT_EQ(e.kind, profile::EventKind::call);
      EXPECT_EQ(e.flops, 6);
      EXPECT_EQ(e.bytes, 4 * (6 + 3 + 6));
      EXPECT_EQ(e.shapes.at(1), (std::vector<int64_t>{2, 3}));
      EXPECT_GE(e.sequence, 0);
    }
    seen += e.name == "My_productBackward0";
  }
  EXPECT_EQ(seen, 2);
}

TEST(ProgramCall, AnomalyModeNamesIt) {
  const DType f32[] = {kFloat32};
  const expr::ProgramPtr log =
      expr::trace([](Values v) { return std::vector{expr::log(v[0])}; }, f32, {}, f32);
  const Tensor x = full({2}, -1.0);
  const ModesGuard guard;
  modes().word |= Modes::kAnomaly;
  EXPECT_TRUE(has(error_of([&] {
                    ops::apply_program(log, {&x, 1}, {}, "my_log");
                  }),
                  "Function 'my_log' returned nan values in its output"));
  // In the backward pass it is the function whose gradient it is.
  const DType two[] = {kFloat32, kFloat32};
  const expr::ProgramPtr root =
      expr::trace([](Values v) { return std::vector{expr::sqrt(v[0]) * v[1]}; }, two, {}, f32);
  const Tensor in[] = {zeros({2}).requires_grad_(), zeros({2})};
  EXPECT_TRUE(
      has(error_of([&] { ops::apply_program(root, in, {}, "my_root")[0].sum().backward(); }),
          "Function 'my_rootBackward' returned nan values"));
}

TEST(ProgramCall, RunsAsItIsUnderAutocast) {
  const Tensor a = ones({2, 2}), b = ones({2, 2});
  const amp::Autocast region(kCPU, kBFloat16);
  const Heard all("my_product");
  EXPECT_EQ(multiply(a, b).dtype(), kFloat32);
  EXPECT_EQ(all.all, 1);  // nothing was cast
}

TEST(ProgramCall, GivesInferenceTensors) {
  const InferenceModeGuard guard;
  EXPECT_TRUE(multiply(ones({2}), ones({2})).is_inference());
}

TEST(ProgramCall, RefusesTensorsOfTwoDevices) {
  const std::string text = error_of([] { multiply(ones({2}), ones({2}, {kFloat32, kMeta})); });
  EXPECT_TRUE(has(text, "Expected all tensors to be on the same device, but found at least two"))
      << text;
}

// ---- lists

TEST(Lists, ProgramsOverThemAreOneCall) {
  std::vector<Tensor> tensors{full({2, 3}, 2.0), full({4}, 3.0)};
  const Tensor factor = full({}, 10.0);
  std::vector<prim::View> in, out;
  for (const Tensor& t : tensors) {
    in.push_back(ops::view_of(t));
    in.push_back(ops::view_of(factor));
    out.push_back(ops::view_of(t));
  }
  const uint64_t before = tensors[1].version();
  const expr::ProgramPtr program = product();
  Heard heard("times");
  ops::run_programs("times", *program, kCPU, 2, in, out);
  EXPECT_EQ(tensors[0].to_vector<float>(), std::vector<float>(6, 20));
  EXPECT_EQ(tensors[1].to_vector<float>(), std::vector<float>(4, 30));
  EXPECT_GT(tensors[1].version(), before);
  ASSERT_EQ(heard.inputs.size(), 4u);
  EXPECT_TRUE(heard.outputs[1].layout() == tensors[1].layout());
  EXPECT_EQ(heard.outputs[1].storage(), tensors[1].storage());
}

TEST(Lists, PointwiseOperatorsRunInOneLaunch) {
  const std::vector<Tensor> a{full({2, 3}, 2.0), full({4}, 3.0), full({2}, 4.0, kFloat64)};
  const std::vector<Tensor> b{full({3}, 1.0), full({4}, 1.0), full({2}, 1.0, kFloat64)};
  const ops::OpRecord& add = *ops::find_record("add");
  const ops::ListArg args[] = {std::span<const Tensor>(a), std::span<const Tensor>(b), Scalar(2)};
  Heard heard("_foreach_add");
  const std::vector<Tensor> sums = ops::foreach_call(add, args);
  EXPECT_EQ(heard.all, 2);  // one for each dtype
  EXPECT_EQ(sums[0].to_vector<float>(), std::vector<float>(6, 4));
  EXPECT_EQ(sums[2].dtype(), kFloat64);
  ops::foreach_call_in_place(add, args);
  EXPECT_EQ(heard.all, 4);
  EXPECT_EQ(a[1].to_vector<float>(), std::vector<float>(4, 5));
}

// Where one writes what another one reads, each is as if it had run after the one before.
TEST(Lists, WritesThatDependOnEachOtherGoInTurn) {
  const ops::OpRecord& add = *ops::find_record("add");
  const auto add_in_place = [&](const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
    const ops::ListArg args[] = {std::span<const Tensor>(a), std::span<const Tensor>(b), Scalar(1)};
    ops::foreach_call_in_place(add, args);
  };
  const Tensor x = ones({3}), y = full({3}, 2.0);
  add_in_place({x, y}, {y, x});
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>(3, 3));
  EXPECT_EQ(y.to_vector<float>(), std::vector<float>(3, 5));
  add_in_place({x, x}, {y, y});
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>(3, 13));
  const Tensor flat = arange(6).to(kFloat32);
  add_in_place({flat.narrow(0, 0, 4), flat.narrow(0, 2, 4)}, {ones({4}), ones({4})});
  EXPECT_EQ(flat.to_vector<float>(), (std::vector<float>{1, 2, 4, 5, 5, 6}));
  const Tensor parts = arange(6).to(kFloat32);
  Heard heard("_foreach_add");
  add_in_place({parts.narrow(0, 0, 3), parts.narrow(0, 3, 3)}, {ones({3}), ones({3})});
  EXPECT_EQ(heard.outputs.size(), 2u);  // neighbours do not meet
  EXPECT_EQ(parts.to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST(Lists, AreRefusedBeforeAnythingIsWritten) {
  const std::vector<Tensor> a{ones({3}), ones({3}).requires_grad_()};
  const ops::ListArg args[] = {std::span<const Tensor>(a), Scalar(1), Scalar(1)};
  EXPECT_TRUE(has(error_of([&] { ops::foreach_call_in_place(*ops::find_record("add"), args); }),
                  "a leaf Variable that requires grad"));
  EXPECT_EQ(a[0].to_vector<float>(), std::vector<float>(3, 1));
}

TEST(Lists, RefuseUndefinedTensors) {
  const std::vector<Tensor> some{ones({2}), Tensor()}, all{ones({2}), ones({2})};
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { ops::foreach_zero(some); }, [&] { ops::foreach_copy(some, all, false); },
           [&] { ops::foreach_copy(all, some, false); }, [&] { ops::foreach_norm(some, 2); },
           [&] { ops::foreach_max(some); }})
    EXPECT_TRUE(has(error_of(call), "not undefined ones"));
}

TEST(Lists, NormsShareALaunch) {
  const std::vector<Tensor> a{full({2, 2}, 3.0), full({9}, 1.0), full({4}, 2.0, kFloat64)};
  Heard heard("norm");
  const std::vector<Tensor> norms = ops::foreach_norm(a, 2);
  EXPECT_EQ(heard.outputs.size(), 2u);
  EXPECT_EQ(norms[0].item<double>(), 6);
  EXPECT_EQ(norms[1].item<double>(), 3);
  EXPECT_EQ(norms[2].item<double>(), 4);
  EXPECT_EQ(norms[2].dtype(), kFloat64);
  EXPECT_EQ(norms[0].dim(), 0);
}

}  // namespace
}  // namespace arete
