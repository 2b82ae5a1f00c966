// Fourier transforms beyond what the records' samples cover: every small length and some large
// ones, round trips, gradients of complex inputs.
#include "arete/ops/fft.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <numbers>

#include "arete/autograd/engine.h"
#include "arete/autograd/gradcheck.h"
#include "arete/ops/creation.h"
#include "arete/ops/fft_internal.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/random.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"

namespace arete::test {
namespace {

std::vector<double> noise(int64_t n) {
  std::vector<double> v;
  for (int64_t i = 0; i < n; ++i) v.push_back(std::sin(double(i * i % 9973) + 0.3));
  return v;
}

// The largest error of any element, in units of the type's rounding error times log2(n) times the
// root mean square of the results.
template <class T>
double error_against_definition(int64_t n) {
  const std::vector<double> x = noise(2 * n);
  const std::vector<T> in(x.begin(), x.end());
  std::vector<T> out(in.size());
  ops::fft_lines(in.data(), out.data(), 1, n, true, 1.0);
  std::vector<std::complex<double>> roots;
  for (int64_t k = 0; k < n; ++k)
    roots.push_back(std::polar(1.0, -2 * std::numbers::pi * double(k) / double(n)));
  double worst = 0, squares = 0;
  for (int64_t k = 0; k < n; ++k) {
    std::complex<double> sum = 0;
    for (int64_t j = 0; j < n; ++j)
      sum += std::complex<double>(double(in[size_t(2 * j)]), double(in[size_t(2 * j + 1)])) *
             roots[size_t(j * k % n)];
    const std::complex<double> got{out[size_t(2 * k)], out[size_t(2 * k + 1)]};
    worst = std::max(worst, std::abs(got - sum));
    squares += std::norm(sum);
  }
  const double eps = std::is_same_v<T, float> ? std::ldexp(1.0, -23) : std::ldexp(1.0, -52);
  return worst / (eps * (std::log2(double(n)) + 1) * std::sqrt(squares / double(n)));
}

TEST(FftLines, EveryLengthAgreesWithTheDefinition) {
  for (int64_t n = 1; n <= 260; ++n) {
    EXPECT_LT(error_against_definition<float>(n), 4) << "n " << n;
    // The sum of the definition has errors of its own, which grow with n.
    EXPECT_LT(error_against_definition<double>(n), 40) << "n " << n;
  }
  for (int64_t n : {1024, 1000, 1009, 961, 2187})
    EXPECT_LT(error_against_definition<float>(n), 4) << "n " << n;
}

TEST(FftLines, InverseGivesLargeInputsBack) {
  for (int64_t n : {1 << 16, 100003, 3 * 5 * 7 * 11 * 13, 44100}) {
    const std::vector<double> in = noise(2 * 3 * n);
    std::vector<double> out(in.size());
    ops::fft_lines(in.data(), out.data(), 3, n, true, 1.0);
    ops::fft_lines(out.data(), out.data(), 3, n, false, 1.0 / double(n));
    double worst = 0;
    for (size_t i = 0; i < in.size(); ++i) worst = std::max(worst, std::fabs(out[i] - in[i]));
    EXPECT_LT(worst, 1e-13) << "n " << n;
  }
}

TEST(Fft, RealTransformsAreInverse) {
  for (int64_t n : {1, 2, 7, 8}) {
    const Tensor x = rand({3, n}, TensorOptions(kFloat64));
    EXPECT_TRUE(allclose(fft::irfft(fft::rfft(x), n), x)) << n;
    EXPECT_TRUE(allclose(fft::hfft(fft::ihfft(x), n), x)) << n;
    EXPECT_TRUE(allclose(fft::irfftn(fft::rfftn(x), std::vector<int64_t>{3, n}), x)) << n;
  }
}

TEST(Fft, IntegersBecomeTheDefaultType) {
  EXPECT_EQ(fft::fft(arange(Scalar(4))).dtype(), kComplex64);
  EXPECT_EQ(fft::irfft(arange(Scalar(4))).dtype(), kFloat32);
}

// Complex inputs, whose gradients the records' tests cannot ask for.
TEST(Fft, ComplexInputsHaveGradients) {
  const auto check = [](auto f) {
    Tensor x = rand({2, 3, 2}, TensorOptions(kFloat64)).requires_grad_();
    const autograd::CheckedFunction g = [&](const std::vector<Tensor>& in) {
      const Tensor y = f(view_as_complex_copy(in[0]));
      return std::vector<Tensor>{y.is_floating_point() ? y : view_as_real_copy(y)};
    };
    EXPECT_EQ(autograd::gradcheck(g, {x}), "");
    EXPECT_EQ(autograd::gradgradcheck(g, {x}), "");
  };
  check([](const Tensor& z) { return fft::fft(z, 4); });
  check([](const Tensor& z) { return fft::ifft(z, {}, 0, "ortho"); });
  check([](const Tensor& z) { return fft::irfft(z, 5); });
  check([](const Tensor& z) { return fft::hfft(z); });
  check([](const Tensor& z) { return fft::fft2(z); });
  check([](const Tensor& z) { return fft::irfftn(z); });
  check([](const Tensor& z) { return fft::ifftshift(fft::fftshift(z)); });
}

TEST(Fft, ComplexLeavesGetComplexGradients) {
  Tensor z = view_as_complex_copy(rand({4, 2}, TensorOptions(kFloat64)));
  z.requires_grad_();
  view_as_real_copy(fft::fft(z)).square().sum().backward();
  // |F z|^2 = n |z|^2: the gradient is 2 n z.
  ASSERT_EQ(z.grad().dtype(), kComplex128);
  EXPECT_TRUE(allclose(view_as_real_copy(z.grad()), view_as_real_copy(z.detach()).mul(Scalar(8))));
}

}  // namespace
}  // namespace arete::test
