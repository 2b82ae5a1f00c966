// Samples, references and errors of the records in ops/linalg_distance.cpp.
#include <algorithm>
#include <cmath>

#include "arete/ops/complex.h"
#include "arete/ops/creation.h"
#include "arete/ops/linalg_internal.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/samples/linalg_samples.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

// p-norm by plain loops.
double length_of(const std::vector<double>& v, double p) {
  double s = 0, big = 0;
  for (double e : v) {
    const double a = std::fabs(e);
    s += p == 0 ? a != 0 : std::pow(a, p);
    big = std::max(big, a);
  }
  return std::isinf(p) ? big : p == 0 ? s : std::pow(s, 1 / p);
}

const Attached dist_op =
    attach("dist")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}, 0, 1), m.make({2, 3}, 1.5, 2), Scalar(2)}},
                  {{m.make({2, 3}, 0, 1), m.make({3}, 1.5, 2), Scalar(3)}, "broadcast"},
                  {{m.make({4}), m.make({4}), Scalar(HUGE_VAL)}, "largest"},
                  {{m.make({0}), m.make({0}), Scalar(2)}, "empty"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Shape sizes = broadcast_shapes(c.tensor(0).sizes(), c.tensor(1).sizes(), "");
          std::vector<double> v;
          for_each_index(
              sizes, [&](const Shape& i) { v.push_back(at(c.tensor(0), i) - at(c.tensor(1), i)); });
          return {from_values({length_of(v, c.real(2))}, {})};
        });
const Attached renorm_op =
    attach("renorm")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 4}, 0.5, 2), Scalar(2), 0, Scalar(1.5)}},
                  {{m.make({2, 3, 2}, 0.5, 2), Scalar(1), 1, Scalar(4)}, "some below"},
                  {{m.make_strided({3, 2}, 0.5, 2), Scalar(3), -1, Scalar(100)}, "all below"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3}), Scalar(2), 0, Scalar(1)},
                   ErrorKind::value,
                   "input needs at least 2 dimensions, got 1 dimensions"},
                  {{m.make({3, 2}), Scalar(0), 0, Scalar(1)},
                   ErrorKind::value,
                   "non-positive-norm not supported"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          const size_t d = size_t(normalize_dim(c.integer(2), int(x.dim()), ""));
          return {build_tensor(x.sizes(), [&](const Shape& i) {
            std::vector<double> v;
            for_each_index(x.sizes(), [&](const Shape& j) {
              if (j[d] == i[d]) v.push_back(at(x, j));
            });
            const double length = length_of(v, c.real(1));
            return length > c.real(3) ? at(x, i) * c.real(3) / (length + 1e-7) : at(x, i);
          })};
        });
const Attached product_distance_op =
    attach("product_distance")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 2}, -1, 1), m.make({3, 1}, 2.5, 4), m.make({1, 2}, 2.5, 4)}},
                  {{m.make({2}, 2, 3), m.make({2}, 0, 1), m.make({2}, 0, 1)}, "rounded below 0"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Shape sizes =
              broadcast_shapes(broadcast_shapes(c.tensor(0).sizes(), c.tensor(1).sizes(), ""),
                               c.tensor(2).sizes(), "");
          return {build_tensor(sizes, [&](const Shape& i) {
            const double square = at(c.tensor(1), i) + at(c.tensor(2), i) - 2 * at(c.tensor(0), i);
            return std::sqrt(std::max(square, 0.0));
          })};
        });
const Attached cdist_op =
    attach("cdist")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const char* usual = "use_mm_for_euclid_dist_if_necessary";
          return {{{m.make({3, 2}, 0, 1), m.make({2, 2}, 1.5, 2), 2.0, usual}},
                  {{m.make({2, 1, 3, 2}, 0, 1), m.make({2, 2, 2}, 1.5, 2), 1.0, usual}, "batch"},
                  {{m.make({3, 2}, 0, 1), m.make({2, 2}, 1.5, 2), 3.0, usual}, "p 3"},
                  {{m.make({3, 2}), m.make({2, 2}), HUGE_VAL, usual}, "largest"},
                  {{m.make({3, 2}, 0, 1), m.make({2, 2}, 1.5, 2), 2.0, "use_mm_for_euclid_dist"},
                   "by product"},
                  {{m.make({0, 2}), m.make({3, 2}), 2.0, usual}, "empty"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3, 2}), m.make({3, 3}), 2.0, "use_mm_for_euclid_dist"},
                   ErrorKind::value,
                   "X1 and X2 must have the same number of columns. X1: 2 X2: 3"},
                  {{m.make({3}), m.make({3, 3}), 2.0, "use_mm_for_euclid_dist"},
                   ErrorKind::value,
                   "cdist only supports at least 2D tensors, X1 got: 1D"},
                  {{m.make({3, 3}), m.make({3, 3}), 2.0, "fast"},
                   ErrorKind::value,
                   "fast is not a valid value for compute_mode"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &a = c.tensor(0), &b = c.tensor(1);
          Shape sizes = broadcast_shapes(batch_sizes(a.sizes()), batch_sizes(b.sizes()), "");
          const size_t n = sizes.size();
          sizes.push_back(a.size(-2));
          sizes.push_back(b.size(-2));
          return {build_tensor(sizes, [&](const Shape& i) {
            std::vector<double> v;
            for (int64_t k = 0; k < a.size(-1); ++k) {
              const IntList batch = IntList(i).first(n);
              v.push_back(at(a, with_sizes(batch, {i[n], k})) -
                          at(b, with_sizes(batch, {i[n + 1], k})));
            }
            return length_of(v, c.real(2));
          })};
        });
const Attached pdist_op =
    attach("pdist")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make_distinct({4, 3}, 0.3), 2.0}},
                  {{m.make_distinct({3, 2}, 0.3), 1.0}},
                  {{m.make({1, 2}), 2.0}, "no pairs"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {
              {{m.make({3}), 2.0}, ErrorKind::value, "pdist only supports 2D tensors, got: 1D"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          std::vector<double> all;
          for (int64_t i = 0; i < x.size(0); ++i) {
            for (int64_t j = i + 1; j < x.size(0); ++j) {
              std::vector<double> v;
              for (int64_t k = 0; k < x.size(1); ++k) v.push_back(at(x, {i, k}) - at(x, {j, k}));
              all.push_back(length_of(v, c.real(1)));
            }
          }
          return {from_values(all, {int64_t(all.size())})};
        });
const Attached cov_op =
    attach("cov")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const auto counts = [&] { return m.make_index({4}, 3).add(Scalar(1)); };
          return {{{m.make({3, 4}), 1, std::nullopt, std::nullopt}},
                  {{m.make({3, 4}), 0, counts(), std::nullopt}, "fweights"},
                  {{m.make({2, 4}), 1, std::nullopt, m.make({4}, 0.5, 1)}, "aweights"},
                  {{m.make({2, 4}), 1, counts(), m.make({4}, 0.5, 1)}, "both"},
                  {{m.make({5}), 1, std::nullopt, std::nullopt}, "one variable"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 2, 2}), 1, std::nullopt, std::nullopt},
                   ErrorKind::value,
                   "cov(): expected input to have two or fewer dimensions but got an input with 3"},
                  {{m.make({2, 4}), 1, m.make({4}), std::nullopt},
                   ErrorKind::type,
                   "cov(): expected fweights to have integral dtype"},
                  {{m.make({2, 4}), 1, m.make_index({3}, 2), std::nullopt},
                   ErrorKind::value,
                   "to have the same numel as there are observations"},
                  {{m.make({2, 4}), 1, std::nullopt, m.make({4}, -2, -1)},
                   ErrorKind::value,
                   "cov(): aweights cannot be negative"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          const int64_t n = x.size(-1), rows = x.dim() < 2 ? 1 : x.size(0);
          const std::vector<double> v = values_of(x);
          std::vector<double> w(size_t(n), 1.0), a(size_t(n), 1.0);
          double total = 0, squares = 0;
          for (int64_t k = 0; k < n; ++k) {
            if (c.has(3)) a[size_t(k)] = at(c.tensor(3), {k});
            w[size_t(k)] = a[size_t(k)] * (c.has(2) ? at(c.tensor(2), {k}) : 1);
            total += w[size_t(k)];
            squares += w[size_t(k)] * a[size_t(k)];
          }
          const double correction = double(c.integer(1));
          const double degrees = total - correction * (c.has(3) ? squares / total : 1);
          const auto mean = [&](int64_t i) {
            double s = 0;
            for (int64_t k = 0; k < n; ++k) s += w[size_t(k)] * v[size_t(i * n + k)];
            return s / total;
          };
          Shape sizes;
          if (rows > 1) sizes = Shape{rows, rows};
          std::vector<double> all;
          for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = 0; j < rows; ++j) {
              double s = 0;
              for (int64_t k = 0; k < n; ++k)
                s += w[size_t(k)] * (v[size_t(i * n + k)] - mean(i)) *
                     (v[size_t(j * n + k)] - mean(j));
              all.push_back(s / degrees);
            }
          }
          return {from_values(all, sizes)};
        });
const Attached corrcoef_op =
    attach("corrcoef")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 5})}}, {{m.make({4})}, "one variable"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 2, 2})},
                   ErrorKind::value,
                   "corrcoef(): expected input to have two or fewer dimensions"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          if (x.dim() < 2) return {from_values({1}, {})};
          const int64_t n = x.size(1);
          const auto product = [&](int64_t i, int64_t j) {
            double a = 0, b = 0, s = 0;
            for (int64_t k = 0; k < n; ++k) {
              a += at(x, {i, k}) / double(n);
              b += at(x, {j, k}) / double(n);
            }
            for (int64_t k = 0; k < n; ++k) s += (at(x, {i, k}) - a) * (at(x, {j, k}) - b);
            return s;
          };
          return {build_tensor({x.size(0), x.size(0)}, [&](const Shape& i) {
            return product(i[0], i[1]) / std::sqrt(product(i[0], i[0]) * product(i[1], i[1]));
          })};
        });

}  // namespace
}  // namespace arete::ops
