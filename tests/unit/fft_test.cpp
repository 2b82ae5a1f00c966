// Fourier transforms beyond what the records' samples cover: round trips, gradients of complex
// inputs. Their primitive is tested in tests/prim/.
#include "arete/ops/fft.h"

#include <gtest/gtest.h>

#include "arete/autograd/engine.h"
#include "arete/autograd/gradcheck.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/random.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"

namespace arete::test {
namespace {

TEST(Fft, RealTransformsAreInverse) {
  for (int64_t n : {1, 2, 7, 8}) {
    const Tensor x = rand({3, n}, TensorOptions(kFloat64));
    EXPECT_TRUE(allclose(fft::irfft(fft::rfft(x), n), x)) << n;
    EXPECT_TRUE(allclose(fft::hfft(fft::ihfft(x), n), x)) << n;
    EXPECT_TRUE(allclose(fft::irfftn(fft::rfftn(x), std::vector<int64_t>{3, n}), x)) << n;
  }
}

// Lines that lie beside each other with a step of two, up to the end of their memory.
TEST(Fft, LinesOfOverlappingWindows) {
  for (DType t : {kFloat32, kFloat64})
    for (int64_t width = 1; width <= 7; ++width)
      for (int64_t lines : {1, 3, 8, 16, 17}) {
        const Tensor x = rand({2 * (lines - 1) + width}, TensorOptions(t));
        const Tensor windows = x.unfold(0, width, 2);
        for (int64_t n : {width, width + 1}) {
          const Tensor got = fft::rfft(windows, n), want = fft::rfft(windows.contiguous(), n);
          EXPECT_TRUE(allclose(view_as_real_copy(got), view_as_real_copy(want), 1e-5, 1e-5))
              << width << " " << lines;
        }
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
