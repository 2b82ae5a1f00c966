// Pooling over windows: one thread computes an element of the result, or 16 bytes of neighbouring
// channels; where windows are large and few, a team of threads. Gradients too are gathered: each
// element of the input looks at the windows that hold it, in one order, so that results do not
// change from run to run. Neighbours in a row look together.
// Mirrors PoolArguments in codegen/pool.h.
#pragma once
#include "lanes.cuh"

// Dimensions are n, c, d, h, w; spatial ones that a tensor has not are 1 long.
struct PoolArguments {
  void *x, *y;
  i64* indices;  // positions in the plane of x; null: none
  // What threads compute: how many, and the sizes of its dimensions with channels in vectors.
  i64 count, size[5];
  i64 x_size[3], y_size[3];
  i64 x_stride[5], y_stride[5], index_stride[5];  // that of channels for one vector
  i64 kernel[3], stride[3], padding[3], dilation[3];
  i64 divisor;  // 0: the size of the window
  // Random windows: f32 or f64, where those of (n, c, d, h, w) begin. Of the spatial dimensions not
  // strides but offsets.
  const void* samples;
  i64 sample_stride[5];
  // How far apart random windows lie on average, a number of the samples' type; backward the
  // inverse, 0 where all lie in one place. Windows begin less than 1 + random_slack beside where
  // they would at that distance, those of samples below 0 less than 2 before it.
  f64 random_step[3], random_slack;
  // fast_divisor() of size and x_size, and of stride, in whose place adaptive windows have y_size.
  u32 size_magic[5], size_shift[5], x_magic[3], x_shift[3], stride_magic[3], stride_shift[3];
  i32 count_include_pad, samples_f64;
};
enum { kPoolBlock = 256 };  // threads: kPoolThreads

// n / divisor for 0 <= n; the constants are fast_divisor()'s.
DEVICE i32 pool_divide(i32 n, i64, u32 magic, u32 shift) {
  return i32((__umulhi(u32(n), magic) + u32(n)) >> shift);
}
DEVICE i64 pool_divide(i64 n, i64 divisor, u32, u32) { return n / divisor; }

template <class C>
struct PoolLowest;
template <>
struct PoolLowest<f32> {
  DEVICE f32 get() { return __uint_as_float(0xff800000u); }
};
template <>
struct PoolLowest<f64> {
  DEVICE f64 get() { return __longlong_as_double(0xfff0000000000000ll); }
};
template <>
struct PoolLowest<i32> {
  DEVICE i32 get() { return i32(0x80000000u); }
};
template <>
struct PoolLowest<i64> {
  DEVICE i64 get() { return i64(0x8000000000000000ull); }
};
template <>
struct PoolLowest<u64> {
  DEVICE u64 get() { return 0; }
};

// The first NaN wins, then the first largest.
DEVICE bool pool_beats(f32 v, f32 best) { return !(v <= best) && best == best; }
DEVICE bool pool_beats(f64 v, f64 best) { return !(v <= best) && best == best; }
DEVICE bool pool_beats(i32 v, i32 best) { return v > best; }
DEVICE bool pool_beats(i64 v, i64 best) { return v > best; }
DEVICE bool pool_beats(u64 v, u64 best) { return v > best; }
/// The same for maxima of parts of a window, of which any may come first in it.
template <class C, class I>
DEVICE bool pool_beats(C v, I where, C best, I best_where) {
  const bool same = v == best || (v != v && best != best);
  return pool_beats(v, best) || (same && where < best_where);
}

/// The coordinates of element `i` of what threads compute. kLast: channels change fastest.
template <class I, bool kLast>
DEVICE void pool_position(const PoolArguments& p, I i, I (&at)[5]) {
  const int order[4] = {kLast ? 1 : 4, kLast ? 4 : 3, kLast ? 3 : 2, kLast ? 2 : 1};
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const int d = order[k];
    const I rest = pool_divide(i, p.size[d], p.size_magic[d], p.size_shift[d]);
    at[d] = i - rest * I(p.size[d]);
    i = rest;
  }
  at[0] = i;
}

template <class I>
DEVICE I pool_offset(const I (&at)[5], const i64 (&stride)[5]) {
  I offset = 0;
#pragma unroll
  for (int d = 0; d < 5; ++d) offset += at[d] * I(stride[d]);
  return offset;
}

/// The elements of a window that lie on the input, along one dimension: those of number
/// [first, last), of which number 0 lies at `start`.
template <class I>
struct PoolRange {
  I start, step, first, last;
};

/// prim::PoolArgs::Placement.
enum { kPoolStrided, kPoolAdaptive, kPoolRandom };

/// Where the adaptive window of output `out` begins, and behind which element it ends.
template <class I>
DEVICE I pool_adaptive_begin(const PoolArguments& p, I out, int d) {
  return pool_divide(out * I(p.x_size[d]), p.y_size[d], p.stride_magic[d], p.stride_shift[d]);
}
template <class I>
DEVICE I pool_adaptive_end(const PoolArguments& p, I out, int d) {
  return pool_divide((out + 1) * I(p.x_size[d]) + I(p.y_size[d]) - 1, p.y_size[d],
                     p.stride_magic[d], p.stride_shift[d]);
}

/// Where the window of output `out` that is placed at random begins, by the sample `u`.
template <class I, class S>
DEVICE I pool_random_start(I out, I outputs, I last, S u, S step) {
  if (out + 1 == outputs) return last;
  const I start = I((S(out) + u) * step) - I(u * step);
  return start < 0 ? I(0) : start > last ? last : start;
}

template <int kPlace, class I>
DEVICE PoolRange<I> pool_range(const PoolArguments& p, const I (&at)[5], int d) {
  PoolRange<I> r;
  const I out = at[2 + d];
  if (kPlace == kPoolAdaptive) {
    r.start = pool_adaptive_begin(p, out, d);
    r.step = 1;
    r.first = 0;
    r.last = pool_adaptive_end(p, out, d) - r.start;
    return r;
  }
  if (kPlace == kPoolRandom) {
    const I last = I(p.x_size[d]) - I(p.kernel[d]), m = I(p.y_size[d]);
    const i64 from =
        at[0] * p.sample_stride[0] + at[1] * p.sample_stride[1] + p.sample_stride[2 + d];
    if (p.samples_f64)
      r.start = pool_random_start(out, m, last, static_cast<const f64*>(p.samples)[from],
                                  p.random_step[d]);
    else
      r.start = pool_random_start(out, m, last, static_cast<const f32*>(p.samples)[from],
                                  f32(p.random_step[d]));
    r.step = 1;
    r.first = 0;
    r.last = I(p.kernel[d]);
    return r;
  }
  r.start = out * I(p.stride[d]) - I(p.padding[d]);
  r.step = I(p.dilation[d]);
  r.first = r.start < 0 ? -r.start : I(0);
  const I room = I(p.x_size[d]) - r.start;  // positions from the start on
  r.last = room < 0 ? I(0) : room;
  if (r.step != 1) {  // divisions are what takes time here
    r.first = (r.first + r.step - 1) / r.step;
    r.last = (r.last + r.step - 1) / r.step;
  }
  if (r.last > I(p.kernel[d])) r.last = I(p.kernel[d]);
  return r;
}

/// Calls take(elements, position in the plane) for the elements of the window of output `at` that
/// lie on the input, row by row. kH x kW: the window's size if known, so that its loads do not wait
/// for each other; else 0.
template <class T, class I, int V, int kH, int kW, class F>
DEVICE void pool_window(const PoolArguments& p, const I (&at)[5], const PoolRange<I> (&range)[3],
                        F&& take) {
  const I height = I(p.x_size[1]), width = I(p.x_size[2]);
  const T* from =
      static_cast<const T*>(p.x) + (at[0] * I(p.x_stride[0]) + at[1] * I(p.x_stride[1]));
  for (I kd = range[0].first; kd < range[0].last; ++kd) {
    const I d = range[0].start + kd * range[0].step;
    const T* plane = from + d * I(p.x_stride[2]);
    if (kH > 0) {
      Vec<T, V> element[kH > 0 ? kH : 1][kH > 0 ? kW : 1];
#pragma unroll
      for (int kh = 0; kh < kH; ++kh)
#pragma unroll
        for (int kw = 0; kw < kW; ++kw) {
          const I h = range[1].start + kh * range[1].step, w = range[2].start + kw * range[2].step;
          if (h >= 0 && h < height && w >= 0 && w < width)
            element[kh][kw] = *reinterpret_cast<const Vec<T, V>*>(
                plane + (h * I(p.x_stride[3]) + w * I(p.x_stride[4])));
        }
#pragma unroll
      for (int kh = 0; kh < kH; ++kh)
#pragma unroll
        for (int kw = 0; kw < kW; ++kw) {
          const I h = range[1].start + kh * range[1].step, w = range[2].start + kw * range[2].step;
          if (h >= 0 && h < height && w >= 0 && w < width)
            take(element[kh][kw], (d * height + h) * width + w);
        }
      continue;
    }
    for (I kh = range[1].first; kh < range[1].last; ++kh) {
      const I h = range[1].start + kh * range[1].step;
      const T* row = plane + h * I(p.x_stride[3]);
#pragma unroll 4
      for (I kw = range[2].first; kw < range[2].last; ++kw) {
        const I w = range[2].start + kw * range[2].step;
        take(*reinterpret_cast<const Vec<T, V>*>(row + w * I(p.x_stride[4])),
             (d * height + h) * width + w);
      }
    }
  }
}

/// The same for every kTeam-th element, from that of number `member` on.
template <class T, class I, int V, int kTeam, class F>
DEVICE void pool_share(const PoolArguments& p, const I (&at)[5], const PoolRange<I> (&range)[3],
                       int member, F&& take) {
  I size[3], count = 1;
#pragma unroll
  for (int d = 0; d < 3; ++d) {
    size[d] = range[d].last > range[d].first ? range[d].last - range[d].first : I(0);
    count *= size[d];
  }
  if (member >= count) return;
  const T* from =
      static_cast<const T*>(p.x) + (at[0] * I(p.x_stride[0]) + at[1] * I(p.x_stride[1]));
  I w = member % size[2], h = member / size[2] % size[1], d = member / size[2] / size[1];
  const I step_w = kTeam % size[2], step_h = kTeam / size[2] % size[1],
          step_d = kTeam / size[2] / size[1];
#pragma unroll 4
  for (I i = member; i < count; i += kTeam) {
    const I x = range[2].start + (range[2].first + w) * range[2].step;
    const I y = range[1].start + (range[1].first + h) * range[1].step;
    const I z = range[0].start + (range[0].first + d) * range[0].step;
    take(*reinterpret_cast<const Vec<T, V>*>(
             from + (z * I(p.x_stride[2]) + y * I(p.x_stride[3]) + x * I(p.x_stride[4]))),
         (z * I(p.x_size[1]) + y) * I(p.x_size[2]) + x);
    w += step_w, h += step_h, d += step_d;
    if (w >= size[2]) w -= size[2], ++h;
    if (h >= size[1]) h -= size[1], ++d;
  }
}

/// Who a thread is: `member` of the team that computes element `number` of the result, which is
/// none of p's for the last teams of a grid if not `exists`. Without a team every thread is one.
template <bool kLast, int kTeam>
struct PoolThread {
  // From one member to the next: those of channels last have neighbouring channels beside them.
  static const int kTeams = kPoolBlock / kTeam, kNext = kLast ? kTeams : 1;
  i64 number;
  int member;
  bool exists;

  __device__ __forceinline__ explicit PoolThread(const PoolArguments& p) {
    const int t = int(threadIdx.x);
    member = kLast ? t / kTeams : t % kTeam;
    number = i64(blockIdx.x) * kTeams + (kLast ? t % kTeams : t / kTeam);
    exists = number < p.count;
    if (!exists) number = p.count - 1;
  }
};

/// Whether the members of a team are lanes of one warp that lie side by side.
template <bool kLast, int kTeam>
constexpr bool kPoolLanes = !kLast && kTeam <= 32;

/// Joins what the members of a team found, until the first has it all: join(other) joins that of
/// thread `other` to the caller's.
template <bool kLast, int kTeam, class F>
DEVICE void pool_join(int member, F&& join) {
  for (int half = kTeam / 2; half > 0; half /= 2) {
    __syncthreads();
    if (member < half) join(int(threadIdx.x) + half * PoolThread<kLast, kTeam>::kNext);
  }
}

template <class T, class I, int V, bool kLast, int kPlace, int kH, int kW, int kTeam>
DEVICE void max_pool_forward(const PoolArguments& p) {
  typedef compute_of<T> C;
  const PoolThread<kLast, kTeam> thread(p);
  if (kTeam == 1 && !thread.exists) return;
  I at[5];
  pool_position<I, kLast>(p, I(thread.number), at);
  PoolRange<I> range[3];
#pragma unroll
  for (int d = 0; d < 3; ++d) range[d] = pool_range<kPlace>(p, at, d);
  // What stays if every element is the lowest number: the first position.
  I start = 0;
#pragma unroll
  for (int d = 0; d < 3; ++d)
    start = start * I(p.x_size[d]) + (range[d].start + range[d].first * range[d].step);
  C best[V];
  I where[V];
#pragma unroll
  for (int v = 0; v < V; ++v) best[v] = PoolLowest<C>::get(), where[v] = start;
  const auto take = [&](const Vec<T, V>& element, I position) {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const C value = to_compute(element.v[v]);
      if (pool_beats(value, best[v])) best[v] = value, where[v] = position;
    }
  };
  if constexpr (kTeam == 1) {
    pool_window<T, I, V, kH, kW>(p, at, range, take);
  } else {
    pool_share<T, I, V, kTeam>(p, at, range, thread.member, take);
    if constexpr (kPoolLanes<kLast, kTeam>) {
      static_assert(V == 1, "vectors are of channels that lie side by side");
#pragma unroll
      for (int half = kTeam / 2; half > 0; half /= 2) {
        const C other = shuffle_down(best[0], half);
        const I place = shuffle_down(where[0], half);
        if (pool_beats(other, place, best[0], where[0])) best[0] = other, where[0] = place;
      }
    } else {
      __shared__ C bests[V][kPoolBlock];
      __shared__ I places[V][kPoolBlock];
      const int self = int(threadIdx.x);
#pragma unroll
      for (int v = 0; v < V; ++v) bests[v][self] = best[v], places[v][self] = where[v];
      pool_join<kLast, kTeam>(thread.member, [&](int other) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
          if (!pool_beats(bests[v][other], places[v][other], best[v], where[v])) continue;
          bests[v][self] = best[v] = bests[v][other];
          places[v][self] = where[v] = places[v][other];
        }
      });
    }
    if (thread.member != 0 || !thread.exists) return;
  }
  Vec<T, V> result;
#pragma unroll
  for (int v = 0; v < V; ++v) result.v[v] = from_compute<T>(best[v]);
  *reinterpret_cast<Vec<T, V>*>(static_cast<T*>(p.y) + pool_offset(at, p.y_stride)) = result;
  if (!p.indices) return;
  i64* to = p.indices + pool_offset(at, p.index_stride);
  const int kPair = V > 1 ? 2 : 1;
#pragma unroll
  for (int v = 0; v < V; v += kPair) {
    Vec<i64, kPair> pair;
#pragma unroll
    for (int k = 0; k < kPair; ++k) pair.v[k] = where[v + k];
    *reinterpret_cast<Vec<i64, kPair>*>(to + v) = pair;
  }
}

/// What the sum over the window of an output is divided by.
template <class C, int kPlace, class I>
DEVICE C pool_divisor(const PoolArguments& p, const I (&out)[3]) {
  if (p.divisor != 0) return C(p.divisor);
  I product = 1;
#pragma unroll
  for (int d = 0; d < 3; ++d) {
    if (kPlace == kPoolAdaptive) {
      product *= pool_adaptive_end(p, out[d], d) - pool_adaptive_begin(p, out[d], d);
      continue;
    }
    I first = out[d] * I(p.stride[d]) - I(p.padding[d]), last = first + I(p.kernel[d]);
    const I end = I(p.x_size[d]) + (p.count_include_pad ? I(p.padding[d]) : I(0));
    if (last > end) last = end;
    if (!p.count_include_pad && first < 0) first = 0;
    product *= last > first ? last - first : I(0);
  }
  return C(product);
}

template <class T, class I, int V, bool kLast, int kPlace, int kH, int kW, int kTeam>
DEVICE void avg_pool_forward(const PoolArguments& p) {
  typedef compute_of<T> C;
  const PoolThread<kLast, kTeam> thread(p);
  if (kTeam == 1 && !thread.exists) return;
  I at[5];
  pool_position<I, kLast>(p, I(thread.number), at);
  PoolRange<I> range[3];
#pragma unroll
  for (int d = 0; d < 3; ++d) range[d] = pool_range<kPlace>(p, at, d);
  C sum[V];
#pragma unroll
  for (int v = 0; v < V; ++v) sum[v] = C(0);
  const auto take = [&](const Vec<T, V>& element, I) {
#pragma unroll
    for (int v = 0; v < V; ++v) sum[v] += to_compute(element.v[v]);
  };
  if constexpr (kTeam == 1) {
    pool_window<T, I, V, kH, kW>(p, at, range, take);
  } else {
    pool_share<T, I, V, kTeam>(p, at, range, thread.member, take);
    if constexpr (kPoolLanes<kLast, kTeam>) {
      static_assert(V == 1, "vectors are of channels that lie side by side");
#pragma unroll
      for (int half = kTeam / 2; half > 0; half /= 2) sum[0] += shuffle_down(sum[0], half);
    } else {
      __shared__ C sums[V][kPoolBlock];
#pragma unroll
      for (int v = 0; v < V; ++v) sums[v][threadIdx.x] = sum[v];
      pool_join<kLast, kTeam>(thread.member, [&](int other) {
#pragma unroll
        for (int v = 0; v < V; ++v) sums[v][threadIdx.x] = sum[v] += sums[v][other];
      });
    }
    if (thread.member != 0 || !thread.exists) return;
  }
  const I out[3] = {at[2], at[3], at[4]};
  const C divisor = pool_divisor<C, kPlace>(p, out);
  Vec<T, V> result;
#pragma unroll
  for (int v = 0; v < V; ++v) result.v[v] = from_compute<T>(sum[v] / divisor);
  *reinterpret_cast<Vec<T, V>*>(static_cast<T*>(p.y) + pool_offset(at, p.y_stride)) = result;
}

/// Calls f(output position) for the windows that may hold the input element `at` or one of the
/// kRun - 1 behind it in its row: all that reach one, with a dilation also some that step over it,
/// of random ones also some beside it.
template <int kPlace, int kRun, class I, class F>
DEVICE void pool_windows_of(const PoolArguments& p, const I (&at)[5], F&& f) {
  I first[3], last[3];
#pragma unroll
  for (int d = 0; d < 3; ++d) {
    const I n = I(p.x_size[d]), m = I(p.y_size[d]);
    const I from = at[2 + d], to = from + (d == 2 ? kRun - 1 : 0);
    if (kPlace == kPoolAdaptive) {
      const auto by_n = [&](I number) {
        return pool_divide(number, p.x_size[d], p.x_magic[d], p.x_shift[d]);
      };
      first[d] = by_n(from * m);
      last[d] = by_n((to + 1) * m + n - 1) - 1;
      if (last[d] >= m) last[d] = m - 1;  // runs may end behind the row
      continue;
    }
    if (kPlace == kPoolRandom) {
      first[d] = 0;
      last[d] = m - 1;
      const f64 outputs = p.random_step[d];  // to an element of the input
      if (outputs > 0) {
        const I low = I(floor((f64(from - I(p.kernel[d])) - p.random_slack) * outputs)) + 1;
        const I high = I(ceil((f64(to + 2) + p.random_slack) * outputs)) - 1;
        if (low > 0) first[d] = low;
        if (high < last[d]) last[d] = high;
      }
      continue;
    }
    const I begin =
        from + I(p.padding[d]) - (I(p.kernel[d]) - 1) * I(p.dilation[d]) + (I(p.stride[d]) - 1);
    first[d] =
        begin <= 0 ? I(0) : pool_divide(begin, p.stride[d], p.stride_magic[d], p.stride_shift[d]);
    last[d] = pool_divide(to + I(p.padding[d]), p.stride[d], p.stride_magic[d], p.stride_shift[d]);
    if (last[d] >= m) last[d] = m - 1;
  }
  I out[3];
  for (out[0] = first[0]; out[0] <= last[0]; ++out[0])
    for (out[1] = first[1]; out[1] <= last[1]; ++out[1])
      for (out[2] = first[2]; out[2] <= last[2]; ++out[2]) f(out);
}

template <class I>
DEVICE I pool_output_offset(const I (&at)[5], const I (&out)[3], const i64 (&stride)[5]) {
  return at[0] * I(stride[0]) + at[1] * I(stride[1]) + out[0] * I(stride[2]) +
         out[1] * I(stride[3]) + out[2] * I(stride[4]);
}

/// Stores runs that are not aligned, and the last of a row may be of fewer elements: `count`, of
/// threads that have none 0. By whole warps, whose threads store what lies side by side.
template <class T, int kRun>
DEVICE void pool_store_run(void* x, i64 offset, int count, const compute_of<T> (&sum)[kRun]) {
  __shared__ T stage[kPoolBlock * kRun];
  const int lane = int(threadIdx.x & 31);
  T* const staged = stage + (int(threadIdx.x) - lane) * kRun;
#pragma unroll
  for (int v = 0; v < kRun; ++v) staged[lane * kRun + v] = from_compute<T>(sum[v]);
  __syncwarp();
#pragma unroll
  for (int v = 0; v < kRun; ++v) {
    const int e = v * 32 + lane, from = e / kRun;
    const i64 to = __shfl_sync(0xffffffffu, offset, from) + e % kRun;
    if (e % kRun < __shfl_sync(0xffffffffu, count, from)) static_cast<T*>(x)[to] = staged[e];
  }
}

/// What thread `number` found of the gradient from element `at` on, side by side: `kCount`
/// elements, aligned or not.
template <class T, bool kAligned, class I, int kCount>
DEVICE void pool_store_gradient(const PoolArguments& p, const I (&at)[5], i64 number,
                                const compute_of<T> (&sum)[kCount]) {
  const i64 offset = pool_offset(at, p.x_stride);
  if constexpr (kAligned) {
    Vec<T, kCount> result;
#pragma unroll
    for (int v = 0; v < kCount; ++v) result.v[v] = from_compute<T>(sum[v]);
    *reinterpret_cast<Vec<T, kCount>*>(static_cast<T*>(p.x) + offset) = result;
  } else {
    const I left = I(p.x_size[2]) - at[4];
    pool_store_run<T, kCount>(p.x, offset,
                              number < p.count ? int(left < kCount ? left : I(kCount)) : 0, sum);
  }
}

// V channels or, if V is 1, kRun neighbours in a row, aligned or not.
template <class T, class I, int V, bool kLast, int kPlace, int kRun, bool kAligned>
DEVICE void max_pool_backward(const PoolArguments& p) {
  typedef compute_of<T> C;
  const i64 number = i64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (kAligned && number >= p.count) return;
  I at[5];
  pool_position<I, kLast>(p, I(number < p.count ? number : p.count - 1), at);
  at[4] *= kRun;
  const i64 position = (at[2] * I(p.x_size[1]) + at[3]) * I(p.x_size[2]) + at[4];
  C sum[V * kRun];
#pragma unroll
  for (int v = 0; v < V * kRun; ++v) sum[v] = C(0);
  pool_windows_of<kPlace, kRun>(p, at, [&](const I(&out)[3]) {
    const i64* index = p.indices + pool_output_offset(at, out, p.index_stride);
    const int kPair = V > 1 ? 2 : 1;
    bool chosen[V * kRun], any = false;
    if (kRun > 1) {
      const i64 ahead = *index - position;
#pragma unroll
      for (int v = 0; v < kRun; ++v) chosen[v] = ahead == v;
      any = u64(ahead) < kRun;
    } else {
#pragma unroll
      for (int v = 0; v < V; v += kPair) {
        const Vec<i64, kPair> pair = *reinterpret_cast<const Vec<i64, kPair>*>(index + v);
#pragma unroll
        for (int k = 0; k < kPair; ++k) {
          chosen[v + k] = pair.v[k] == position;
          any |= chosen[v + k];
        }
      }
    }
    if (!any) return;
    const Vec<T, V> y = *reinterpret_cast<const Vec<T, V>*>(
        static_cast<const T*>(p.y) + pool_output_offset(at, out, p.y_stride));
#pragma unroll
    for (int v = 0; v < V * kRun; ++v)
      if (chosen[v]) sum[v] += to_compute(y.v[v / kRun]);
  });
  pool_store_gradient<T, kAligned>(p, at, number, sum);
}

template <class T, class I, int V, bool kLast, int kPlace, int kRun, bool kAligned>
DEVICE void avg_pool_backward(const PoolArguments& p) {
  typedef compute_of<T> C;
  const i64 number = i64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (kAligned && number >= p.count) return;
  I at[5];
  pool_position<I, kLast>(p, I(number < p.count ? number : p.count - 1), at);
  at[4] *= kRun;
  C sum[V * kRun];
#pragma unroll
  for (int v = 0; v < V * kRun; ++v) sum[v] = C(0);
  pool_windows_of<kPlace, kRun>(p, at, [&](const I(&out)[3]) {
    // Which of the run the window holds: one that is asked for holds all of a run of one.
    bool held[kRun];
    held[0] = true;
    if (kRun > 1) {
      const bool adaptive = kPlace == kPoolAdaptive;
      const I begin = (adaptive ? pool_adaptive_begin(p, out[2], 2)
                                : out[2] * I(p.stride[2]) - I(p.padding[2])) -
                      at[4];
      const I end = adaptive ? pool_adaptive_end(p, out[2], 2) - at[4] : begin + I(p.kernel[2]);
#pragma unroll
      for (int v = 0; v < kRun; ++v) held[v] = begin <= v && v < end;
    }
    const Vec<T, V> y = *reinterpret_cast<const Vec<T, V>*>(
        static_cast<const T*>(p.y) + pool_output_offset(at, out, p.y_stride));
    if (p.divisor != 0) {  // that of all windows
#pragma unroll
      for (int v = 0; v < V * kRun; ++v)
        if (held[v % kRun]) sum[v] += to_compute(y.v[v / kRun]);
      return;
    }
    const C divisor = pool_divisor<C, kPlace>(p, out);
    C share[V];
#pragma unroll
    for (int v = 0; v < V; ++v) share[v] = to_compute(y.v[v]) / divisor;
#pragma unroll
    for (int v = 0; v < V * kRun; ++v)
      if (held[v % kRun]) sum[v] += share[v / kRun];
  });
  if (p.divisor != 0) {
#pragma unroll
    for (int v = 0; v < V * kRun; ++v) sum[v] /= C(p.divisor);
  }
  pool_store_gradient<T, kAligned>(p, at, number, sum);
}
