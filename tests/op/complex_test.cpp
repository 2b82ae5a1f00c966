// Complex forms of pointwise operators against std::complex, and what has no record of its own.
#include <algorithm>
#include <complex>
#include <functional>
#include <map>
#include <numbers>

#include "arete/autograd/engine.h"
#include "arete/core/complex.h"
#include "arete/ops/complex.h"
#include "arete/ops/creation.h"
#include "arete/ops/matmul.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/random.h"
#include "arete/ops/reduce.h"
#include "arete/samples/reference_util.h"
#include "tests/support/record_cases.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

using C = std::complex<double>;
using Reference = std::function<C(const std::vector<C>&)>;

bool finite(C z) { return std::isfinite(z.real()) && std::isfinite(z.imag()); }
C number(bool b) { return b ? 1.0 : 0.0; }
C power(C a, C b) {
  if (a != 0.0) return std::pow(a, b);
  if (b == 0.0) return 1;
  return b.real() > 0 ? C(0) : C(NAN, NAN);
}
C replaced(const std::vector<C>& v) {
  const auto part = [&](double x) {
    return std::isnan(x) ? v[1].real() : std::isinf(x) ? v[x > 0 ? 2 : 3].real() : x;
  };
  return {part(v[0].real()), part(v[0].imag())};
}
C pi_sinc(C z) {
  const C x = std::numbers::pi * z;
  return z == 0.0 ? 1 : std::sin(x) / x;
}

const std::map<std::string, Reference>& references() {
  using V = const std::vector<C>&;
  static const std::map<std::string, Reference> all{
      {"nan_to_num_point", replaced},
      {"exp", [](V v) { return std::exp(v[0]); }},
      {"exp2", [](V v) { return std::exp(v[0] * std::numbers::ln2); }},
      {"expm1", [](V v) { return std::exp(v[0]) - 1.0; }},
      {"log", [](V v) { return std::log(v[0]); }},
      {"log2", [](V v) { return std::log(v[0]) / std::numbers::ln2; }},
      {"log10", [](V v) { return std::log10(v[0]); }},
      {"log1p", [](V v) { return std::log(1.0 + v[0]); }},
      {"sqrt", [](V v) { return std::sqrt(v[0]); }},
      {"rsqrt", [](V v) { return 1.0 / std::sqrt(v[0]); }},
      {"sigmoid", [](V v) { return 1.0 / (1.0 + std::exp(-v[0])); }},
      {"sin", [](V v) { return std::sin(v[0]); }},
      {"cos", [](V v) { return std::cos(v[0]); }},
      {"tan", [](V v) { return std::tan(v[0]); }},
      {"sinh", [](V v) { return std::sinh(v[0]); }},
      {"cosh", [](V v) { return std::cosh(v[0]); }},
      {"tanh", [](V v) { return std::tanh(v[0]); }},
      {"asin", [](V v) { return std::asin(v[0]); }},
      {"acos", [](V v) { return std::acos(v[0]); }},
      {"atan", [](V v) { return std::atan(v[0]); }},
      {"asinh", [](V v) { return std::asinh(v[0]); }},
      {"acosh", [](V v) { return std::acosh(v[0]); }},
      {"atanh", [](V v) { return std::atanh(v[0]); }},
      {"silu", [](V v) { return v[0] / (1.0 + std::exp(-v[0])); }},
      {"softsign", [](V v) { return v[0] / (1.0 + std::abs(v[0])); }},
      {"tanhshrink", [](V v) { return v[0] - std::tanh(v[0]); }},
      {"sinc", [](V v) { return pi_sinc(v[0]); }},
      {"neg", [](V v) { return -v[0]; }},
      {"conjugate", [](V v) { return std::conj(v[0]); }},
      {"square_point", [](V v) { return v[0] * v[0]; }},
      {"reciprocal", [](V v) { return 1.0 / v[0]; }},
      {"abs", [](V v) { return C(std::abs(v[0])); }},
      {"angle", [](V v) { return C(std::arg(v[0])); }},
      {"sgn", [](V v) { return v[0] == 0.0 ? 0 : v[0] / std::abs(v[0]); }},
      {"isnan", [](V v) { return number(std::isnan(v[0].real()) || std::isnan(v[0].imag())); }},
      {"isinf", [](V v) { return number(std::isinf(v[0].real()) || std::isinf(v[0].imag())); }},
      {"isfinite", [](V v) { return number(finite(v[0])); }},
      {"logical_not", [](V v) { return number(v[0] == 0.0); }},
      {"add", [](V v) { return v[0] + v[2] * v[1]; }},
      {"sub", [](V v) { return v[0] - v[2] * v[1]; }},
      {"rsub", [](V v) { return v[1] - v[2] * v[0]; }},
      {"mul", [](V v) { return v[0] * v[1]; }},
      {"div", [](V v) { return v[0] / v[1]; }},
      {"absolute_error", [](V v) { return C(std::abs(v[0] - v[1])); }},
      {"ldexp", [](V v) { return v[0] * std::exp(v[1] * std::numbers::ln2); }},
      {"pow", [](V v) { return power(v[0], v[1]); }},
      {"addcmul", [](V v) { return v[0] + v[3] * v[1] * v[2]; }},
      {"addcdiv", [](V v) { return v[0] + v[3] * v[1] / v[2]; }},
      {"lerp", [](V v) { return v[0] + v[2] * (v[1] - v[0]); }},
      {"eq", [](V v) { return number(v[0] == v[1]); }},
      {"ne", [](V v) { return number(v[0] != v[1]); }},
      {"logical_and", [](V v) { return number(v[0] != 0.0 && v[1] != 0.0); }},
      {"logical_or", [](V v) { return number(v[0] != 0.0 || v[1] != 0.0); }},
      {"logical_xor", [](V v) { return number((v[0] != 0.0) != (v[1] != 0.0)); }},
      {"where", [](V v) { return v[0] != 0.0 ? v[1] : v[2]; }},
      {"masked_fill", [](V v) { return v[1] != 0.0 ? v[2] : v[0]; }},
  };
  return all;
}

// Element `index` of an argument that is a tensor (broadcast) or a number.
C at(const ops::OwnedArg& a, const Tensor& wide, IntList index) {
  if (a.kind != ops::Arg::Kind::tensor) return to_complex(a.borrow().scalar());
  return wide.data<C>()[ops::flat_position(wide.sizes(), index)];
}

void expect_near(const Tensor& got, const std::vector<C>& want, DType dtype) {
  const std::vector<C> values = got.to(kCPU).to_vector<C>();
  ASSERT_EQ(values.size(), want.size());
  double size = 1;
  for (C w : want)
    if (finite(w)) size = std::max(size, std::abs(w));
  const double bound = size * (dtype == kComplex64 ? 4e-6 : 1e-14);
  for (size_t i = 0; i < want.size(); ++i) {
    if (!finite(want[i])) continue;
    EXPECT_LE(std::abs(values[i] - want[i]), bound)
        << "element " << i << ": " << values[i].real() << " + " << values[i].imag()
        << "i instead of " << want[i].real() << " + " << want[i].imag() << "i";
  }
}

class ComplexForm : public testing::TestWithParam<const ops::OpRecord*> {};

std::vector<const ops::OpRecord*> records_with_complex_form() {
  std::vector<const ops::OpRecord*> found;
  for (const ops::OpRecord* op : ops::all_records())
    if (op->pointwise && op->pointwise->complex) found.push_back(op);
  return found;
}

TEST_P(ComplexForm, AgreesWithStandardLibrary) {
  const ops::OpRecord& op = *GetParam();
  ASSERT_TRUE(references().contains(op.name)) << op.name << " has no reference here";
  const Reference& reference = references().at(op.name);
  for (DType dtype : {kComplex64, kComplex128}) {
    ops::SampleMaker maker(dtype, test_device(), false);
    for (const ops::Sample& s : samples_of(op).samples(maker)) {
      SCOPED_TRACE(op.name + " of " + std::string(name_of(dtype)) + ", " + s.note);
      const Tensor got = run(op, s.args)[0];
      std::vector<Tensor> wide;
      for (const ops::OwnedArg& a : s.args)
        wide.push_back(a.kind == ops::Arg::Kind::tensor
                           ? a.tensor.to(kCPU).to(kComplex128).contiguous()
                           : Tensor());
      std::vector<C> want;
      ops::for_each_index(got.sizes(), [&](const Shape& index) {
        std::vector<C> values;
        for (size_t i = 0; i < s.args.size(); ++i) values.push_back(at(s.args[i], wide[i], index));
        want.push_back(reference(values));
      });
      expect_near(got, want, dtype);
    }
  }
}

TEST_P(ComplexForm, DoesNotDependOnStrides) {
  const ops::OpRecord& op = *GetParam();
  ops::SampleMaker maker(kComplex64, test_device(), false);
  for (const ops::Sample& s : samples_of(op).samples(maker)) {
    SCOPED_TRACE(op.name + ", " + s.note);
    const Tensor want = run(op, s.args)[0];
    const Tensor got = run(op, map_tensors(s.args, scramble_strides))[0];
    EXPECT_EQ(difference(got, want, 1), "");
  }
}

INSTANTIATE_TEST_SUITE_P(All, ComplexForm, testing::ValuesIn(records_with_complex_form()),
                         record_name);

Tensor numbers(const std::vector<C>& v, DType dtype = kComplex128) {
  const Tensor t = ops::empty_tensor({int64_t(v.size())}, kComplex128, kCPU);
  std::copy(v.begin(), v.end(), t.data<C>());
  return t.to(test_device(), dtype);
}
std::vector<C> list(const Tensor& t) { return t.to(kCPU).to_vector<C>(); }

TEST(Complex, BranchCutsAreThoseOfC99) {
  std::vector<C> z;
  for (double x : {-3.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 3.0})
    for (double y : {-2.0, -0.5, -0.0, 0.0, 0.5, 2.0}) z.emplace_back(x, y);
  const Tensor t = numbers(z);
  const std::vector<std::pair<Tensor, C (*)(const C&)>> cases{
      {t.sqrt(), [](const C& v) { return std::sqrt(v); }},
      {t.log(), [](const C& v) { return std::log(v); }},
      {t.asin(), [](const C& v) { return std::asin(v); }},
      {t.acos(), [](const C& v) { return std::acos(v); }},
      {t.atan(), [](const C& v) { return std::atan(v); }},
      {t.asinh(), [](const C& v) { return std::asinh(v); }},
      {t.acosh(), [](const C& v) { return std::acosh(v); }},
      {t.atanh(), [](const C& v) { return std::atanh(v); }},
  };
  for (size_t k = 0; k < cases.size(); ++k) {
    const std::vector<C> got = list(cases[k].first);
    for (size_t i = 0; i < z.size(); ++i) {
      const C want = cases[k].second(z[i]);
      if (!finite(want)) continue;
      EXPECT_LE(std::abs(got[i] - want), 1e-14)
          << "function " << k << " at " << z[i].real() << " + " << z[i].imag()
          << "i: " << got[i].real() << " + " << got[i].imag() << "i instead of " << want.real()
          << " + " << want.imag() << "i";
    }
  }
}

TEST(Complex, LargeNumbersDoNotOverflow) {
  const Tensor big = numbers({{3e38, 1e38}, {1e-38, 3e-38}}, kComplex64);
  const std::vector<double> sizes = big.abs().to(kCPU).to_vector<double>();
  EXPECT_NEAR(sizes[0] / 3.16227766e38, 1, 1e-6);
  EXPECT_NEAR(sizes[1] / 3.16227766e-38, 1, 1e-6);
  for (const C& q : list(big / big)) EXPECT_LE(std::abs(q - 1.0), 1e-6);
  for (const C& r : list(big.sqrt() * big.sqrt() / big)) EXPECT_LE(std::abs(r - 1.0), 1e-5);
  // Near 1 the logarithm of the size is a small number that must not be lost.
  const C near(1, 1e-4);
  EXPECT_NEAR(list(numbers({near}, kComplex64).log())[0].real() / 5e-9, 1, 1e-3);
  const std::vector<C> tangents = list(numbers({{300, 1}, {-300, 1}}).tanh());
  EXPECT_EQ(tangents[0].real(), 1);
  EXPECT_EQ(tangents[1].real(), -1);
}

TEST(Complex, RealNumbersAndNumbersPromote) {
  const Tensor z = numbers({{1, 2}, {3, -1}}, kComplex64);
  const Tensor r = tensor({2.0, 4.0}, TensorOptions(kFloat32, test_device()));
  EXPECT_EQ((z + r).dtype(), kComplex64);
  EXPECT_EQ((z + r.to(kFloat64)).dtype(), kComplex128);
  EXPECT_EQ((z * r.to(kInt64)).dtype(), kComplex64);
  EXPECT_EQ((z * r.to(kFloat16)).dtype(), kComplex64);
  const Tensor turned = mul(r, Scalar(C(0, 1)));
  EXPECT_EQ(turned.dtype(), kComplex64);
  EXPECT_EQ(mul(r.to(kFloat64), Scalar(C(0, 1))).dtype(), kComplex128);
  EXPECT_EQ(mul(r.to(kInt64), Scalar(C(0, 1))).dtype(), kComplex64);
  EXPECT_EQ(list(turned)[1], C(0, 4));
  EXPECT_EQ(list(z * r)[1], C(12, -4));
}

TEST(Complex, OrderIsAnError) {
  const Tensor z = numbers({{1, 2}, {3, -1}});
  EXPECT_THROW(z < z, NotImplementedError);
  EXPECT_THROW(z.max(), Error);
  EXPECT_THROW(z.floor(), NotImplementedError);
  try {
    z.lt(z);
  } catch (const NotImplementedError& e) {
    EXPECT_NE(std::string(e.what()).find("\"lt\" not implemented for 'ComplexDouble'"),
              std::string::npos);
  }
}

TEST(Complex, PartsAreViews) {
  Tensor z = numbers({{1, 2}, {3, -1}});
  imag(z).fill_(7);
  view_as_real(z).select(-1, 0).mul_(Scalar(2));
  EXPECT_EQ(list(z), (std::vector<C>{{2, 7}, {6, 7}}));
  const Tensor pairs = ones({3, 2}, TensorOptions(kFloat32, test_device()));
  view_as_complex(pairs).mul_(Scalar(C(0, 1)));
  EXPECT_EQ(pairs.to(kCPU).to_vector<double>(), (std::vector<double>{-1, 1, -1, 1, -1, 1}));
}

TEST(Complex, WritesThroughPartsKeepHistory) {
  const Tensor a = numbers({{1, 2}, {3, -1}}).requires_grad_();
  const Tensor b = tensor({5.0, 7.0}, TensorOptions(kFloat64, test_device())).requires_grad_();
  Tensor z = a * a;
  imag(z).mul_(b);
  // |z|^2 with z = Re(a^2) + i b Im(a^2)
  (z * conj(z)).sum().abs().backward();
  // At a = 1 + 2i: Re = -3, Im = 4; d/da of Re^2 + b^2 Im^2 by hand.
  const double x = 1, y = 2, s = 5, re = x * x - y * y, im = 2 * x * y;
  const C expected(2 * re * 2 * x + 2 * s * s * im * 2 * y,
                   2 * re * -2 * y + 2 * s * s * im * 2 * x);
  EXPECT_LE(std::abs(list(a.grad())[0] - expected), 1e-10);
  EXPECT_NEAR(b.grad().to(kCPU).to_vector<double>()[0], 2 * s * im * im, 1e-10);
  // A complex view of real memory.
  const Tensor pairs = ones({2, 2}, TensorOptions(kFloat64, test_device())).requires_grad_();
  const Tensor copy = pairs * 2.0;
  view_as_complex(copy).mul_(Scalar(C(0, 1)));  // (2, 2) -> (-2, 2)
  (copy * tensor({1.0, 10.0}, TensorOptions(kFloat64, test_device()))).sum().backward();
  EXPECT_EQ(pairs.grad().to(kCPU).to_vector<double>(), (std::vector<double>{20, -2, 20, -2}));
}

TEST(Complex, InPlaceFormsWriteTheSameMemory) {
  Tensor z = numbers({{1, 2}, {3, -1}});
  const void* memory = z.data_ptr();
  z.mul_(z).add_(Scalar(C(1, 1))).div_(Scalar(2)).exp_();
  EXPECT_EQ(z.data_ptr(), memory);
  const C a(1, 2);
  EXPECT_LE(std::abs(list(z)[0] - std::exp((a * a + C(1, 1)) / 2.0)), 1e-13);
  Tensor r = tensor({1.0, 2.0}, TensorOptions(kFloat64, test_device()));
  EXPECT_THROW(r.mul_(z), TypeError);
}

TEST(Complex, GradientsOfProductsConjugate) {
  const Tensor a = numbers({{1, 2}, {3, -1}, {0, 1}, {2, 2}}).view({2, 2}).requires_grad_();
  const Tensor b = numbers({{0, 1}, {1, 1}, {2, -1}, {1, 0}}).view({2, 2}).requires_grad_();
  view_as_real(matmul(a, b)).sum().backward();  // the incoming gradient is 1 + i everywhere
  const Tensor g = numbers(std::vector<C>(4, C(1, 1))).view({2, 2});
  EXPECT_EQ(difference(a.grad(), matmul(g, conj(b.detach()).mT()).to(kCPU), 2), "");
  EXPECT_EQ(difference(b.grad(), matmul(conj(a.detach()).mT(), g).to(kCPU), 2), "");
}

TEST(Complex, ReductionsAndProducts) {
  const std::vector<C> v{{1, 2}, {3, -1}, {0, 1}};
  const Tensor z = numbers(v);
  EXPECT_LE(std::abs(list(z.mean())[0] - (v[0] + v[1] + v[2]) / 3.0), 1e-15);
  EXPECT_LE(std::abs(list(z.prod())[0] - v[0] * v[1] * v[2]), 1e-14);
  EXPECT_LE(std::abs(list(z.cumprod(0))[1] - v[0] * v[1]), 1e-14);
  EXPECT_LE(std::abs(list(z.cumsum(0))[2] - (v[0] + v[1] + v[2])), 1e-15);
  EXPECT_NEAR(z.norm().item<double>(), 4, 1e-14);  // 5 + 10 + 1 = 16
  EXPECT_TRUE(z.any().item<bool>());
  EXPECT_TRUE(z.all().item<bool>());
  const C center = (v[0] + v[1] + v[2]) / 3.0;
  double spread = 0;
  for (C x : v) spread += std::norm(x - center);
  EXPECT_NEAR(z.var().item<double>(), spread / 2, 1e-14);
}

TEST(Complex, SumsWithoutNan) {
  const Tensor z = numbers({{1, 2}, {NAN, 4}, {3, NAN}, {5, -3}}).requires_grad_();
  EXPECT_EQ(list(nansum(z))[0], C(6, -1));
  const Tensor mean = nanmean(z);
  EXPECT_EQ(list(mean)[0], C(3, -0.5));
  real(mean).backward();
  EXPECT_EQ(list(z.grad())[0], C(0.5));
  EXPECT_EQ(list(z.grad())[1], C(0));
}

TEST(Complex, NanToNumReplacesParts) {
  const Tensor z = numbers({{NAN, 2}, {1, INFINITY}, {-INFINITY, NAN}, {2, 3}});
  const std::vector<C> some{{0, 2}, {1, 7}, {-8, 0}, {2, 3}};
  EXPECT_EQ(list(nan_to_num(z, 0, 7, -8)), some);
  EXPECT_EQ(list(nan_to_num(z))[1], C(1, std::numeric_limits<double>::max()));
}

TEST(Complex, RandomNumbersHaveBothParts) {
  const Tensor z = randn({20000}, TensorOptions(kComplex64, test_device()));
  const Tensor parts = view_as_real(z);
  EXPECT_NEAR(parts.var().item<double>(), 0.5, 0.02);
  EXPECT_NEAR(parts.mean().item<double>(), 0, 0.02);
  EXPECT_NEAR(z.var().item<double>(), 1, 0.04);
  const Tensor u = view_as_real(rand({20000}, TensorOptions(kComplex128, test_device())));
  EXPECT_NEAR(u.select(-1, 0).mean().item<double>(), 0.5, 0.01);
  EXPECT_NEAR(u.select(-1, 1).mean().item<double>(), 0.5, 0.01);
}

}  // namespace
}  // namespace arete::test
