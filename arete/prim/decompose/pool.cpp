// pool: reductions over windows of a padded copy; windows that are not strided element by element.
#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "arete/base/error.h"
#include "arete/expr/value.h"
#include "arete/prim/backend.h"
#include "arete/prim/checks.h"
#include "arete/prim/decompose/windows_internal.h"
#include "arete/prim/positions.h"

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

// Windows that are not strided: programs that compute where their elements lie, one launch for each
// element of the largest window.
class PlacedWindows {
 public:
  PlacedWindows(Primitives& p, const PoolArgs& a)
      : p_(p), a_(a), spatial_(size_t(a.window.spatial)) {
    for (size_t d = 0; d < spatial_; ++d) {
      const int64_t n = a.x.sizes[d + 2], m = a.y.sizes[d + 2];
      const bool random = a.placement == PoolArgs::Placement::random;
      window_.push_back(random ? a.window.kernel[d] : m ? std::min(n, (n + m - 1) / m + 1) : 0);
      outputs_.push_back(std::min(m, (m + n - 1) / n + 1));
    }
  }

  void max_forward() {
    const bool indexed = bool(a_.indices);
    const ScratchView best(p_, a_.y.dtype, a_.y.sizes), where(p_, kInt64, a_.y.sizes);
    p_.fill({.out = best, .value = {.i = 0}, .value_is_integer = is_integral_or_bool(a_.y.dtype)});
    p_.fill({.out = where, .value = {.i = 0}, .value_is_integer = true});
    run(a_.x, {best, where}, window_, [](const Values& v) {
      Value inside, position;
      v.element(&inside, &position);
      const Value value = expr::load(v.table, v.plane + position);
      Value beats = value > v.state[0];
      if (value.is_floating()) beats = (!(value <= v.state[0])) & (!is_nan(v.state[0]));
      const Value take = inside & (v.is_first | beats);
      return std::vector{expr::where(take, value, v.state[0]),
                         expr::where(take, position, v.state[1])};
    });
    p_.copy({.out = a_.y, .in = best});
    if (indexed) p_.copy({.out = a_.indices, .in = where});
  }

  void avg_forward() {
    const ScratchView sum(p_, accumulation_dtype(a_.y.dtype), a_.y.sizes);
    p_.fill({.out = sum, .value = {.f = 0}});
    run(a_.x, {sum}, window_, [](const Values& v) {
      Value inside, position;
      v.element(&inside, &position);
      const Value value = cast(expr::load(v.table, v.plane + position), v.state[0].type());
      const Value total = v.state[0] + expr::where(inside, value, 0.0);
      return std::vector{expr::where(v.is_last, total / cast(v.count(v.at), total.type()), total)};
    });
    p_.copy({.out = a_.y, .in = sum});
  }

  // Each element of the input looks at the outputs that it is part of.
  void avg_backward() {
    const ScratchView sum(p_, accumulation_dtype(a_.x.dtype), a_.x.sizes);
    p_.fill({.out = sum, .value = {.f = 0}});
    run(a_.y, {sum}, outputs_, [](const Values& v) {
      std::vector<Value> out;
      Value inside, position;
      for (size_t d = 0; d < v.at.size(); ++d) {
        const Value first = trunc_div(v.at[d] * v.m[d], v.n[d]);
        const Value last = trunc_div((v.at[d] + 1.0) * v.m[d] - 1.0, v.n[d]);
        const Value o = first + v.tap[d], exists = o <= last;
        out.push_back(min(o, v.m[d] - 1.0));
        inside = d ? inside & exists : exists;
        position = d ? position * v.m[d] + out[d] : out[d];
      }
      const Value value = cast(expr::load(v.table, v.plane + position), v.state[0].type());
      const Value share = value / cast(v.count(out), value.type());
      return std::vector{v.state[0] + expr::where(inside, share, 0.0)};
    });
    p_.copy({.out = a_.x, .in = sum});
  }

 private:
  using Value = expr::Value;

  // What a program sees at one element of its result.
  struct Values {
    Value table, plane;        // the first element of the plane that is read
    std::vector<Value> at;     // the place in the plane of the result
    std::vector<Value> u;      // samples, if any
    std::vector<Value> state;  // the result so far
    std::vector<Value> tap, n, m, kernel;
    Value is_first, is_last;

    Value begin(size_t d, Value o) const {
      if (u.empty()) return trunc_div(o * n[d], m[d]);
      const expr::Type t = u[d].type();
      const Value last = n[d] - kernel[d];
      const Value step = cast(last, t) / cast(max(m[d] - 1.0, 1.0), t);
      const Value start = cast(trunc((cast(o, t) + u[d]) * step), expr::Type::i64) -
                          cast(trunc(u[d] * step), expr::Type::i64);
      return where(o + 1.0 == m[d], last, min(max(start, expr::constant_like(start, 0)), last));
    }
    Value end(size_t d, Value o) const {
      if (!u.empty()) return begin(d, o) + kernel[d];
      return trunc_div((o + 1.0) * n[d] + (m[d] - 1.0), m[d]);
    }
    // The element of number `tap` of the window, if it has that.
    void element(Value* inside, Value* position) const {
      for (size_t d = 0; d < at.size(); ++d) {
        const Value i = begin(d, at[d]) + tap[d], exists = i < end(d, at[d]);
        const Value safe = min(i, n[d] - 1.0);
        *inside = d ? *inside & exists : exists;
        *position = d ? *position * n[d] + safe : safe;
      }
    }
    // How many elements the window of output `o` has.
    Value count(const std::vector<Value>& o) const {
      Value c;
      for (size_t d = 0; d < o.size(); ++d) {
        const Value along = end(d, o[d]) - begin(d, o[d]);
        c = d ? c * along : along;
      }
      return c;
    }
  };

  // Runs a program for each of `taps`, whose state is at first what `state` holds and then what
  // the program made of it; its sizes are those of the result.
  void run(const View& read, std::initializer_list<View> state, IntList taps,
           const std::function<std::vector<Value>(const Values&)>& body) {
    if (numel_of(state.begin()->sizes) == 0 || read.numel() == 0) return;
    const ScratchView table(p_, read.dtype, read.sizes);
    p_.copy({.out = table, .in = read});
    const size_t rank = spatial_ + 2;
    const IntList sizes = state.begin()->sizes;
    std::vector<View> inputs{table};
    int64_t longest = sizes[0] * sizes[1];
    for (int64_t n : sizes) longest = std::max(longest, n);
    Positions positions(p_, kInt64, longest);
    inputs.push_back(positions.along(sizes, 0, 1));
    for (size_t d = 2; d < rank; ++d) inputs.push_back(positions.along(sizes, d, d));
    const bool sampled = a_.placement == PoolArgs::Placement::random;
    Shape sample_strides(rank, 0);
    if (sampled) {
      sample_strides[0] = a_.samples.strides[0];
      sample_strides[1] = a_.samples.strides[1];
      for (size_t d = 0; d < spatial_; ++d) {
        View v = a_.samples;
        v.data += int64_t(d) * v.strides[2] * int64_t(size_of(v.dtype));
        v.sizes = sizes;
        v.strides = sample_strides;
        inputs.push_back(v);
      }
    }
    inputs.insert(inputs.end(), state.begin(), state.end());
    std::vector<DType> dtypes, outputs;
    for (const View& v : inputs) dtypes.push_back(v.dtype);
    for (const View& v : state) outputs.push_back(v.dtype);
    const std::vector<expr::Type> types(4 * spatial_ + 3, expr::Type::i64);
    const expr::ProgramPtr program = expr::trace(
        [&](std::span<const Value> in) {
          size_t i = 0;
          const auto take = [&](size_t n) {
            i += n;
            return std::vector<Value>(in.begin() + int64_t(i - n), in.begin() + int64_t(i));
          };
          Values v;
          v.table = take(1)[0];
          v.plane = take(1)[0];
          v.at = take(spatial_);
          if (sampled) v.u = take(spatial_);
          v.state = take(state.size());
          v.tap = take(spatial_);
          v.n = take(spatial_);
          v.m = take(spatial_);
          v.kernel = take(spatial_);
          v.is_first = take(1)[0] != 0.0;
          v.is_last = take(1)[0] != 0.0;
          v.plane = v.plane * take(1)[0];
          return body(v);
        },
        dtypes, types, outputs, 1);
    const int64_t count = numel_of(taps);
    for (int64_t k = 0; k < count; ++k) {
      std::vector<expr::Literal> params(4 * spatial_ + 3);
      int64_t rest = k;
      for (size_t d = spatial_; d-- > 0; rest /= taps[d]) {
        params[d].i = rest % taps[d];
        params[spatial_ + d].i = a_.x.sizes[d + 2];
        params[2 * spatial_ + d].i = a_.y.sizes[d + 2];
        params[3 * spatial_ + d].i = a_.window.kernel[d];
      }
      params[4 * spatial_].i = k == 0;
      params[4 * spatial_ + 1].i = k + 1 == count;
      params[4 * spatial_ + 2].i = numel_of(read.sizes.subspan(2));
      p_.pointwise({.program = program.get(),
                    .inputs = inputs,
                    .outputs = {state.begin(), state.size()},
                    .params = params});
    }
  }

  Primitives& p_;
  const PoolArgs& a_;
  const size_t spatial_;
  Shape window_, outputs_;  // the most elements of a window, and outputs of an element
};

}  // namespace

void Primitives::pool(const PoolArgs& a) {
  check(a);
  if (a.placement != PoolArgs::Placement::strided &&
      !(a.kind == PoolArgs::Kind::max && a.backward)) {
    PlacedWindows windows(*this, a);
    if (a.kind == PoolArgs::Kind::max) return windows.max_forward();
    return a.backward ? windows.avg_backward() : windows.avg_forward();
  }
  const Windows w(a.window, a.x.sizes, a.y.sizes);
  if (a.kind == PoolArgs::Kind::max) {
    a.backward ? max_backward(*this, a) : max_forward(*this, a, w);
  } else {
    ARETE_ASSERT(is_floating(a.x.dtype));
    a.backward ? avg_backward(*this, a, w) : avg_forward(*this, a, w);
  }
}

}  // namespace arete::prim
