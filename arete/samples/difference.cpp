// Samples, references and errors of the records in ops/difference.cpp.
#include <algorithm>

#include "arete/ops/creation.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "arete/ops/sort.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

const Attached diff_op =
    attach("diff")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 5}), 1, -1, std::nullopt, std::nullopt}, "rows"},
                  {{m.make_strided({4, 3}), 2, 0, std::nullopt, std::nullopt}, "second"},
                  {{m.make({3, 2}), 1, 1, m.make({3, 1}), m.make({3, 2})}, "with ends"},
                  {{m.make({3}), 0, 0, std::nullopt, std::nullopt}, "order 0"},
                  {{m.make({3}), 0, 0, m.make({2}), std::nullopt}, "order 0, with an end"},
                  {{m.make({2}), 4, 0, std::nullopt, std::nullopt}, "nothing left"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({}), 1, -1, std::nullopt, std::nullopt},
                   ErrorKind::value,
                   "diff expects input to be at least one-dimensional"},
                  {{m.make({3}), -1, -1, std::nullopt, std::nullopt},
                   ErrorKind::value,
                   "order must be non-negative but got -1"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          const size_t d = size_t(normalize_dim(c.integer(2), int(x.dim()), "diff"));
          const bool ends = c.integer(1) > 0;
          const int64_t before = ends && c.has(3) ? c.tensor(3).sizes()[d] : 0, n = x.sizes()[d];
          const int64_t all = before + n + (ends && c.has(4) ? c.tensor(4).sizes()[d] : 0);
          const auto element = [&](Shape i) {
            if (i[d] < before) return at(c.tensor(3), i);
            i[d] -= before;
            if (i[d] < n) return at(x, i);
            i[d] -= n;
            return at(c.tensor(4), i);
          };
          Shape sizes(x.sizes());
          sizes[d] = std::max<int64_t>(all - c.integer(1), 0);
          return {build_tensor(sizes, [&](const Shape& i) {
            double s = 0, binomial = 1;  // signed sum with binomial coefficients
            for (int64_t k = 0; k <= c.integer(1); ++k) {
              Shape j = i;
              j[d] += c.integer(1) - k;
              s += binomial * element(j);
              binomial *= -double(c.integer(1) - k) / double(k + 1);
            }
            return s;
          })};
        });

// By Lagrange's weights, for references.
double reference_slope(const std::vector<double>& f, const std::vector<double>& t, size_t i,
                       int64_t edge_order) {
  const size_t n = f.size();
  if (edge_order == 1 && i == 0) return (f[1] - f[0]) / (t[1] - t[0]);
  if (edge_order == 1 && i == n - 1) return (f[n - 1] - f[n - 2]) / (t[n - 1] - t[n - 2]);
  const size_t start = i == 0 ? 0 : i == n - 1 ? n - 3 : i - 1;
  double s = 0;
  for (size_t j = start; j < start + 3; ++j) {
    const size_t k = start + (j - start + 1) % 3, l = start + (j - start + 2) % 3;
    s += f[j] * ((t[i] - t[k]) + (t[i] - t[l])) / ((t[j] - t[k]) * (t[j] - t[l]));
  }
  return s;
}

template <class Coordinates>
std::vector<Tensor> gradient_reference(const Call& c, size_t dims_arg, int64_t edge_order,
                                       Coordinates coordinates) {
  const Tensor& x = c.tensor(0);
  std::vector<Tensor> out;
  Shape dims;
  for (int64_t d = 0; d < x.dim(); ++d) dims.push_back(d);
  if (c.has(dims_arg)) dims = Shape(c.ints(dims_arg));
  size_t which = 0;
  for (int64_t d : dims) {
    if (d < 0) d += x.dim();
    const std::vector<double> t = coordinates(which++, x.size(d));
    out.push_back(build_tensor(x.sizes(), [&](const Shape& i) {
      std::vector<double> f;
      Shape j = i;
      for (j[size_t(d)] = 0; j[size_t(d)] < x.size(d); ++j[size_t(d)]) f.push_back(at(x, j));
      return reference_slope(f, t, size_t(i[size_t(d)]), edge_order);
    }));
  }
  return out;
}

const Attached gradient_op =
    attach("gradient")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({4, 3}), std::nullopt, std::nullopt, 1}, "all"},
                  {{m.make({5}), Scalar(0.5), {0}, 2}, "second order ends"},
                  {{m.make_strided({3, 4}), Scalar(2), {-1}, 1}, "one dim"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({4}), std::nullopt, std::nullopt, 3},
                   ErrorKind::value,
                   "torch.gradient only supports edge_order=1 and edge_order=2."},
                  {{m.make({1}), std::nullopt, std::nullopt, 1},
                   ErrorKind::value,
                   "torch.gradient expected each dimension size to be at least edge_order+1"}};
        })
        .reference([](const Call& c) {
          return gradient_reference(c, 2, c.integer(3), [&](size_t, int64_t n) {
            std::vector<double> t;
            for (int64_t k = 0; k < n; ++k)
              t.push_back(double(k) * (c.has(1) ? c.scalar(1).to_double() : 1));
            return t;
          });
        });
const Attached gradient_coordinates_op =
    attach("gradient.tensorarray")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const auto rising = [&](int64_t n) { return m.make({n}, 0.5, 1.5).detach().cumsum(0); };
          return {{{m.make({4, 3}), std::vector<Tensor>{rising(4), rising(3)}, std::nullopt, 1},
                   "coordinates"},
                  {{m.make({5, 2}), std::vector<Tensor>{rising(5)}, {0}, 2}, "second order ends"},
                  {{m.make({3}), std::vector<Tensor>{m.make({}, 1, 2).detach()}, {0}, 1}, "step"}};
        })
        .reference([](const Call& c) {
          return gradient_reference(c, 2, c.integer(3), [&](size_t k, int64_t n) {
            const std::vector<double> given = values_of(c.tensors(1)[k]);
            if (c.tensors(1)[k].dim() == 1) return given;
            std::vector<double> t;
            for (int64_t i = 0; i < n; ++i) t.push_back(double(i) * given[0]);
            return t;
          });
        });

const Attached trapezoid_area_op =
    attach("trapezoid_area")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}), m.make({2, 3}), m.make({2, 3}), m.make({2, 3})}, "rows"},
                  {{m.make_strided({2, 3}), m.make({2, 3}), m.make({3}), m.make({3})},
                   "one row of coordinates"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          return {build_tensor(c.tensor(0).sizes(), [&](const Shape& i) {
            const auto value = [&](size_t k) {
              const Tensor& t = c.tensor(k);
              return at(t, t.dim() == 1 ? IntList(&i[1], 1) : IntList(i));
            };
            return (value(0) + value(1)) * (value(3) - value(2)) / 2;
          })};
        });

std::vector<Sample> trapezoid_samples(SampleMaker& m) {
  return {{{m.make({3, 4}), std::nullopt, Scalar(1), -1}, "unit steps"},
          {{m.make_strided({4, 3}), std::nullopt, Scalar(0.5), 0}, "steps"},
          {{m.make({3, 4}), m.make({4}), Scalar(1), 1}, "coordinates"},
          {{m.make({2, 3}), m.make({2, 3}), Scalar(1), 0}, "coordinates for each"},
          {{m.make({2, 1}), std::nullopt, Scalar(1), -1}, "one point"}};
}

std::vector<ErrorSample> trapezoid_errors(SampleMaker& m) {
  return {{{m.make({2, 3}), m.make({4}), Scalar(1), -1},
           ErrorKind::value,
           "There must be one `x` value for each sample point"}};
}

// f(areas) for each row along dim: the whole, or each partial sum.
std::vector<Tensor> trapezoid_reference(const Call& c, bool running) {
  const Tensor& y = c.tensor(0);
  const size_t d = size_t(normalize_dim(c.integer(3), int(y.dim()), "trapezoid"));
  Shape sizes(y.sizes());
  if (running)
    sizes[d] -= 1;
  else
    sizes.erase(sizes.begin() + int64_t(d));
  return {build_tensor(sizes, [&](const Shape& i) {
    Shape j = i;
    if (!running) j.insert(j.begin() + int64_t(d), 0);
    const int64_t end = running ? i[d] + 1 : y.sizes()[d] - 1;
    double s = 0;
    for (int64_t k = 0; k < end; ++k) {
      Shape next = j;
      j[d] = k;
      next[d] = k + 1;
      double h = c.scalar(2).to_double();
      if (c.has(1))
        h = c.tensor(1).dim() == 1 ? at(c.tensor(1), Shape{k + 1}) - at(c.tensor(1), Shape{k})
                                   : at(c.tensor(1), next) - at(c.tensor(1), j);
      s += h * (at(y, j) + at(y, next)) / 2;
    }
    return s;
  })};
}

const Attached trapezoid_op =
    attach("trapezoid")
        .samples(trapezoid_samples)
        .errors(trapezoid_errors)
        .reference([](const Call& c) { return trapezoid_reference(c, false); });
const Attached cumulative_trapezoid_op =
    attach("cumulative_trapezoid")
        .samples(trapezoid_samples)
        .errors(trapezoid_errors)
        .reference([](const Call& c) { return trapezoid_reference(c, true); });

}  // namespace
}  // namespace arete::ops
