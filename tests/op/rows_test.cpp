// Programs of rows against the operators that compute the same, forward, backward and twice
// backward.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "arete/arete.h"
#include "arete/autograd/engine.h"
#include "arete/autograd/gradcheck.h"
#include "arete/ops/rows.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

using expr::Value;
using ops::RowProgram;
using ops::RowProgramPtr;
using ops::Rows;
using prim::Monoid;
using Values = std::span<const Value>;
using Tensors = std::vector<Tensor>;

Tensor random(IntList sizes, DType dtype = kFloat64) {
  return randn(sizes, {kFloat64, test_device()}).to(dtype);
}

void expect_close(const Tensor& got, const Tensor& want, double tolerance = 1e-12) {
  ASSERT_EQ(to_string(got.sizes()), to_string(want.sizes()));
  ASSERT_EQ(got.dtype(), want.dtype());
  const auto a = got.detach().to(kCPU).to_vector<double>(),
             b = want.detach().to(kCPU).to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_NEAR(a[i], b[i], tolerance * std::max(1.0, std::fabs(b[i]))) << "element " << i;
}

// What gradcheck found.
void expect_checked(const std::string& problem) { EXPECT_EQ(problem, ""); }

RowProgramPtr softmax(DType t) {
  return RowProgram::trace(
      [](Rows& rows, Values v) {
        const Value e = exp(v[0] - rows.reduce(Monoid::max, v[0], false));
        return std::vector{e / rows.sum(e)};
      },
      {{t}}, {}, {t});
}

RowProgramPtr layer_norm(DType t) {
  return RowProgram::trace(
      [](Rows& rows, Values v) {
        const Value x = v[0] - rows.mean(v[0]), r = rsqrt(rows.mean(square(x)) + v[3]);
        return std::vector{x * r * v[1] + v[2], r};
      },
      {{t, t, t}}, {{expr::Type::f64}}, {t, t});
}

TEST(Rows, SoftmaxAlongAnyDimensions) {
  for (const Shape& dims : {Shape{-1}, Shape{0}, Shape{1}, Shape{0, 2}, Shape{}}) {
    const Tensor x = random({3, 4, 5}).requires_grad_();
    const Tensor got = ops::apply_rows(softmax(kFloat64), {{x}}, {}, dims, "softmax")[0];
    const Shape all = dims.empty() ? Shape{0, 1, 2} : dims;
    const Tensor want = (x - x.logsumexp(all, true)).exp();
    expect_close(got, want);
    const Tensor g = random({3, 4, 5});
    expect_close(autograd::grad({{got}}, {{x}}, {{g}})[0],
                 autograd::grad({{want}}, {{x}}, {{g}})[0]);
  }
}

TEST(Rows, OneKernelEachWay) {
  const RowProgramPtr p = softmax(kFloat32);
  const auto& stages = p->spec().stages;
  ASSERT_EQ(stages.size(), 3u);  // maximum, sum, quotient
  const auto& d = p->derivative(1);
  // Of the gradient: the forward reductions, a number of each row made of them, the sum of
  // gradient times result, and what is stored.
  using Kind = prim::FusedStage::Kind;
  std::vector<Kind> kinds;
  for (const auto& stage : d.program->spec().stages) kinds.push_back(stage.kind);
  EXPECT_EQ(kinds, (std::vector{Kind::reduce, Kind::reduce, Kind::row, Kind::reduce, Kind::store}));
  EXPECT_EQ(p, softmax(kFloat32)) << "equal programs are one object";
  EXPECT_EQ(&d, &p->derivative(1));
}

TEST(Rows, NormWithWeightsAndAParameter) {
  const Tensor x = random({6, 8}).requires_grad_(), w = random({8}).requires_grad_(),
               b = random({8}).requires_grad_();
  const auto r = ops::apply_rows(layer_norm(kFloat64), {{x, w, b}}, {{1e-3}}, {-1}, "norm");
  const Tensor centered = x - x.mean({-1}, true),
               rsqrt = (centered.square().mean({-1}, true) + 1e-3).rsqrt();
  const Tensor want = centered * rsqrt * w + b;
  expect_close(r[0], want);
  expect_close(r[1], rsqrt);
  // Both results have gradients.
  const Tensor g = random({6, 8}), h = random({6, 1});
  const auto got = autograd::grad({{r[0], r[1]}}, {{x, w, b}}, {{g, h}});
  const auto expected = autograd::grad({{want, rsqrt}}, {{x, w, b}}, {{g, h}});
  for (size_t i = 0; i < 3; ++i) expect_close(got[i], expected[i], 1e-10);
}

TEST(Rows, GradientsOfAnyOrder) {
  const Tensor w = random({5}).requires_grad_(), b = random({5}).requires_grad_();
  const Tensor x = random({3, 5}).requires_grad_(), row = random({3, 1}).requires_grad_();
  const auto norm = [](const Tensors& in) {
    const auto r = ops::apply_rows(layer_norm(kFloat64), in, {{0.1}}, {1}, "norm");
    return Tensors{r[0], r[1]};
  };
  expect_checked(autograd::gradcheck(norm, {x, w, b}));
  expect_checked(autograd::gradgradcheck(norm, {x, w, b}));
  const auto tempered = [](const Tensors& in) {
    static const RowProgramPtr p = RowProgram::trace(
        [](Rows& rows, Values v) {
          const Value y = v[0] * v[1], e = exp(y - rows.max(y));
          return std::vector{e / rows.sum(e), log(rows.sum(e)), y * rows.min(y)};
        },
        {{kFloat64, kFloat64}}, {}, {kFloat64, kFloat64, kFloat64});
    const auto r = ops::apply_rows(p, in, {}, {1}, "tempered");
    return Tensors{r[0], r[1], r[2]};
  };
  expect_checked(autograd::gradcheck(tempered, {x, row}));
  expect_checked(autograd::gradgradcheck(tempered, {x, row}));
}

// More of them than the CPU's code can take as numbers: one row, rows along the memory, and across.
TEST(Rows, ManyValuesOfARow) {
  constexpr int n = 40;
  const RowProgramPtr p = RowProgram::trace(
      [](Rows& rows, Values v) {
        Value all = v[0] * 0;
        for (int k = 1; k <= n; ++k) all = all + rows.sum(v[0] * k) * (v[0] - k);
        return std::vector{all};
      },
      {{kFloat64}}, {}, {kFloat64});
  for (const Shape& sizes : {Shape{5}, Shape{1, 5}, Shape{3, 5}, Shape{2, 3000}, Shape{40, 70}})
    for (const int64_t dim : {int64_t{-1}, int64_t{0}}) {
      const Tensor x = random(sizes);
      Tensor want = zeros_like(x);
      for (int k = 1; k <= n; ++k) want = want + x.mul(k).sum(dim, true) * (x - k);
      expect_close(ops::apply_rows(p, {{x}}, {}, {{dim}}, "many")[0], want, 1e-9);
    }
}

// Reductions that no result needs are not made, and are not there for derivatives.
TEST(Rows, UnneededReductionsAreLeftOut) {
  const RowProgramPtr p = RowProgram::trace(
      [](Rows& rows, Values v) {
        const Value unneeded = rows.max(v[0] * 3);
        const Value mean = rows.mean(v[0]);
        (void)rows.sum(unneeded - mean);
        return std::vector{v[0] - mean};
      },
      {{kFloat64}}, {}, {kFloat64});
  EXPECT_FALSE(p->needs_elements());
  EXPECT_EQ(p->spec().stages.size(), 3u);  // the sum, the mean, the results
  const Tensor x = random({3, 4});
  expect_close(ops::apply_rows(p, {{x}}, {}, {{1}}, "centred")[0], x - x.mean(1, true));
}

TEST(Rows, EqualExtremaShareTheGradient) {
  const Tensor x = tensor({1.0, 3.0, 3.0, 2.0}).to(test_device()).requires_grad_();
  const RowProgramPtr p =
      RowProgram::trace([](Rows& rows, Values v) { return std::vector{rows.max(v[0]) * 6.0}; },
                        {{x.dtype()}}, {}, {x.dtype()});
  const Tensor y = ops::apply_rows(p, {{x}}, {}, {}, "most")[0];
  y.sum().backward();
  EXPECT_EQ(x.grad().to(kCPU).to_vector<double>(), (std::vector<double>{0, 3, 3, 0}));
}

TEST(Rows, DtypesAndLayouts) {
  for (const DType t : {kFloat16, kBFloat16, kFloat32}) {
    const Tensor x = random({7, 33}, t), y = random({33, 7}, t).t();
    for (const Tensor& in : {x, y}) {
      const Tensor got = ops::apply_rows(softmax(t), {{in}}, {}, {1}, "softmax")[0];
      expect_close(got, in.softmax(1), t == kBFloat16 ? 8e-3 : 1e-3);
    }
  }
  const Tensor n = randint(-5, 6, {4, 9}, {kInt32, test_device()});
  const RowProgramPtr counts = RowProgram::trace(
      [](Rows& rows, Values v) {
        return std::vector{rows.sum(v[0]), rows.reduce(Monoid::any, v[0] > 4.0), rows.max(v[0]),
                           v[0] - rows.min(v[0]), rows.reduce(Monoid::prod, v[0])};
      },
      {{kInt32}}, {}, {kInt64, kBool, kInt32, kInt32, kInt64});
  const auto r = ops::apply_rows(counts, {{n}}, {}, {1}, "counts");
  expect_close(r[0], n.sum({1}, true));
  expect_close(r[1], (n > 4).any({1}, true));
  expect_close(r[2], n.amax({1}, true));
  expect_close(r[3], n - n.amin({1}, true));
  expect_close(r[4], n.prod(1, true));
}

TEST(Rows, NoElements) {
  const DType t = kFloat64;
  const RowProgramPtr total = RowProgram::trace(
      [](Rows& rows, Values v) {
        return std::vector{rows.sum(v[0]), v[0] * 2.0};
      },
      {{t}}, {}, {t, t});
  const auto r = ops::apply_rows(total, {{random({3, 0})}}, {}, {1}, "total");
  expect_close(r[0], zeros({3, 1}, {t, test_device()}));
  EXPECT_EQ(r[1].numel(), 0);
  EXPECT_EQ(ops::apply_rows(total, {{random({0, 3})}}, {}, {1}, "total")[0].numel(), 0);
  EXPECT_THROW(ops::apply_rows(softmax(t), {{random({3, 0})}}, {}, {1}, "softmax"), ValueError);
  const Tensor number = random({}).requires_grad_();
  const auto one = ops::apply_rows(total, {{number}}, {}, {}, "total");
  expect_close(one[0], number);
  expect_close(autograd::grad(Tensors{one[0]}, Tensors{number})[0], ones({}, {t, test_device()}));
}

TEST(Rows, WrongArguments) {
  const RowProgramPtr p = softmax(kFloat32);
  const Tensor x = random({2, 3}, kFloat32);
  EXPECT_THROW(ops::apply_rows(p, {}, {}, {1}, "softmax"), ValueError);
  EXPECT_THROW(ops::apply_rows(p, {{x}}, {{1.0}}, {1}, "softmax"), ValueError);
  EXPECT_THROW(ops::apply_rows(p, {{x.to(kFloat64)}}, {}, {1}, "softmax"), TypeError);
  EXPECT_THROW(ops::apply_rows(p, {{x}}, {}, {2}, "softmax"), IndexError);
  EXPECT_THROW(ops::apply_rows(p, {{x}}, {}, {1, 1}, "softmax"), Error);
  const RowProgramPtr product = RowProgram::trace(
      [](Rows& rows, Values v) { return std::vector{rows.reduce(Monoid::prod, v[0])}; },
      {{kFloat32}}, {}, {kFloat32});
  const Tensor leaf = random({2, 3}, kFloat32).requires_grad_();
  const Tensor y = ops::apply_rows(product, {{leaf}}, {}, {1}, "product")[0];
  EXPECT_THROW(y.sum().backward(), NotImplementedError);
}

TEST(Reduce, AProgramReduced) {
  const DType t = kFloat64;
  const expr::ProgramPtr p =
      expr::trace([](Values v) { return std::vector{square(v[0] - v[1]) * v[2]}; }, {{t, t}},
                  {{expr::Type::f64}}, {{t}});
  const auto squares = [&](const Tensors& in, IntList dims, bool keepdim) {
    return ops::apply_reduce(p, Monoid::sum, in, {{0.5}}, dims, keepdim, "squares");
  };
  const Tensor x = random({4, 3, 5}).requires_grad_(), y = random({3, 1}).requires_grad_();
  const Tensor term = (x - y).square() * 0.5;
  for (const bool keepdim : {false, true}) {
    expect_close(squares({x, y}, {1}, keepdim), term.sum({1}, keepdim));
    expect_close(squares({x, y}, {0, 2}, keepdim), term.sum({0, 2}, keepdim));
    expect_close(squares({x, y}, {}, keepdim), term.sum(IntList(), keepdim));
  }
  const auto got = autograd::grad(Tensors{squares({x, y}, {}, false)}, Tensors{x, y});
  expect_close(got[0], (x - y).detach());
  expect_close(got[1], (y - x).sum({0, 2}, false).view({3, 1}).detach());
  expect_checked(autograd::gradgradcheck(
      [&](const Tensors& in) { return Tensors{squares(in, {2}, true)}; }, {x, y}));
  const Tensor most = ops::apply_reduce(p, Monoid::max, {{x, y}}, {{0.5}}, {2}, false, "most");
  expect_close(most, term.amax({2}, false));
  const Tensor g = random({4, 3});
  expect_close(autograd::grad({{most}}, {{x}}, {{g}})[0],
               autograd::grad({{term.amax({2}, false)}}, {{x}}, {{g}})[0]);
}

TEST(Reduce, HalfTypesSumWide) {
  const expr::ProgramPtr p = expr::trace([](Values v) { return std::vector{v[0] * v[0]}; },
                                         {{kFloat16}}, {}, {{kFloat16}});
  const Tensor x = full({8192}, 0.5, {kFloat16, test_device()});
  EXPECT_EQ(ops::apply_reduce(p, Monoid::sum, {{x}}, {}, {}, false, "squares").item<double>(),
            2048);
  const expr::ProgramPtr small =
      expr::trace([](Values v) { return std::vector{v[0] + v[0]}; }, {{kUInt8}}, {}, {{kUInt8}});
  const Tensor n = full({100}, 100, {kUInt8, test_device()});
  const Tensor sum = ops::apply_reduce(small, Monoid::sum, {{n}}, {}, {}, false, "doubles");
  EXPECT_EQ(sum.dtype(), kInt64);
}

}  // namespace
}  // namespace arete::test
