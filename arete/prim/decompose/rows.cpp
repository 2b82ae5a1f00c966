// take_rows and add_rows: gather and scatter with an index that is the same along a row.
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

/// Runs as an index (AddRowsArgs).
void add_runs(Primitives& p, const AddRowsArgs& a) {
  const int64_t n = a.source.numel(), rows = a.out.sizes[0], width = a.out.sizes[1];
  p.fill({.out = a.out, .value = {.f = 0}});
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
  AddRowsArgs entries = a;
  entries.index = index;
  entries.sorted = true;
  entries.begins = {};
  p.add_rows(entries);
  if (!a.mean) return;

  static auto& cache = *new expr::ProgramCache;  // used until exit
  const ScratchView counting(p, kInt64, Shape{n});
  const expr::Literal params[] = {{.i = a.left_out < 0 ? INT64_MIN : a.left_out},
                                  {.i = a.left_out < 0 ? INT64_MIN : a.left_out - a.src.sizes[0]}};
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
      // From the front or from the end; no source is so far below 0.
      const expr::Literal params[] = {
          {.i = a.left_out < 0 ? INT64_MIN : a.left_out},
          {.i = a.left_out < 0 ? INT64_MIN : a.left_out - a.src.sizes[0]}};
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
