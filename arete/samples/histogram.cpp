// Samples, references and errors of the records in ops/histogram.cpp.
#include <algorithm>

#include "arete/ops/creation.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {
namespace {

const Attached interval_counts_op =
    attach("interval_counts")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const Tensor x = m.make({50});
          TensorOptions floating = x.options();
          if (!is_floating(x.dtype())) floating = floating.dtype(kFloat64);
          const Tensor edges = linspace(Scalar(-1), Scalar(1.5), 6, floating);
          return {{{x, std::nullopt, 5, -1.0, 1.5}, "by distance"},
                  {{m.make_strided({40}), std::nullopt, 3, -0.5, 1.0}, "strided"},
                  {{x, edges, 5, -1.0, 1.5}, "by edges"},
                  {{edges, edges, 5, -1.0, 1.5}, "on edges"},
                  {{m.make({0}), std::nullopt, 2, 0.0, 1.0}, "of nothing"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const int64_t bins = c.integer(2);
          const double low = c.real(3), high = c.real(4);
          std::vector<double> count(size_t(bins) + 1, 0), edges;
          if (c.has(1)) edges = values_of(c.tensor(1));
          for (const double e : values_of(c.tensor(0))) {
            int64_t k = bins;
            if (c.has(1) ? e >= edges.front() && e <= edges.back() : e >= low && e <= high)
              k = std::min(bins - 1, c.has(1) ? std::upper_bound(edges.begin(), edges.end(), e) -
                                                    edges.begin() - 1
                                              : int64_t((e - low) * double(bins) / (high - low)));
            ++count[size_t(k)];
          }
          return {from_values(count, {bins + 1}).to(kInt64)};
        });

const Attached histc_op =
    attach("histc")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 7}), 5, Scalar(0), Scalar(0)}, "range of the data"},
                  {{m.make_strided({4, 6}), 4, Scalar(-1), Scalar(1.5)}, "given range"},
                  {{m.make({0}), 3, Scalar(0), Scalar(0)}, "empty"},
                  {{m.make({1}), 3, Scalar(0), Scalar(0)}, "one"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          return {{{m.make({3}), 0, Scalar(0), Scalar(0)}, ErrorKind::value, "bins must be > 0"},
                  {{m.make({3}), 2, Scalar(1), Scalar(0)},
                   ErrorKind::value,
                   "max must be larger than min"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const std::vector<double> v = values_of(c.tensor(0));
          double low = c.scalar(2).to_double(), high = c.scalar(3).to_double();
          if (low == high && !v.empty()) {
            low = *std::min_element(v.begin(), v.end());
            high = *std::max_element(v.begin(), v.end());
          }
          if (low == high) low -= 1, high += 1;
          std::vector<double> count(size_t(c.integer(1)), 0);
          for (double e : v)
            if (e >= low && e <= high)
              ++count[std::min(count.size() - 1,
                               size_t((e - low) / (high - low) * double(count.size())))];
          return {from_values(count, {c.integer(1)})};
        });

std::vector<Tensor> counted_reference(const Call& c, const std::vector<double>& edges,
                                      size_t weight, bool density) {
  std::vector<double> count(edges.size() - 1, 0);
  const std::vector<double> v = values_of(c.tensor(0));
  double total = 0;
  for (size_t i = 0; i < v.size(); ++i) {
    if (!(v[i] >= edges.front() && v[i] <= edges.back())) continue;
    size_t k = 0;
    while (k + 1 < count.size() && v[i] >= edges[k + 1]) ++k;
    const double w = c.has(weight) ? values_of(c.tensor(weight))[i] : 1;
    count[k] += w;
    total += w;
  }
  if (density)
    for (size_t k = 0; k < count.size(); ++k) count[k] /= total * (edges[k + 1] - edges[k]);
  return {from_values(count, {int64_t(count.size())}), from_values(edges, {int64_t(edges.size())})};
}

const Attached histogram_op =
    attach("histogram")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const Tensor edges = tensor({-1.5, -0.5, 0.0, 1.0}, TensorOptions(m.dtype, m.device));
          return {{{m.make({3, 7}), edges, std::nullopt, false}, "counts"},
                  {{m.make({12}), edges, m.make({12}, 0.5, 2), true}, "density of weights"}};
        })
        .reference([](const Call& c) {
          return counted_reference(c, values_of(c.tensor(1)), 2, c.boolean(3));
        });
const Attached histogram_count_op =
    attach("histogram.bin_ct")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          return {{{m.make({3, 7}), 5, -1.3, 1.7, std::nullopt, false}, "given range"},
                  {{m.make({12}), 4, std::nullopt, std::nullopt, std::nullopt, true}, "density"},
                  {{m.make({0}), 2, std::nullopt, std::nullopt, std::nullopt, false}, "empty"}};
        })
        .reference([](const Call& c) {
          const std::vector<double> v = values_of(c.tensor(0));
          double low = 0, high = 1;
          if (c.has(2)) {
            low = c.real(2);
            high = c.real(3);
          } else if (!v.empty()) {
            low = *std::min_element(v.begin(), v.end());
            high = *std::max_element(v.begin(), v.end());
          }
          std::vector<double> edges;
          const double n = double(c.integer(1));
          for (int64_t k = 0; k <= c.integer(1); ++k)
            edges.push_back(k == c.integer(1) ? high : low + (high - low) * double(k) / n);
          return counted_reference(c, edges, 4, c.boolean(5));
        });
const Attached histogramdd_op =
    attach("histogramdd")
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const TensorOptions options(m.dtype, m.device);
          const std::vector<Tensor> bins{tensor({-1.5, -0.5, 0.0, 1.0}, options),
                                         tensor({-1.0, 0.5, 2.0}, options)};
          return {{{m.make({9, 2}), bins, std::nullopt, false}, "counts"},
                  {{m.make({3, 4, 2}), bins, m.make({3, 4}, 0.5, 2), true}, "density of weights"},
                  {{m.make({5, 1}), std::vector<Tensor>{bins[0]}, std::nullopt, true}, "one"}};
        })
        .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
          const std::vector<Tensor> one{m.make({3})};
          return {{{m.make({4, 2}), one, std::nullopt, false},
                   ErrorKind::value,
                   "bins must be one 1-d tensor of edges for each element"},
                  {{m.make({4, 1}), one, m.make({3}), false},
                   ErrorKind::value,
                   "weight must have one value for each point"}};
        })
        .reference([](const Call& c) -> std::vector<Tensor> {
          const std::vector<double> v = values_of(c.tensor(0));
          const size_t rank = c.tensors(1).size();
          std::vector<std::vector<double>> edges;
          Shape sizes;
          for (const Tensor& t : c.tensors(1)) {
            edges.push_back(values_of(t));
            sizes.push_back(t.numel() - 1);
          }
          std::vector<double> count(size_t(numel_of(sizes)), 0);
          double total = 0;
          for (size_t i = 0; i * rank < v.size(); ++i) {
            size_t place = 0;
            bool inside = true;
            for (size_t d = 0; d < rank; ++d) {
              const double e = v[i * rank + d];
              inside = inside && e >= edges[d].front() && e <= edges[d].back();
              size_t k = 0;
              while (k + 2 < edges[d].size() && e >= edges[d][k + 1]) ++k;
              place = place * size_t(sizes[d]) + k;
            }
            if (!inside) continue;
            const double w = c.has(2) ? values_of(c.tensor(2))[i] : 1;
            count[place] += w;
            total += w;
          }
          if (c.boolean(3)) {
            size_t place = 0;
            for_each_index(sizes, [&](const Shape& i) {
              double volume = 1;
              for (size_t d = 0; d < rank; ++d)
                volume *= edges[d][size_t(i[d]) + 1] - edges[d][size_t(i[d])];
              count[place++] /= total * volume;
            });
          }
          return {from_values(count, sizes)};
        });

}  // namespace
}  // namespace arete::ops
