// Complex numbers in operators that are made of others: values against the same computed of the
// parts, and gradients against central differences.
#include <complex>

#include "arete/arete.h"
#include "arete/autograd/gradcheck.h"
#include "arete/ops/complex.h"
#include "tests/support/record_cases.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

using C = std::complex<double>;

Tensor made(IntList sizes, uint64_t seed) {
  ops::SampleMaker maker(kComplex128, test_device(), true, seed);
  return maker.make(sizes);
}
template <class F>
void check_gradients(F f, const std::vector<Tensor>& inputs) {
  const auto g = [&](const std::vector<Tensor>& in) { return std::vector<Tensor>{f(in)}; };
  EXPECT_EQ(autograd::gradcheck(g, inputs), "");
  EXPECT_EQ(autograd::gradgradcheck(g, inputs), "");
}
void expect_same(const Tensor& got, const Tensor& want) {
  EXPECT_EQ(got.dtype(), want.dtype());
  EXPECT_EQ(difference(got.detach(), want.detach().to(kCPU), 16), "");
}
// x * y for complex numbers whose product is bilinear in them.
template <class F>
Tensor of_parts(const Tensor& x, const Tensor& y, F product) {
  const Tensor a = real(x), b = imag(x), c = real(y), d = imag(y);
  return complex(product(a, c) - product(b, d), product(a, d) + product(b, c));
}

TEST(ComplexProducts, ComplexFactors) {
  const Scalar beta(C(1, 2)), alpha(C(-0.5, 1));
  const Tensor self = made({2, 2}, 1), a = made({2, 3}, 2), b = made({3, 2}, 3);
  const auto product = [](const Tensor& x, const Tensor& y) { return matmul(x, y); };
  const auto by_hand = [&](const Tensor& s, const Tensor& p) { return s * beta + p * alpha; };
  expect_same(addmm(self, a, b, beta, alpha), by_hand(self, of_parts(a, b, product)));
  Tensor written = self.detach().clone();
  ops::call_in_place(written, *ops::find_record("addmm"),
                     {written, a.detach(), b.detach(), beta, alpha});
  expect_same(written, by_hand(self, of_parts(a, b, product)));
  const Tensor batch = made({2, 2, 3}, 4), other = made({2, 3, 2}, 5);
  expect_same(baddbmm(self, batch, other, beta, alpha),
              by_hand(self, of_parts(batch, other, product)));
  check_gradients(
      [&](const std::vector<Tensor>& in) { return addmm(in[0], in[1], in[2], beta, alpha); },
      {self, a, b});
  EXPECT_THROW(addmm(real(self), real(a), real(b), beta, 1), TypeError);
  const Tensor index = tensor({0, 1, 0}, TensorOptions(kInt64, test_device()));
  const Tensor source = made({3, 2}, 6);
  const auto added = [&](const std::vector<Tensor>& in) {
    return index_add(in[0], 0, index, in[1], alpha);
  };
  expect_same(added({self, source}), index_add(self, 0, index, source * alpha));
  check_gradients(added, {self, source});
}

TEST(ComplexProducts, LayersAndConvolutions) {
  const auto linear_of = [](const std::vector<Tensor>& in) { return linear(in[0], in[1], in[2]); };
  const std::vector<Tensor> l{made({2, 3}, 1), made({4, 3}, 2), made({4}, 3)};
  expect_same(linear_of(l), matmul(l[0], l[1].mT()) + l[2]);
  check_gradients(linear_of, l);

  const std::vector<Tensor> v{made({1, 2, 5}, 1), made({3, 2, 2}, 2), made({3}, 3)};
  const auto conv = [](const std::vector<Tensor>& in) { return conv1d(in[0], in[1], in[2], 2); };
  expect_same(conv(v), of_parts(v[0], v[1], [](const Tensor& x, const Tensor& w) {
                         return conv1d(x, w, {}, 2);
                       }) + v[2].reshape({1, 3, 1}));
  check_gradients(conv, v);
  const std::vector<Tensor> t{made({1, 3, 3}, 1), made({3, 2, 2}, 2)};
  const auto back = [](const std::vector<Tensor>& in) { return conv_transpose1d(in[0], in[1]); };
  expect_same(back(t), of_parts(t[0], t[1], [](const Tensor& x, const Tensor& w) {
                return conv_transpose1d(x, w);
              }));
  check_gradients(back, t);
}

TEST(ComplexProducts, NothingLosesItsImaginaryPart) {
  const Tensor x = made({2, 4}, 1);
  const Tensor centered = x - x.mean(1, true);
  expect_same(cov(x), matmul(centered, conj(centered).mT()) / Scalar(3));
  expect_same(corrcoef(x).diagonal(), ones({2}, x.options()));
  expect_same(float_power(x, Scalar(2)), x * x);
  expect_same(gradient(x, Scalar(2), std::vector<int64_t>{1})[0].narrow(1, 1, 2),
              (x.narrow(1, 2, 2) - x.narrow(1, 0, 2)) / Scalar(4));
  expect_same(logsumexp(x + Scalar(800), 1), x.exp().sum({1}).log() + Scalar(800));
  check_gradients([](const std::vector<Tensor>& in) { return logsumexp(in[0], 1); }, {x});
  check_gradients([](const std::vector<Tensor>& in) { return cov(in[0]); }, {x});
  EXPECT_EQ(prod(made({0}, 1)).item<C>(), C(1));
  EXPECT_TRUE(prod(made({0}, 1)).requires_grad());
}

TEST(ComplexProducts, ShortTimeTransformsOfComplexSignals) {
  const Tensor x = made({12}, 1), window = made({4}, 2) + Scalar(3);
  const Tensor z =
      ops::call(*ops::find_record("stft"), {x, int64_t(4), int64_t(2), std::nullopt, window, false,
                                            "reflect", false, std::nullopt, std::nullopt});
  EXPECT_EQ(to_string(z.sizes()), "[4, 5]");
  expect_same(z.select(1, 1), fft::fft(x.narrow(0, 2, 4) * window));
  const Tensor y = ops::call(
      *ops::find_record("istft"),
      {z, int64_t(4), int64_t(2), std::nullopt, window, false, false, false, std::nullopt, true});
  expect_same(y, x);
}

}  // namespace
}  // namespace arete::test
