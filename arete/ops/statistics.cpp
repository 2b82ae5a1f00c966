// Records of order statistics: compositions of sort, gather and search.
#include "arete/ops/statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "arete/expr/program_cache.h"
#include "arete/ops/autocast.h"
#include "arete/ops/index.h"
#include "arete/ops/numeric.h"
#include "arete/ops/reduce_family.h"
#include "arete/ops/rows.h"
#include "arete/ops/search.h"
#include "arete/ops/sort.h"
#include "arete/ops/work.h"
#include "arete/prim/positions.h"

namespace arete {
namespace ops {
namespace {

// A 0-d tensor as one row; `dim` normalized.
struct Row {
  Tensor x;
  int64_t dim;
  bool scalar;
  Row(const Call& c, const Tensor& self, int64_t d)
      : x(self.dim() ? self : self.reshape({1})),
        dim(normalize_dim(d, int(self.dim()), c.name())),
        scalar(self.dim() == 0) {}
  int64_t size() const { return x.size(dim); }
  // One element of each row, in the shape that keepdim asks for.
  Tensor finish(const Tensor& t, bool keepdim) const {
    return keepdim && !scalar ? t : t.squeeze(dim);
  }
};

void check_rows(const Call& c, const Row& row) {
  ARETE_CHECK(row.size() > 0,
              IndexError(c.name(), std::string(c.name()) + "(): Expected reduction dim " +
                                       std::to_string(row.dim) + " to have non-zero size."));
}

// The elements at `positions` (size 1 along the dim). The gradient goes straight to them, and not
// through what found them.
Results elements(const Row& row, const Tensor& positions, bool keepdim) {
  return {row.finish(gather(row.x, row.dim, positions), keepdim), row.finish(positions, keepdim)};
}
// Those at places `at` of the sorted rows.
Results picked(const Row& row, const Tensor& indices, const Tensor& at, bool keepdim) {
  return elements(row, gather(indices, row.dim, at), keepdim);
}

Results kth(const Row& row, int64_t k, bool keepdim) {
  const Tensor x = row.x.detach();
  // A few of many are found without an order of all.
  const bool few = k <= 64 && 4 * k <= row.size();
  const Tensor indices = std::get<1>(few ? topk(x, k, row.dim, false) : sort(x, row.dim));
  return elements(row, indices.narrow(row.dim, k - 1, 1).clone(MemoryFormat::contiguous), keepdim);
}

// The lower median; a NaN in the row wins unless it is skipped.
Results median_of(const Row& row, bool keepdim, bool skip_nan) {
  const int64_t n = row.size();
  if (!is_floating(row.x.dtype())) return kth(row, (n + 1) / 2, keepdim);
  const Tensor indices = std::get<1>(sort(row.x.detach(), row.dim));
  static auto* const cache = new RowProgramCache;
  const DType t = row.x.dtype();
  const RowProgramPtr& place =
      cache->get(pack_key({int(t), skip_nan}), {t}, {expr::Type::i64}, {kInt64},
                 [=](Rows& rows, std::span<const expr::Value> v) {
                   const expr::Value valid =
                       rows.reduce(prim::Monoid::sum, cast(!is_nan(v[0]), expr::Type::i64));
                   const expr::Value one = v[0].builder()->constant(expr::Type::i64, 1);
                   const expr::Value lower = max(valid - 1.0, 0.0) >> one;
                   // The first NaN stands right behind the others.
                   return std::vector{skip_nan ? lower : where(valid < v[1], valid, lower)};
                 });
  const Tensor x = row.x.detach();
  const Scalar length[] = {Scalar(n)};
  const int64_t dims[] = {row.dim};
  return picked(row, indices, apply_rows(place, {&x, 1}, length, dims, "median")[0], keepdim);
}

const std::vector<DType> kReal{kFloat32, kFloat64, kBFloat16, kFloat16, kInt32, kInt64};

const OpRecord& kthvalue_op =
    define(
        "kthvalue(Tensor self, int k, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor "
        "indices)")
        .doc("The k-th smallest value along dim and its position.")
        .compose([](const Call& c) -> Results {
          const Row row(c, c.tensor(0), c.integer(2));
          const int64_t k = c.integer(1);
          ARETE_CHECK(
              k >= 1 && k <= row.size(),
              ValueError(c.name(), "kthvalue(): selected number k out of range for dimension " +
                                       std::to_string(row.dim))
                  .argument("k")
                  .expected("1 to " + std::to_string(row.size()))
                  .got(std::to_string(k)));
          return kth(row, k, c.boolean(3));
        })
        .no_grad_outputs(2)
        .dtypes(kReal);

template <bool kSkipNan>
Results median_compose(const Call& c) {
  const Row row(c, c.tensor(0), c.integer(1));
  check_rows(c, row);
  return median_of(row, c.boolean(2), kSkipNan);
}
template <bool kSkipNan>
Results whole_median_compose(const Call& c) {
  const Tensor& x = c.tensor(0);
  if (x.numel() == 0) {
    ARETE_CHECK(is_floating(x.dtype()),
                ValueError(c.name(), "median of an empty tensor of integers"));
    return {full({}, Scalar(NAN), TensorOptions(x.dtype(), x.device()))};
  }
  return {median_of(Row(c, x.reshape({-1}), 0), false, kSkipNan)[0]};
}

const OpRecord& median_op = define("median(Tensor self) -> Tensor")
                                .doc("The lower median of all elements; NaN wins.")
                                .compose(whole_median_compose<false>)
                                .dtypes(kReal);
const OpRecord& nanmedian_op = define("nanmedian(Tensor self) -> Tensor")
                                   .doc("The lower median of the elements that are not NaN.")
                                   .compose(whole_median_compose<true>)
                                   .dtypes(kReal);
const OpRecord& median_dim_op =
    define(
        "median.dim(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor "
        "indices)")
        .doc("The lower median along dim and its position; NaN wins.")
        .compose(median_compose<false>)
        .no_grad_outputs(2)
        .dtypes(kReal);
const OpRecord& nanmedian_dim_op =
    define(
        "nanmedian.dim(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor "
        "indices)")
        .doc("The lower median along dim of what is not NaN, and its position.")
        .compose(median_compose<true>)
        .no_grad_outputs(2)
        .dtypes(kReal);

// The longest run of equal neighbours in a sorted row: the place of its last element. Each element
// looks for the first one of its value; of the pairs of length and place, as one number, the
// largest is that of the end of the first longest run. Every NaN is a run of its own.
const expr::Program& longest_run_program(DType t, int64_t n) {
  using expr::Type;
  using expr::Value;
  static auto& cache = *new expr::ProgramCache;  // used until exit
  const int steps = std::bit_width(uint64_t(n));
  // Inputs: the element, all of them, its place in its row, where in memory the row begins: what
  // comes before it in outer and in inner dimensions. Parameters: n, and the steps in memory from
  // one place to the next and from one outer row to the next.
  return cache.get(
      pack_key({int(t), steps / 32, steps % 32}), {t, t, kInt64, kInt64, kInt64},
      std::vector<Type>(3, Type::i64), {kInt64},
      [&](std::span<const Value> v) {
        expr::Builder& b = *v[0].builder();
        const Value place = v[2], begin = v[3] * v[7] + v[4];
        Value low = b.constant(Type::i64, 0), high = place;
        for (int k = 0; k < steps; ++k) {
          const Value middle = (low + high) >> b.constant(Type::i64, 1);
          const Value before = expr::load(v[1], begin + middle * v[6]) < v[0];
          low = where(before, middle + 1.0, low);
          high = where(before, high, middle);
        }
        const Value first = expr::is_float(v[0].type()) ? where(is_nan(v[0]), place, low) : low,
                    length = place - first;
        return std::vector{(length << b.constant(Type::i64, 32)) + (v[5] - 1.0 - place)};
      },
      0b10);
}

const OpRecord& longest_run_op =
    define("longest_run(Tensor sorted, int dim) -> Tensor")
        .doc(
            "The place of the last element of the first longest run of equal ones (size 1 in dim).")
        .surface(Surface::internal)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          Shape sizes(x.sizes());
          sizes[size_t(normalize_dim(c.integer(1), int(x.dim()), c.name()))] = 1;
          out.push_back({std::move(sizes), kInt64, x.device(), {}});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (out[0].numel() == 0) return;
          const Tensor x = plain(c.tensor(0), c.tensor(0).dtype());
          const size_t dim = size_t(normalize_dim(c.integer(1), int(x.dim()), c.name()));
          const int64_t n = x.sizes()[dim], inner = numel_of(x.sizes().subspan(dim + 1)),
                        outer = x.numel() / (n * inner);
          const Shape space{outer, n, inner};
          const Layout all(space, contiguous_strides(space), x.storage_offset()),
              of_out(Shape{outer, 1, inner}, Shape{inner, 0, 1}, out[0].storage_offset());
          const prim::View view = view_of(x, all);
          prim::Positions numbers(p, kInt64, std::max({outer, n, inner}));
          const prim::View inputs[] = {view, view, numbers.along(space, 1, 1),
                                       numbers.along(space, 0, 0), numbers.along(space, 2, 2)};
          const expr::Literal params[] = {{.i = n}, {.i = inner}, {.i = n * inner}};
          static auto& cache = *new expr::ProgramCache;  // used until exit
          const expr::Program& place = cache.get(
              0, {kInt64}, {expr::Type::i64}, {kInt64}, [](std::span<const expr::Value> v) {
                const expr::Value low =
                    v[0].builder()->constant(expr::Type::i64, int64_t{0xffffffff});
                return std::vector{v[1] - 1.0 - (v[0] & low)};
              });
          p.reduce({.monoid = prim::Monoid::max,
                    .space = space,
                    .reduced = 0b010,
                    .inputs = inputs,
                    .out = view_of(out[0], of_out),
                    .prologue = &longest_run_program(x.dtype(), n),
                    .params = params,
                    .epilogue = &place,
                    .epilogue_params = {params, 1}});
        })
        .dtypes(kReal);

const OpRecord& mode_op =
    define("mode(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)")
        .doc("The most frequent value along dim (the smallest of several) and its last position.")
        .compose([](const Call& c) -> Results {
          const Row row(c, c.tensor(0), c.integer(1));
          check_rows(c, row);
          const auto [v, indices] = sort(row.x.detach(), row.dim);
          return picked(row, indices, call(longest_run_op, {v, row.dim}), c.boolean(2));
        })
        .no_grad_outputs(2)
        .dtypes(kReal);

// ---- quantiles: (self, q, dim, keepdim, interpolation)

Results quantile_of(const Call& c, bool skip_nan) {
  const Tensor& self = c.tensor(0);
  const std::string name = c.name();
  ARETE_CHECK(self.numel() > 0,
              ValueError(c.name(), name + "() input tensor must be non-empty").got(describe(self)));
  ARETE_CHECK(self.dtype() == kFloat32 || self.dtype() == kFloat64,
              TypeError(c.name(), name + "() input tensor must be either float or double dtype")
                  .got(describe(self)));
  const bool number = c[1].kind() != Arg::Kind::tensor;
  const Tensor q =
      number ? full({}, c.scalar(1), TensorOptions(self.dtype(), self.device())) : c.tensor(1);
  ARETE_CHECK(q.dim() <= 1,
              ValueError(c.name(), name + "() q must be a scalar or 1D tensor").argument("q"));
  ARETE_CHECK(q.dtype() == self.dtype(),
              TypeError(c.name(), name + "() q tensor must be same dtype as the input tensor")
                  .argument("q"));
  // Reading q would make a device wait: only numbers and host tensors are looked at.
  if (q.device().is_cpu())
    ARETE_CHECK(
        q.detach().ge(Scalar(0)).logical_and(q.detach().le(Scalar(1))).all().item<bool>(),
        ValueError(c.name(), name + "() q values must be in the range [0, 1]").argument("q"));
  const std::string_view mode = c[4].string();
  ARETE_CHECK(
      mode == "linear" || mode == "lower" || mode == "higher" || mode == "midpoint" ||
          mode == "nearest",
      ValueError(c.name(), name +
                               "() interpolation must be one of linear, lower, higher, midpoint or "
                               "nearest, but got " +
                               std::string(mode))
          .argument("interpolation"));

  // The rows as the last dimension, sorted; the ranks [rows..., q].
  const bool whole = !c.has(2);
  const int64_t d =
      whole ? 0 : normalize_dim(c.integer(2), int(std::max<int64_t>(self.dim(), 1)), c.name());
  const Tensor rows = whole || self.dim() == 0 ? self.reshape({-1}) : self.movedim(d, -1);
  const int64_t n = rows.size(-1);
  const Tensor sorted = std::get<0>(sort(rows, -1)), nan = rows.detach().isnan();
  const Tensor count = nan.logical_not().sum({-1}, true).to(self.dtype());
  const Tensor flat_q = q.reshape({-1});
  Tensor rank = flat_q.mul(skip_nan ? count.sub(Scalar(1)).clamp(Scalar(0))
                                    : full(count.sizes(), Scalar(double(n - 1)), count.options()));
  // Where a row has a NaN, its last element is one.
  if (!skip_nan) rank = where(count.lt(Scalar(n)), Scalar(double(n - 1)), rank);
  const auto pick = [&](const Tensor& r) { return gather(sorted, -1, r.detach().to(kInt64)); };
  Tensor y;
  if (mode == "lower" || mode == "higher" || mode == "nearest") {
    y = pick(mode == "lower" ? rank.floor() : mode == "higher" ? rank.ceil() : rank.round());
  } else {
    const Tensor below = rank.floor(), low = pick(below), high = pick(rank.ceil());
    y = mode == "linear" ? lerp(low, high, rank.sub(below)) : lerp(low, high, Scalar(0.5));
  }
  // [q, rows...] with the reduced dimensions if they are kept.
  y = q.dim() == 0 ? y.squeeze(-1) : y.movedim(-1, 0);
  if (c.boolean(3)) {
    const Shape kept = reduced_sizes(self.sizes(),
                                     whole        ? (1u << self.dim()) - 1
                                     : self.dim() ? 1u << d
                                                  : 0,
                                     true);
    Shape sizes;
    if (q.dim()) sizes.push_back(flat_q.numel());
    for (int64_t s : kept) sizes.push_back(s);
    y = y.reshape(sizes);
  }
  return {y};
}

const OpRecord& quantile_op =
    define(
        "quantile(Tensor self, Tensor q, int? dim=None, bool keepdim=False, *, str "
        "interpolation='linear') -> Tensor")
        .face(
            "quantile.scalar(Tensor self, Scalar q, int? dim=None, bool keepdim=False, *, str "
            "interpolation='linear')")
        .autocast(autocast_on_cpu(Autocast::f32))
        .doc("The q-quantiles along dim or of everything; NaN wins.")
        .compose([](const Call& c) { return quantile_of(c, false); })
        .dtypes({kFloat32, kFloat64});
const OpRecord& nanquantile_op =
    define(
        "nanquantile(Tensor self, Tensor q, int? dim=None, bool keepdim=False, *, str "
        "interpolation='linear') -> Tensor")
        .face(
            "nanquantile.scalar(Tensor self, Scalar q, int? dim=None, bool keepdim=False, *, "
            "str interpolation='linear')")
        .autocast(autocast_on_cpu(Autocast::f32))
        .doc("The q-quantiles along dim or of everything, of what is not NaN.")
        .compose([](const Call& c) { return quantile_of(c, true); })
        .dtypes({kFloat32, kFloat64});

}  // namespace
}  // namespace ops

namespace {
std::tuple<Tensor, Tensor> pair(ops::Results r) { return {r[0], r[1]}; }
}  // namespace

std::tuple<Tensor, Tensor> kthvalue(const Tensor& self, int64_t k, int64_t dim, bool keepdim) {
  return pair(ops::call_all(ops::kthvalue_op, {self, k, dim, keepdim}));
}
Tensor median(const Tensor& self) { return ops::call(ops::median_op, {self}); }
Tensor nanmedian(const Tensor& self) { return ops::call(ops::nanmedian_op, {self}); }
std::tuple<Tensor, Tensor> median(const Tensor& self, int64_t dim, bool keepdim) {
  return pair(ops::call_all(ops::median_dim_op, {self, dim, keepdim}));
}
std::tuple<Tensor, Tensor> nanmedian(const Tensor& self, int64_t dim, bool keepdim) {
  return pair(ops::call_all(ops::nanmedian_dim_op, {self, dim, keepdim}));
}
std::tuple<Tensor, Tensor> mode(const Tensor& self, int64_t dim, bool keepdim) {
  return pair(ops::call_all(ops::mode_op, {self, dim, keepdim}));
}
Tensor quantile(const Tensor& self, const Tensor& q, std::optional<int64_t> dim, bool keepdim,
                std::string_view interpolation) {
  return ops::call(ops::quantile_op, {self, q, dim, keepdim, interpolation});
}
Tensor quantile(const Tensor& self, double q, std::optional<int64_t> dim, bool keepdim,
                std::string_view interpolation) {
  return ops::call(ops::quantile_op, {self, q, dim, keepdim, interpolation});
}
Tensor nanquantile(const Tensor& self, const Tensor& q, std::optional<int64_t> dim, bool keepdim,
                   std::string_view interpolation) {
  return ops::call(ops::nanquantile_op, {self, q, dim, keepdim, interpolation});
}
Tensor nanquantile(const Tensor& self, double q, std::optional<int64_t> dim, bool keepdim,
                   std::string_view interpolation) {
  return ops::call(ops::nanquantile_op, {self, q, dim, keepdim, interpolation});
}

}  // namespace arete

ARETE_FAMILY(statistics)
