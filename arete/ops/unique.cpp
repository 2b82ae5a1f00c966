// Different values, and different slices along a dimension.
#include "arete/expr/program_cache.h"
#include "arete/ops/numeric.h"
#include "arete/ops/reduce_family.h"
#include "arete/ops/sort.h"

namespace arete {
namespace ops {
namespace {

const std::vector<DType> kTypes{kFloat32, kFloat64, kBFloat16, kFloat16, kInt32, kInt64};

// The order of the rows of a matrix by their first column, then the second, ...: stable sorts from
// the last column to the first.
Tensor lexicographic_order(const Tensor& rows) {
  Tensor order = arange(Scalar(rows.size(0)), TensorOptions(kInt64, rows.device()));
  for (int64_t column = rows.size(1) - 1; column >= 0; --column) {
    const Tensor key = rows.select(1, column).index_select(0, order);
    order = order.index_select(0, argsort(key, 0, false, true));
  }
  return order;
}

const expr::Program& differs_program(DType t) {
  static auto& cache = *new expr::ProgramCache;  // used until exit
  return cache.get(pack_key({int(t)}), {t, t}, {}, {kBool},
                   [](std::span<const expr::Value> v) { return std::vector{v[0] != v[1]}; });
}

// Of complex numbers, for which there are no programs.
Results changes_of_complex(const Call& c) {
  const Tensor& values = c.tensor(0);
  const int64_t n = values.size(0);
  const Tensor one = ones({1}, TensorOptions(kBool, values.device()));
  if (n == 0) return {one};
  Tensor changes = values.narrow(0, 1, n - 1).ne(values.narrow(0, 0, n - 1));
  if (changes.dim() > 1) changes = changes.any({1});
  return {cat({one, changes, one})};
}

const OpRecord& changes_op =
    define("changes_between_rows(Tensor self) -> Tensor")
        .doc(
            "Which values (1-d) or rows (2-d) differ from the one before; the first does, and so "
            "would one behind the last.")
        .surface(Surface::internal)
        .one_by_one("the first row of an element has none before it")
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          ARETE_CHECK(x.dim() == 1 || x.dim() == 2,
                      ValueError(c.name(), "expected values or rows").got(describe(x)));
          out.push_back({Shape{x.size(0) + 1}, kBool});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor& x = c.tensor(0);
          const int64_t n = x.size(0);
          const Layout ends = slice(out[0].layout(), 0, 0, n + 1, std::max<int64_t>(n, 1));
          p.fill({.out = view_of(out[0], ends), .value = {.i = 1}, .value_is_integer = true});
          if (n <= 1) return;
          const Layout others = narrow(out[0].layout(), 0, 1, n - 1),
                       behind = narrow(x.layout(), 0, 1, n - 1),
                       before = narrow(x.layout(), 0, 0, n - 1);
          const prim::View pairs[] = {view_of(x, behind), view_of(x, before)},
                           to = view_of(out[0], others);
          if (x.dim() == 1) {
            p.pointwise({&differs_program(x.dtype()), pairs, {&to, 1}, {}});
            return;
          }
          const Layout column = unsqueeze(others, 1);
          p.reduce({.monoid = prim::Monoid::any,
                    .space = behind.sizes,
                    .reduced = 0b10,
                    .inputs = pairs,
                    .out = view_of(out[0], column),
                    .prologue = &differs_program(x.dtype())});
        })
        .complex(changes_of_complex)
        .dtypes(kTypes);

// Where values or rows begin that differ from the one before, and behind the last.
Tensor changes_in(const Tensor& values) { return call(changes_op, {values}); }

// (self, ..., return_inverse, return_counts, dim) with the dim as argument `dim_arg`. What is not
// wanted is empty, as in PyTorch.
Results different(const Call& c, size_t dim_arg, bool sorted) {
  const Tensor x = c.tensor(0).detach();
  ARETE_CHECK(
      !x.is_meta(),
      DeviceError(c.name(), "the result's size depends on data, and meta tensors have none"));
  const bool whole = !c.has(dim_arg);
  Tensor rows, moved;
  int d = 0;
  if (whole) {
    rows = x.reshape({-1});
  } else {
    ARETE_CHECK(x.dim() > 0, IndexError(c.name(), "Dimension specified as " +
                                                      std::to_string(c.integer(dim_arg)) +
                                                      " but tensor has no dimensions"));
    d = normalize_dim(c.integer(dim_arg), int(x.dim()), c.name());
    for (int64_t k = 0; k < x.dim(); ++k)
      ARETE_CHECK(k == d || x.size(k) > 0 || x.size(d) == 0,
                  ValueError(c.name(),
                             "There are 0 sized dimensions, and they aren't selected by `dim`, so "
                             "unique cannot be applied"));
    moved = x.movedim(d, 0);
    rows = moved.reshape({x.size(d), x.size(d) ? x.numel() / x.size(d) : 1});
  }
  const bool want_inverse = c.boolean(dim_arg - 2), want_counts = c.boolean(dim_arg - 1);
  Tensor order;
  if (sorted && whole) {
    if (want_inverse)
      std::tie(rows, order) = sort(rows, 0, false, true);
    else
      rows = msort(rows);
  } else if (sorted) {
    order = lexicographic_order(rows);
    rows = rows.index_select(0, order);
  }
  const Tensor changes = changes_in(rows), starts = changes.narrow(0, 0, rows.size(0));
  const TensorOptions o(kInt64, x.device());
  Tensor inverse = empty({0}, o), counts = inverse, first;
  if (!whole || want_counts) {
    const Tensor bounds = changes.nonzero().reshape({-1});
    first = bounds.narrow(0, 0, bounds.size(0) - 1);
    if (want_counts) counts = diff(bounds);
  }
  if (want_inverse) {
    inverse = starts.cumsum(0).sub(Scalar(1));
    if (sorted) inverse = empty(inverse.sizes(), o).scatter(0, order, inverse);
    if (whole) inverse = inverse.reshape(x.sizes());
  }
  if (whole && !first.defined()) return {rows.masked_select(starts), inverse, counts};
  if (whole) return {rows.index_select(0, first), inverse, counts};
  const Tensor at = sorted ? order.index_select(0, first) : first;
  return {x.index_select(d, at), inverse, counts};
}

const OpRecord& unique_op =
    define(
        "unique(Tensor self, bool sorted=True, bool return_inverse=False, bool "
        "return_counts=False, int? dim=None) -> (Tensor output, Tensor inverse_indices, Tensor "
        "counts)")
        .doc(
            "The different values in ascending order (or slices along dim), each one's place among "
            "them, and counts, where wanted.")
        .compose([](const Call& c) { return different(c, 4, true); })
        .dtypes(kTypes);

const OpRecord& unique_consecutive_op =
    define(
        "unique_consecutive(Tensor self, bool return_inverse=False, bool return_counts=False, int? "
        "dim=None) -> (Tensor output, Tensor inverse_indices, Tensor counts)")
        .doc(
            "The first of each group of equal neighbours; each one's group and group sizes where "
            "wanted.")
        .compose([](const Call& c) { return different(c, 3, false); })
        .dtypes(kTypes);

}  // namespace
}  // namespace ops

std::tuple<Tensor, Tensor, Tensor> unique(const Tensor& self, bool return_inverse,
                                          bool return_counts, std::optional<int64_t> dim) {
  auto r = ops::call_all(ops::unique_op, {self, true, return_inverse, return_counts, dim});
  return {r[0], return_inverse ? r[1] : Tensor(), return_counts ? r[2] : Tensor()};
}
std::tuple<Tensor, Tensor, Tensor> unique_consecutive(const Tensor& self, bool return_inverse,
                                                      bool return_counts,
                                                      std::optional<int64_t> dim) {
  auto r = ops::call_all(ops::unique_consecutive_op, {self, return_inverse, return_counts, dim});
  return {r[0], return_inverse ? r[1] : Tensor(), return_counts ? r[2] : Tensor()};
}

}  // namespace arete

ARETE_FAMILY(unique)
