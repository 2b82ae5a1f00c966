// Samples, references and errors of the records in ops/scan.cpp.
#include <algorithm>
#include <cmath>

#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

const Attached reverse_cumsum_op =
    attach("reverse_cumsum")
        .samples([](SampleMaker& m) {
          return std::vector<Sample>{{{m.make({3, 4}), 1}, "rows"},
                                     {{m.make({3, 4}), 0}, "columns"}};
        })
        .reference([](const Call& c) {
          const Tensor& x = c.tensor(0);
          const size_t d = size_t(normalize_dim(c.integer(1), int(x.dim()), "scan"));
          return std::vector<Tensor>{build_tensor(x.sizes(), [&](const Shape& i) {
            double s = 0;
            for (Shape j = i; j[d] < x.sizes()[d]; ++j[d]) s += at(x, j);
            return s;
          })};
        });

std::vector<Sample> scan_samples(SampleMaker& m) {
  return {{{m.make({3, 4}), 1, std::nullopt}, "rows"},
          {{m.make({3, 4}), 0, std::nullopt}, "columns"},
          {{m.make({2, 3, 2}), -2, std::nullopt}, "middle"},
          {{m.make_strided({3, 4}), 1, std::nullopt}, "strided"},
          {{m.make({3, 4}), 1, kFloat64}, "dtype"},
          {{m.make({}), 0, std::nullopt}, "0-d"},
          {{m.make({0, 2}), 0, std::nullopt}, "empty"}};
}

template <class F>
Reference scan_reference(F f) {
  return [f](const Call& c) {
    const Tensor& x = c.tensor(0);
    const int d = normalize_dim(c.integer(1), int(x.dim()), "scan");
    return std::vector<Tensor>{build_tensor(
        x.sizes(),
        [&](const Shape& i) {
          if (i.empty()) return at(x, i);
          Shape j = i;
          j[size_t(d)] = 0;
          double s = at(x, j);
          for (j[size_t(d)] = 1; j[size_t(d)] <= i[size_t(d)]; ++j[size_t(d)]) s = f(s, at(x, j));
          return s;
        },
        x.dtype() == kFloat64 || c.has(2) ? kFloat64 : kInt64)};
  };
}

std::vector<ErrorSample> scan_errors(SampleMaker& m) {
  return {{{m.make({2, 3}), 2, std::nullopt}, ErrorKind::index, "Dimension out of range"}};
}

const Attached cumsum_op = attach("cumsum")
                               .samples(scan_samples)
                               .errors(scan_errors)
                               .reference(scan_reference([](double a, double b) { return a + b; }));
const Attached cumprod_op =
    attach("cumprod")
        .samples([](SampleMaker& m) {
          auto all = scan_samples(m);
          Tensor with_zero = m.make({2, 3}, 0.5, 2);
          with_zero.detach().select(1, 1).zero_();
          all.push_back({{with_zero, 1, std::nullopt}, "zeros"});
          return all;
        })
        .errors(scan_errors)
        .reference(scan_reference([](double a, double b) { return a * b; }));

const Attached linear_scan_op =
    attach("linear_scan")
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 4}), m.make({3, 4}), 1, false}, "rows"},
                  {{m.make({5, 3}), m.make({5, 3}), 0, true}, "columns, from the end"},
                  {{m.make({2, 6}), m.make_strided({2, 6}), 1, true}, "strided factors"},
                  {{m.make({70}), m.make({70}), 0, false}, "long"},
                  {{m.make({2, 1}), m.make({2, 1}), -1, false}, "one"},
                  {{m.make({}), m.make({}), 0, false}, "0-d"},
                  {{m.make({0, 2}), m.make({0, 2}), 0, false}, "empty"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const Tensor &x = c.tensor(0), &factors = c.tensor(1);
          if (x.dim() == 0) return {from_values(values_of(x), {})};
          const size_t d = size_t(normalize_dim(c.integer(2), int(x.dim()), "linear_scan"));
          const int64_t n = x.sizes()[d];
          return {build_tensor(x.sizes(), [&](const Shape& i) {
            const int64_t step = c.boolean(3) ? -1 : 1;
            Shape j = i;
            double carry = 0;
            for (j[d] = c.boolean(3) ? n - 1 : 0;; j[d] += step) {
              const double y = at(x, j) + carry;
              if (j[d] == i[d]) return y;
              carry = y * at(factors, j);
            }
          })};
        });

std::vector<Sample> running_samples(SampleMaker& m) {
  return {{{m.make_distinct({3, 4}), 1}, "rows"},
          {{m.make_distinct({3, 4}), 0}, "columns"},
          {{m.make_distinct({2, 3, 2}), -2}, "middle"},
          {{m.make_distinct({}), 0}, "0-d"},
          {{m.make_distinct({0, 2}), 0}, "empty"}};
}

Reference running_reference(bool largest) {
  return [largest](const Call& c) -> std::vector<Tensor> {
    const Tensor& x = c.tensor(0);
    if (x.dim() == 0) return {from_values(values_of(x), {}), from_values({0}, {}, kInt64)};
    const size_t d = size_t(normalize_dim(c.integer(1), int(x.dim()), "cummax"));
    std::vector<double> values, positions;
    for_each_index(x.sizes(), [&](const Shape& i) {
      Shape j = i;
      j[d] = 0;
      double best = at(x, j);
      int64_t where = 0;
      for (j[d] = 1; j[d] <= i[d]; ++j[d]) {
        const double v = at(x, j);
        if (largest ? v < best : v > best) continue;
        best = v;
        where = j[d];
      }
      values.push_back(best);
      positions.push_back(double(where));
    });
    return {from_values(values, x.sizes()), from_values(positions, x.sizes(), kInt64)};
  };
}

std::vector<ErrorSample> running_errors(SampleMaker& m) {
  return {{{m.make({2, 3}), 2}, ErrorKind::index, "Dimension out of range"}};
}

const Attached cummax_op = attach("cummax")
                               .samples(running_samples)
                               .errors(running_errors)
                               .reference(running_reference(true));
const Attached cummin_op = attach("cummin")
                               .samples(running_samples)
                               .errors(running_errors)
                               .reference(running_reference(false));
std::vector<Sample> logarithm_samples(SampleMaker& m) {
  return {{{m.make({2, 5}), 1}, "rows"},
          {{m.make_strided({3, 4}), 0}, "columns, strided"},
          {{m.make({4}, -40, 40), -1}, "wide range"},
          {{m.make({33}, -3, 3), 0}, "long"},
          {{m.make({}), 0}, "0-d"},
          {{m.make({2, 1}), 1}, "one"}};
}
Reference logarithm_reference() {
  return [](const Call& c) -> std::vector<Tensor> {
    const Tensor& x = c.tensor(0);
    if (x.dim() == 0) return {from_values(values_of(x), {})};
    const size_t d = size_t(normalize_dim(c.integer(1), int(x.dim()), "logcumsumexp"));
    return {build_tensor(x.sizes(), [&](const Shape& i) {
      double top = -INFINITY, s = 0;
      Shape j = i;
      for (j[d] = 0; j[d] <= i[d]; ++j[d]) top = std::max(top, at(x, j));
      for (j[d] = 0; j[d] <= i[d]; ++j[d]) s += std::exp(at(x, j) - top);
      return top + std::log(s);
    })};
  };
}
const Attached logcumsumexp_op = attach("logcumsumexp")
                                     .samples(logarithm_samples)
                                     .errors(running_errors)
                                     .reference(logarithm_reference());
const Attached wide_logcumsumexp_op =
    attach("wide_logcumsumexp").samples(logarithm_samples).reference(logarithm_reference());

}  // namespace
}  // namespace arete::ops
