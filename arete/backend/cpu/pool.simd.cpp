// Max and average pooling, forward and backward; see Note [Pooling loops] in pool_loops.inl.h.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include "arete/backend/cpu/pool_kernels.h"
#include "arete/backend/cpu/pool_loops.inl.h"

namespace arete::cpu::ARETE_SIMD_TARGET {
namespace {

// Outputs [0, L) of windows 2 x 2 with stride 2 over two rows of input.
template <class T, int L>
void max_2x2(const T* r0, const T* r1, int64_t base, int64_t width, T* y, int64_t* index) {
  using Mask = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  typedef T V __attribute__((vector_size(L * sizeof(T))));
  typedef Mask M __attribute__((vector_size(L * sizeof(T))));
  typedef int64_t I __attribute__((vector_size(L * 8)));
  M even, number;
  for (int i = 0; i < L; ++i) even[i] = 2 * i, number[i] = 2 * i;
  V u0, u1, l0, l1;
  __builtin_memcpy(&u0, r0, sizeof(V)), __builtin_memcpy(&u1, r0 + L, sizeof(V));
  __builtin_memcpy(&l0, r1, sizeof(V)), __builtin_memcpy(&l1, r1 + L, sizeof(V));
  V best = __builtin_shuffle(u0, u1, even);
  M tap = M{};
  const V others[3] = {__builtin_shuffle(u0, u1, even + 1), __builtin_shuffle(l0, l1, even),
                       __builtin_shuffle(l0, l1, even + 1)};
  const Mask taps[3] = {1, Mask(width), Mask(width + 1)};
#pragma GCC unroll 3
  for (int i = 0; i < 3; ++i) {
    const M better = ~(M)(others[i] <= best) & (M)(best == best);  // as beats()
    best = better ? others[i] : best;
    tap = better ? taps[i] - M{} : tap;
  }
  __builtin_memcpy(y, &best, sizeof(V));
  if (index == nullptr) return;
  const I where = __builtin_convertvector(tap + number, I) + base;
  __builtin_memcpy(index, &where, sizeof(I));
}

// A row of at least 4 outputs. The last vector may compute some outputs a second time.
template <class T>
void max_row_2x2(const T* r0, const T* r1, int64_t count, int64_t base, int64_t width, T* y,
                 int64_t* index) {
  const auto row = [&]<int L>(std::integral_constant<int, L>) {
    for (int64_t i = 0; i < count; i += L) {
      const int64_t j = std::min(i, count - L);
      max_2x2<T, L>(r0 + 2 * j, r1 + 2 * j, base + 2 * j, width, y + j,
                    index == nullptr ? nullptr : index + j);
    }
  };
  if (count >= 8) return row(std::integral_constant<int, 8>());
  row(std::integral_constant<int, 4>());
}

bool is_2x2(const Geometry& g, bool has_index) {
  if (!g.ranges[0].empty()) return false;
  if (g.block != 1 || g.x.size[0] != 1 || g.y.size[0] != 1 || g.kernel[0] != 1) return false;
  if (g.x.size[2] >= INT32_MAX / 4 || g.y.size[2] < 4) return false;
  for (int d = 1; d < 3; ++d)
    if (g.kernel[d] != 2 || g.stride[d] != 2 || g.padding[d] != 0 || g.dilation[d] != 1 ||
        g.y.size[d] * 2 > g.x.size[d])
      return false;
  return g.x.stride[2] == 1 && g.y.stride[2] == 1 && (!has_index || g.index.stride[2] == 1);
}

template <class T>
void max_rows(const T* x, T* y, int64_t* index, const Geometry& g) {
  using C = Compute<T>;
  using Narrow = std::conditional_t<sizeof(C) == 4, int32_t, int64_t>;  // as wide as a value
  const bool narrow = sizeof(C) == 8 || g.x.plane() < INT32_MAX;
  for_rows(g, [&](int64_t od, int64_t oh, int64_t w0, int64_t n) {
    C best[kChannels];
    Narrow where[kChannels];
    int64_t wide[kChannels];
    std::fill(best, best + n, lowest<C>());
    // What stays if every element of a window is the lowest number: its first position.
    const int64_t row = (clip(g, 0, od).first * g.x.size[1] + clip(g, 1, oh).first) * g.x.size[2];
    for (int64_t i = 0; i < n; ++i) {
      const int64_t start = row + clip(g, 2, w0 + i).first;
      where[i] = Narrow(start);
      if (!narrow) wide[i] = start;
    }
    for_row_taps(g, od, oh, w0, n,
                 [&](int64_t first, int64_t last, int64_t offset, int64_t position) {
                   const T* from = x + offset;
                   if (!narrow) {
                     for (int64_t i = first; i < last; ++i) {
                       const C v = C(from[(i - first) * g.stride[2] * g.x.stride[2]]);
                       if (beats(v, best[i]))
                         best[i] = v, wide[i] = position + (i - first) * g.stride[2];
                     }
                     return;
                   }
                   with_stride(g.stride[2] * g.x.stride[2], [&](auto step) {
                     const Narrow base = Narrow(position), between = Narrow(g.stride[2]);
                     for (int64_t i = 0; i < last - first; ++i) {
                       const C v = C(from[i * step]);
                       const bool b = beats(v, best[first + i]);
                       best[first + i] = b ? v : best[first + i];
                       where[first + i] = b ? Narrow(base + Narrow(i) * between) : where[first + i];
                     }
                   });
                 });
    T* to = y + at(g.y, od, oh, w0);
    for (int64_t i = 0; i < n; ++i) to[i * g.y.stride[2]] = T(best[i]);
    if (index == nullptr) return;
    int64_t* out = index + at(g.index, od, oh, w0);
    for (int64_t i = 0; i < n; ++i)
      out[i * g.index.stride[2]] = narrow ? int64_t(where[i]) : wide[i];
  });
}

template <bool kIndexed, class T>
void max_columns(const T* x, T* y, int64_t* index, const Geometry& g) {
  using C = Compute<T>;
  // As wide as a value; there are fewer rows than that (Geometry::by_columns).
  using Row = std::conditional_t<sizeof(C) == 4, int32_t, int64_t>;
  const int64_t width = g.x.size[2];
  std::vector<C> best(size_t(width), C(0));
  // No vector of whole numbers: its constructor would be a function that other files may get.
  const std::unique_ptr<Row[]> row(new Row[size_t(kIndexed ? width : 0)]());
  C* const b = best.data();
  Row* const r = row.get();
  for_rows_of_windows(g, [&](int64_t od, int64_t oh, bool other) {
    const Range rd = clip(g, 0, od), rh = clip(g, 1, oh);
    if (other) {
      std::fill(b, b + width, lowest<C>());
      if (kIndexed) std::fill(r, r + width, Row(rd.first * g.x.size[1] + rh.first));
      for (int64_t d = rd.first; d < rd.last; d += g.dilation[0])
        for (int64_t h = rh.first; h < rh.last; h += g.dilation[1]) {
          const T* from = x + at(g.x, d, h, 0);
          const Row number = Row(d * g.x.size[1] + h);
          with_stride(g.x.stride[2], [&](auto step) {
            for (int64_t w = 0; w < width; ++w) {
              const C v = C(from[w * step]);
              const bool better = beats(v, b[w]);
              b[w] = better ? v : b[w];
              if (kIndexed) r[w] = better ? number : r[w];
            }
          });
        }
    }
    for (int64_t ow = 0; ow < g.y.size[2]; ++ow) {
      const Range rw = clip(g, 2, ow);
      C top = lowest<C>();
      Row top_row = kIndexed ? r[rw.first] : 0;
      int64_t column = rw.first;
      for (int64_t w = rw.first; w < rw.last; w += g.dilation[2]) {
        bool better = beats(b[w], top);
        // Of equal ones the first in the plane.
        if (kIndexed)
          better |= (r[w] < top_row) & ((b[w] == top) | ((b[w] != b[w]) & (top != top)));
        top = better ? b[w] : top;
        if (kIndexed) top_row = better ? r[w] : top_row, column = better ? w : column;
      }
      y[at(g.y, od, oh, ow)] = T(top);
      if (kIndexed) index[at(g.index, od, oh, ow)] = int64_t(top_row) * width + column;
    }
  });
}

template <class T>
void max_forward(const PoolArgs& p, const Geometry& all) {
  using C = Compute<T>;
  const bool indexed = bool(p.indices);
  const bool random = p.placement == PoolArgs::Placement::random;
  [[maybe_unused]] const bool two_by_two = !random && is_2x2(all, indexed);
  for_pieces(all, [&](int64_t c0, int64_t count, int64_t n) {
    std::optional<Geometry> placed;
    if (random) {
      placed.emplace(all);
      p.samples.dtype == DType::f32 ? placed->place<float>(p.samples, n, c0)
                                    : placed->place<double>(p.samples, n, c0);
    }
    const Geometry& g = placed ? *placed : all;
    const T* x = p.x.as<const T>() + n * g.x.sample + c0 * g.x.channel;
    T* y = p.y.as<T>() + n * g.y.sample + c0 * g.y.channel;
    int64_t* index =
        indexed ? p.indices.as<int64_t>() + n * g.index.sample + c0 * g.index.channel : nullptr;
    if constexpr (std::is_floating_point_v<T>) {
      if (two_by_two) {
        for (int64_t h = 0; h < g.y.size[1]; ++h)
          max_row_2x2(x + 2 * h * g.x.stride[1], x + (2 * h + 1) * g.x.stride[1], g.y.size[2],
                      2 * h * g.x.size[2], g.x.size[2], y + h * g.y.stride[1],
                      indexed ? index + h * g.index.stride[1] : nullptr);
        return;
      }
    }
    if (g.by_columns)
      return indexed ? max_columns<true>(x, y, index, g) : max_columns<false>(x, y, index, g);
    if (g.by_rows) return max_rows(x, y, index, g);
    for_outputs(g, [&](int64_t od, int64_t oh, int64_t ow) {
      const Range rd = clip(g, 0, od), rh = clip(g, 1, oh), rw = clip(g, 2, ow);
      C best[kChannels];
      int64_t where[kChannels];
      const int64_t start = (rd.first * g.x.size[1] + rh.first) * g.x.size[2] + rw.first;
      std::fill(best, best + count, lowest<C>());
      std::fill(where, where + count, start);
      for (int64_t d = rd.first; d < rd.last; d += g.dilation[0])
        for (int64_t h = rh.first; h < rh.last; h += g.dilation[1])
          for (int64_t w = rw.first; w < rw.last; w += g.dilation[2]) {
            const T* from = x + at(g.x, d, h, w);
            const int64_t position = (d * g.x.size[1] + h) * g.x.size[2] + w;
            if (count == 1) {
              const C v = C(*from);
              if (beats(v, best[0])) best[0] = v, where[0] = position;
              continue;
            }
            for (int64_t c = 0; c < count; ++c) {
              const C v = C(from[c]);
              const bool b = beats(v, best[c]);
              best[c] = b ? v : best[c];
              where[c] = b ? position : where[c];
            }
          }
      T* to = y + at(g.y, od, oh, ow);
      for (int64_t c = 0; c < count; ++c) to[c] = T(best[c]);
      if (indexed) std::copy(where, where + count, index + at(g.index, od, oh, ow));
    });
  });
}

// Where a piece's input gradient accumulates: in place, or for 16-bit types in f32 (plane-major,
// channels side by side), rounded once by finish().
template <class T>
class Gradient {
 public:
  using C = Compute<T>;
  static constexpr bool kInPlace = std::is_same_v<T, C>;

  Gradient(const Geometry& g) : g_(g) {
    if constexpr (!kInPlace) buffer_.reset(new C[size_t(g.x.plane() * g.block)]);
  }
  void start(T* x, int64_t count) {
    x_ = x, count_ = count;
    if constexpr (kInPlace)
      each_row([&](T* row, int64_t) { std::fill(row, row + count_, T(0)); });
    else
      std::fill(buffer_.get(), buffer_.get() + g_.x.plane() * count, C(0));
  }
  C* address(int64_t position) {
    if constexpr (kInPlace)
      return x_ + g_.x.offset_of(position, g_.x_linear);
    else
      return buffer_.get() + position * count_;
  }
  // Between neighbours in a row.
  int64_t row_stride() const { return kInPlace ? g_.x.stride[2] : count_; }
  void finish() {
    if constexpr (!kInPlace)
      each_row([&](T* row, int64_t position) {
        for (int64_t c = 0; c < count_; ++c) row[c] = T(buffer_[size_t(position * count_ + c)]);
      });
  }

 private:
  template <class F>
  void each_row(F&& f) {
    int64_t position = 0;
    for (int64_t d = 0; d < g_.x.size[0]; ++d)
      for (int64_t h = 0; h < g_.x.size[1]; ++h) {
        T* row = x_ + at(g_.x, d, h, 0);
        if (kInPlace && count_ == 1 && g_.x.stride[2] == 1) {
          std::fill(row, row + g_.x.size[2], T(0.0f));
          continue;
        }
        for (int64_t w = 0; w < g_.x.size[2]; ++w) f(row + w * g_.x.stride[2], position++);
      }
  }
  const Geometry& g_;
  T* x_ = nullptr;
  int64_t count_ = 0;
  std::unique_ptr<C[]> buffer_;
};

template <class T>
void max_backward(const PoolArgs& p, const Geometry& g) {
  using C = Compute<T>;
  for_pieces(g, [&](int64_t c0, int64_t count, int64_t n) {
    Gradient<T> gradient(g);
    gradient.start(p.x.as<T>() + n * g.x.sample + c0 * g.x.channel, count);
    const T* y = p.y.as<const T>() + n * g.y.sample + c0 * g.y.channel;
    const int64_t* index =
        p.indices.as<const int64_t>() + n * g.index.sample + c0 * g.index.channel;
    if (count == 1 && (!Gradient<T>::kInPlace || (g.x_linear && g.x.stride[2] == 1))) {
      C* const plane = gradient.address(0);
      for (int64_t od = 0; od < g.y.size[0]; ++od)
        for (int64_t oh = 0; oh < g.y.size[1]; ++oh) {
          const T* from = y + at(g.y, od, oh, 0);
          const int64_t* where = index + at(g.index, od, oh, 0);
          for (int64_t w = 0; w < g.y.size[2]; ++w)
            plane[where[w * g.index.stride[2]]] += C(from[w * g.y.stride[2]]);
        }
      gradient.finish();
      return;
    }
    for_outputs(g, [&](int64_t od, int64_t oh, int64_t ow) {
      const T* from = y + at(g.y, od, oh, ow);
      const int64_t* where = index + at(g.index, od, oh, ow);
      for (int64_t c = 0; c < count; ++c) gradient.address(where[c])[c] += C(from[c]);
    });
    gradient.finish();
  });
}

// What the sum over a window is divided by.
double divisor_of(const PoolArgs& p, const Geometry& g, int64_t od, int64_t oh, int64_t ow) {
  if (p.divisor != 0) return double(p.divisor);
  return double(g.taps(0, od, p.count_include_pad) * g.taps(1, oh, p.count_include_pad)) *
         g.width_count[size_t(ow)];
}
// The divisors of the outputs [w0, w0 + n) of a row.
template <class C>
void row_divisors(const PoolArgs& p, const Geometry& g, int64_t od, int64_t oh, int64_t w0,
                  int64_t n, C* out) {
  if (p.divisor != 0) return void(std::fill(out, out + n, C(p.divisor)));
  const double outer =
      double(g.taps(0, od, p.count_include_pad) * g.taps(1, oh, p.count_include_pad));
  const double* width = g.width_count.data() + w0;
  for (int64_t i = 0; i < n; ++i) out[i] = C(outer * width[i]);
}

template <class T>
void avg_rows(const PoolArgs& p, const T* x, T* y, const Geometry& g) {
  using C = Compute<T>;
  for_rows(g, [&](int64_t od, int64_t oh, int64_t w0, int64_t n) {
    C sum[kChannels], divisor[kChannels];
    std::fill(sum, sum + n, C(0));
    for_row_taps(g, od, oh, w0, n, [&](int64_t first, int64_t last, int64_t offset, int64_t) {
      const T* from = x + offset;
      with_stride(g.stride[2] * g.x.stride[2], [&](auto step) {
        for (int64_t i = 0; i < last - first; ++i) sum[first + i] += C(from[i * step]);
      });
    });
    row_divisors(p, g, od, oh, w0, n, divisor);
    T* to = y + at(g.y, od, oh, w0);
    for (int64_t i = 0; i < n; ++i) to[i * g.y.stride[2]] = T(sum[i] / divisor[i]);
  });
}

template <class T>
void avg_columns(const PoolArgs& p, const T* x, T* y, const Geometry& g) {
  using C = Compute<T>;
  const int64_t width = g.x.size[2];
  std::vector<C> sums(size_t(width), C(0));
  C* const sum = sums.data();
  for_rows_of_windows(g, [&](int64_t od, int64_t oh, bool other) {
    if (other) {
      const Range rd = clip(g, 0, od), rh = clip(g, 1, oh);
      std::fill(sum, sum + width, C(0));
      for (int64_t d = rd.first; d < rd.last; ++d)
        for (int64_t h = rh.first; h < rh.last; ++h) {
          const T* from = x + at(g.x, d, h, 0);
          with_stride(g.x.stride[2], [&](auto step) {
            for (int64_t w = 0; w < width; ++w) sum[w] += C(from[w * step]);
          });
        }
    }
    for (int64_t w0 = 0; w0 < g.y.size[2]; w0 += kChannels) {
      const int64_t n = std::min(kChannels, g.y.size[2] - w0);
      C divisor[kChannels];
      row_divisors(p, g, od, oh, w0, n, divisor);
      T* to = y + at(g.y, od, oh, w0);
      for (int64_t i = 0; i < n; ++i) {
        const Range rw = clip(g, 2, w0 + i);
        C total = C(0);
        for (int64_t w = rw.first; w < rw.last; ++w) total += sum[w];
        to[i * g.y.stride[2]] = T(total / divisor[i]);
      }
    }
  });
}

template <class T>
void avg_forward(const PoolArgs& p, const Geometry& g) {
  using C = Compute<T>;
  for_pieces(g, [&](int64_t c0, int64_t count, int64_t n) {
    const T* x = p.x.as<const T>() + n * g.x.sample + c0 * g.x.channel;
    T* y = p.y.as<T>() + n * g.y.sample + c0 * g.y.channel;
    if (g.by_columns) return avg_columns(p, x, y, g);
    if (g.by_rows) return avg_rows(p, x, y, g);
    for_outputs(g, [&](int64_t od, int64_t oh, int64_t ow) {
      const std::array<Range, 3> r{clip(g, 0, od), clip(g, 1, oh), clip(g, 2, ow)};
      C sum[kChannels];
      std::fill(sum, sum + count, C(0));
      for (int64_t d = r[0].first; d < r[0].last; ++d)
        for (int64_t h = r[1].first; h < r[1].last; ++h)
          for (int64_t w = r[2].first; w < r[2].last; ++w) {
            const T* from = x + at(g.x, d, h, w);
            if (count == 1) {
              sum[0] += C(*from);
              continue;
            }
            for (int64_t c = 0; c < count; ++c) sum[c] += C(from[c]);
          }
      const C scale = C(divisor_of(p, g, od, oh, ow));
      T* to = y + at(g.y, od, oh, ow);
      for (int64_t c = 0; c < count; ++c) to[c] = T(sum[c] / scale);
    });
  });
}

// Adds the shares of a plane's outputs: for rows of the input that the same windows lie on all at
// once.
template <class T>
void share_columns(const PoolArgs& p, const T* y, Gradient<T>& gradient, const Geometry& g) {
  using C = Compute<T>;
  const int64_t width = g.x.size[2];
  std::vector<C> shares(size_t(width), C(0));
  C* const share = shares.data();
  int64_t last_d = -1, last_h = -1;
  const auto add = [&] {
    if (last_d < 0) return;
    const Range rd = clip(g, 0, last_d), rh = clip(g, 1, last_h);
    for (int64_t d = rd.first; d < rd.last; ++d)
      for (int64_t h = rh.first; h < rh.last; ++h) {
        C* to = gradient.address((d * g.x.size[1] + h) * width);
        with_stride(gradient.row_stride(), [&](auto step) {
          for (int64_t w = 0; w < width; ++w) to[w * step] += share[w];
        });
      }
    std::fill(share, share + width, C(0));
  };
  for_rows_of_windows(g, [&](int64_t od, int64_t oh, bool other) {
    if (other) add();
    last_d = od, last_h = oh;
    for (int64_t w0 = 0; w0 < g.y.size[2]; w0 += kChannels) {
      const int64_t n = std::min(kChannels, g.y.size[2] - w0);
      C divisor[kChannels];
      row_divisors(p, g, od, oh, w0, n, divisor);
      const T* from = y + at(g.y, od, oh, w0);
      for (int64_t i = 0; i < n; ++i) {
        const Range rw = clip(g, 2, w0 + i);
        const C part = C(from[i * g.y.stride[2]]) / divisor[i];
        for (int64_t w = rw.first; w < rw.last; ++w) share[w] += part;
      }
    }
  });
  add();
}

template <class T>
void avg_backward(const PoolArgs& p, const Geometry& g) {
  using C = Compute<T>;
  for_pieces(g, [&](int64_t c0, int64_t count, int64_t n) {
    Gradient<T> gradient(g);
    gradient.start(p.x.as<T>() + n * g.x.sample + c0 * g.x.channel, count);
    const T* y = p.y.as<const T>() + n * g.y.sample + c0 * g.y.channel;
    if (g.by_columns) {
      share_columns(p, y, gradient, g);
      gradient.finish();
      return;
    }
    if (g.by_rows) {
      for_rows(g, [&](int64_t od, int64_t oh, int64_t w0, int64_t m) {
        C share[kChannels];
        row_divisors(p, g, od, oh, w0, m, share);
        const T* from = y + at(g.y, od, oh, w0);
        for (int64_t i = 0; i < m; ++i) share[i] = C(from[i * g.y.stride[2]]) / share[i];
        for_row_taps(g, od, oh, w0, m, [&](int64_t first, int64_t last, int64_t, int64_t position) {
          C* to = gradient.address(position);
          with_stride(g.stride[2] * gradient.row_stride(), [&](auto step) {
            for (int64_t i = 0; i < last - first; ++i) to[i * step] += share[first + i];
          });
        });
      });
      gradient.finish();
      return;
    }
    for_outputs(g, [&](int64_t od, int64_t oh, int64_t ow) {
      const std::array<Range, 3> r{clip(g, 0, od), clip(g, 1, oh), clip(g, 2, ow)};
      const C scale = C(divisor_of(p, g, od, oh, ow));
      C share[kChannels];
      const T* from = y + at(g.y, od, oh, ow);
      for (int64_t c = 0; c < count; ++c) share[c] = C(from[c]) / scale;
      for (int64_t d = r[0].first; d < r[0].last; ++d)
        for (int64_t h = r[1].first; h < r[1].last; ++h)
          for (int64_t w = r[2].first; w < r[2].last; ++w) {
            C* to = gradient.address((d * g.x.size[1] + h) * g.x.size[2] + w);
            for (int64_t c = 0; c < count; ++c) to[c] += share[c];
          }
    });
    gradient.finish();
  });
}

template <class T>
void run(const PoolArgs& p) {
  const Geometry g(p);
  if (p.kind == PoolArgs::Kind::max)
    return p.backward ? max_backward<T>(p, g) : max_forward<T>(p, g);
  return p.backward ? avg_backward<T>(p, g) : avg_forward<T>(p, g);
}

}  // namespace

void pool(const PoolArgs& p) {
  if (p.x.numel() == 0) return;
  switch (p.x.dtype) {
    case DType::f32:
      return run<float>(p);
    case DType::f64:
      return run<double>(p);
    case DType::f16:
      return run<Half>(p);
    case DType::bf16:
      return run<BFloat16>(p);
    default:
      return run<int64_t>(p);
  }
}

}  // namespace arete::cpu::ARETE_SIMD_TARGET
