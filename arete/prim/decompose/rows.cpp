// take_rows and add_rows: gather and scatter with an index that is the same along a row.
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "arete/base/error.h"
#include "arete/expr/program_cache.h"
#include "arete/prim/backend.h"
#include "arete/prim/decompose/layout_view_internal.h"

namespace arete::prim {
namespace {

// (n, width), every column the same.
Layout repeated_along_rows(int64_t n, int64_t width) {
  return Layout(Shape{n, width}, Shape{1, 0});
}

// The row of src that is left out, as an entry may name it: from the front or from the end. No
// source is so far below 0 as what stands for none.
std::array<expr::Literal, 2> left_out_of(const AddRowsArgs& a) {
  if (a.left_out < 0) return {{{.i = INT64_MIN}, {.i = INT64_MIN}}};
  return {{{.i = a.left_out}, {.i = a.left_out - a.src.sizes[0]}}};
}

/// Maxima of runs that `index` says of each entry: the largest, then the first entry of those that
/// are as large.
void find_maxima(Primitives& p, const AddRowsArgs& a, const View& index) {
  using expr::Value;
  static auto& cache = *new expr::ProgramCache;  // used until exit
  const int64_t n = a.source.numel(), rows = a.out.sizes[0], width = a.out.sizes[1];
  const DType t = a.out.dtype;
  const ScratchView values(p, t, Shape{n, width}), found(p, t, Shape{n, width}),
      entries(p, kInt64, Shape{n}), places(p, kInt64, Shape{n, width}),
      first(p, kInt64, Shape{rows, width});
  const LayoutView source(a.source, repeated_along_rows(n, width)),
      runs(index, repeated_along_rows(n, width)), entry(entries, repeated_along_rows(n, width));
  const auto left_out = left_out_of(a);
  p.take_rows({a.src, a.source, values, a.op});
  const View named[] = {values, source};
  p.pointwise(
      {&cache.get(pack_key({0, int(t)}), {t, kInt64}, {expr::Type::i64, expr::Type::i64}, {t},
                  [](std::span<const Value> v) {
                    return std::vector{
                        expr::where((v[1] == v[2]) | (v[1] == v[3]), -double(INFINITY), v[0])};
                  }),
       named,
       {&values.view(), 1},
       left_out});
  p.fill({.out = a.out, .value = {.f = -double(INFINITY)}});
  p.scatter({a.out, runs, values, 0, ScatterMode::max, a.op});

  p.iota({.out = entries, .istart = 0, .istep = 1});
  p.gather({a.out, runs, found, 0, a.op});
  const View compared[] = {values, found, source, entry};
  const expr::Literal numbers[] = {left_out[0], left_out[1], {.i = n}};
  p.pointwise({&cache.get(pack_key({1, int(t)}), {t, t, kInt64, kInt64},
                          {expr::Type::i64, expr::Type::i64, expr::Type::i64}, {kInt64},
                          [](std::span<const Value> v) {
                            const Value same = (v[0] == v[1]) | ((v[0] != v[0]) & (v[1] != v[1]));
                            return std::vector{
                                expr::where(same & (v[2] != v[4]) & (v[2] != v[5]), v[3], v[6])};
                          }),
               compared,
               {&places.view(), 1},
               numbers});
  p.fill({.out = first, .value = {.i = n}, .value_is_integer = true});
  p.scatter({first, runs, places, 0, ScatterMode::min, a.op});
  const View kept[] = {a.out, first};
  p.pointwise({&cache.get(pack_key({2, int(t)}), {t, kInt64}, {expr::Type::i64}, {t},
                          [](std::span<const Value> v) {
                            return std::vector{expr::where(v[1] == v[2], 0.0, v[0])};
                          }),
               kept,
               {&a.out, 1},
               {numbers + 2, 1}});
  if (!a.top) return;
  static const auto& tops = *new expr::ProgramPtr(expr::trace(
      [](std::span<const Value> v) {
        const Value last = v[2] + -1.0, row = expr::load(v[1], expr::min(v[0], last));
        return std::vector{
            expr::where(v[0] == v[2], -1.0, expr::where(row < 0.0, row + v[3], row))};
      },
      std::array{kInt64, kInt64}, std::array{expr::Type::i64, expr::Type::i64}, std::array{kInt64},
      0b10));
  const View looked_up[] = {first, a.source};
  const expr::Literal sizes[] = {{.i = n}, {.i = a.src.sizes[0]}};
  p.pointwise({tops.get(), looked_up, {&a.top, 1}, sizes});
}

/// Runs as an index (AddRowsArgs).
void add_runs(Primitives& p, const AddRowsArgs& a) {
  using Runs = AddRowsArgs::Runs;
  const int64_t n = a.source.numel(), rows = a.out.sizes[0], width = a.out.sizes[1];
  p.fill({.out = a.out, .value = {.f = 0}});
  if (a.top) p.fill({.out = a.top, .value = {.i = -1}, .value_is_integer = true});
  if (n == 0 || rows == 0 || width == 0) return;
  const ScratchView scratch(p, kInt64, Shape{n + 1}), one(p, kInt64, Shape{1}),
      numbers(p, kInt64, Shape{rows});
  const LayoutView index(scratch, Layout(Shape{n}));
  if (a.begins) {
    // How many runs but the first begin at an entry or before it.
    p.fill({.out = scratch, .value = {.i = 0}, .value_is_integer = true});
    if (rows > 1) {
      p.fill({.out = one, .value = {.i = 1}, .value_is_integer = true});
      p.scatter({.out = scratch,
                 .index = LayoutView(a.begins, Layout(Shape{rows - 1}, Shape{1}, 1)),
                 .src = LayoutView(one, Layout(Shape{rows - 1}, Shape{0})),
                 .dim = 0,
                 .mode = ScatterMode::add,
                 .op = a.op});
    }
    p.scan({.monoid = Monoid::sum, .in = scratch, .out = scratch, .dim = 0});
  } else {
    p.iota({.out = numbers, .istart = 0, .istep = 1});
    p.copy({LayoutView(scratch, Layout(Shape{rows, a.run})),
            LayoutView(numbers, Layout(Shape{rows, a.run}, Shape{1, 0}))});
  }
  if (a.what == Runs::max) return find_maxima(p, a, index);
  AddRowsArgs entries = a;
  entries.index = index;
  entries.sorted = true;
  entries.begins = {};
  p.add_rows(entries);
  if (a.what != Runs::mean) return;

  static auto& cache = *new expr::ProgramCache;  // used until exit
  const ScratchView counting(p, kInt64, Shape{n});
  const auto params = left_out_of(a);
  const expr::Program& counts =
      cache.get(0, {kInt64}, {expr::Type::i64, expr::Type::i64}, {kInt64},
                [](std::span<const expr::Value> v) {
                  return std::vector{expr::cast((v[0] != v[1]) & (v[0] != v[2]), expr::Type::i64)};
                });
  p.pointwise({&counts, {&a.source, 1}, {&counting.view(), 1}, params});
  p.fill({.out = numbers, .value = {.i = 0}, .value_is_integer = true});
  p.scatter({.out = numbers,
             .index = index,
             .src = counting,
             .dim = 0,
             .mode = ScatterMode::add,
             .op = a.op});
  const DType t = a.out.dtype;
  const expr::Program& means =
      cache.get(1 + uint64_t(t), {t, kInt64}, {}, {t}, [](std::span<const expr::Value> v) {
        return std::vector{v[0] / expr::cast(expr::max(v[1], 1.0), v[0].type())};
      });
  const LayoutView wide(numbers, repeated_along_rows(rows, width));
  const View inputs[] = {a.out, wide};
  p.pointwise({&means, inputs, {&a.out, 1}, {}});
}

}  // namespace

void Primitives::take_rows(const TakeRowsArgs& a) {
  ARETE_ASSERT(a.index.is_contiguous());
  const LayoutView index(a.index, repeated_along_rows(a.index.numel(), a.out.sizes[1]));
  gather({.in = a.table, .index = index, .out = a.out, .dim = 0, .op = a.op});
}

void Primitives::add_rows(const AddRowsArgs& a) {
  if (a.in_runs()) return add_runs(*this, a);
  ARETE_ASSERT(a.index.is_contiguous());
  ARETE_ASSERT(a.source || (!a.factors && a.left_out < 0));
  if (a.source) {
    // The rows as they are added, one for each entry.
    const int64_t n = a.index.numel(), width = a.out.sizes[1];
    const DType t = a.out.dtype;
    if (n == 0 || width == 0) return;
    const ScratchView rows(*this, t, Shape{n, width});
    take_rows({a.src, a.source, rows, a.op});
    if (a.factors || a.left_out >= 0) {
      static auto& cache = *new expr::ProgramCache;  // used until exit
      const LayoutView source(a.source, repeated_along_rows(n, width));
      SmallVector<View, 3> inputs{rows.view(), source.view()};
      std::vector<DType> dtypes{t, kInt64};
      std::optional<LayoutView> factors;
      if (a.factors) {
        factors.emplace(a.factors, repeated_along_rows(n, width));
        inputs.push_back(factors->view());
        dtypes.push_back(t);
      }
      const auto params = left_out_of(a);
      const expr::Program& program =
          cache.get(pack_key({int(t), bool(a.factors)}), dtypes, {expr::Type::i64, expr::Type::i64},
                    {t}, [&](std::span<const expr::Value> v) {
                      const expr::Value product = a.factors ? v[0] * v[2] : v[0];
                      const expr::Value out = (v[1] == v[v.size() - 2]) | (v[1] == v.back());
                      return std::vector{expr::where(out, 0.0, product)};
                    });
      pointwise({&program, {inputs.data(), inputs.size()}, {&rows.view(), 1}, params});
    }
    return add_rows({a.out, a.index, rows, a.op});
  }
  const LayoutView index(a.index, repeated_along_rows(a.index.numel(), a.src.sizes[1]));
  scatter(
      {.out = a.out, .index = index, .src = a.src, .dim = 0, .mode = ScatterMode::add, .op = a.op});
}

}  // namespace arete::prim
