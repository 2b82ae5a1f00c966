// Gradients of every operator record against central differences, first and second order.
#include "arete/autograd/gradcheck.h"
#include "arete/core/modes.h"
#include "tests/support/record_cases.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

using ops::OpRecord;
using ops::SampleMaker;

class RecordGrad : public testing::TestWithParam<const OpRecord*> {};

constexpr auto kBoolean = ops::PointwiseDef::Result::boolean;

bool is_checked(const OpRecord& op) {
  if (!samples_of(op).samples || !samples_of(op).test_gradient) return false;
  for (DType t : op.dtypes)
    if (t == kFloat64) return op.pointwise || op.compose || op.grad;
  return false;
}

// The call as a function of its differentiable tensors.
struct Checked {
  const OpRecord& op;
  std::vector<ops::OwnedArg> args;
  std::vector<Tensor> inputs;

  Checked(const OpRecord& op_in, const std::vector<ops::OwnedArg>& args_in)
      : op(op_in), args(args_in) {
    each([&](Tensor& t) {
      if (t.requires_grad()) inputs.push_back(t);
    });
  }
  template <class F>
  void each(F&& f) {
    for (ops::OwnedArg& a : args) {
      if (a.kind == ops::Arg::Kind::tensor && a.tensor.defined()) f(a.tensor);
      for (Tensor& t : a.tensors)
        if (t.defined()) f(t);
    }
  }
  std::vector<Tensor> operator()(const std::vector<Tensor>& given) {
    Checked copy = *this;
    size_t k = 0;
    copy.each([&](Tensor& t) {
      if (t.requires_grad()) t = given[k++];
    });
    const ops::Results r = run(op, copy.args);
    std::vector<Tensor> differentiable;
    for (size_t i = 0; i < r.size(); ++i)
      if (!(op.non_differentiable_outputs >> i & 1)) differentiable.push_back(r[i]);
    return differentiable;
  }
};

template <class Check>
void check_samples(const OpRecord& op, DType dtype, Check&& check) {
  SampleMaker maker(dtype, test_device(), true);
  const auto samples = samples_of(op).samples(maker);
  for (size_t i = 0; i < samples.size(); ++i) {
    SCOPED_TRACE(op.name + ", " + std::string(name_of(dtype)) + ", sample " + std::to_string(i) +
                 " (" + samples[i].note + ")");
    Checked f(op, samples[i].args);
    if (f.inputs.empty()) continue;
    EXPECT_EQ(check([&](const std::vector<Tensor>& in) { return f(in); }, f.inputs), "");
  }
}

// Complex numbers where the operator has a form for them.
template <class Check>
void check_all(const OpRecord& op, Check&& check) {
  check_samples(op, kFloat64, check);
  if (op.pointwise && op.pointwise->complex && op.pointwise->result != kBoolean)
    check_samples(op, kComplex128, check);
}

TEST_P(RecordGrad, First) {
  if (!is_checked(*GetParam())) return;
  check_all(*GetParam(), [](const autograd::CheckedFunction& f, const std::vector<Tensor>& in) {
    return autograd::gradcheck(f, in);
  });
}

TEST_P(RecordGrad, Second) {
  if (!is_checked(*GetParam()) || GetParam()->once_differentiable) return;
  check_all(*GetParam(), [](const autograd::CheckedFunction& f, const std::vector<Tensor>& in) {
#ifdef ARETE_SANITIZED
    int64_t n = 0;  // as many squared are computed, in the plain loops a hundred times as slowly
    for (const Tensor& t : in) n += t.numel();
    if (too_large_for_reference(n * n)) return std::string();
#endif
    return autograd::gradgradcheck(f, in);
  });
}

INSTANTIATE_TEST_SUITE_P(All, RecordGrad, testing::ValuesIn(ops::all_records()), record_name);

}  // namespace
}  // namespace arete::test
