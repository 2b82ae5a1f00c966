// pool: reductions over windows of a padded copy.
#include <limits>

#include "arete/base/error.h"
#include "arete/expr/value.h"
#include "arete/prim/backend.h"
#include "arete/prim/checks.h"
#include "arete/prim/decompose/windows_internal.h"

namespace arete::prim {
namespace {

// What loses against every value.
expr::Literal lowest_literal(DType t) {
  expr::Literal l;
  if (is_floating(t))
    l.f = is_float8(t) ? lowest_of(t) : -std::numeric_limits<double>::infinity();
  else if (t == kInt64)
    l.i = std::numeric_limits<int64_t>::min();
  else
    l.i = int64_t(lowest_of(t));
  return l;
}

// (A, B, *kernel, *positions) as (A, B, *positions, *kernel).
Layout kernel_last(const Layout& windows, int spatial) {
  Shape order{0, 1};
  for (int d = 0; d < spatial; ++d) order.push_back(2 + spatial + d);
  for (int d = 0; d < spatial; ++d) order.push_back(2 + d);
  return permute(windows, order);
}

// A copy of all windows of a padded view, flattened: (A, B, positions, window).
class FlatWindows {
 public:
  FlatWindows(Primitives& p, const Windows& w, const View& padded)
      : scratch_(p, padded.dtype,
                 Shape{padded.sizes[0], padded.sizes[1], w.positions(), w.window_numel()}) {
    const LayoutView source(padded, kernel_last(w.windows(layout_of(padded)), w.spatial()));
    p.copy({.out = LayoutView(scratch_, Layout(source.view().sizes)), .in = source});
  }
  const View& view() const { return scratch_; }

 private:
  ScratchView scratch_;
};

// The batch and channels of `v` with its spatial dimensions flattened, where v is contiguous.
Layout flat_plane(const View& v) {
  int64_t plane = 1;
  for (size_t d = 2; d < v.sizes.size(); ++d) plane *= v.sizes[d];
  return Layout(Shape{v.sizes[0], v.sizes[1], plane});
}

// Of every window the first element that is the window's maximum, elements of the padding never.
void find_maxima(Primitives& p, const Windows& w, const View& elements, const View& maxima,
                 const View& found) {
  Shape plane{1, 1};
  for (int64_t s : w.space()) plane.push_back(s);
  const ScratchView ones(p, kBool, plane);
  p.fill({.out = ones, .value = {.i = 1}, .value_is_integer = true});
  const PaddedCopy inside(p, w, ones, {.i = 0});
  const FlatWindows is_inside(p, w, inside.view());

  const ScratchView hits(p, kBool, elements.sizes);
  const DType dtypes[3] = {elements.dtype, maxima.dtype, kBool}, out[1] = {kBool};
  const expr::ProgramPtr is_hit = expr::trace(
      [](std::span<const expr::Value> v) {
        return std::vector<expr::Value>{v[2] & ((v[0] == v[1]) | is_nan(v[0]))};
      },
      dtypes, {}, out);
  const View inputs[3] = {elements, maxima, is_inside.view()};
  p.pointwise({.program = is_hit.get(), .inputs = inputs, .outputs = {&hits.view(), 1}});
  p.arg_reduce({.in = hits, .out = found, .values = {}, .dim = 3, .largest = true});
}

void max_forward(Primitives& p, const PoolArgs& a, const Windows& w) {
  const PaddedCopy padded(p, w, a.x, lowest_literal(a.x.dtype));
  const FlatWindows elements(p, w, padded.view());  // (N, C, positions, window)
  const Shape one_each{a.y.sizes[0], a.y.sizes[1], w.positions(), 1};
  const ScratchView maxima(p, a.y.dtype, one_each), found(p, kInt64, one_each);
  p.reduce({.monoid = Monoid::max,
            .space = elements.view().sizes,
            .reduced = 1u << 3,
            .inputs = {&elements.view(), 1},
            .out = maxima});
  p.copy({.out = a.y, .in = LayoutView(maxima, Layout(a.y.sizes))});
  if (!a.indices) return;

  // The same windows over a plane of numbered elements say where each window's elements lie.
  find_maxima(p, w, elements.view(), maxima, found);
  Shape plane_sizes{1, 1};
  for (int64_t s : w.space()) plane_sizes.push_back(s);
  const ScratchView plane(p, kInt64, plane_sizes);
  p.iota({.out = LayoutView(plane, Layout(Shape{plane.view().numel()}))});
  const PaddedCopy padded_plane(p, w, plane, {.i = 0});
  const FlatWindows places(p, w, padded_plane.view());  // (1, 1, positions, window)
  const LayoutView everywhere(
      places.view(), expand(layout_of(places.view()), Shape{one_each[0], one_each[1], -1, -1}));
  const ScratchView indices(p, kInt64, one_each);
  p.gather({.in = everywhere, .index = found, .out = indices, .dim = 3, .op = "max_pool"});
  p.copy({.out = a.indices, .in = LayoutView(indices, Layout(a.indices.sizes))});
}

void max_backward(Primitives& p, const PoolArgs& a) {
  const DType accumulate = accumulation_dtype(a.x.dtype);
  const ScratchView y(p, accumulate, a.y.sizes), indices(p, kInt64, a.indices.sizes),
      x(p, accumulate, a.x.sizes);
  p.copy({.out = y, .in = a.y});
  p.copy({.out = indices, .in = a.indices});
  p.fill({.out = x, .value = {.i = 0}, .value_is_integer = is_integral_or_bool(accumulate)});
  p.scatter({.out = LayoutView(x, flat_plane(x)),
             .index = LayoutView(indices, flat_plane(indices)),
             .src = LayoutView(y, flat_plane(y)),
             .dim = 2,
             .mode = ScatterMode::add,
             .op = "max_pool_backward"});
  p.copy({.out = a.x, .in = x});
}

// y (N, C, *positions) = x / the divisor of each position, in y's dtype.
void divide_by_counts(Primitives& p, const PoolArgs& a, const Windows& w, const View& x,
                      const View& y) {
  const DType dtype = accumulation_dtype(a.x.dtype);
  Shape sizes{1, 1};
  for (int64_t s : w.positions_sizes()) sizes.push_back(s);
  const ScratchView counts(p, dtype, sizes);
  if (a.divisor != 0) {
    p.fill({.out = counts, .value = {.f = double(a.divisor)}});
  } else {
    // The windows' sums over a plane of ones where elements count.
    const ScratchView plane(p, dtype, w.padded_sizes(1, 1));
    const Layout all = layout_of(plane);
    p.fill({.out = plane, .value = {.f = 0}});
    p.fill({.out = LayoutView(plane, a.count_include_pad ? w.with_padding(all) : w.interior(all)),
            .value = {.f = 1}});
    w.sum(p, plane, counts);
  }
  const DType dtypes[2] = {x.dtype, dtype};
  const expr::ProgramPtr divide = expr::trace(
      [](std::span<const expr::Value> v) { return std::vector<expr::Value>{v[0] / v[1]}; }, dtypes,
      {}, {&y.dtype, 1});
  const View inputs[2] = {x, counts};
  p.pointwise({.program = divide.get(), .inputs = inputs, .outputs = {&y, 1}});
}

void avg_forward(Primitives& p, const PoolArgs& a, const Windows& w) {
  const PaddedCopy padded(p, w, a.x, {.f = 0});
  const ScratchView sums(p, accumulation_dtype(a.x.dtype), a.y.sizes);
  w.sum(p, padded.view(), sums);
  divide_by_counts(p, a, w, sums, a.y);
}

void avg_backward(Primitives& p, const PoolArgs& a, const Windows& w) {
  const ScratchView share(p, accumulation_dtype(a.x.dtype), a.y.sizes);
  divide_by_counts(p, a, w, a.y, share);
  // Every element of a window gets the window's share.
  Layout windows = layout_of(share);
  for (int d = 0; d < w.spatial(); ++d) {
    windows.sizes.insert(windows.sizes.begin() + 2 + d, w.kernel()[d]);
    windows.strides.insert(windows.strides.begin() + 2 + d, 0);
  }
  add_windows(p, w, LayoutView(share, windows), a.x);
}

}  // namespace

void Primitives::pool(const PoolArgs& a) {
  check(a);
  const Windows w(a.window, a.x.sizes, a.y.sizes);
  if (a.kind == PoolArgs::Kind::max) {
    a.backward ? max_backward(*this, a) : max_forward(*this, a, w);
  } else {
    ARETE_ASSERT(is_floating(a.x.dtype));
    a.backward ? avg_backward(*this, a, w) : avg_forward(*this, a, w);
  }
}

}  // namespace arete::prim
