// Samples, references and errors of the records in ops/softmax.cpp.
#include <algorithm>
#include <cmath>

#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

// Calls f(row) for the values of each row along `dim`; f returns the new row.
template <class F>
Tensor map_rows(const Tensor& x, int64_t dim, F f) {
  if (x.dim() == 0) return from_values(f(values_of(x)), {});
  if (dim < 0) dim += x.dim();
  std::vector<double> v = values_of(x);
  int64_t inner = 1;
  for (int64_t d = dim + 1; d < x.dim(); ++d) inner *= x.size(d);
  const int64_t n = x.size(dim), rows = n ? x.numel() / n : 0;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t base = r / inner * n * inner + r % inner;
    std::vector<double> row;
    for (int64_t k = 0; k < n; ++k) row.push_back(v[size_t(base + k * inner)]);
    row = f(row);
    for (int64_t k = 0; k < n; ++k) v[size_t(base + k * inner)] = row[size_t(k)];
  }
  return from_values(v, x.sizes());
}

std::vector<double> softmax_row(std::vector<double> row) {
  double m = -INFINITY, s = 0;
  for (double v : row) m = std::max(m, v);
  for (double v : row) s += std::exp(v - m);
  for (double& v : row) v = std::exp(v - m) / s;
  return row;
}

std::vector<double> log_softmax_row(std::vector<double> row) {
  double m = -INFINITY, s = 0;
  for (double v : row) m = std::max(m, v);
  for (double v : row) s += std::exp(v - m);
  for (double& v : row) v = v - m - std::log(s);
  return row;
}

std::vector<Sample> forward_samples(SampleMaker& m) {
  return {{{m.make({2, 3}), 1, std::nullopt}},
          {{m.make({2, 3}), 0, std::nullopt}},
          {{m.make({2, 3, 2}), -2, std::nullopt}, "middle"},
          {{m.make_strided({3, 4}), -1, std::nullopt}},
          {{m.make({5}, -30, 30), 0, std::nullopt}, "wide range"},
          {{m.make({}), -1, std::nullopt}},
          {{m.make({2, 1}), 1, std::nullopt}},
          {{m.make({0, 3}), 1, std::nullopt}},
          {{m.make({3, 0}), 1, std::nullopt}}};
}

std::vector<ErrorSample> forward_errors(SampleMaker& m) {
  return {
      {{m.make({2, 3}), 2, std::nullopt}, ErrorKind::index, "Dimension out of range"},
      {{m.make_index({2, 3}, 4), 1, std::nullopt}, ErrorKind::type, "not implemented for 'int64'"}};
}

std::vector<Sample> backward_samples(SampleMaker& m) {
  return {{{m.make({2, 3}), m.make({2, 3}, 0, 1), 1}},
          {{m.make({2, 3}), m.make_strided({2, 3}, 0, 1), 0}},
          {{m.make({2, 2, 3}), m.make({2, 2, 3}, 0, 1), 1}},
          {{m.make({}), m.make({}, 0, 1), 0}},
          {{m.make({0, 3}), m.make({0, 3}), 1}}};
}

const Attached softmax_op = attach("softmax")
                                .samples(forward_samples)
                                .errors(forward_errors)
                                .reference([](const Call& c) -> std::vector<Tensor> {
                                  return {map_rows(c.tensor(0), c.integer(1), softmax_row)};
                                });
const Attached log_softmax_op = attach("log_softmax")
                                    .samples(forward_samples)
                                    .errors(forward_errors)
                                    .reference([](const Call& c) -> std::vector<Tensor> {
                                      return {map_rows(c.tensor(0), c.integer(1), log_softmax_row)};
                                    });
const Attached softmax_backward_op =
    attach("softmax_backward")
        .samples(backward_samples)
        .reference([](const Call& c) -> std::vector<Tensor> {
          const std::vector<double> g = values_of(c.tensor(0)), y = values_of(c.tensor(1));
          std::vector<double> gy;
          for (size_t i = 0; i < g.size(); ++i) gy.push_back(g[i] * y[i]);
          const std::vector<double> s = values_of(map_rows(
              from_values(gy, c.tensor(0).sizes()), c.integer(2), [](std::vector<double> r) {
                double sum = 0;
                for (double v : r) sum += v;
                return std::vector<double>(r.size(), sum);
              }));
          for (size_t i = 0; i < g.size(); ++i) gy[i] = y[i] * (g[i] - s[i]);
          return {from_values(gy, c.tensor(0).sizes())};
        });
const Attached log_softmax_backward_op =
    attach("log_softmax_backward")
        .samples(backward_samples)
        .reference([](const Call& c) -> std::vector<Tensor> {
          const std::vector<double> g = values_of(c.tensor(0)), y = values_of(c.tensor(1));
          const std::vector<double> s =
              values_of(map_rows(c.tensor(0), c.integer(2), [](std::vector<double> r) {
                double sum = 0;
                for (double v : r) sum += v;
                return std::vector<double>(r.size(), sum);
              }));
          std::vector<double> out;
          for (size_t i = 0; i < g.size(); ++i) out.push_back(g[i] - std::exp(y[i]) * s[i]);
          return {from_values(out, c.tensor(0).sizes())};
        });
const Attached softmin_op =
    attach("softmin")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}), 1, std::nullopt}}, {{m.make({2, 3}), -2, std::nullopt}}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          return {map_rows(c.tensor(0), c.integer(1), [](std::vector<double> r) {
            for (double& v : r) v = -v;
            return softmax_row(r);
          })};
        });
const Attached masked_softmax_op =
    attach("masked_softmax")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({2, 3}), m.make_mask({2, 3})}},
                  {{m.make({2, 2, 3}), m.make_mask({2, 3})}, "mask broadcasts"},
                  {{m.make_strided({3, 3}), m.make({3})}, "additive"},
                  {{m.make({2, 2, 2}), m.make({2, 1, 2})}, "additive"},
                  {{m.make({0, 3}), m.make_mask({3})}}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({2, 3}), m.make_index({2, 3}, 2)},
                   ErrorKind::type,
                   "Expected attn_mask dtype to be bool"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &x = c.tensor(0), &mask = c.tensor(1);
          const bool boolean = mask.dtype() == kBool;
          const Tensor scores = build_tensor(x.sizes(), [&](const Shape& i) {
            return boolean ? (at(mask, i) != 0 ? at(x, i) : -INFINITY) : at(x, i) + at(mask, i);
          });
          return {map_rows(scores, -1, [](std::vector<double> row) {
            double m = -INFINITY;
            for (double v : row) m = std::max(m, v);
            return m == -INFINITY ? std::vector<double>(row.size(), 0.0) : softmax_row(row);
          })};
        });

const Attached causal_softmax_op =
    attach("causal_softmax")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 3})}},
                  {{m.make({2, 4, 2})}, "more rows"},
                  {{m.make_strided({2, 5})}, "more columns"},
                  {{m.make({0, 3, 3})}, "empty"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3})}, ErrorKind::value, "scores must have at least two dimensions"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor& x = c.tensor(0);
          const Tensor scores = build_tensor(x.sizes(), [&](const Shape& i) {
            return i[i.size() - 1] <= i[i.size() - 2] ? at(x, i) : -INFINITY;
          });
          return {map_rows(scores, -1, softmax_row)};
        });

}  // namespace
}  // namespace arete::ops
