// Records of histograms: search in the edges, then scattered additions.
#include <algorithm>
#include <cmath>

#include "arete/expr/program_cache.h"
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/index_util.h"
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

// How far from a whole number a computed place is trusted: what rounding in the dtype of the edges
// may have moved it by.
double place_rounding(DType dtype, double low, double high, int64_t bins) {
  const double scale = double(bins) / (high - low);
  return (dtype == kFloat64 ? 0x1p-50 : 0x1p-21) *
         (double(bins) + std::max(std::abs(low), std::abs(high)) * scale);
}

// Where a value lies in equal intervals, by its distance from the first one's begin; values outside
// lie behind the last interval. Parameters: begin, end, intervals in a unit, their number.
// by_edges: then what place_rounding() says; places that it may have moved, by one at most, are
// looked up among the edges, a table.
const expr::Program& place_program(DType dtype, DType edges, bool by_edges, expr::Type whole) {
  static auto* const cache = new expr::ProgramCache;
  const expr::Type work = expr::work_type(edges);
  std::vector<DType> inputs{dtype};
  std::vector<expr::Type> params{work, work, work, whole};
  if (by_edges) inputs.push_back(edges), params.push_back(work);
  return cache->get(
      pack_key({int(dtype), int(edges), by_edges, int(whole)}), inputs, params, {kInt64},
      [=](Values v) {
        const Value z = cast(v[0], work), table = v[1];
        v = v.subspan(by_edges ? 2 : 1);
        const Value inside = (z >= v[0]) & (z <= v[1]), last = v[3] - 1;
        const Value place = max((z - v[0]) * v[2], 0.0);
        Value k = max(min(cast(place, whole), last), 0.0);
        if (by_edges) {
          const auto edge = [&](const Value& at) { return cast(expr::load(table, at), work); };
          const Value beyond = place - cast(k, work);
          Value found = where(z < edge(k), max(k - 1, 0.0), k);
          found = where(z >= edge(found + 1), min(found + 1, last), found);
          k = where((beyond > v[4]) & (beyond < 1.0 - v[4]), k, found);
        }
        return std::vector{where(inside, k, v[3])};
      },
      by_edges ? 0b10 : 0);
}

// Whether a place computed in the dtype misses that by the edges by one interval at most.
bool is_place_near(DType dtype, double low, double high, int64_t bins) {
  const double large = dtype == kFloat64 ? 1e300 : 1e37, scale = double(bins) / (high - low);
  if (!(high - low < large && scale < large && scale > 1 / large)) return false;
  return place_rounding(dtype, low, high, bins) < 0.5;
}

const OpRecord& interval_counts_op =
    define("interval_counts(Tensor self, Tensor? edges, int bins, float low, float high) -> Tensor")
        .doc(
            "How many values lie in each of so many equal intervals, then how many lie in none; "
            "where edges are given, they say where a value lies. The first and the last are low "
            "and high in their dtype, which must be that of the places, too (is_place_near).")
        .surface(Surface::internal)
        .one_by_one("all values count in one table")
        .infer([](const Call& c, OutputSpecs& out) {
          out.push_back({Shape{c.integer(2) + 1}, kInt64});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor& x = c.tensor(0);
          const int64_t bins = c.integer(2);
          const double low = c.real(3), high = c.real(4);
          const bool by_edges = c.has(1);
          const DType work = by_edges ? c.tensor(1).dtype() : x.dtype();
          SmallVector<prim::View, 2> inputs{view_of(x)};
          std::optional<DenseView> edges;
          if (by_edges) inputs.push_back(edges.emplace(p, c.tensor(1), work).view());
          SmallVector<expr::Literal, 5> params{
              {.f = low}, {.f = high}, {.f = double(bins) / (high - low)}, {.i = bins}};
          if (by_edges) params.push_back({.f = place_rounding(work, low, high, bins)});
          p.fill({.out = view_of(out[0]), .value = {.i = 0}, .value_is_integer = true});
          const NumberView one(p, kInt64, IntList{x.numel()}, Scalar(1), c.name());
          p.scatter({.out = view_of(out[0]),
                     .src = one.view(),
                     .dim = 0,
                     .mode = prim::ScatterMode::add,
                     .op = "histogram",
                     .places = &place_program(x.dtype(), work, by_edges,
                                              bins < (1 << 30) ? expr::Type::i32 : expr::Type::i64),
                     .inputs = {inputs.data(), inputs.size()},
                     .params = {params.data(), params.size()}});
        })
        .dtypes({kFloat32, kFloat64, kInt8, kUInt8, kInt16, kInt32, kInt64});

const OpRecord& histc_op =
    define("histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor")
        .doc("How many values lie in each of so many equal intervals.")
        .one_by_one("it looks at the range of the values")
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
          const Tensor count = call(interval_counts_op, {x, std::nullopt, bins, low, high});
          return {count.narrow(0, 0, bins).to(x.dtype())};
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

// Of counts or sums of weights.
Results density_of(Tensor sums, const Tensor& edges, bool density) {
  if (density) sums = sums.div(sums.sum()).div(diff(edges));
  return {sums, edges};
}

Results histogram_of(const Call& c, const Tensor& self, const Tensor& edges, const Tensor& weight,
                     bool density) {
  check_edges(c, edges);
  ARETE_CHECK(
      !weight.defined() || weight.layout().sizes == self.layout().sizes,
      ValueError(c.name(), "weight must have the same size as the input").argument("weight"));
  return density_of(counted(self.detach().reshape({-1, 1}), {&edges, 1},
                            weight.defined() ? weight.detach().reshape({-1}) : weight),
                    edges, density);
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
        .one_by_one("it looks at the range of the values")
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
          const int64_t bins = c.integer(1);
          const Tensor edges = linspace(Scalar(low), Scalar(high), bins + 1, x.options());
          if (!c.has(4) && is_place_near(x.dtype(), low, high, bins)) {
            const Tensor flat = x.reshape({-1});
            const Tensor count = call(interval_counts_op, {flat, edges, bins, low, high});
            return density_of(count.narrow(0, 0, bins).to(x.dtype()), edges, c.boolean(5));
          }
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
