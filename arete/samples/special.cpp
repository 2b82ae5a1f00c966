// Samples, references and errors of the records in ops/special.cpp.
#include <cmath>
#include <numbers>

#include "arete/ops/creation.h"
#include "arete/samples/pointwise_samples.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

constexpr double kPi = std::numbers::pi;

double ndtr(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }

double ndtri_reference(double p) {
  double low = -40, high = 40;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (ndtr(middle) < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

double erfcx_reference(double x) {
  const long double wide = x;
  return double(std::exp(wide * wide) * std::erfc(wide));
}

// Many terms and the first corrections of Euler and Maclaurin.
double zeta_reference(double s, double q) {
  constexpr int kTerms = 4000;
  long double sum = 0;
  for (int k = kTerms - 1; k >= 0; --k) sum += std::pow((long double)q + k, -(long double)s);
  const long double w = (long double)q + kTerms, p = std::pow(w, -(long double)s);
  return double(sum + p * w / (s - 1) + p / 2 + p * s / (12 * w));
}

// The power series in long double, which has digits to spare for moderate x.
double igamma_reference(double a, double x, bool upper) {
  long double term = 1, sum = 1;
  for (int k = 1; k < 2000 && term > 1e-22L * sum; ++k) sum += term *= (long double)x / (a + k);
  const long double p = sum * std::exp((long double)a * std::log((long double)x) - x -
                                       std::lgamma((long double)a + 1));
  return double(upper ? 1 - p : p);
}

const Attached entr_op = attach("special_entr")
                             .samples([](SampleMaker& m) {
                               auto all = unary_samples(0.1, 3)(m);
                               Tensor edges = m.make({3});
                               edges.detach().copy_(tensor({-1.0, 0.0, 2.0}));
                               all.push_back({{edges.detach()}, "edges"});
                               return all;
                             })
                             .reference(reference1([](double v) {
                               return v > 0 ? -v * std::log(v) : v == 0 ? 0 : -HUGE_VAL;
                             }));
const Attached erfcx_op =
    attach("special_erfcx").samples(unary_samples(-2, 6)).reference(reference1(erfcx_reference));
const Attached ndtr_op =
    attach("special_ndtr").samples(unary_samples(-4, 4)).reference(reference1(ndtr));
const Attached log_ndtr_op =
    attach("special_log_ndtr").samples(unary_samples(-6, 3)).reference(reference1([](double v) {
      return double(std::log(std::erfc(-(long double)v / std::sqrt(2.0L)) / 2));
    }));
const Attached ndtri_op = attach("special_ndtri")
                              .samples(unary_samples(0.02, 0.98))
                              .reference(reference1(ndtri_reference));
const Attached xlog1py_op =
    attach("special_xlog1py")
        .samples(binary_samples(0.5, 2, -0.5, 2))
        .errors(binary_errors())
        .reference(reference2([](double a, double b) { return a == 0 ? 0 : a * std::log1p(b); }));
std::vector<Sample> zeta_samples(SampleMaker& m) {
  return {{{m.make({2, 3}, 1.5, 6).detach(), m.make({2, 3}, 0.6, 4)}, "equal shapes"},
          {{m.make({2, 1}, 1.5, 6).detach(), m.make({4}, 0.6, 4)}, "broadcast"},
          {{Scalar(3.0), m.make({4}, 0.6, 4)}, "a number"},
          {{Scalar(4.0), m.make({4}, -40.7, -40.3)}, "far below 0"},
          {{m.make({}, 2, 4).detach(), m.make({}, 0.6, 4)}, "0-d"},
          {{m.make({0}, 2, 4).detach(), m.make({0}, 0.6, 4)}, "empty"}};
}

const Attached zeta_op =
    attach("special_zeta").samples(zeta_samples).reference(reference2(zeta_reference));
const Attached polygamma_op =
    attach("polygamma")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{0, m.make({2, 3}, 0.8, 5)}, "digamma"},
                                     {{1, m.make({2, 3}, 0.8, 5)}, "trigamma"},
                                     {{2, m.make_strided({3, 4}, 0.8, 5)}, "second"},
                                     {{3, m.make({}, 0.8, 5)}, "third"},
                                     {{1, m.make({2, 3}, 0.5, 6)}, "trigamma"},
                                     {{2, m.make({3}, -4.7, -4.6)}, "below 0"},
                                     {{3, m.make({3}, -0.4, -0.3)}, "below 0, odd"},
                                     {{20, m.make({3}, 6, 9)}, "a high order"},
                                     {{2, m.make({0}, 0.8, 5)}, "empty"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{{{-1, m.make({2})},
                                           ErrorKind::value,
                                           "polygamma(n, x) does not support negative n."}};
        })
        .reference([](const Call& c) {
          const int64_t n = c.integer(0);
          return std::vector<Tensor>{build_tensor(c.tensor(1).sizes(), [&](const Shape& i) {
            const double x = at(c.tensor(1), i);
            // digamma(x) = digamma(x + 1000) - sum 1 / (x + k).
            if (n == 0) {
              long double shift = 0;
              for (int k = 999; k >= 0; --k) shift += 1 / ((long double)x + k);
              const long double y = (long double)x + 1000, r = 1 / (y * y);
              return double(std::log(y) - 1 / (2 * y) - r / 12 + r * r / 120 - shift);
            }
            return (n % 2 ? 1 : -1) * std::tgamma(double(n) + 1) * zeta_reference(double(n) + 1, x);
          })};
        });
const Attached mvlgamma_op =
    attach("mvlgamma")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({2, 3}, 0.5, 5), 1}, "one"},
                                     {{m.make({2, 3}, 1.6, 5), 3}, "three"},
                                     {{m.make({}, 2.5, 5), 4}, "0-d"}};
        })
        .errors([](SampleMaker& m) {
          return std::vector<ErrorSample>{
              {{m.make({2}), 0}, ErrorKind::value, "p has to be greater than or equal to 1"}};
        })
        .reference([](const Call& c) {
          const double p = double(c.integer(1));
          return std::vector<Tensor>{build_tensor(c.tensor(0).sizes(), [&](const Shape& i) {
            double s = p * (p - 1) / 4 * std::log(kPi);
            for (int j = 0; j < int(p); ++j) s += std::lgamma(at(c.tensor(0), i) - j / 2.0);
            return s;
          })};
        });

std::vector<Sample> igamma_samples(SampleMaker& m) {
  return {{{m.make({2, 3}, 0.3, 5).detach(), m.make({2, 3}, 0.1, 7)}, "small"},
          {{m.make({2, 1}, 8, 14).detach(), m.make({5}, 6, 16)}, "broadcast, larger"},
          {{Scalar(2.5), m.make({4}, 0.6, 4)}, "a number"},
          {{m.make({}, 1, 4).detach(), m.make({}, 0.6, 4)}, "0-d"},
          {{m.make({0}, 1, 4).detach(), m.make({0}, 0.6, 4)}, "empty"}};
}

const Attached igamma_op =
    attach("igamma")
        .samples(igamma_samples)
        .errors(binary_errors())
        .reference(reference2([](double a, double x) { return igamma_reference(a, x, false); }));
const Attached igammac_op =
    attach("igammac")
        .samples(igamma_samples)
        .errors(binary_errors())
        .reference(reference2([](double a, double x) { return igamma_reference(a, x, true); }));

}  // namespace
}  // namespace arete::ops
