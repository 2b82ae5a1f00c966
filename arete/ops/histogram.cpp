// Records of histograms: search in the edges, then scattered additions.
#include <algorithm>
#include <cmath>

#include "arete/expr/program_cache.h"
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

using expr::Value;
using Values = std::span<const Value>;

// How many values have places at a time: these take more memory than the values.
int64_t piece_of(const Tensor& x) { return x.device().is_cpu() ? 1 << 16 : 1 << 22; }

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
          // A value's place; those that do not count go behind the last.
          static auto* const cache = new expr::ProgramCache;
          const expr::Type work = expr::work_type(x.dtype());
          const expr::Program& program =
              cache->get(pack_key({int(x.dtype())}), {x.dtype()},
                         {work, work, work, expr::Type::i64}, {kInt64}, [=](Values v) {
                           const Value z = cast(v[0], work), inside = (z >= v[1]) & (z <= v[2]);
                           const Value place = cast(max((z - v[1]) * v[3], 0.0), expr::Type::i64);
                           return std::vector{where(inside, min(place, v[4] - 1), v[4])};
                         });
          const Scalar numbers[] = {Scalar(low), Scalar(high), Scalar(double(bins) / (high - low)),
                                    Scalar(bins)};
          const TensorOptions o(kInt64, x.device());
          Tensor count = zeros({bins + 1}, o);
          for (int64_t at = 0, step = piece_of(x); at < x.numel(); at += step) {
            const Tensor piece = x.narrow(0, at, std::min(step, x.numel() - at));
            const Tensor place =
                apply_program(program.shared_from_this(), {&piece, 1}, numbers, c.name())[0];
            count.scatter_add_(0, place, ones({}, o).expand(place.sizes()));
          }
          count = count.narrow(0, 0, bins);
          return {count.to(x.dtype())};
        })
        .dtypes({kFloat32, kFloat64});

void check_edges(const Call& c, const Tensor& edges) {
  ARETE_CHECK(edges.dim() == 1 && edges.numel() >= 2,
              ValueError(c.name(), "bins must be a 1-d tensor of at least two edges")
                  .argument("bins")
                  .got(describe(edges)));
}
// Where elements lie in a grid with one more dimension than `at` has (none: in one of one
// dimension), whose last interval includes its end; `outside` for those that lie in no interval.
Tensor places_between(const Tensor& edges, const Tensor& x, const Tensor& at, int64_t outside) {
  static auto* const cache = new expr::ProgramCache;
  const int64_t n = edges.numel();
  std::vector<Tensor> inputs{searchsorted(edges, x, true), x, edges.narrow(0, 0, 1),
                             edges.narrow(0, n - 1, 1)};
  std::vector<DType> types{kInt64, x.dtype(), edges.dtype(), edges.dtype()};
  const bool more = at.defined();
  if (more) {
    inputs.push_back(at);
    types.push_back(kInt64);
  }
  const expr::Program& program = cache->get(
      pack_key({int(x.dtype()), int(edges.dtype()), more}), types,
      {expr::Type::i64, expr::Type::i64}, {kInt64}, [=](Values v) {
        const expr::Type common = expr::compute_type(promote_types(types[1], types[2]));
        const size_t given = types.size();
        const Value z = cast(v[1], common), count = v[given], none = v[given + 1];
        const Value place = max(min(v[0] - 1.0, count - 1.0), 0.0);
        const Value fits = (z >= cast(v[2], common)) & (z <= cast(v[3], common));
        return more ? std::vector{where(fits & (v[4] >= 0.0), v[4] * count + place, none)}
                    : std::vector{where(fits, place, none)};
      });
  const Scalar numbers[] = {Scalar(n - 1), Scalar(outside)};
  return apply_program(program.shared_from_this(), inputs, numbers, "histogram")[0];
}

// Counts, or sums of weights, of points (the rows of x) in the grid of some edges, in the dtype of
// x.
Tensor counted(const Tensor& x, std::span<const Tensor> edges, const Tensor& weight) {
  Shape sizes;
  for (const Tensor& e : edges) sizes.push_back(e.numel() - 1);
  const int64_t outside = numel_of(sizes);
  Tensor sums = zeros({outside + 1}, x.options());  // the last one counts what lies outside
  for (int64_t from = 0, step = piece_of(x); from < x.size(0); from += step) {
    const int64_t n = std::min(step, x.size(0) - from);
    const Tensor piece = x.narrow(0, from, n);
    Tensor at;
    for (size_t d = 0; d < edges.size(); ++d)
      at = places_between(edges[d], piece.select(1, int64_t(d)).contiguous(), at,
                          d + 1 < edges.size() ? -1 : outside);
    sums.scatter_add_(0, at,
                      weight.defined() ? weight.narrow(0, from, n).to(x.dtype())
                                       : ones({}, x.options()).expand({n}));
  }
  return sums.narrow(0, 0, outside).reshape(sizes);
}

Results histogram_of(const Call& c, const Tensor& self, const Tensor& edges, const Tensor& weight,
                     bool density) {
  check_edges(c, edges);
  ARETE_CHECK(
      !weight.defined() || weight.layout().sizes == self.layout().sizes,
      ValueError(c.name(), "weight must have the same size as the input").argument("weight"));
  Tensor sums = counted(self.detach().reshape({-1, 1}), {&edges, 1},
                        weight.defined() ? weight.detach().reshape({-1}) : weight);
  if (density) sums = sums.div(sums.sum()).div(diff(edges));
  return {sums, edges};
}

const OpRecord& histogram_op =
    define(
        "histogram(Tensor self, Tensor bins, *, Tensor? weight=None, bool density=False) -> "
        "(Tensor hist, Tensor bin_edges)")
        .doc("Counts or densities between given edges.")
        .compose([](const Call& c) -> Results {
          return histogram_of(c, c.tensor(0), c.tensor(1), c.has(2) ? c.tensor(2) : Tensor(),
                              c.boolean(3));
        })
        .dtypes({kFloat32, kFloat64});

const OpRecord& histogram_count_op =
    define(
        "histogram.bin_ct(Tensor self, int bins=100, *, float? min=None, float? max=None, Tensor? "
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
          return histogram_of(c, x, edges, c.has(4) ? c.tensor(4) : Tensor(), c.boolean(5));
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
          for (const Tensor& edges : bins) check_edges(c, edges);
          const Tensor weight = c.has(2) ? c.tensor(2).detach().reshape({-1}) : Tensor();
          ARETE_CHECK(!weight.defined() || weight.numel() == x.size(0),
                      ValueError(c.name(), "weight must have one value for each point")
                          .argument("weight")
                          .got(describe(c.tensor(2))));
          Tensor sums = counted(x, bins, weight);
          if (!c.boolean(3)) return {sums};
          sums = sums.div(sums.sum());
          for (size_t d = 0; d < bins.size(); ++d) {
            Shape along(bins.size(), 1);
            along[d] = sums.size(int64_t(d));
            sums = sums.div(diff(bins[d]).reshape(along));
          }
          return {sums};
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
