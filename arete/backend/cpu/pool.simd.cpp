// Max and average pooling, forward and backward; see Note [Pooling loops] in pool_loops.inl.h.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>

#include "arete/backend/cpu/arena.h"
#include "arete/backend/cpu/pool_kernels.h"
#include "arete/backend/cpu/pool_loops.inl.h"

namespace arete::cpu::ARETE_SIMD_TARGET {
namespace {

using Way = Geometry::Way;

// Two by two windows over rows, the most frequent ones, have their taps written out, too.

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

// Vectors of L numbers.
template <class C, int L>
struct Vectors {
  // As wide as a value; planes have fewer elements than that (way_of).
  using Number = std::conditional_t<sizeof(C) == 4, int32_t, int64_t>;
  typedef C V __attribute__((vector_size(L * sizeof(C))));
  typedef Number M __attribute__((vector_size(L * sizeof(C))));

  // Elements 0, step, 2 step, ...
  template <class T>
  static void load(V& v, const T* from, int64_t step) {
    if constexpr (std::is_same_v<T, C>) {
      if (step == 1) return void(__builtin_memcpy(&v, from, sizeof(V)));
      if (step == 2) {  // without what lies behind the last of them
        V low, high;
        M even;
        for (int i = 0; i < L; ++i) even[i] = 2 * i + (i < L / 2 ? 0 : 1);
        __builtin_memcpy(&low, from, sizeof(V)), __builtin_memcpy(&high, from + L - 1, sizeof(V));
        v = __builtin_shuffle(low, high, even);
        return;
      }
    }
    for (int i = 0; i < L; ++i) v[i] = C(from[i * step]);
  }
  // Elements 0, 2, 4, ... and 1, 3, 5, ... of 2 L.
  static void load_pairs(V& first, V& second, const C* from) {
    V low, high;
    __builtin_memcpy(&low, from, sizeof(V)), __builtin_memcpy(&high, from + L, sizeof(V));
    pairs(first, second, low, high);
  }
  static void pairs(V& first, V& second, const V& low, const V& high) {
    M even;
    for (int i = 0; i < L; ++i) even[i] = 2 * i;
    first = __builtin_shuffle(low, high, even), second = __builtin_shuffle(low, high, even + 1);
  }
  template <class T>
  static void store(T* to, int64_t step, const V& v) {
    if constexpr (std::is_same_v<T, C>)
      if (step == 1) return void(__builtin_memcpy(to, &v, sizeof(V)));
    for (int i = 0; i < L; ++i) to[i * step] = T(v[i]);
  }
  static void count_from(M& m, Number first, Number step) {
    for (int i = 0; i < L; ++i) m[i] = first + Number(i) * step;
  }
};

// The largest of what each of L outputs has met, and where it lies.
template <bool kIndexed, class C, int L>
struct Largest {
  using Of = Vectors<C, L>;
  using M = typename Of::M;
  typename Of::V value;
  M where;

  void start(const M& first) {
    value = lowest<C>() - typename Of::V{};
    if (kIndexed) where = first;
  }
  void take(const typename Of::V& v, const M& at) {
    M better;
    beat(better, v);
    value = better ? v : value;
    if (kIndexed) where = better ? at : where;
  }
  // What came before or after: of equal ones the first in the plane.
  void merge(const Largest& other) {
    M better;
    beat(better, other.value);
    if (kIndexed)
      better |=
          (M)(other.where < where) &
          ((M)(other.value == value) | ((M)(other.value != other.value) & (M)(value != value)));
    value = better ? other.value : value;
    if (kIndexed) where = better ? other.where : where;
  }

 private:
  void beat(M& better, const typename Of::V& v) const {  // as beats()
    if constexpr (std::is_floating_point_v<C>)
      better = ~(M)(v <= value) & (M)(value == value);
    else
      better = (M)(v > value);
  }
};

template <class T>
struct Top {
  Compute<T> value;
  int64_t where;  // in the plane
};
// Of one window.
template <class T>
Top<T> max_of_window(const T* x, const Geometry& g, int64_t od, int64_t oh, int64_t ow) {
  using C = Compute<T>;
  const Range rd = clip(g, 0, od), rh = clip(g, 1, oh), rw = clip(g, 2, ow);
  Top<T> top{lowest<C>(), (rd.first * g.x.size[1] + rh.first) * g.x.size[2] + rw.first};
  for (int64_t d = rd.first; d < rd.last; d += g.dilation[0])
    for (int64_t h = rh.first; h < rh.last; h += g.dilation[1])
      for (int64_t w = rw.first; w < rw.last; w += g.dilation[2]) {
        const C v = C(x[at(g.x, d, h, w)]);
        if (beats(v, top.value)) top = {v, (d * g.x.size[1] + h) * g.x.size[2] + w};
      }
  return top;
}

// Calls vectors(std::integral_constant of L, first) for L outputs each of [begin, end), of which
// the last may be some that were met before, or one(output) for fewer than 4.
template <class F, class One>
void in_vectors(int64_t begin, int64_t end, F&& vectors, One&& one) {
  const auto go = [&](auto lanes) {
    for (int64_t i = begin; i < end; i += lanes) vectors(lanes, std::min<int64_t>(i, end - lanes));
  };
  if (end - begin >= 8) return go(std::integral_constant<int, 8>());
  if (end - begin >= 4) return go(std::integral_constant<int, 4>());
  for (int64_t i = begin; i < end; ++i) one(i);
}

// The maxima of L windows which lie side by side and have kWidth elements of a row each.
template <int kWidth, class C, int L>
void max_side_by_side(typename Vectors<C, L>::V& v, const C* from) {
  using Of = Vectors<C, L>;
  if constexpr (kWidth == 1) {
    Of::load(v, from, 1);
  } else {
    typename Of::V low, high;
    max_side_by_side<kWidth / 2, C, L>(low, from);
    max_side_by_side<kWidth / 2, C, L>(high, from + L * (kWidth / 2));
    Largest<false, C, L> best;
    typename Of::V second;
    Of::pairs(best.value, second, low, high);
    best.take(second, typename Of::M{});
    v = best.value;
  }
}

template <bool kIndexed, class T>
void max_rows(const T* x, T* y, int64_t* index, const Geometry& g) {
  using C = Compute<T>;
  const Range inside = g.inside();
  const int64_t step = g.stride[2] * g.x.stride[2], width = g.kernel[2];
  const int64_t next = g.dilation[2] * g.x.stride[2];
  const bool dense = std::is_same_v<T, C> && next == 1;
  const bool side_by_side = !kIndexed && dense && step == width;
  for_each_row(g, [&](int64_t od, int64_t oh) {
    const Range rd = clip(g, 0, od), rh = clip(g, 1, oh);
    T* const to = y + at(g.y, od, oh, 0);
    int64_t* const places = kIndexed ? index + at(g.index, od, oh, 0) : nullptr;
    const auto one = [&](int64_t ow) {
      const Top<T> top = max_of_window(x, g, od, oh, ow);
      to[ow * g.y.stride[2]] = T(top.value);
      if (kIndexed) places[ow * g.index.stride[2]] = top.where;
    };
    for (int64_t ow = 0; ow < inside.first; ++ow) one(ow);
    in_vectors(
        inside.first, inside.last,
        [&]<int L>(std::integral_constant<int, L>, int64_t ow) {
          using Of = Vectors<C, L>;
          using Number = typename Of::Number;
          Largest<kIndexed, C, L> best;
          typename Of::M lanes, place;
          typename Of::V v, second;
          const int64_t left = ow * g.stride[2] - g.padding[2];
          Of::count_from(lanes, 0, Number(g.stride[2]));
          place = lanes + Number((rd.first * g.x.size[1] + rh.first) * g.x.size[2] + left);
          best.start(place);
          for (int64_t d = rd.first; d < rd.last; d += g.dilation[0])
            for (int64_t h = rh.first; h < rh.last; h += g.dilation[1]) {
              const T* from = x + at(g.x, d, h, left);
              if (kIndexed) place = lanes + Number((d * g.x.size[1] + h) * g.x.size[2] + left);
              int64_t k = 0;
              if constexpr (std::is_same_v<T, C>) {
                if (side_by_side && (width == 4 || width == 8)) {
                  width == 4 ? max_side_by_side<4, C, L>(v, from)
                             : max_side_by_side<8, C, L>(v, from);
                  best.take(v, place);
                  continue;
                }
                if (step == 2 && dense)
                  for (; k + 1 < width; k += 2) {
                    Of::load_pairs(v, second, from + k);
                    best.take(v, place + Number(k));
                    best.take(second, place + Number(k + 1));
                  }
              }
              for (; k < width; ++k) {
                Of::load(v, from + k * next, step);
                best.take(v, place + Number(k * g.dilation[2]));
              }
            }
          Of::store(to + ow * g.y.stride[2], g.y.stride[2], best.value);
          if (kIndexed)
            for (int i = 0; i < L; ++i)
              places[(ow + i) * g.index.stride[2]] = int64_t(best.where[i]);
        },
        one);
    for (int64_t ow = inside.last; ow < g.y.size[2]; ++ow) one(ow);
  });
}

// Windows of rows of at least kLong elements side by side.
template <bool kIndexed, class T>
void max_long(const T* x, T* y, int64_t* index, const Geometry& g) {
  constexpr int L = 32 / sizeof(T), kWays = 4;
  using Of = Vectors<T, L>;
  using Number = typename Of::Number;
  for_outputs(g, [&](int64_t od, int64_t oh, int64_t ow) {
    const Range rd = clip(g, 0, od), rh = clip(g, 1, oh), rw = clip(g, 2, ow);
    const int64_t n = rw.last - rw.first;
    if (n < L) {  // padding is in the window
      const Top<T> top = max_of_window(x, g, od, oh, ow);
      y[at(g.y, od, oh, ow)] = top.value;
      if (kIndexed) index[at(g.index, od, oh, ow)] = top.where;
      return;
    }
    Largest<kIndexed, T, L> best[kWays];
    typename Of::V v;
    const typename Of::M none{};
    const Number start = Number((rd.first * g.x.size[1] + rh.first) * g.x.size[2] + rw.first);
    for (auto& b : best) b.start(none + start);
    for (int64_t d = rd.first; d < rd.last; d += g.dilation[0])
      for (int64_t h = rh.first; h < rh.last; h += g.dilation[1]) {
        const T* from = x + at(g.x, d, h, rw.first);
        typename Of::M place;
        Of::count_from(place, Number((d * g.x.size[1] + h) * g.x.size[2] + rw.first), 1);
        int64_t i = 0;
        for (; i + kWays * L <= n; i += kWays * L)
          for (int k = 0; k < kWays; ++k) {
            Of::load(v, from + i + k * L, 1);
            best[k].take(v, place + Number(i + k * L));
          }
        for (int k = 0; i < n; i += L, ++k) {
          const int64_t j = std::min(i, n - L);
          Of::load(v, from + j, 1);
          best[k].take(v, place + Number(j));
        }
      }
    for (int k = 1; k < kWays; ++k) best[0].merge(best[k]);
    for (int half = L / 2; half > 0; half /= 2) {
      typename Of::M beyond;
      Of::count_from(beyond, Number(half), 1);
      best[1].value = __builtin_shuffle(best[0].value, beyond & (L - 1));
      best[1].where = __builtin_shuffle(best[0].where, beyond & (L - 1));
      best[0].merge(best[1]);
    }
    y[at(g.y, od, oh, ow)] = best[0].value[0];
    if (kIndexed) index[at(g.index, od, oh, ow)] = int64_t(best[0].where[0]);
  });
}

template <bool kIndexed, class T>
void max_columns(const T* x, T* y, int64_t* index, const Geometry& g) {
  using C = Compute<T>;
  // As wide as a value; there are fewer rows than that (way_of).
  using Row = std::conditional_t<sizeof(C) == 4, int32_t, int64_t>;
  const int64_t width = g.x.size[2];
  ArenaScope arena;
  C* const b = arena.take_array<C>(width);
  Row* const r = arena.take_array<Row>(kIndexed ? width : 0);
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

template <bool kIndexed, class T>
void max_forward(const PoolArgs& p, const Geometry& all) {
  using C = Compute<T>;
  const bool random = p.placement == PoolArgs::Placement::random;
  [[maybe_unused]] const bool two_by_two = !random && is_2x2(all, kIndexed);
  for_pieces(all, [&, placed = random ? std::optional(all) : std::nullopt](
                      int64_t c0, int64_t count, int64_t n) mutable {
    if (placed)
      p.samples.dtype == DType::f32 ? placed->template place<float>(p.samples, n, c0)
                                    : placed->template place<double>(p.samples, n, c0);
    const Geometry& g = placed ? *placed : all;
    const T* x = p.x.as<const T>() + n * g.x.sample + c0 * g.x.channel;
    T* y = p.y.as<T>() + n * g.y.sample + c0 * g.y.channel;
    int64_t* index =
        kIndexed ? p.indices.as<int64_t>() + n * g.index.sample + c0 * g.index.channel : nullptr;
    if constexpr (std::is_floating_point_v<T>) {
      if (two_by_two) {
        for (int64_t h = 0; h < g.y.size[1]; ++h)
          max_row_2x2(x + 2 * h * g.x.stride[1], x + (2 * h + 1) * g.x.stride[1], g.y.size[2],
                      2 * h * g.x.size[2], g.x.size[2], y + h * g.y.stride[1],
                      kIndexed ? index + h * g.index.stride[1] : nullptr);
        return;
      }
    }
    if (g.way == Way::columns) return max_columns<kIndexed>(x, y, index, g);
    if (g.way == Way::rows) return max_rows<kIndexed>(x, y, index, g);
    if constexpr (sizeof(T) >= 4)
      if (g.way == Way::long_windows) return max_long<kIndexed>(x, y, index, g);
    for_outputs(g, [&](int64_t od, int64_t oh, int64_t ow) {
      T* to = y + at(g.y, od, oh, ow);
      if (count == 1) {
        const Top<T> top = max_of_window(x, g, od, oh, ow);
        *to = T(top.value);
        if (kIndexed) index[at(g.index, od, oh, ow)] = top.where;
        return;
      }
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
            for (int64_t c = 0; c < count; ++c) {
              const C v = C(from[c]);
              const bool b = beats(v, best[c]);
              best[c] = b ? v : best[c];
              where[c] = b ? position : where[c];
            }
          }
      for (int64_t c = 0; c < count; ++c) to[c] = T(best[c]);
      if (kIndexed) std::copy(where, where + count, index + at(g.index, od, oh, ow));
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

// The sum over one window.
template <class T>
Compute<T> sum_of_window(const T* x, const Geometry& g, int64_t od, int64_t oh, int64_t ow) {
  const Range rd = clip(g, 0, od), rh = clip(g, 1, oh), rw = clip(g, 2, ow);
  Compute<T> sum{};
  for (int64_t d = rd.first; d < rd.last; ++d)
    for (int64_t h = rh.first; h < rh.last; ++h)
      for (int64_t w = rw.first; w < rw.last; ++w) sum += Compute<T>(x[at(g.x, d, h, w)]);
  return sum;
}

template <class T>
void avg_rows(const PoolArgs& p, const T* x, T* y, const Geometry& g) {
  using C = Compute<T>;
  const Range inside = g.inside();
  const int64_t step = g.stride[2] * g.x.stride[2], width = g.kernel[2];
  const bool pairs = std::is_same_v<T, C> && step == 2 && g.x.stride[2] == 1;
  for_each_row(g, [&](int64_t od, int64_t oh) {
    const Range rd = clip(g, 0, od), rh = clip(g, 1, oh);
    T* const to = y + at(g.y, od, oh, 0);
    const auto one = [&](int64_t ow) {
      to[ow * g.y.stride[2]] = T(sum_of_window(x, g, od, oh, ow) / C(divisor_of(p, g, od, oh, ow)));
    };
    for (int64_t ow = 0; ow < inside.first; ++ow) one(ow);
    in_vectors(
        inside.first, inside.last,
        [&]<int L>(std::integral_constant<int, L>, int64_t ow) {
          using Of = Vectors<C, L>;
          typename Of::V sum{}, v, second;
          const int64_t left = ow * g.stride[2] - g.padding[2];
          for (int64_t d = rd.first; d < rd.last; ++d)
            for (int64_t h = rh.first; h < rh.last; ++h) {
              const T* from = x + at(g.x, d, h, left);
              int64_t k = 0;
              if constexpr (std::is_same_v<T, C>)
                if (pairs)
                  for (; k + 1 < width; k += 2) {
                    Of::load_pairs(v, second, from + k);
                    sum += v, sum += second;
                  }
              for (; k < width; ++k) {
                Of::load(v, from + k * g.x.stride[2], step);
                sum += v;
              }
            }
          C divisor[L];
          row_divisors(p, g, od, oh, ow, L, divisor);
          Of::load(v, divisor, 1);
          Of::store(to + ow * g.y.stride[2], g.y.stride[2], sum / v);
        },
        one);
    for (int64_t ow = inside.last; ow < g.y.size[2]; ++ow) one(ow);
  });
}

// Windows of rows of at least kLong elements side by side.
template <class T>
void avg_long(const PoolArgs& p, const T* x, T* y, const Geometry& g) {
  constexpr int L = 32 / sizeof(T), kWays = 4;
  using Of = Vectors<T, L>;
  for_outputs(g, [&](int64_t od, int64_t oh, int64_t ow) {
    const Range rd = clip(g, 0, od), rh = clip(g, 1, oh), rw = clip(g, 2, ow);
    const int64_t n = rw.last - rw.first;
    typename Of::V sums[kWays] = {}, v;
    T total = T(0);
    for (int64_t d = rd.first; d < rd.last; ++d)
      for (int64_t h = rh.first; h < rh.last; ++h) {
        const T* from = x + at(g.x, d, h, rw.first);
        int64_t i = 0;
        for (; i + kWays * L <= n; i += kWays * L)
          for (int k = 0; k < kWays; ++k) {
            Of::load(v, from + i + k * L, 1);
            sums[k] += v;
          }
        for (; i + L <= n; i += L) {
          Of::load(v, from + i, 1);
          sums[0] += v;
        }
        for (; i < n; ++i) total += from[i];
      }
    v = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    for (int i = 0; i < L; ++i) total += v[i];
    y[at(g.y, od, oh, ow)] = total / T(divisor_of(p, g, od, oh, ow));
  });
}

template <class T>
void avg_columns(const PoolArgs& p, const T* x, T* y, const Geometry& g) {
  using C = Compute<T>;
  const int64_t width = g.x.size[2];
  ArenaScope arena;
  C* const sum = arena.take_array<C>(width);
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
    if (g.way == Way::columns) return avg_columns(p, x, y, g);
    if (g.way == Way::rows) return avg_rows(p, x, y, g);
    if constexpr (sizeof(T) >= 4)
      if (g.way == Way::long_windows) return avg_long(p, x, y, g);
    for_outputs(g, [&](int64_t od, int64_t oh, int64_t ow) {
      const C scale = C(divisor_of(p, g, od, oh, ow));
      T* to = y + at(g.y, od, oh, ow);
      if (count == 1) return void(*to = T(sum_of_window(x, g, od, oh, ow) / scale));
      const std::array<Range, 3> r{clip(g, 0, od), clip(g, 1, oh), clip(g, 2, ow)};
      C sum[kChannels];
      std::fill(sum, sum + count, C(0));
      for (int64_t d = r[0].first; d < r[0].last; ++d)
        for (int64_t h = r[1].first; h < r[1].last; ++h)
          for (int64_t w = r[2].first; w < r[2].last; ++w) {
            const T* from = x + at(g.x, d, h, w);
            for (int64_t c = 0; c < count; ++c) sum[c] += C(from[c]);
          }
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
  ArenaScope arena;
  C* const share = arena.take_array<C>(width);
  std::fill(share, share + width, C(0));
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
    if (g.way == Way::columns) {
      share_columns(p, y, gradient, g);
      gradient.finish();
      return;
    }
    if (g.way == Way::rows) {
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
  if (p.kind == PoolArgs::Kind::max) {
    if (p.backward) return max_backward<T>(p, g);
    return p.indices ? max_forward<true, T>(p, g) : max_forward<false, T>(p, g);
  }
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
