// Records of order statistics: elements of sorted rows.
#include "arete/ops/statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "arete/expr/program_cache.h"
#include "arete/ops/autocast.h"
#include "arete/ops/index.h"
#include "arete/ops/index_util.h"
#include "arete/ops/numeric.h"
#include "arete/ops/reduce_family.h"
#include "arete/ops/rows.h"
#include "arete/ops/search.h"
#include "arete/ops/sort.h"
#include "arete/ops/vmap.h"
#include "arete/prim/positions.h"

namespace arete {
namespace ops {
namespace {

// Rows along dimension `dim`; a 0-d tensor is one row.
struct Rows {
  const Tensor& x;
  int dim;
  Rows(const Call& c, int64_t d) : x(c.tensor(0)), dim(normalize_dim(d, int(x.dim()), c.name())) {}
  int64_t size() const { return x.dim() ? x.size(dim) : 1; }
  uint32_t mask() const { return x.dim() ? 1u << dim : 0; }
};

// Nothing is picked of nothing.
void check_not_empty(const Call& c, const Rows& rows) {
  ops::check_not_empty(c, rows.x.sizes(), rows.mask(), true);
}

// One element of each row and its position.
void push_picked(OutputSpecs& out, const Rows& rows, bool keepdim) {
  const Shape sizes = reduced_sizes(rows.x.sizes(), rows.mask(), keepdim);
  out.push_back({sizes, rows.x.dtype()});
  out.push_back({sizes, kInt64});
}

// The views of a row's element and its position, which have the rows' dimensions, and the rows.
class Picking {
 public:
  Picking(const Rows& rows, std::span<const Tensor> out)
      : layouts_{keepdim_layout(out[0], rows.x.sizes(), rows.mask()),
                 keepdim_layout(out[1], rows.x.sizes(), rows.mask())},
        x(ops::at_least_1d(view_of(rows.x))),
        value(ops::at_least_1d(view_of(out[0], layouts_[0]))),
        position(ops::at_least_1d(view_of(out[1], layouts_[1]))),
        dim(rows.dim) {}

 private:
  const Layout layouts_[2];

 public:
  const prim::View x, value, position;
  const int dim;
};

using Place = prim::SelectArgs::Place;

void select_lower(const Call& c, const Rows& rows, std::span<const Tensor> out, prim::Primitives& p,
                  Place place, int64_t rank = 0) {
  if (out[0].numel() == 0) return;
  const Picking to(rows, out);
  p.select({.in = to.x,
            .values = to.value,
            .indices = to.position,
            .dim = to.dim,
            .place = place,
            .rank = rank,
            .op = c.name()});
}

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

// From the largest pair, the place.
const expr::Program& place_program() {
  static auto& cache = *new expr::ProgramCache;  // used until exit
  return cache.get(0, {kInt64}, {expr::Type::i64}, {kInt64}, [](std::span<const expr::Value> v) {
    const expr::Value low = v[0].builder()->constant(expr::Type::i64, int64_t{0xffffffff});
    return std::vector{v[1] - 1.0 - (v[0] & low)};
  });
}

// Of the rows of x along `dim`.
void find_modes(prim::Primitives& p, const prim::View& x, const prim::View& value,
                const prim::View& position, int dim) {
  const size_t d = size_t(dim);
  const int64_t n = x.sizes[d];
  const prim::ScratchView values(p, x.dtype, x.sizes), positions(p, kInt64, x.sizes),
      at(p, kInt64, value.sizes);
  p.sort({x, values, positions, dim});
  const int64_t inner = numel_of(x.sizes.subspan(d + 1)), outer = x.numel() / (n * inner);
  const Shape space{outer, n, inner}, one_each{outer, 1, inner};
  const Shape steps = contiguous_strides(space), steps_of_one = contiguous_strides(one_each);
  prim::Positions numbers(p, kInt64, std::max({outer, n, inner}));
  const prim::View sorted(values.view().data, x.dtype, space, steps, values.view().storage);
  const prim::View inputs[] = {sorted, sorted, numbers.along(space, 1, 1),
                               numbers.along(space, 0, 0), numbers.along(space, 2, 2)};
  const expr::Literal params[] = {{.i = n}, {.i = inner}, {.i = n * inner}};
  p.reduce({.monoid = prim::Monoid::max,
            .space = space,
            .reduced = 0b010,
            .inputs = inputs,
            .out = prim::View(at.view().data, kInt64, one_each, steps_of_one, at.view().storage),
            .prologue = &longest_run_program(x.dtype, n),
            .params = params,
            .epilogue = &place_program(),
            .epilogue_params = {params, 1}});
  p.gather({positions, at, position, dim});
  p.gather({x, position, value, dim});
}

void mode_lower(const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
  const Rows rows(c, c.integer(1));
  if (out[0].numel() == 0) return;
  const Picking all(rows, out);
  // So many elements at a time that what sorting them takes is not much beside large inputs.
  constexpr int64_t kMost = int64_t{1} << 22;
  size_t along = 0;  // the longest dimension of the others
  Shape others(all.x.sizes);
  others[size_t(all.dim)] = 1;
  for (size_t d = 0; d < others.size(); ++d)
    if (others[d] > others[along]) along = d;
  const int64_t length = others[along],
                step = std::max<int64_t>(1, kMost / std::max<int64_t>(all.x.numel() / length, 1));
  for (int64_t begin = 0; begin < length; begin += step) {
    Shape sizes(all.x.sizes), of_one(all.value.sizes);
    if (length > step) sizes[along] = of_one[along] = std::min(step, length - begin);
    const auto part = [&](prim::View v, const Shape& s) {
      v.data += begin * v.strides[along] * int64_t(size_of(v.dtype));
      v.sizes = s;
      return v;
    };
    find_modes(p, part(all.x, sizes), part(all.value, of_one), part(all.position, of_one), all.dim);
  }
}

const std::vector<DType> kReal{kFloat32, kFloat64, kBFloat16, kFloat16, kInt32, kInt64};

const OpRecord& kthvalue_op =
    define(
        "kthvalue(Tensor self, int k, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor "
        "indices)")
        .doc("The k-th smallest value along dim and its position.")
        .infer([](const Call& c, OutputSpecs& out) {
          const Rows rows(c, c.integer(2));
          const int64_t k = c.integer(1);
          check_not_empty(c, rows);
          ARETE_CHECK(
              k >= 1 && k <= rows.size(),
              ValueError(c.name(), "kthvalue(): selected number k out of range for dimension " +
                                       std::to_string(rows.dim))
                  .argument("k")
                  .expected("1 to " + std::to_string(rows.size()))
                  .got(std::to_string(k)));
          push_picked(out, rows, c.boolean(3));
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          select_lower(c, Rows(c, c.integer(2)), out, p, Place::rank, c.integer(1) - 1);
        })
        .grad([](const GradCall& g) { return grad_of_picked(g, g.integer(2), g.boolean(3)); }, 0, 2)
        .no_grad_outputs(2)
        .dtypes(kReal);

// Of quantiles, whose places are in memory.
const OpRecord& select_ranks_op =
    define(
        "_select_ranks(Tensor self, Tensor ranks, int dim=-1) -> (Tensor values, Tensor indices)")
        .doc(
            "The elements at places `ranks` (int64, as gather's index) of the order along dim, and "
            "their positions.")
        .surface(Surface::internal)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor &x = c.tensor(0), &ranks = c.tensor(1);
          const Rows rows(c, c.integer(2));
          bool fits = ranks.dtype() == kInt64 && x.dim() > 0 && ranks.dim() == x.dim();
          for (int d = 0; fits && d < int(x.dim()); ++d)
            fits = d == rows.dim || ranks.size(d) == x.size(d);
          ARETE_CHECK(fits, ValueError(c.name(), "ranks must be int64, and lie as the rows do")
                                .argument("ranks")
                                .got(describe(ranks)));
          ARETE_CHECK(rows.size() > 0 || ranks.numel() == 0,
                      IndexError(c.name(), "rows of nothing have no elements").argument("self"));
          out.push_back({Shape(ranks.sizes()), x.dtype()});
          out.push_back({Shape(ranks.sizes()), kInt64});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          if (out[0].numel() == 0) return;
          p.select({.in = view_of(c.tensor(0)),
                    .values = view_of(out[0]),
                    .indices = view_of(out[1]),
                    .dim = Rows(c, c.integer(2)).dim,
                    .place = Place::ranks,
                    .ranks = view_of(c.tensor(1)),
                    .op = c.name()});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              // An element may stand at several of the places asked for.
              return {zeros_to_copy(g.input_sizes(0), g.grad().options())
                          .scatter_add(g.integer(2), g.output(1), g.grad())};
            },
            0, 2)
        .no_grad_outputs(2)
        .dtypes(kReal);

void picked_infer(const Call& c, OutputSpecs& out) {
  const Rows rows(c, c.integer(1));
  check_not_empty(c, rows);
  push_picked(out, rows, c.boolean(2));
}
TensorList picked_grad(const GradCall& g) { return grad_of_picked(g, g.integer(1), g.boolean(2)); }
const OpRecord& define_picked(const char* schema, const char* doc,
                              void (*lower)(const Call&, std::span<const Tensor>,
                                            prim::Primitives&)) {
  return define(schema)
      .doc(doc)
      .infer(picked_infer)
      .lower(lower)
      .grad(picked_grad, 0, 2)
      .no_grad_outputs(2)
      .dtypes(kReal);
}

// The lower median; a NaN in the row wins unless it is skipped.
template <Place kPlace>
void median_lower(const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
  select_lower(c, Rows(c, c.integer(1)), out, p, kPlace);
}

const OpRecord& median_dim_op = define_picked(
    "median.dim(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)",
    "The lower median along dim and its position; NaN wins.", median_lower<Place::median>);
const OpRecord& nanmedian_dim_op = define_picked(
    "nanmedian.dim(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)",
    "The lower median along dim of what is not NaN, and its position.",
    median_lower<Place::nanmedian>);
const OpRecord& mode_op = define_picked(
    "mode(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)",
    "The most frequent value along dim (the smallest of several) and its last position.",
    mode_lower);

template <bool kSkipNan>
Results whole_median_compose(const Call& c) {
  const Tensor& x = c.tensor(0);
  if (x.numel() == 0) {
    ARETE_CHECK(is_floating(x.dtype()),
                ValueError(c.name(), "median of an empty tensor of integers"));
    return {full({}, Scalar(NAN), TensorOptions(x.dtype(), x.device()))};
  }
  const Tensor all = x.reshape({-1});
  const Tensor middle =
      call_all(kSkipNan ? nanmedian_dim_op : median_dim_op, {all.detach(), 0, false})[0];
  if (!will_record(x)) return {middle};
  // As of the extremes of all elements, those that are equal share the gradient.
  const Tensor hit = eq(all, middle) | (isnan(all) & isnan(middle));
  // The maximum of their sizes, so that no other element is one of -inf.
  const Tensor sign = where(middle.lt(Scalar(0)), Scalar(-1), ones_like(middle));
  return {amax(where(hit, all * sign, Scalar(-HUGE_VAL))) * sign};
}
const OpRecord& median_op = define("median(Tensor self) -> Tensor")
                                .doc("The lower median of all elements; NaN wins.")
                                .compose(whole_median_compose<false>)
                                .dtypes(kReal);
const OpRecord& nanmedian_op = define("nanmedian(Tensor self) -> Tensor")
                                   .doc("The lower median of the elements that are not NaN.")
                                   .compose(whole_median_compose<true>)
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
        all_values(q).ge(Scalar(0)).logical_and(all_values(q).le(Scalar(1))).all().item<bool>(),
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

  // The rows as the last dimension, and the ranks [rows..., q].
  const bool whole = !c.has(2);
  const int64_t d =
      whole ? 0 : normalize_dim(c.integer(2), int(std::max<int64_t>(self.dim(), 1)), c.name());
  const Tensor rows = whole || self.dim() == 0 ? self.reshape({-1}) : self.movedim(d, -1);
  const int64_t n = rows.size(-1);
  const Tensor plain = rows.detach();
  // Places in rows so long are no numbers of 32 bits.
  constexpr int64_t kExactPlaces = int64_t(1) << 24;
  const bool is_long = self.dtype() == kFloat32 && n > kExactPlaces;
  const Tensor flat_q = is_long ? q.reshape({-1}).to(kFloat64) : q.reshape({-1});
  Tensor rank;
  if (skip_nan) {
    const Tensor count = plain.eq(plain).sum({-1}, true).to(flat_q.dtype());
    rank = flat_q.mul(count.sub(Scalar(1)).clamp(Scalar(0)));
  } else {
    // Where a row has a NaN, its last element is one.
    const Scalar last(double(n - 1));
    rank = where(plain.amax({-1}, true).isnan(), last, flat_q.mul(last));
  }
  const Tensor places = rank.detach();
  const bool between = mode == "linear" || mode == "midpoint";
  const Tensor one_of = mode == "higher"    ? places.ceil()
                        : mode == "nearest" ? places.round()
                                            : places.floor();
  // A few elements of each row are found without an order of all.
  const int64_t n_q = flat_q.numel();
  const prim::Backend* backend = prim::find_backend(self.device());
  const bool few = (between ? 2 : 1) * n_q <= 4 && !self.is_meta() && backend &&
                   backend->has_own(prim::Primitive::select, self.dtype());
  Tensor low, high;
  if (few) {
    const Tensor all = between ? cat({one_of, places.ceil()}, -1) : one_of;
    const Tensor picked = call_all(select_ranks_op, {rows, all.to(kInt64), -1})[0];
    low = between ? picked.narrow(-1, 0, n_q) : picked;
    if (between) high = picked.narrow(-1, n_q, n_q);
  } else {
    const Tensor sorted = std::get<0>(sort(rows, -1));
    low = gather(sorted, -1, one_of.to(kInt64));
    if (between) high = gather(sorted, -1, places.ceil().to(kInt64));
  }
  Tensor y = !between           ? low
             : mode == "linear" ? lerp(low, high, rank.sub(one_of).to(self.dtype()))
                                : lerp(low, high, Scalar(0.5));
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
