// Records of order statistics: compositions of sort, gather and search.
#include "arete/ops/statistics.h"

#include <algorithm>
#include <cmath>

#include "arete/expr/program_cache.h"
#include "arete/ops/autocast.h"
#include "arete/ops/index.h"
#include "arete/ops/numeric.h"
#include "arete/ops/reduce_family.h"
#include "arete/ops/rows.h"
#include "arete/ops/search.h"
#include "arete/ops/sort.h"

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
  return {row.finish(gather(row.x, row.dim, positions), keepdim),
          row.finish(positions, keepdim).clone(MemoryFormat::contiguous)};
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
  return elements(row, indices.narrow(row.dim, k - 1, 1), keepdim);
}

// How many elements of each row are not NaN (kept dim).
Tensor valid_count(const Row& row) {
  static auto* const cache = new expr::ProgramCache;
  const DType t = row.x.dtype();
  const expr::Program& program =
      cache->get(pack_key({int(t)}), {t}, {}, {kInt64}, [](std::span<const expr::Value> v) {
        return std::vector{cast(!is_nan(v[0]), expr::Type::i64)};
      });
  const Tensor x = row.x.detach();
  return apply_reduce(program.shared_from_this(), prim::Monoid::sum, {&x, 1}, {}, {row.dim}, true,
                      "median");
}

// The lower median; a NaN in the row wins unless it is skipped.
Results median_of(const Row& row, bool keepdim, bool skip_nan) {
  const int64_t n = row.size();
  if (!is_floating(row.x.dtype())) return kth(row, (n + 1) / 2, keepdim);
  const Tensor indices = std::get<1>(sort(row.x.detach(), row.dim));
  const Tensor valid = valid_count(row);
  static auto* const cache = new expr::ProgramCache;
  const expr::Program& place =
      cache->get(pack_key({skip_nan}), {kInt64}, {expr::Type::i64}, {kInt64},
                 [=](std::span<const expr::Value> v) {
                   const expr::Value one = v[0].builder()->constant(expr::Type::i64, 1);
                   const expr::Value lower = max(v[0] - 1.0, 0.0) >> one;
                   // The first NaN stands right behind the others.
                   return std::vector{skip_nan ? lower : where(v[0] < v[1], v[0], lower)};
                 });
  const Scalar length[] = {Scalar(n)};
  return picked(row, indices,
                apply_program(place.shared_from_this(), {&valid, 1}, length, "median")[0], keepdim);
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

// In the sorted row every element's distance from the start of its run of equal ones; the first
// largest belongs to the end of the first longest run.
const OpRecord& mode_op =
    define("mode(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)")
        .doc("The most frequent value along dim (the smallest of several) and its last position.")
        .compose([](const Call& c) -> Results {
          const Row row(c, c.tensor(0), c.integer(1));
          check_rows(c, row);
          const int64_t n = row.size();
          const auto [v, indices] = sort(row.x.detach(), row.dim);
          Shape along(size_t(row.x.dim()), 1);
          along[size_t(row.dim)] = n;
          const Tensor place =
              arange(Scalar(n), TensorOptions(kInt64, row.x.device())).reshape(along);
          const Tensor changes = v.narrow(row.dim, 1, n - 1).ne(v.narrow(row.dim, 0, n - 1));
          Shape one(row.x.sizes());
          one[size_t(row.dim)] = 1;
          const Tensor starts =
              cat({ones(one, TensorOptions(kBool, row.x.device())), changes}, row.dim);
          const Tensor start = std::get<0>(cummax(where(starts, place, Scalar(0)), row.dim));
          const Tensor at = place.sub(start).argmax(row.dim, true);
          return picked(row, indices, at, c.boolean(2));
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
