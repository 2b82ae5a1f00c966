// Where windows lie, and the loops over them that the pools have in common.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "arete/base/thread_pool.h"
#include "arete/prim/args.h"

// Note [Pooling loops]
// One piece of work is a block of channels of one sample: up to 64 channels where they lie side by
// side (channels last), so that the innermost loop runs along them, else a single plane. Every
// element of the input belongs to one piece, so the backward passes need no atomics. Windows reach
// into padding and, with ceil mode, beyond it; their ranges are clipped before the loops. In a
// single plane there are four ways, of which way_of takes the first that fits:
//   long     windows wide enough for vectors of their own elements
//   columns  windows of several rows, far apart along rows or not strided: first what the windows
//            of a row of outputs have in each column of the input, then that of each window's
//            columns
//   rows     vectors of outputs of a row, one element of the window at a time; those whose windows
//            reach beyond the row are worked out one by one
//   single   output by output
// Vectors are written out, because compilers leave short rows to scalar code: maxima of two by two
// in 64 x 32 x 28 x 28 take 0.38 ms of one core instead of 1.2 ms. They are of one length on every
// instruction set, so that sums have the same bits.

namespace arete::cpu::ARETE_SIMD_TARGET {
namespace {

using prim::PoolArgs;
using prim::View;
using Index3 = std::array<int64_t, 3>;

constexpr int64_t kChannels = 64;
constexpr int64_t kLong = 16;  // elements of a window's row from which on it is worth vectors

template <class T>
using Compute = std::conditional_t<sizeof(T) == 2, float, T>;

// Always three spatial dimensions; absent leading ones have size 1.
struct Space {
  Index3 size{1, 1, 1}, stride{0, 0, 0};
  int64_t sample = 0, channel = 0;

  explicit Space(const View& v) {
    if (!v) return;
    const int s = v.rank() - 2;
    sample = v.strides[0], channel = v.strides[1];
    for (int d = 0; d < s; ++d)
      size[3 - s + d] = v.sizes[d + 2], stride[3 - s + d] = v.strides[d + 2];
  }
  int64_t plane() const { return size[0] * size[1] * size[2]; }
  // Positions in the plane are multiples of one stride.
  bool is_linear() const {
    return (size[1] == 1 || stride[1] == stride[2] * size[2]) &&
           (size[0] == 1 || stride[0] == stride[2] * size[2] * size[1]);
  }
  int64_t offset_of(int64_t position, bool linear) const {
    if (linear && size[2] > 1) return position * stride[2];
    const int64_t w = position % size[2], rest = position / size[2];
    return w * stride[2] + rest % size[1] * stride[1] + rest / size[1] * stride[0];
  }
};

// The taps of one window along one dimension that fall on the input.
struct Range {
  int64_t first, last;  // of positions, step dilation
};

struct Geometry {
  Space x, y, index;
  Index3 kernel{1, 1, 1}, stride{1, 1, 1}, padding{0, 0, 0}, dilation{1, 1, 1};
  int64_t samples, channels, block;
  enum class Way { single, rows, long_windows, columns };
  Way way = Way::single;
  bool x_linear;
  std::vector<double> width_count;           // average: taps across per output of a row
  std::array<std::vector<Range>, 3> ranges;  // windows that are not strided

  explicit Geometry(const PoolArgs& p) : x(p.x), y(p.y), index(p.indices) {
    const int s = p.window.spatial;
    for (int d = 0; d < s; ++d) {
      const int to = 3 - s + d;
      kernel[to] = p.window.kernel[d], stride[to] = p.window.stride[d];
      padding[to] = p.window.padding[d], dilation[to] = p.window.dilation[d];
    }
    samples = p.x.sizes[0], channels = p.x.sizes[1];
    const bool side_by_side =
        x.channel == 1 && y.channel == 1 && (!p.indices || index.channel == 1);
    const bool random = p.placement == PoolArgs::Placement::random;
    block = side_by_side && channels > 1 && !random ? kChannels : 1;
    x_linear = x.is_linear();
    if (block == 1 && x.plane() < INT32_MAX) way = way_of(p);
    if (p.placement == PoolArgs::Placement::adaptive)
      for (size_t d = 0; d < 3; ++d)
        for (int64_t o = 0, n = x.size[d], m = y.size[d]; o < m; ++o)
          ranges[d].push_back({o * n / m, ((o + 1) * n + m - 1) / m});
    if (p.kind == PoolArgs::Kind::avg) {
      width_count.resize(size_t(y.size[2]));
      for (int64_t w = 0; w < y.size[2]; ++w)
        width_count[size_t(w)] = double(taps(2, w, p.count_include_pad));
    }
  }
  Way way_of(const PoolArgs& p) const {
    const bool strided = p.placement == PoolArgs::Placement::strided;
    const bool adaptive = p.placement == PoolArgs::Placement::adaptive;
    // Of adaptive windows what all of them have at least.
    const int64_t width = adaptive ? x.size[2] / std::max<int64_t>(y.size[2], 1) : kernel[2];
    const bool far = !strided || (stride[2] > 2 && kernel[2] > 2);
    if (far && !p.backward && width >= kLong && dilation[2] == 1 && x.stride[2] == 1 &&
        p.x.dtype != DType::f16 && p.x.dtype != DType::bf16)
      return Way::long_windows;
    const int64_t height = adaptive ? x.size[0] * x.size[1] : kernel[0] * kernel[1];
    // Random windows may leave most of the columns out.
    if (far && (height > 1 || p.backward) && x.size[2] >= 4 &&
        (strided || adaptive || width * y.size[2] >= x.size[2]))
      return Way::columns;
    return strided && y.size[2] >= 4 ? Way::rows : Way::single;
  }
  // The outputs of a row whose windows have all elements of theirs on the input.
  Range inside() const {
    const int64_t room = x.size[2] + padding[2] - (kernel[2] - 1) * dilation[2];
    const int64_t last = room > 0 ? (room + stride[2] - 1) / stride[2] : 0;
    const int64_t first = std::min((padding[2] + stride[2] - 1) / stride[2], y.size[2]);
    return {first, std::clamp(last, first, y.size[2])};
  }
  // The length of a window along one dimension, for averages: with padding or only on the input.
  int64_t taps(int d, int64_t out, bool with_padding) const {
    if (!ranges[size_t(d)].empty())
      return ranges[size_t(d)][size_t(out)].last - ranges[size_t(d)][size_t(out)].first;
    const int64_t first = out * stride[d] - padding[d];
    if (with_padding) return std::min(first + kernel[d], x.size[d] + padding[d]) - first;
    return std::max<int64_t>(std::min(first + kernel[d], x.size[d]) - std::max<int64_t>(first, 0),
                             0);
  }
  int64_t blocks() const { return (channels + block - 1) / block; }

  // Random windows: those of one plane, by its samples.
  template <class S>
  void place(const View& samples, int64_t n, int64_t c) {
    const int missing = 3 - int(samples.sizes[2]);
    for (int d = 0; d < 3; ++d) {
      const int64_t last = x.size[d] - kernel[d], m = y.size[d];
      const S u = d < missing
                      ? S(0)
                      : samples.as<const S>()[n * samples.strides[0] + c * samples.strides[1] +
                                              (d - missing) * samples.strides[2]];
      const S step = m > 1 ? S(last) / S(m - 1) : S(0);
      const auto whole = [](S v) { return v > S(-1e9) && v < S(1e15) ? int64_t(v) : 0; };
      ranges[d].resize(size_t(m));
      for (int64_t o = 0; o < m; ++o) {
        const int64_t at = o + 1 == m ? last : whole((S(o) + u) * step) - whole(u * step);
        const int64_t first = std::clamp<int64_t>(at, 0, last);
        ranges[d][size_t(o)] = {first, first + kernel[d]};
      }
    }
  }
};

Range clip(const Geometry& g, int d, int64_t out) {
  if (!g.ranges[size_t(d)].empty()) return g.ranges[size_t(d)][size_t(out)];
  int64_t first = out * g.stride[d] - g.padding[d];
  int64_t last = std::min(first + (g.kernel[d] - 1) * g.dilation[d] + 1, g.x.size[d]);
  if (first < 0) first += (-first + g.dilation[d] - 1) / g.dilation[d] * g.dilation[d];
  // Dilated windows may miss the input; where they begin stays a position of it.
  if (first >= last) first = last = std::min(first, g.x.size[d] - 1);
  return {first, last};
}

// Calls f(first channel, count, sample) for each piece of work, in parallel; each part of them has
// a copy of f.
template <class F>
void for_pieces(const Geometry& g, const F& f) {
  const int64_t blocks = g.blocks();
  const int64_t cost = std::max(g.x.plane(), g.y.plane()) * std::min(g.block, g.channels);
  parallel_for(0, g.samples * blocks, grain_for(64 * double(cost)),
               [&](int64_t first, int64_t last) {
                 F piece = f;
                 for (int64_t i = first; i < last; ++i) {
                   const int64_t c = i % blocks * g.block;
                   piece(c, std::min(g.block, g.channels - c), i / blocks);
                 }
               });
}

// Calls f(od, oh, ow) for all output positions.
template <class F>
void for_outputs(const Geometry& g, F&& f) {
  for (int64_t d = 0; d < g.y.size[0]; ++d)
    for (int64_t h = 0; h < g.y.size[1]; ++h)
      for (int64_t w = 0; w < g.y.size[2]; ++w) f(d, h, w);
}

int64_t at(const Space& s, int64_t d, int64_t h, int64_t w) {
  return d * s.stride[0] + h * s.stride[1] + w * s.stride[2];
}

template <class T>
T lowest() {
  if constexpr (std::numeric_limits<T>::has_infinity) return -std::numeric_limits<T>::infinity();
  return std::numeric_limits<T>::lowest();
}

template <class T>
bool beats(T value, T best) {  // NaN beats everything
  // Without short cuts, so that loops of it are vectorized.
  if constexpr (std::is_floating_point_v<T>) return bool(!(value <= best) & (best == best));
  return value > best;
}

// Calls f(first, last, offset) for each element of the windows of output row (od, oh), outputs
// [w0, w0 + n): those in [first, last) (relative to w0) have that element on the input, at `offset`
// for the first of them; and `position` in the plane.
template <class F>
void for_row_taps(const Geometry& g, int64_t od, int64_t oh, int64_t w0, int64_t n, F&& f) {
  const Range rd = clip(g, 0, od), rh = clip(g, 1, oh);
  const int64_t step = g.stride[2];
  for (int64_t d = rd.first; d < rd.last; d += g.dilation[0])
    for (int64_t h = rh.first; h < rh.last; h += g.dilation[1])
      for (int64_t k = 0; k < g.kernel[2]; ++k) {
        const int64_t shift = k * g.dilation[2] - g.padding[2];  // input = output * step + shift
        const int64_t low = shift < 0 ? (-shift + step - 1) / step : 0;
        const int64_t high = g.x.size[2] > shift ? (g.x.size[2] - shift + step - 1) / step : 0;
        const int64_t first = std::max<int64_t>(low - w0, 0), last = std::min(high - w0, n);
        if (first >= last) continue;
        const int64_t w = (w0 + first) * step + shift;
        f(first, last, at(g.x, d, h, w), (d * g.x.size[1] + h) * g.x.size[2] + w);
      }
}

// A loop over [first, last) whose stride, mostly 1 or 2, is known to the compiler.
template <class F>
void with_stride(int64_t stride, F&& f) {
  if (stride == 1) return f(std::integral_constant<int64_t, 1>());
  if (stride == 2) return f(std::integral_constant<int64_t, 2>());
  f(stride);
}

// Calls f(od, oh) for all rows of outputs.
template <class F>
void for_each_row(const Geometry& g, F&& f) {
  for (int64_t d = 0; d < g.y.size[0]; ++d)
    for (int64_t h = 0; h < g.y.size[1]; ++h) f(d, h);
}

// Calls f(od, oh, w0, n) for pieces of rows of the output.
template <class F>
void for_rows(const Geometry& g, F&& f) {
  for (int64_t d = 0; d < g.y.size[0]; ++d)
    for (int64_t h = 0; h < g.y.size[1]; ++h)
      for (int64_t w = 0; w < g.y.size[2]; w += kChannels)
        f(d, h, w, std::min(kChannels, g.y.size[2] - w));
}

// Calls f(od, oh, whether its windows have other rows of the input than those of the call before).
template <class F>
void for_rows_of_windows(const Geometry& g, F&& f) {
  Range before_d{-1, -1}, before_h{-1, -1};
  for (int64_t d = 0; d < g.y.size[0]; ++d)
    for (int64_t h = 0; h < g.y.size[1]; ++h) {
      const Range rd = clip(g, 0, d), rh = clip(g, 1, h);
      const bool same = rd.first == before_d.first && rd.last == before_d.last &&
                        rh.first == before_h.first && rh.last == before_h.last;
      f(d, h, !same);
      before_d = rd, before_h = rh;
    }
}

}  // namespace
}  // namespace arete::cpu::ARETE_SIMD_TARGET
