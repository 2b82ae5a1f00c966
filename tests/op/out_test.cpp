// Results into tensors that are given (torch's out=), for every record over its samples.
#include <set>

#include "arete/base/warn.h"
#include "arete/core/modes.h"
#include "arete/ops/creation.h"
#include "arete/ops/random.h"
#include "tests/support/record_cases.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

using ops::OpRecord;
using ops::SampleMaker;

class Out : public testing::TestWithParam<const OpRecord*> {};

// Tensors with the results' sizes and dtypes, full of something else.
std::vector<Tensor> poisoned(const ops::Results& like) {
  std::vector<Tensor> outs;
  for (const Tensor& t : like) {
    outs.push_back(ops::empty_tensor(t.sizes(), t.dtype(), t.device()));
    outs.back().fill_(t.dtype() == kBool ? Scalar(true) : Scalar(77));
  }
  return outs;
}

void write(const OpRecord& op, const std::vector<ops::OwnedArg>& args, std::vector<Tensor>& outs) {
  std::vector<Tensor*> pointers;
  for (Tensor& t : outs) pointers.push_back(&t);
  const auto borrowed = borrow(args);
  ops::call_into(pointers, op, borrowed);
}

void expect_equal(const std::vector<Tensor>& got, const ops::Results& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t k = 0; k < want.size(); ++k) {
    EXPECT_EQ(got[k].dtype(), want[k].dtype());
    EXPECT_EQ(difference(got[k], to_reference(want[k]), 1), "") << "output " << k;
  }
}

TEST_P(Out, EqualsTheCall) {
  const OpRecord& op = *GetParam();
  if (!samples_of(op).samples || op.random || op.uninitialized) return;
  for (DType dtype : {op.dtypes.front(), op.dtypes.back()}) {
    SampleMaker maker(dtype, test_device(), false);
    for (const ops::Sample& s : samples_of(op).samples(maker)) {
      SCOPED_TRACE(op.name + " (" + s.note + ")");
      const ops::Results want = run(op, s.args);
      if (want.empty()) continue;
      std::vector<Tensor> outs = poisoned(want);
      std::vector<const void*> memory;
      for (const Tensor& t : outs) memory.push_back(t.data_ptr());
      write(op, s.args, outs);
      expect_equal(outs, want);
      for (size_t k = 0; k < outs.size(); ++k) EXPECT_EQ(outs[k].data_ptr(), memory[k]);

      // Strides of the caller's stay.
      for (Tensor& t : outs) t = scramble_strides(t);
      std::vector<Shape> strides;
      for (Tensor& t : outs) {
        t.fill_(t.dtype() == kBool ? Scalar(true) : Scalar(77));
        strides.emplace_back(t.strides());
      }
      write(op, s.args, outs);
      expect_equal(outs, want);
      for (size_t k = 0; k < outs.size(); ++k)
        EXPECT_EQ(to_string(outs[k].strides()), to_string(strides[k]));

      // Empty outputs are given memory.
      for (Tensor& t : outs) t = ops::empty_tensor({0}, t.dtype(), t.device());
      write(op, s.args, outs);
      expect_equal(outs, want);
    }
  }
}

// The result replaces an argument.
TEST_P(Out, MayBeAnArgument) {
  const OpRecord& op = *GetParam();
  if (!samples_of(op).samples || op.random || op.uninitialized || op.view || op.views) return;
  SampleMaker maker(op.dtypes[0], test_device(), false);
  for (const ops::Sample& s : samples_of(op).samples(maker)) {
    SCOPED_TRACE(op.name + " (" + s.note + ")");
    const ops::Results want = run(op, s.args);
    if (want.size() != 1) continue;
    for (size_t i = 0; i < s.args.size(); ++i) {
      auto args = s.args;
      if (args[i].kind != ops::Arg::Kind::tensor) continue;
      Tensor& t = args[i].tensor;
      if (t.dtype() != want[0].dtype() || t.layout().sizes != want[0].layout().sizes) continue;
      t = t.clone();
      std::vector<Tensor> outs{t};
      write(op, args, outs);
      expect_equal(outs, want);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Out, testing::ValuesIn(ops::all_records()), record_name);

class Warnings {
 public:
  Warnings() {
    texts.clear();
    set_warning_handler([](std::string_view t) { texts.emplace_back(t); });
  }
  ~Warnings() { set_warning_handler(nullptr); }
  static inline std::vector<std::string> texts{};
};

const OpRecord& record(const char* name) {
  const OpRecord* const op = ops::find_record(name);
  if (!op) ARETE_BUG(name);
  return *op;
}

TEST(OutOfAnotherShape, IsResizedWithAWarning) {
  const Tensor x = arange(6, {kFloat32, test_device()}).reshape({2, 3});
  Tensor y = zeros({4}, {kFloat32, test_device()});
  const Warnings warnings;
  ops::call_out(y, record("exp"), {x});
  EXPECT_EQ(difference(y, to_reference(x.exp()), 1), "");
  ASSERT_EQ(warnings.texts.size(), 1u);
  EXPECT_TRUE(warnings.texts[0].starts_with(
      "An output with one or more elements was resized since it had shape [4], which does not "
      "match the required output shape [2, 3]."))
      << warnings.texts[0];
  Tensor none = zeros({0}, {kFloat32, test_device()});
  ops::call_out(none, record("exp"), {x});
  EXPECT_EQ(warnings.texts.size(), 1u);
}

TEST(OutOfAnotherDType, IsCastOrRefused) {
  const Tensor x = arange(6, {kFloat32, test_device()}), i = arange(6, {kInt64, test_device()});
  for (const char* name : {"exp", "cumsum"}) {
    Tensor wide = zeros({6}, {kFloat64, test_device()}), whole = zeros({6}, i.options());
    const OpRecord& op = record(name);
    const auto call = [&](Tensor& out) {
      op.pointwise ? ops::call_out(out, op, {x}) : ops::call_out(out, op, {x, 0, kFloat32});
    };
    call(wide);
    EXPECT_EQ(wide.dtype(), kFloat64);
    EXPECT_GT(wide.sum().item<double>(), 0);
    try {
      call(whole);
      ADD_FAILURE() << name << " wrote fractions into integers";
    } catch (const TypeError& e) {
      EXPECT_NE(std::string(e.what()).find("can't be cast to the desired output type"),
                std::string::npos)
          << e.what();
    }
  }
}

TEST(OutWithHistory, IsRefused) {
  const TensorOptions f32{kFloat32, test_device()};
  Tensor x = ones({3}, f32).requires_grad_(), y = ones({3}, f32);
  EXPECT_THROW(ops::call_out(y, record("exp"), {x}), AutogradError);
  EXPECT_THROW(ops::call_out(x, record("exp"), {y}), AutogradError);
  EXPECT_THROW(ops::call_out(y, record("mm"), {x, y}), AutogradError);
  const NoGradGuard guard;
  ops::call_out(y, record("exp"), {x});
  EXPECT_GT(y.sum().item<double>(), 8);
}

// The memory that calls take beside what they are given: with out=, none of the result's size.
TEST(OutTakesNoMemory, OfTheResultsSize) {
  const Device device = test_device();
  if (device.is_cpu()) GTEST_SKIP() << "nobody counts the memory of the CPU";
  const TensorOptions f32{kFloat32, device};
  const int64_t n = 256, bytes = n * n * 4;
  const Tensor x = rand({n, n}, f32), y = rand({n, n}, f32), batch = rand({4, n, n / 4}, f32);
  const Tensor index = zeros({n}, {kInt64, device});
  const std::vector<Tensor> both{x, y};
  // How far memory grows at the most during the second of two calls.
  const auto peak_of = [&](auto&& call) {
    prim::Backend& backend = prim::backend_for(device);
    call();  // workspaces, kernels
    backend.synchronize();
    backend.reset_peak_memory_stats();
    const size_t before = backend.memory_stats().allocated;
    call();
    backend.synchronize();
    const size_t peak = backend.memory_stats().peak_allocated;
    EXPECT_GT(before, size_t(0));
    return peak - before;
  };
  const auto grows = [&](Tensor& out, const char* name, std::initializer_list<ops::Arg> args) {
    return peak_of([&] { ops::call_out(out, record(name), args); });
  };
  // Libraries of GPUs have workspaces for products, whoever gives the result's memory.
  const auto grows_beside_workspace = [&](Tensor& out, const char* name,
                                          std::initializer_list<ops::Arg> args) {
    const size_t with = grows(out, name, args);
    const size_t without = peak_of([&] { ops::call(record(name), args); });
    EXPECT_GE(without, with + size_t(out.numel()) * 4) << name;
    return size_t(0);
  };
  Tensor square = zeros({n, n}, f32), wide = zeros({2 * n, n}, f32),
         stacked = zeros({2, n, n}, f32);
  Tensor row = zeros({n}, f32), three = zeros({4, n, n}, f32);
  EXPECT_LT(grows(square, "add", {x, y, Scalar(1)}), size_t(bytes / 2));
  EXPECT_LT(grows(square, "exp", {x}), size_t(bytes / 2));
  EXPECT_LT(grows_beside_workspace(square, "mm", {x, y}), size_t(bytes / 2));
  EXPECT_LT(grows_beside_workspace(square, "matmul", {x, y}), size_t(bytes / 2));
  EXPECT_LT(grows(three, "matmul", {batch, batch.transpose(1, 2)}), size_t(2 * bytes));
  EXPECT_LT(grows(three, "bmm", {batch, batch.transpose(1, 2)}), size_t(2 * bytes));
  EXPECT_LT(grows_beside_workspace(square, "addmm", {row, x, y, Scalar(1), Scalar(1)}),
            size_t(bytes / 2));
  EXPECT_LT(grows(row, "sum", {x, IntList({1}), false, {}}), size_t(bytes / 2));
  EXPECT_LT(grows(square, "cumsum", {x, 0, {}}), size_t(bytes / 2));
  EXPECT_LT(grows(square, "softmax", {x, 1, {}}), size_t(bytes / 2));
  EXPECT_LT(grows(wide, "cat", {both, 0}), size_t(bytes));
  EXPECT_LT(grows(stacked, "stack", {both, 0}), size_t(bytes));
  EXPECT_LT(grows(square, "index_select", {x, 0, index}), size_t(bytes / 2));
  EXPECT_LT(grows(square, "tril", {x, 0}), size_t(bytes / 2));
}

}  // namespace
}  // namespace arete::test
