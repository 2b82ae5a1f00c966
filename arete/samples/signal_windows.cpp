// Samples, references and errors of the records in ops/signal_windows.cpp.
#include <algorithm>
#include <cmath>

#include "arete/ops/creation.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

// The modified Bessel function of order 0 by its series.
double bessel_of_order_0(double x) {
  double term = 1, sum = 1;
  for (int k = 1; k < 200; ++k) sum += term *= x * x / 4 / (double(k) * double(k));
  return sum;
}

const Attached signal_window_op =
    attach("signal_window")
        .samples([](SampleMaker& m) {
          using R = std::vector<double>;
          const auto sample = [&](const char* shape, int n, double last, R numbers) -> Sample {
            return {{shape, n, last, std::move(numbers), m.dtype, m.device}, shape};
          };
          return std::vector<Sample>{sample("general_cosine", 7, 6, {0.42, 0.5, 0.08}),
                                     sample("general_cosine", 4, 4, {0.3}),
                                     sample("kaiser", 6, 5, {12.0}),
                                     sample("kaiser", 2, 2, {0.0}),
                                     sample("exponential", 5, 4, {1.5, 0.7}),
                                     sample("gaussian", 5, 5, {2.5, 1.2}),
                                     sample("cosine", 6, 5, {}),
                                     sample("bartlett", 300, 300, {}),
                                     sample("bartlett", 1, 0, {}),
                                     sample("gaussian", 0, 0, {1.0, 1.0})};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          using R = std::vector<double>;
          return {{{"square", 3, 2.0, R{}, m.dtype, m.device}, ErrorKind::value, "no such shape"},
                  {{"kaiser", 3, 2.0, R{}, m.dtype, m.device},
                   ErrorKind::value,
                   "wrong count of numbers for kaiser"},
                  {{"kaiser", -3, 2.0, R{1.0}, m.dtype, m.device},
                   ErrorKind::value,
                   "length must be non-negative"},
                  {{"cosine", 3, 2.0, R{}, kInt64, m.device},
                   ErrorKind::type,
                   "window functions need a floating dtype"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const std::string_view shape = c[0].string();
          const double last = c.real(2), pi = std::acos(-1.0);
          const std::span<const double> a = c.reals(3);
          return {build_tensor({c.integer(1)}, [&](const Shape& i) {
            const double k = double(i[0]);
            if (c.integer(1) == 1) return 1.0;
            if (shape == "kaiser")
              return bessel_of_order_0(
                         a[0] * std::sqrt(std::max(0.0, 1 - std::pow(2 * k / last - 1, 2)))) /
                     bessel_of_order_0(a[0]);
            if (shape == "exponential") return std::exp(-std::fabs(k - a[0]) / a[1]);
            if (shape == "gaussian") return std::exp(-std::pow((k - a[0]) / a[1], 2) / 2);
            if (shape == "cosine") return std::sin(pi * (k + 0.5) / (last + 1));
            if (shape == "bartlett") return 1 - std::fabs(2 * k / last - 1);
            double sum = 0;
            for (size_t n = 0; n < a.size(); ++n)
              sum += (n % 2 ? -a[n] : a[n]) * std::cos(2 * pi * double(n) * k / last);
            return sum;
          })};
        });

}  // namespace
}  // namespace arete::ops
