// Complex functions of zeros, infinities, NaN and numbers near the ends of the range: what C99's
// Annex G says, which the standard library of C follows.
#include <algorithm>
#include <complex>
#include <limits>
#include <map>

#include "arete/ops/complex.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/samples/reference_util.h"
#include "tests/support/record_cases.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

using C = std::complex<double>;

const std::map<std::string, C (*)(const C&)>& functions() {
  static const std::map<std::string, C (*)(const C&)> all{
      {"sqrt", std::sqrt},   {"exp", std::exp},     {"log", std::log},     {"sin", std::sin},
      {"cos", std::cos},     {"tan", std::tan},     {"sinh", std::sinh},   {"cosh", std::cosh},
      {"tanh", std::tanh},   {"asin", std::asin},   {"acos", std::acos},   {"atan", std::atan},
      {"asinh", std::asinh}, {"acosh", std::acosh}, {"atanh", std::atanh},
  };
  return all;
}

template <class T>
std::vector<double> parts() {
  using Limits = std::numeric_limits<T>;
  const double largest = Limits::max(), root = std::sqrt(largest), inf = HUGE_VAL;
  const double last = std::log(largest) + 0.25;  // exp overflows, half of it does not
  return {0.0,
          -0.0,
          1.0,
          -1.0,
          0.5,
          -3.0,
          20.5,
          last,
          -last,
          Limits::min(),
          -Limits::denorm_min() * 64,
          1e17,
          -root,
          root * 8,
          largest,
          -largest,
          inf,
          -inf,
          NAN,
          M_PI_2};
}

// As it rounds to a part of type T.
template <class T>
C rounded(C z) {
  return {double(T(z.real())), double(T(z.imag()))};
}

bool same_part(double a, double b, double bound) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return std::fabs(a - b) <= bound;
}
template <class T>
bool same(C got, C want) {
  double size = std::numeric_limits<T>::denorm_min();
  for (double v : {want.real(), want.imag()})
    if (std::isfinite(v)) size = std::max(size, std::fabs(v));
  const double bound =
      16 * std::numeric_limits<T>::epsilon() * size + 4 * std::numeric_limits<T>::denorm_min();
  const auto unsigned_beside_nan = [](double v, double other) {
    return std::isnan(other) ? std::fabs(v)
                             : v;  // Annex G leaves the sign of such an infinity open
  };
  return same_part(unsigned_beside_nan(got.real(), got.imag()),
                   unsigned_beside_nan(want.real(), want.imag()), bound) &&
         same_part(unsigned_beside_nan(got.imag(), got.real()),
                   unsigned_beside_nan(want.imag(), want.real()), bound);
}

template <class T>
void check(const std::string& name, C (*function)(const C&), DType dtype) {
  std::vector<C> numbers;
  for (double re : parts<T>())
    for (double im : parts<T>()) numbers.push_back(rounded<T>({re, im}));
  Tensor x = ops::empty_tensor({int64_t(numbers.size())}, kComplex128, kCPU);
  std::copy(numbers.begin(), numbers.end(), static_cast<C*>(x.data_ptr()));
  const ops::OpRecord& op = *ops::find_record(name);
  const Tensor y = ops::call(op, {x.to(dtype).to(test_device())});
  const std::vector<C> got = y.to(kCPU).to_vector<C>();
  for (size_t i = 0; i < numbers.size(); ++i) {
    const C want = rounded<T>(function(numbers[i]));
    EXPECT_TRUE(same<T>(got[i], want)) << name << " of " << name_of(dtype) << " " << numbers[i]
                                       << ": " << got[i] << " instead of " << want;
  }
}

TEST(ComplexSpecialValues, AreThoseOfC99) {
  for (const auto& [name, function] : functions()) {
    check<float>(name, function, kComplex64);
    check<double>(name, function, kComplex128);
  }
}

// The real functions that overflowed before their results do.
TEST(RealFunctions, DoNotOverflowEarly) {
  const std::map<std::string, double (*)(double)> all{
      {"sinh", std::sinh},   {"cosh", std::cosh},   {"asinh", std::asinh},
      {"acosh", std::acosh}, {"log1p", std::log1p},
  };
  for (const auto& [name, function] : all) {
    for (DType t : {kFloat32, kFloat64}) {
      const double largest = max_of(t), last = std::log(largest) + 0.25;
      const std::vector<double> numbers{largest, -largest, std::sqrt(largest) * 8,
                                        last,    -last,    1e15,
                                        -1e15,   HUGE_VAL, -HUGE_VAL,
                                        0.5,     -0.25,    3.0};
      const Tensor x = ops::from_values(numbers, {int64_t(numbers.size())}).to(t);
      const Tensor y = ops::call(*ops::find_record(name), {x.to(test_device())});
      const std::vector<double> in = x.to_vector<double>(), got = y.to(kCPU).to_vector<double>();
      for (size_t i = 0; i < in.size(); ++i) {
        const double exact = function(in[i]);
        const double want = t == kFloat32 ? double(float(exact)) : exact;
        EXPECT_TRUE(same_part(got[i], want, 8 * epsilon_of(t) * std::fabs(want)))
            << name << " of " << name_of(t) << " " << in[i] << ": " << got[i] << " instead of "
            << want;
      }
    }
  }
}

}  // namespace
}  // namespace arete::test
