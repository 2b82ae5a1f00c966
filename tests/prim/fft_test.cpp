// Fourier transforms of every small length and some large ones, against the definition.
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <numbers>
#include <type_traits>
#include <vector>

#include "arete/core/layout.h"
#include "arete/prim/backend.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

std::vector<double> noise(int64_t n) {
  std::vector<double> v;
  for (int64_t i = 0; i < n; ++i) v.push_back(std::sin(double(i * i % 9973) + 0.3));
  return v;
}

template <class T>
void run_fft(const std::vector<T>& in, std::vector<T>& out, int64_t lines, bool forward,
             double scale) {
  const Layout layout(Shape{lines, int64_t(in.size()) / (2 * lines), 2});
  const auto view = [&](const std::vector<T>& v) {
    return prim::View(reinterpret_cast<std::byte*>(const_cast<T*>(v.data())),
                      std::is_same_v<T, float> ? kFloat32 : kFloat64, layout.sizes, layout.strides);
  };
  backend_under_test().fft({view(in), view(out), forward, scale});
}

// The largest error of any element, in units of the type's rounding error times log2(n) times the
// root mean square of the results.
template <class T>
double error_against_definition(int64_t n) {
  const std::vector<double> x = noise(2 * n);
  const std::vector<T> in(x.begin(), x.end());
  std::vector<T> out(in.size());
  run_fft(in, out, 1, true, 1.0);
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

TEST(Fft, EveryLengthAgreesWithTheDefinition) {
  for (int64_t n = 1; n <= 260; ++n) {
    EXPECT_LT(error_against_definition<float>(n), 4) << "n " << n;
    // The sum of the definition has errors of its own, which grow with n.
    EXPECT_LT(error_against_definition<double>(n), 40) << "n " << n;
  }
  for (int64_t n : {1024, 1000, 1009, 961, 2187})
    EXPECT_LT(error_against_definition<float>(n), 4) << "n " << n;
}

TEST(Fft, InverseGivesLargeInputsBack) {
  for (int64_t n : {1 << 16, 100003, 3 * 5 * 7 * 11 * 13, 44100}) {
    const std::vector<double> in = noise(2 * 3 * n);
    std::vector<double> out(in.size());
    run_fft(in, out, 3, true, 1.0);
    run_fft(out, out, 3, false, 1.0 / double(n));
    double worst = 0;
    for (size_t i = 0; i < in.size(); ++i) worst = std::max(worst, std::fabs(out[i] - in[i]));
    EXPECT_LT(worst, 1e-13) << "n " << n;
  }
}

}  // namespace
}  // namespace arete::test
