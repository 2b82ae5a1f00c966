// The complex numbers of users' kernels, run on the host beside the standard library's.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <limits>
#include <type_traits>

namespace arete::cuda {
namespace complex_device {

using std::atan2, std::copysign, std::cos, std::cosh, std::exp, std::fabs, std::hypot,
    std::isfinite, std::isinf, std::log, std::log10, std::sin, std::sinh, std::sqrt;

#include "arete/backend/cuda/device/complex.cuh"

}  // namespace complex_device

namespace {

template <class T>
void expect_like_standard(const char* name, complex_device::complex<T> found,
                          std::complex<T> expected) {
  const auto near = [&](T a, T b, const char* part) {
    if (!std::isfinite(b)) {
      EXPECT_EQ(a, b) << name << " " << part;
      return;
    }
    const T size = std::isfinite(std::abs(expected)) ? std::abs(expected) : std::fabs(b);
    EXPECT_NEAR(a, b, 16 * std::numeric_limits<T>::epsilon() * size) << name << " " << part;
  };
  near(found.real(), expected.real(), "real");
  near(found.imag(), expected.imag(), "imaginary");
}

template <class T>
void check_functions() {
  const T large = std::numeric_limits<T>::max(), wide = T(std::is_same_v<T, float> ? 89 : 710);
  using Z = complex_device::complex<T>;
  using S = std::complex<T>;
  for (const S& s : {S(T(0.3), T(-0.7)), S(T(-2), T(1.5)), S(0, 2), S(1, 0), S(30, 1),
                     S(-30, T(0.5)), S(T(0.5), 30), S(100, 0), S(wide, T(1.5))}) {
    const Z z(s.real(), s.imag());
    expect_like_standard<T>("exp", exp(z), std::exp(s));
    expect_like_standard<T>("tanh", tanh(z), std::tanh(s));
    expect_like_standard<T>("tan", tan(z), std::tan(s));
    expect_like_standard<T>("sqrt", sqrt(z), std::sqrt(s));
    expect_like_standard<T>("log", log(z), std::log(s));
    if (std::abs(s) < 40) {
      expect_like_standard<T>("sinh", sinh(z), std::sinh(s));
      expect_like_standard<T>("cosh", cosh(z), std::cosh(s));
      expect_like_standard<T>("sin", sin(z), std::sin(s));
      expect_like_standard<T>("cos", cos(z), std::cos(s));
      expect_like_standard<T>("square", z * z, s * s);
      expect_like_standard<T>("quotient", Z(1, 2) / z, S(1, 2) / s);
      expect_like_standard<T>("pow", pow(z, Z(2, T(0.5))), std::pow(s, S(2, T(0.5))));
    }
  }
  for (const S& s : {S(large, 0), S(large, large), S(-large, large / 3), S(0, large)})
    expect_like_standard<T>("sqrt", sqrt(Z(s.real(), s.imag())), std::sqrt(s));
  EXPECT_EQ(tanh(Z(1000, 1)).real(), 1);
  EXPECT_EQ(sinh(Z(T(1e5), 0)).imag(), 0);
}

TEST(ComplexOfKernels, FunctionsAreThoseOfTheStandard) {
  check_functions<float>();
  check_functions<double>();
}

}  // namespace
}  // namespace arete::cuda
