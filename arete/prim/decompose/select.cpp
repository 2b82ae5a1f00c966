// select: rows put in order as a whole, of which elements are looked up.
#include <algorithm>

#include "arete/base/error.h"
#include "arete/expr/program_cache.h"
#include "arete/prim/backend.h"
#include "arete/prim/decompose/layout_view_internal.h"

namespace arete::prim {
namespace {

// How many elements of a row are not NaN, and from that the place of the median.
const expr::Program& number_program(DType t) {
  static auto* const cache = new expr::ProgramCache;
  return cache->get(pack_key({int(t)}), {t}, {}, {kInt64}, [](std::span<const expr::Value> v) {
    return std::vector{cast(!is_nan(v[0]), expr::Type::i64)};
  });
}
const expr::Program& median_program(bool skip_nan) {
  static auto* const cache = new expr::ProgramCache;
  return cache->get(pack_key({skip_nan}), {kInt64}, {expr::Type::i64}, {kInt64},
                    [=](std::span<const expr::Value> v) {
                      const expr::Value one = v[0].builder()->constant(expr::Type::i64, 1);
                      const expr::Value lower = max(v[0] - 1.0, 0.0) >> one;
                      // The first NaN stands right behind the others.
                      return std::vector{skip_nan ? lower : where(v[0] < v[1], v[0], lower)};
                    });
}

// The element at one place of every row.
void select_rank(Primitives& p, const SelectArgs& a, int64_t rank) {
  // A few of many are found without an order of all.
  const int64_t n = a.in.sizes[size_t(a.dim)];
  const bool few = rank < 64 && 2 * (rank + 1) <= n;
  Shape sizes(a.in.sizes);
  if (few) sizes[size_t(a.dim)] = rank + 1;
  const ScratchView values(p, a.in.dtype, sizes), indices(p, kInt64, sizes);
  if (few)
    p.topk({a.in, values, indices, a.dim, false});
  else
    p.sort({a.in, values, indices, a.dim});
  const Layout at = narrow(layout_of(values), a.dim, rank, 1);
  p.copy({.out = a.values, .in = LayoutView(values, at)});
  p.copy({.out = a.indices, .in = LayoutView(indices, at)});
}

// Those at places that are in memory.
void select_ranks(Primitives& p, const SelectArgs& a, const View& ranks) {
  const ScratchView values(p, a.in.dtype, a.in.sizes), indices(p, kInt64, a.in.sizes);
  p.sort({a.in, values, indices, a.dim});
  p.gather({indices, ranks, a.indices, a.dim, a.op});
  p.gather({a.in, a.indices, a.values, a.dim, a.op});
}

}  // namespace

void Primitives::select(const SelectArgs& a) {
  using Place = SelectArgs::Place;
  if (a.values.numel() == 0) return;
  const int64_t n = a.in.sizes[size_t(a.dim)];
  if (a.place == Place::rank) return select_rank(*this, a, a.rank);
  if (a.place == Place::ranks) return select_ranks(*this, a, a.ranks);
  if (!is_floating(a.in.dtype)) return select_rank(*this, a, (n - 1) / 2);
  const ScratchView ranks(*this, kInt64, a.values.sizes);
  const expr::Literal length[] = {{.i = n}};
  reduce({.monoid = Monoid::sum,
          .space = a.in.sizes,
          .reduced = 1u << a.dim,
          .inputs = {&a.in, 1},
          .out = ranks,
          .prologue = &number_program(a.in.dtype),
          .epilogue = &median_program(a.place == Place::nanmedian),
          .epilogue_params = length});
  select_ranks(*this, a, ranks);
}

}  // namespace arete::prim
