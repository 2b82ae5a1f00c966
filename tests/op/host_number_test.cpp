// CPU tensors without dimensions beside tensors of another device count as numbers (Note [Numbers
// in tensors of the CPU]): for every pointwise record, every place of its samples and all dtypes.
// Beside the CPU itself the other device is `meta`, which shows shapes, dtypes and history only.
#include <algorithm>

#include "arete/autograd/engine.h"
#include "arete/core/modes.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "tests/support/record_cases.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

using ops::Arg;
using ops::OpRecord;
using ops::SampleMaker;

class HostNumber : public testing::TestWithParam<const OpRecord*> {};

Device other_device() { return test_device().is_cpu() ? kMeta : test_device(); }

Tensor on_other_device(const Tensor& t) {
  if (t.device() == other_device()) return t;
  return ops::empty_tensor(ops::OutputSpec{Shape(t.sizes()), t.dtype(), {}, kMeta});
}

bool same_device(const ops::Results& results) {
  return std::ranges::all_of(results, [](const Tensor& t) { return t.device() == other_device(); });
}

// Calls f(arguments with a number at place i as a tensor of the device, of the CPU, i).
template <class F>
void for_each_place(const OpRecord& op, DType dtype, F&& f) {
  SampleMaker maker(dtype, test_device(), false);
  for (const ops::Sample& s : samples_of(op).samples(maker)) {
    SCOPED_TRACE(op.name + ", " + std::string(name_of(dtype)) + " (" + s.note + ")");
    const size_t n = size_t(op.pointwise->n_inputs);
    for (size_t i = 0; i < n; ++i) {
      if (s.args[i].kind != Arg::Kind::tensor || s.args[i].tensor.numel() == 0) continue;
      size_t others = 0;
      for (size_t k = 0; k < n; ++k)
        others += k != i && s.args[k].kind == Arg::Kind::tensor &&
                  (s.args[k].tensor.dim() > 0 || !test_device().is_cpu());
      if (others == 0) continue;
      const Tensor number = s.args[i].tensor.reshape({-1})[0].clone();
      auto here = map_tensors(s.args, on_other_device), there = here;
      here[i].tensor = on_other_device(number);
      there[i].tensor = number.to(kCPU);
      f(here, there, i);
    }
  }
}

TEST_P(HostNumber, IsTakenAsANumber) {
  const OpRecord& op = *GetParam();
  for (DType dtype : op.dtypes)
    for_each_place(op, dtype, [&](auto& here, auto& there, size_t i) {
      SCOPED_TRACE("argument " + std::to_string(i));
      const ops::Results want = run(op, here);
      const ops::Results got = run(op, there);
      ASSERT_TRUE(same_device(got));
      for (size_t k = 0; k < want.size(); ++k) {
        EXPECT_EQ(got[k].dtype(), want[k].dtype());
        EXPECT_EQ(to_string(got[k].sizes()), to_string(want[k].sizes()));
        if (got[k].is_meta()) continue;
        EXPECT_EQ(difference(got[k], to_reference(want[k]), 1), "");
      }
    });
}

TEST_P(HostNumber, InPlace) {
  const OpRecord& op = *GetParam();
  if (!op.has_in_place) return;
  for_each_place(op, op.dtypes[0], [&](auto& here, auto& there, size_t i) {
    SCOPED_TRACE("argument " + std::to_string(i));
    if (i == 0) return;
    const Tensor want = run(op, here)[0];
    Tensor& self = there[0].tensor;
    if (want.layout().sizes != self.layout().sizes ||
        category_of(want.dtype()) > category_of(self.dtype()))
      return;
    if (!self.is_meta()) self = self.clone();
    const auto borrowed = borrow(there);
    ops::call_in_place(self, op, borrowed);
    if (self.is_meta()) return;
    EXPECT_EQ(difference(self, to_reference(want), 1), "");
  });
}

// The number's gradient arrives on the CPU.
TEST_P(HostNumber, HasAGradient) {
  const OpRecord& op = *GetParam();
  if (!samples_of(op).test_gradient) return;
  for_each_place(op, op.dtypes[0], [&](auto& here, auto& there, size_t i) {
    SCOPED_TRACE("argument " + std::to_string(i));
    Tensor &a = here[i].tensor, &b = there[i].tensor;
    if (!is_differentiable(a.dtype())) return;
    a = a.detach().requires_grad_(), b = b.detach().requires_grad_();
    const Tensor want = run(op, here)[0], got = run(op, there)[0];
    ASSERT_EQ(got.requires_grad(), want.requires_grad());
    if (!want.requires_grad() || want.is_meta()) return;
    if (op.pointwise->refused_gradients >> i & 1) {
      EXPECT_THROW(want.sum().backward(), Error);
      EXPECT_THROW(got.sum().backward(), Error);
      return;
    }
    (is_complex(want.dtype()) ? want.abs() : want).sum().backward();
    (is_complex(got.dtype()) ? got.abs() : got).sum().backward();
    ASSERT_TRUE(b.grad().defined());
    EXPECT_TRUE(b.grad().device().is_cpu());
    EXPECT_EQ(difference(b.grad(), to_reference(a.grad()), got.numel()), "");
  });
}

std::vector<const OpRecord*> records() {
  std::vector<const OpRecord*> result;
  for (const OpRecord* op : ops::all_records())
    if (op->pointwise && op->pointwise->n_inputs > 1 && samples_of(*op).samples && !op->random)
      result.push_back(op);
  return result;
}
INSTANTIATE_TEST_SUITE_P(All, HostNumber, testing::ValuesIn(records()), record_name);

TEST(HostNumberRules, WithDimensionsItIsNone) {
  const Tensor x = ops::empty_tensor({3}, kFloat32, other_device());
  EXPECT_THROW(x + ones({1}), DeviceError);
  EXPECT_THROW(x + ones({3}), DeviceError);
  Tensor number = full({}, 2.0);
  EXPECT_THROW(number.add_(x), Error);
  EXPECT_THROW(number.add_(ops::empty_tensor({}, kFloat32, other_device())), DeviceError);
}

// A tensor without dimensions takes part in promotion as such, not as a Python number.
TEST(HostNumberRules, PromotionIsThatOfTensors) {
  const auto result = [](DType t, DType number) {
    return (ops::empty_tensor({3}, t, other_device()) + full({}, 1, number)).dtype();
  };
  EXPECT_EQ(result(kInt32, kFloat64), kFloat64);
  EXPECT_EQ(result(kFloat16, kFloat64), kFloat16);
  EXPECT_EQ(result(kUInt8, kInt64), kUInt8);
  EXPECT_EQ(result(kBool, kInt32), kInt32);
  EXPECT_EQ(result(kFloat32, kComplex128), kComplex64);
}

}  // namespace
}  // namespace arete::test
