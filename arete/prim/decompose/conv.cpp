// conv: windows copied into columns, then matrix products.
//
// With G groups, I input and O output channels per group, K kernel elements and P positions:
//   columns (N, G, I*K, P)  =  windows of padded x
//   forward   y[n, g] (O, P)        = w[g] (O, I*K) @ columns[n, g]
//   dgrad     columns[n, g]         = w[g]^T @ y[n, g];   x = sum of the windows' elements
//   wgrad     w[g]                  = sum over n of y[n, g] @ columns[n, g]^T
#include <algorithm>

#include "arete/base/error.h"
#include "arete/prim/backend.h"
#include "arete/prim/checks.h"
#include "arete/prim/decompose/windows_internal.h"

namespace arete::prim {
namespace {

struct Conv {
  Primitives& p;
  const ConvArgs& a;
  Windows windows;
  int64_t groups, in_channels, out_channels;  // channels per group
  int64_t kernel, positions;

  Conv(Primitives& primitives, const ConvArgs& args)
      : p(primitives),
        a(args),
        windows(args.window, args.x.sizes, args.y.sizes),
        groups(args.groups),
        in_channels(args.x.sizes[1] / groups),
        out_channels(args.y.sizes[1] / groups),
        kernel(windows.window_numel()),
        positions(windows.positions()) {}

  Shape columns_sizes(int64_t n) const { return {n, groups, in_channels * kernel, positions}; }

  // The columns as (n, channels, *kernel, *positions).
  Layout columns_as_windows(int64_t n) const {
    Shape sizes{n, groups * in_channels};
    for (int64_t k : windows.kernel()) sizes.push_back(k);
    for (int64_t s : windows.positions_sizes()) sizes.push_back(s);
    return Layout(sizes);
  }

  void forward() const;
  void dgrad() const;
  void wgrad() const;
  void fill_columns(const View& x, const View& columns) const;
};

// A contiguous copy of `v`, which may then be shown in any shape.
class Contiguous {
 public:
  Contiguous(Primitives& p, const View& v) : scratch_(p, v.dtype, v.sizes) {
    p.copy({.out = scratch_, .in = v});
  }
  LayoutView as(Shape sizes) const { return LayoutView(scratch_, Layout(sizes)); }

 private:
  ScratchView scratch_;
};

LayoutView samples(const View& v, int64_t first, int64_t n) {
  return LayoutView(v, narrow(layout_of(v), 0, first, n));
}

Layout swap_last(const View& v) { return transpose(layout_of(v), -1, -2); }

void Conv::fill_columns(const View& x, const View& columns) const {
  const PaddedCopy padded(p, windows, x, {.i = 0});
  p.copy({.out = LayoutView(columns, columns_as_windows(x.sizes[0])),
          .in = LayoutView(padded.view(), windows.windows(layout_of(padded.view())))});
}

// Calls body(first, n) for parts of the batch whose columns stay below 64 MiB.
template <class F>
void in_steps(const Conv& c, F&& body) {
  const int64_t batch = c.a.x.sizes[0];
  const int64_t bytes = numel_of(c.columns_sizes(1)) * int64_t(size_of(c.a.x.dtype));
  const int64_t step = std::max<int64_t>(1, (64 << 20) / std::max<int64_t>(bytes, 1));
  for (int64_t first = 0; first < batch; first += step) body(first, std::min(step, batch - first));
}

void Conv::forward() const {
  const Contiguous w(p, a.w);
  const LayoutView w4 = w.as({1, groups, out_channels, in_channels * kernel});
  in_steps(*this, [&](int64_t first, int64_t n) {
    const ScratchView columns(p, a.x.dtype, columns_sizes(n));
    fill_columns(samples(a.x, first, n), columns);
    const ScratchView y(p, a.y.dtype, Shape{n, groups, out_channels, positions});
    if (a.bias)
      p.copy({.out = y,
              .in = LayoutView(a.bias, Layout(Shape{1, groups, out_channels, 1},
                                              Shape{0, out_channels * a.bias.strides[0],
                                                    a.bias.strides[0], 0}))});
    p.gemm({.a = w4, .b = columns, .out = y, .beta = a.bias ? 1.0 : 0.0});
    const LayoutView out = samples(a.y, first, n);
    p.copy({.out = out, .in = LayoutView(y, Layout(out.view().sizes))});
  });
}

void Conv::dgrad() const {
  ARETE_ASSERT(!a.bias);
  const Contiguous w(p, a.w);
  const LayoutView w4 = w.as({1, groups, out_channels, in_channels * kernel});
  in_steps(*this, [&](int64_t first, int64_t n) {
    const Contiguous y(p, samples(a.y, first, n));
    const ScratchView columns(p, a.x.dtype, columns_sizes(n));
    p.gemm({.a = LayoutView(w4, swap_last(w4)),
            .b = y.as({n, groups, out_channels, positions}),
            .out = columns});
    add_windows(p, windows, LayoutView(columns, columns_as_windows(n)), samples(a.x, first, n));
  });
}

void Conv::wgrad() const {
  // Samples are added in the accumulation type, so that half types round once.
  const DType accumulate = accumulation_dtype(a.w.dtype);
  const Shape w_sizes{1, groups, out_channels, in_channels * kernel};
  const ScratchView sum(p, accumulate, w_sizes);
  p.fill({.out = sum, .value = {.i = 0}});
  in_steps(*this, [&](int64_t first, int64_t n) {
    const ScratchView columns(p, a.x.dtype, columns_sizes(n));
    fill_columns(samples(a.x, first, n), columns);
    const ScratchView wide_columns(p, accumulate, columns_sizes(n));
    p.copy({.out = wide_columns, .in = columns});
    const ScratchView wide_y(p, accumulate, Shape{n, groups, out_channels, positions});
    const LayoutView y = samples(a.y, first, n);
    p.copy({.out = LayoutView(wide_y, Layout(y.view().sizes)), .in = y});
    for (int64_t i = 0; i < n; ++i)
      p.gemm({.a = samples(wide_y, i, 1),
              .b = LayoutView(wide_columns,
                              transpose(narrow(layout_of(wide_columns), 0, i, 1), -1, -2)),
              .out = sum,
              .beta = 1});
  });
  p.copy({.out = a.w, .in = LayoutView(sum, Layout(a.w.sizes))});
  if (!a.bias) return;
  Shape space(a.y.sizes);
  Layout bias(Shape(space.size(), 1), Shape(space.size(), 0));
  bias.sizes[1] = a.bias.sizes[0];
  bias.strides[1] = a.bias.strides[0];
  const uint32_t all_but_channels = ((1u << space.size()) - 1) & ~2u;
  p.reduce({.monoid = Monoid::sum,
            .space = space,
            .reduced = all_but_channels,
            .inputs = {&a.y, 1},
            .out = LayoutView(a.bias, bias)});
}

}  // namespace

void Primitives::conv(const ConvArgs& args) {
  check(args);
  const Conv c(*this, args);
  switch (args.pass) {
    case ConvArgs::Pass::forward:
      return c.forward();
    case ConvArgs::Pass::dgrad:
      return c.dgrad();
    case ConvArgs::Pass::wgrad:
      return c.wgrad();
  }
}

}  // namespace arete::prim
