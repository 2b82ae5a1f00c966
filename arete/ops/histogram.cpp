// Records of histograms: search in the edges, then scattered additions.
#include <algorithm>
#include <cmath>

#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/numeric.h"
#include "arete/ops/pointwise_family.h"
#include "arete/ops/reduce.h"
#include "arete/ops/search.h"
#include "arete/ops/shape.h"
#include "arete/ops/statistics.h"

namespace arete {
namespace ops {
namespace {

const OpRecord& histc_op =
    define("histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor")
        .doc("How many values lie in each of so many equal intervals.")
        .compose([](const Call& c) -> Results {
          const Tensor x = c.tensor(0).detach().reshape({-1});
          const int64_t bins = c.integer(1);
          ARETE_CHECK(bins > 0, ValueError(c.name(), "bins must be > 0").argument("bins"));
          ARETE_CHECK(!x.is_meta() || c.scalar(2).to_double() != c.scalar(3).to_double(),
                      DeviceError(c.name(), "the range depends on the data"));
          double low = c.scalar(2).to_double(), high = c.scalar(3).to_double();
          ARETE_CHECK(low <= high, ValueError(c.name(), "max must be larger than min"));
          if (low == high && x.numel() > 0) {
            low = x.min().item<double>();
            high = x.max().item<double>();
          }
          if (low == high) {
            low -= 1;
            high += 1;
          }
          ARETE_CHECK(std::isfinite(low) && std::isfinite(high),
                      ValueError(c.name(), "range of [" + Scalar(low).to_string() + ", " +
                                               Scalar(high).to_string() + "] is not finite"));
          const Tensor inside = x.ge(Scalar(low)).logical_and(x.le(Scalar(high)));
          const Tensor wide = x.dtype() == kFloat64 ? x : x.to(kFloat32);
          const Tensor place = wide.sub(Scalar(low))
                                   .mul(Scalar(double(bins) / (high - low)))
                                   .clamp(Scalar(0), Scalar(bins - 1));
          const Tensor at = where(inside, place, Scalar(0)).to(kInt64);
          const Tensor count = scatter_add(zeros({bins}, TensorOptions(kInt64, x.device())), 0, at,
                                           inside.to(kInt64));
          return {count.to(x.dtype())};
        })
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
        })
        .dtypes({kFloat32, kFloat64});

// How many intervals 1-d edges make.
int64_t checked_edges(const Call& c, const Tensor& edges) {
  ARETE_CHECK(edges.dim() == 1 && edges.numel() >= 2,
              ValueError(c.name(), "bins must be a 1-d tensor of at least two edges")
                  .argument("bins")
                  .got(describe(edges)));
  return edges.numel() - 1;
}
// Which elements lie between the first and the last edge.
Tensor within(const Tensor& edges, const Tensor& x) {
  const Tensor first = edges.narrow(0, 0, 1), last = edges.narrow(0, edges.numel() - 1, 1);
  return x.ge(first).logical_and(x.le(last));
}
// The interval of each element; the last one includes its end.
Tensor place_between(const Tensor& edges, const Tensor& x) {
  return searchsorted(edges, x, true).sub(Scalar(1)).clamp(Scalar(0), Scalar(edges.numel() - 2));
}

// Counts of x between edges, in the dtype of x.
Results counted(const Call& c, const Tensor& self, const Tensor& edges, const Tensor& weight,
                bool density) {
  const Tensor x = self.detach().reshape({-1});
  const int64_t bins = checked_edges(c, edges);
  ARETE_CHECK(
      !weight.defined() || weight.layout().sizes == self.layout().sizes,
      ValueError(c.name(), "weight must have the same size as the input").argument("weight"));
  const Tensor each =
      weight.defined() ? weight.detach().reshape({-1}).to(x.dtype()) : ones(x.sizes(), x.options());
  Tensor sums = scatter_add(zeros({bins}, x.options()), 0, place_between(edges, x),
                            where(within(edges, x), each, Scalar(0)));
  if (density) sums = sums.div(sums.sum()).div(diff(edges));
  return {sums, edges};
}
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

const OpRecord& histogram_op =
    define(
        "histogram(Tensor self, Tensor bins, *, Tensor? weight=None, bool density=False) -> "
        "(Tensor hist, Tensor bin_edges)")
        .doc("Counts or densities between given edges.")
        .compose([](const Call& c) -> Results {
          return counted(c, c.tensor(0), c.tensor(1), c.has(2) ? c.tensor(2) : Tensor(),
                         c.boolean(3));
        })
        .no_gradient_test()
        .samples([](SampleMaker& m) -> std::vector<Sample> {
          const Tensor edges = tensor({-1.5, -0.5, 0.0, 1.0}, TensorOptions(m.dtype, m.device));
          return {{{m.make({3, 7}), edges, std::nullopt, false}, "counts"},
                  {{m.make({12}), edges, m.make({12}, 0.5, 2), true}, "density of weights"}};
        })
        .reference([](const Call& c) {
          return counted_reference(c, values_of(c.tensor(1)), 2, c.boolean(3));
        })
        .dtypes({kFloat32, kFloat64});

const OpRecord& histogram_count_op =
    define(
        "histogram_count(Tensor self, int bins=100, *, float? min=None, float? max=None, Tensor? "
        "weight=None, bool density=False) -> (Tensor hist, Tensor bin_edges)")
        .doc("Counts or densities in so many equal intervals of [min, max] or the data's range.")
        .compose([](const Call& c) -> Results {
          const Tensor x = c.tensor(0).detach();
          ARETE_CHECK(c.integer(1) > 0, ValueError(c.name(), "bins must be > 0").argument("bins"));
          ARETE_CHECK(!x.is_meta() || (c.has(2) && c.has(3)),
                      DeviceError(c.name(), "the range depends on the data"));
          const bool given = c.has(2) && c.has(3);
          double low = given ? c.real(2) : 0, high = given ? c.real(3) : 1;
          if (!given && x.numel() > 0) {
            low = x.min().item<double>();
            high = x.max().item<double>();
          }
          ARETE_CHECK(low <= high, ValueError(c.name(), "max must be larger than min"));
          if (low == high) {
            low -= 0.5;
            high += 0.5;
          }
          const Tensor edges = linspace(Scalar(low), Scalar(high), c.integer(1) + 1, x.options());
          return counted(c, x, edges, c.has(4) ? c.tensor(4) : Tensor(), c.boolean(5));
        })
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
        })
        .dtypes({kFloat32, kFloat64});

const OpRecord& histogramdd_op =
    define(
        "histogramdd(Tensor self, Tensor[] bins, *, Tensor? weight=None, bool density=False) -> "
        "Tensor")
        .doc("Counts or densities of points (the last dimension) in a grid of given edges.")
        .surface(Surface::function)
        .compose([](const Call& c) -> Results {
          const Tensor& self = c.tensor(0);
          const std::span<const Tensor> bins = c.tensors(1);
          ARETE_CHECK(self.dim() >= 2 && self.size(-1) == int64_t(bins.size()),
                      ValueError(c.name(),
                                 "bins must be one 1-d tensor of edges for each element "
                                 "of the last dimension of at least two")
                          .argument("bins")
                          .expected(describe(self))
                          .got(std::to_string(bins.size())));
          const Tensor x = self.detach().reshape({-1, self.size(-1)});
          Shape sizes;
          Tensor at, inside;
          for (size_t d = 0; d < bins.size(); ++d) {
            const int64_t count = checked_edges(c, bins[d]);
            const Tensor column = x.select(1, int64_t(d)).contiguous();
            const Tensor place = place_between(bins[d], column);
            const Tensor fits = within(bins[d], column);
            at = at.defined() ? at.mul(Scalar(count)).add(place) : place;
            inside = inside.defined() ? inside.logical_and(fits) : fits;
            sizes.push_back(count);
          }
          Tensor each = ones({x.size(0)}, x.options());
          if (c.has(2)) {
            ARETE_CHECK(c.tensor(2).numel() == x.size(0),
                        ValueError(c.name(), "weight must have one value for each point")
                            .argument("weight")
                            .got(describe(c.tensor(2))));
            each = c.tensor(2).detach().reshape({-1}).to(x.dtype());
          }
          Tensor sums = scatter_add(zeros({numel_of(sizes)}, x.options()), 0, at,
                                    where(inside, each, Scalar(0)))
                            .reshape(sizes);
          if (!c.boolean(3)) return {sums};
          sums = sums.div(sums.sum());
          for (size_t d = 0; d < bins.size(); ++d) {
            Shape along(sizes.size(), 1);
            along[d] = sizes[d];
            sums = sums.div(diff(bins[d]).reshape(along));
          }
          return {sums};
        })
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
        })
        .dtypes({kFloat32, kFloat64});

}  // namespace
}  // namespace ops

Tensor histc(const Tensor& self, int64_t bins, Scalar min, Scalar max) {
  return ops::call(ops::histc_op, {self, bins, min, max});
}
std::tuple<Tensor, Tensor> histogram(const Tensor& self, const Tensor& bins, const Tensor& weight,
                                     bool density) {
  const auto r = ops::call_all(ops::histogram_op, {self, bins, weight, density});
  return {r[0], r[1]};
}
std::tuple<Tensor, Tensor> histogram(const Tensor& self, int64_t bins, std::optional<double> min,
                                     std::optional<double> max, const Tensor& weight,
                                     bool density) {
  const auto r = ops::call_all(ops::histogram_count_op, {self, bins, min, max, weight, density});
  return {r[0], r[1]};
}
Tensor histogramdd(const Tensor& self, const std::vector<Tensor>& bins, const Tensor& weight,
                   bool density) {
  return ops::call(ops::histogramdd_op, {self, bins, weight, density});
}

}  // namespace arete

ARETE_FAMILY(histogram)
