// Running monoids along a dimension: the bodies of the kernels that codegen/scan.cpp generates.
//
// A generated struct S says what is scanned:
//   In, Out           stored elements
//   Local, Wide       monoids: within a few thousand elements, and of what came before them
//   kVector           elements of one access (1: any strides)
//   kRounds           accesses of one thread in a tile
//   kReverse          from the end
//   kRank             dimensions besides the scanned one
//   kFactors          there are factors (ScanArgs)
//   kIndices          positions are written, too
//   kCommutes         the order of elements does not matter to the monoid
//   load(), store()   In (with its factor and step) to Local::type, Local::type to Out
#pragma once
#include "monoid.cuh"

template <>
struct Sum<c128> {
  typedef c128 type;
  DEVICE c128 identity() { return {0, 0}; }
  DEVICE c128 combine(c128 a, c128 b) { return {a.re + b.re, a.im + b.im}; }
};
template <>
struct Prod<c128> {
  typedef c128 type;
  DEVICE c128 identity() { return {1, 0}; }
  DEVICE c128 combine(c128 a, c128 b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  }
};

// A sum of exponentials: sum * exp(top).
template <class T, class S>
struct Scaled {
  T top;
  S sum;
  Scaled() = default;
  __device__ __forceinline__ Scaled(T top, S sum) : top(top), sum(sum) {}
  template <class Other>
  __device__ __forceinline__ explicit Scaled(const Scaled<T, Other>& o)
      : top(o.top), sum(S(o.sum)) {}
};
template <class T, class S>
struct LogSum {
  typedef Scaled<T, S> type;
  DEVICE type identity() { return {Limits<T>::lowest(), 0}; }
  DEVICE type combine(type a, type b) {
    // Infinities that are alike have no difference.
    const S less = a.top == b.top ? 1 : S(decay(a.top > b.top ? b.top - a.top : a.top - b.top));
    return a.top >= b.top ? type{a.top, a.sum + less * b.sum}
                          : type{nan_max(a.top, b.top), b.sum + less * a.sum};
  }
  DEVICE f32 decay(f32 v) { return expf(v); }
  DEVICE f64 decay(f64 v) { return exp(v); }
};

// An extremum and the last position where it is met; before the first element that is -1.
template <class T>
struct Placed {
  T value;
  i64 at;
};
template <class T, bool kLargest>
struct ArgExtreme {
  typedef Placed<T> type;
  DEVICE type identity() { return {kLargest ? Limits<T>::lowest() : Limits<T>::highest(), -1}; }
  DEVICE type combine(type a, type b) {
    // Without && and ||, of which compilers make branches.
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    const bool equal = (a.value == b.value) | (a_nan & b_nan);
    const bool beyond = !(kLargest ? b.value <= a.value : b.value >= a.value) & !a_nan;
    return beyond | (equal & (b.at > a.at)) ? b : a;
  }
};

// What a few elements of a sum with factors make of what is added to the first of them, v: the
// result at the last one, value + scale * v; times its factor that is added to what comes next.
template <class T>
struct Recurrence {
  T scale, value, factor;
};
DEVICE bool is_zero(f64 v) { return v == 0; }
DEVICE bool is_zero(c128 v) { return v.re == 0 && v.im == 0; }
template <class T>
struct Linear {
  typedef Recurrence<T> type;
  typedef Sum<T> Add;
  typedef Prod<T> Mul;
  DEVICE type identity() { return {Mul::identity(), Add::identity(), Mul::identity()}; }
  DEVICE type combine(type a, type b) {
    const T carry = Mul::combine(a.factor, a.value);
    // Scales may have overflowed.
    return {Mul::combine(b.scale, Mul::combine(a.factor, a.scale)),
            is_zero(carry) ? b.value : Add::combine(b.value, Mul::combine(b.scale, carry)),
            b.factor};
  }
};

#define SHUFFLES(T)                                                                       \
  DEVICE T lane_up(T v, int n, int width) { return __shfl_up_sync(~0u, v, n, width); }    \
  DEVICE T lane_at(T v, int lane, int width) { return __shfl_sync(~0u, v, lane, width); } \
  DEVICE T lane_xor(T v, int n) { return __shfl_xor_sync(~0u, v, n); }
SHUFFLES(i32)
SHUFFLES(i64)
SHUFFLES(u64)
SHUFFLES(f32)
SHUFFLES(f64)
#undef SHUFFLES
DEVICE bool lane_up(bool v, int n, int width) { return lane_up(i32(v), n, width) != 0; }
DEVICE bool lane_at(bool v, int lane, int width) { return lane_at(i32(v), lane, width) != 0; }
DEVICE bool lane_xor(bool v, int n) { return lane_xor(i32(v), n) != 0; }
DEVICE c128 lane_up(c128 v, int n, int width) {
  return {lane_up(v.re, n, width), lane_up(v.im, n, width)};
}
DEVICE c128 lane_at(c128 v, int lane, int width) {
  return {lane_at(v.re, lane, width), lane_at(v.im, lane, width)};
}
DEVICE c128 lane_xor(c128 v, int n) { return {lane_xor(v.re, n), lane_xor(v.im, n)}; }

template <class T, class S>
DEVICE Scaled<T, S> lane_up(Scaled<T, S> v, int n, int width) {
  return {lane_up(v.top, n, width), lane_up(v.sum, n, width)};
}
template <class T, class S>
DEVICE Scaled<T, S> lane_at(Scaled<T, S> v, int lane, int width) {
  return {lane_at(v.top, lane, width), lane_at(v.sum, lane, width)};
}
template <class T, class S>
DEVICE Scaled<T, S> lane_xor(Scaled<T, S> v, int n) {
  return {lane_xor(v.top, n), lane_xor(v.sum, n)};
}
template <class T>
DEVICE Placed<T> lane_up(Placed<T> v, int n, int width) {
  return {lane_up(v.value, n, width), lane_up(v.at, n, width)};
}
template <class T>
DEVICE Placed<T> lane_at(Placed<T> v, int lane, int width) {
  return {lane_at(v.value, lane, width), lane_at(v.at, lane, width)};
}
template <class T>
DEVICE Placed<T> lane_xor(Placed<T> v, int n) {
  return {lane_xor(v.value, n), lane_xor(v.at, n)};
}
template <class T>
DEVICE Recurrence<T> lane_up(Recurrence<T> v, int n, int width) {
  return {lane_up(v.scale, n, width), lane_up(v.value, n, width), lane_up(v.factor, n, width)};
}
template <class T>
DEVICE Recurrence<T> lane_at(Recurrence<T> v, int lane, int width) {
  return {lane_at(v.scale, lane, width), lane_at(v.value, lane, width),
          lane_at(v.factor, lane, width)};
}
template <class T>
DEVICE Recurrence<T> lane_xor(Recurrence<T> v, int n) {
  return {lane_xor(v.scale, n), lane_xor(v.value, n), lane_xor(v.factor, n)};
}

// Mirrors ScanHeader of codegen/scan.h, then what depends on the rank.
template <int kRank>
struct ScanArguments {
  char *in, *out;
  i64 n, lanes;               // length of a lane, number of lanes
  i64 in_stride, out_stride;  // bytes along a lane
  i64 parts;                  // tiles of a lane; columns: chunks of a lane
  i64 chunk;                  // tiles of a chunk; columns: elements of a chunk
  void* carries;              // totals of chunks, [lane][chunk]
  char* indices;              // positions, i64
  i64 index_stride;           // bytes along a lane
  i64 factors;                // bytes from an element to its factor
  i32 log_group;              // rows: threads of one lane
  i32 phase;                  // see Note [Chunks of a scan]
  i64 sizes[kRank];
  i64 in_strides[kRank], out_strides[kRank], index_strides[kRank];  // bytes
};

template <class S>
struct Lane {
  const char* in;
  char *out, *indices;
  i64 shift;  // elements by which vectors begin before the lane does
};
/// Where lane number `lane` is.
template <class S>
DEVICE Lane<S> find_lane(const typename S::Arguments& a, i64 lane) {
  Lane<S> r{a.in, a.out, a.indices, 0};
#pragma unroll
  for (int d = 0; d < S::kRank; ++d) {
    i64 here = lane;
    if (d + 1 < S::kRank) {
      const i64 size = a.sizes[d];
      lane = ((lane | size) >> 32) == 0 ? i64(u32(lane) / u32(size)) : lane / size;
      here -= lane * size;
    }
    r.in += here * a.in_strides[d];
    r.out += here * a.out_strides[d];
    if (S::kIndices) r.indices += here * a.index_strides[d];
  }
  if (S::kVector > 1) r.shift = i64(u64(r.in) / sizeof(typename S::In) % S::kVector);
  return r;
}

/// N elements at p, or their factors; none where there are no factors.
template <class S, int N>
DEVICE Vec<typename S::In, N> elements_at(const char* p) {
  return *reinterpret_cast<const Vec<typename S::In, N>*>(p);
}
template <class S, int N>
DEVICE Vec<typename S::In, N> factors_at(const typename S::Arguments& a, const char* p) {
  if (S::kFactors) return elements_at<S, N>(p + a.factors);
  return {};
}

/// Steps from where the scan begins to element e of a lane.
template <class S>
DEVICE i64 step_of(const typename S::Arguments& a, i64 e) {
  return S::kReverse ? a.n - 1 - e : e;
}

// ---- along contiguous lanes

// Note [Tiles of a scan]
// A tile is kRounds rounds of one vector for each thread of a warp, times the warps that share the
// lane. Logical positions count from where the scan begins; in reverse, memory is the mirror image
// of them. Vectors are aligned, so that the first one may begin up to kVector - 1 elements before
// the lane, and elements outside are the identity.

/// Vector `vector` of a lane (in memory order) in logical order.
template <class S>
DEVICE void load_vector(const typename S::Arguments& a, const Lane<S>& lane, i64 vector,
                        typename S::Local::type* x) {
  typedef typename S::In In;
  const int V = S::kVector;
  const i64 first = vector * V - lane.shift;
  if (first >= 0 && first + V <= a.n) {
    const char* const p = lane.in + first * (V > 1 ? i64(sizeof(In)) : a.in_stride);
    const Vec<In, V> v = elements_at<S, V>(p), f = factors_at<S, V>(a, p);
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const int at = S::kReverse ? V - 1 - j : j;
      x[j] = S::load(v.v[at], f.v[at], step_of<S>(a, first + at));
    }
    return;
  }
#pragma unroll
  for (int j = 0; j < V; ++j) {
    const i64 e = first + (S::kReverse ? V - 1 - j : j);
    x[j] = S::Local::identity();
    if (e >= 0 && e < a.n) {
      const char* const p = lane.in + e * a.in_stride;
      x[j] = S::load(elements_at<S, 1>(p).v[0], factors_at<S, 1>(a, p).v[0], step_of<S>(a, e));
    }
  }
}
template <class S>
DEVICE void store_vector(const typename S::Arguments& a, const Lane<S>& lane, i64 vector,
                         typename S::Local::type before, const typename S::Local::type* x) {
  typedef typename S::Out Out;
  const int V = S::kVector;
  const i64 first = vector * V - lane.shift;
  Vec<Out, V> v;
  Vec<i64, V> places;
#pragma unroll
  for (int j = 0; j < V; ++j) {
    const int at = S::kReverse ? V - 1 - j : j;
    const typename S::Local::type y = S::Local::combine(before, x[j]);
    v.v[at] = S::store(y);
    if constexpr (S::kIndices) places.v[at] = y.at;
  }
  if (V > 1 && first >= 0 && first + V <= a.n) {
    *reinterpret_cast<Vec<Out, V>*>(lane.out + first * i64(sizeof(Out))) = v;
    if constexpr (S::kIndices)
      *reinterpret_cast<Vec<i64, V>*>(lane.indices + first * i64(sizeof(i64))) = places;
    return;
  }
#pragma unroll
  for (int j = 0; j < V; ++j) {
    const i64 e = first + j;
    if (e < 0 || e >= a.n) continue;
    *reinterpret_cast<Out*>(lane.out + e * a.out_stride) = v.v[j];
    if constexpr (S::kIndices)
      *reinterpret_cast<i64*>(lane.indices + e * a.index_stride) = places.v[j];
  }
}

/// Asks for memory that will be read soon.
DEVICE void prefetch(const char* p) {
#ifdef __CUDA_ARCH__
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#endif
}

/// What one thread moves of a tile of kVectors: round r is its logical vector first + 32 r.
template <class S, int kVectors>
struct TileAccess {
  static const int kStep = S::kReverse ? -32 : 32;
  i64 start;   // the thread's first vector in memory order
  bool whole;  // no vector of the tile reaches beyond the lane

  __device__ __forceinline__ TileAccess(const typename S::Arguments& a, const Lane<S>& lane,
                                        i64 tile, int first) {
    const i64 base = (S::kReverse ? a.parts - 1 - tile : tile) * kVectors;
    const i64 low = base * S::kVector - lane.shift;
    whole = low >= 0 && low + i64(kVectors) * S::kVector <= a.n;
    start = base + (S::kReverse ? kVectors - 1 - first : first);
  }
  /// Bytes from element 0 of the lane to the thread's first vector.
  __device__ __forceinline__ i64 offset(const Lane<S>& lane, i64 stride) const {
    return (start * S::kVector - lane.shift) * stride;
  }
  /// The first element of round r.
  __device__ __forceinline__ i64 element(const Lane<S>& lane, int r) const {
    return (start + r * kStep) * S::kVector - lane.shift;
  }
  __device__ __forceinline__ void fetch_ahead(const Lane<S>& lane) const {
    typedef typename S::In In;
    if (S::kVector == 1 || !whole) return;
    const char* const p = lane.in + offset(lane, sizeof(In));
#pragma unroll
    for (int r = 0; r < S::kRounds; ++r) prefetch(p + r * kStep * int(sizeof(In)) * S::kVector);
  }
  __device__ __forceinline__ void load(const typename S::Arguments& a, const Lane<S>& lane,
                                       typename S::Local::type (*x)[S::kVector]) const {
    typedef typename S::In In;
    const int V = S::kVector, R = S::kRounds;
    if (!whole) {
#pragma unroll
      for (int r = 0; r < R; ++r) load_vector<S>(a, lane, start + r * kStep, x[r]);
      return;
    }
    const i64 stride = V > 1 ? i64(sizeof(In)) : a.in_stride;
    const char* const p = lane.in + offset(lane, stride);
    Vec<In, V> v[R], f[R];
#pragma unroll
    for (int r = 0; r < R; ++r) {
      v[r] = elements_at<S, V>(p + r * kStep * V * stride);
      f[r] = factors_at<S, V>(a, p + r * kStep * V * stride);
    }
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const int at = S::kReverse ? V - 1 - j : j;
        x[r][j] = S::load(v[r].v[at], f[r].v[at], step_of<S>(a, element(lane, r) + at));
      }
  }
  __device__ __forceinline__ void store(const typename S::Arguments& a, const Lane<S>& lane,
                                        typename S::Local::type start_value,
                                        const typename S::Local::type* before,
                                        const typename S::Local::type (*x)[S::kVector]) const {
    typedef typename S::Local M;
    typedef typename S::Out Out;
    const int V = S::kVector, R = S::kRounds;
    if (!whole) {
#pragma unroll
      for (int r = 0; r < R; ++r)
        store_vector<S>(a, lane, start + r * kStep, M::combine(start_value, before[r]), x[r]);
      return;
    }
    const i64 stride = V > 1 ? i64(sizeof(Out)) : a.out_stride;
    char* const p = lane.out + offset(lane, stride);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const typename M::type from = M::combine(start_value, before[r]);
      Vec<Out, V> v;
      Vec<i64, V> places;
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const int at = S::kReverse ? V - 1 - j : j;
        const typename M::type y = M::combine(from, x[r][j]);
        v.v[at] = S::store(y);
        if constexpr (S::kIndices) places.v[at] = y.at;
      }
      *reinterpret_cast<Vec<Out, V>*>(p + r * kStep * V * stride) = v;
      if constexpr (S::kIndices)
        *reinterpret_cast<Vec<i64, V>*>(lane.indices + element(lane, r) * a.index_stride) = places;
    }
  }
};

/// Scans x[round][element] over the lanes of groups of `width` threads, in logical order, but for
/// before[r], which is yet to be combined with x[r]. Returns the total of the group.
template <class S, int kRounds>
DEVICE typename S::Local::type scan_group(typename S::Local::type (*x)[S::kVector],
                                          typename S::Local::type* before, int thread, int width) {
  typedef typename S::Local M;
  typedef typename M::type T;
  T total[kRounds];
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
#pragma unroll
    for (int j = 1; j < S::kVector; ++j) x[r][j] = M::combine(x[r][j - 1], x[r][j]);
    total[r] = x[r][S::kVector - 1];
  }
  for (int apart = 1; apart < width; apart *= 2)
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      const T other = lane_up(total[r], apart, width);
      if (thread >= apart) total[r] = M::combine(other, total[r]);
    }
  T running = M::identity();
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    const T other = lane_up(total[r], 1, width);
    before[r] = thread > 0 ? M::combine(running, other) : running;
    running = M::combine(running, lane_at(total[r], width - 1, width));
  }
  return running;
}

/// Short lanes: 2^log_group threads of a warp for each, the whole lane in one tile.
template <class S, int kRounds>
DEVICE void scan_rows(const typename S::Arguments& a) {
  typedef typename S::Local::type T;
  const int width = 1 << a.log_group, thread = int(threadIdx.x) & (width - 1);
  const i64 step = i64(gridDim.x) * (blockDim.x >> a.log_group);
  const i64 last = i64(kRounds) * width - 1;
  // A warp goes on while any of its lanes is there.
  const i64 mine = (i64(blockIdx.x) * blockDim.x + threadIdx.x) >> a.log_group;
  const i64 warp_first = (i64(blockIdx.x) * blockDim.x + (threadIdx.x & ~31u)) >> a.log_group;
  for (i64 done = 0; warp_first + done < a.lanes; done += step) {
    const bool active = mine + done < a.lanes;
    T x[kRounds][S::kVector], before[kRounds];
    Lane<S> lane{};
    if (active) lane = find_lane<S>(a, mine + done);
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      const i64 at = i64(r) * width + thread;
      if (active) {
        load_vector<S>(a, lane, S::kReverse ? last - at : at, x[r]);
      } else {
#pragma unroll
        for (int j = 0; j < S::kVector; ++j) x[r][j] = S::Local::identity();
      }
    }
    scan_group<S, kRounds>(x, before, thread, width);
    if (!active) continue;
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      const i64 at = i64(r) * width + thread;
      store_vector<S>(a, lane, S::kReverse ? last - at : at, before[r], x[r]);
    }
  }
}

// Note [Chunks of a scan]
// A lane that is too long for one thread or block is cut into chunks. Three launches: phase 1
// writes the total of each chunk, phase 2 (a warp for each lane) turns totals into what precedes
// each chunk, phase 3 scans. The input is read twice, but no block waits for another. Scans in one
// pass, where blocks publish totals while others wait for them, were slower on an H200: two designs
// took about 14 us for each round of totals (perhaps a published total waits behind all that its
// multiprocessor has queued for memory). The bits depend on sizes and GPU alone.

/// Phase 2: `chunks` totals of each lane become what precedes them.
template <class S>
DEVICE void scan_carries(const typename S::Arguments& a, i64 chunks) {
  typedef typename S::Wide M;
  typedef typename M::type W;
  const int thread = int(threadIdx.x) & 31;
  const i64 warps = i64(gridDim.x) * blockDim.x / 32;
  for (i64 lane = (i64(blockIdx.x) * blockDim.x + threadIdx.x) / 32; lane < a.lanes;
       lane += warps) {
    W running = M::identity();
    for (i64 c = 0; c < chunks; c += 32) {
      W* const at = static_cast<W*>(a.carries) + lane * chunks + c + thread;
      W sum = c + thread < chunks ? *at : M::identity();
#pragma unroll
      for (int apart = 1; apart < 32; apart *= 2) {
        const W other = lane_up(sum, apart, 32);
        if (thread >= apart) sum = M::combine(other, sum);
      }
      const W other = lane_up(sum, 1, 32);
      if (c + thread < chunks) *at = thread > 0 ? M::combine(running, other) : running;
      running = M::combine(running, lane_at(sum, 31, 32));
    }
  }
}

constexpr int kScanWarps = 8;  // of a block that walks along a chunk

/// Longer lanes: a block for each chunk, one tile after the other.
template <class S>
DEVICE void scan_tiles(const typename S::Arguments& a) {
  typedef typename S::Local L;
  typedef typename L::type T;
  typedef typename S::Wide M;
  typedef typename M::type W;
  const int R = S::kRounds, V = S::kVector;
  typedef TileAccess<S, kScanWarps * 32 * R> Access;
  __shared__ W totals[2][kScanWarps];
  const i64 chunks = (a.parts + a.chunk - 1) / a.chunk;
  if (a.phase == 2) return scan_carries<S>(a, chunks);
  W* const carries = static_cast<W*>(a.carries);
  const int thread = int(threadIdx.x) & 31, warp = int(threadIdx.x) >> 5;
  const int first = warp * R * 32 + thread;
  int parity = 0;
  for (i64 item = blockIdx.x; item < a.lanes * chunks; item += gridDim.x) {
    const i64 number = item / chunks, begin = (item - number * chunks) * a.chunk;
    const i64 end = begin + a.chunk < a.parts ? begin + a.chunk : a.parts;
    const Lane<S> lane = find_lane<S>(a, number);
    if (a.phase == 1 && S::kCommutes) {
      // From the end: what is read last is still in the cache when phase 3 begins with it.
      W sum = M::identity();
      for (i64 tile = end; tile-- > begin;) {
        T x[R][V];
        Access(a, lane, tile, first).load(a, lane, x);
        T total = L::identity();
#pragma unroll
        for (int r = 0; r < R; ++r) {
#pragma unroll
          for (int j = 1; j < V; ++j) x[r][0] = L::combine(x[r][0], x[r][j]);
          total = L::combine(total, x[r][0]);
        }
        sum = M::combine(sum, W(total));
      }
#pragma unroll
      for (int apart = 16; apart > 0; apart /= 2) sum = M::combine(sum, lane_xor(sum, apart));
      if (thread == 0) totals[parity][warp] = sum;
      __syncthreads();
      if (threadIdx.x == 0) {
#pragma unroll
        for (int w = 1; w < kScanWarps; ++w) sum = M::combine(sum, totals[parity][w]);
        carries[item] = sum;
      }
      parity ^= 1;
      continue;
    }
    W carry = chunks > 1 && a.phase == 3 ? carries[item] : M::identity();
    for (i64 tile = begin; tile < end; ++tile) {
      const Access access(a, lane, tile, first);
      T x[R][V], before[R];
      access.load(a, lane, x);
      const T total = scan_group<S, R>(x, before, thread, 32);
      if (thread == 0) totals[parity][warp] = W(total);
      __syncthreads();
      W sum = M::identity(), preceding = M::identity();
#pragma unroll
      for (int w = 0; w < kScanWarps; ++w) {
        if (w == warp) preceding = sum;
        sum = M::combine(sum, totals[parity][w]);
      }
      if (tile + 1 < end) Access(a, lane, tile + 1, first).fetch_ahead(lane);
      if (S::kCommutes || a.phase == 3)
        access.store(a, lane, T(M::combine(carry, preceding)), before, x);
      carry = M::combine(carry, sum);
      parity ^= 1;
    }
    if (!S::kCommutes && a.phase == 1 && threadIdx.x == 0) carries[item] = carry;
  }
}

// ---- across neighbouring lanes

/// Steps [begin, end) of kVector neighbouring lanes (along dimension 0) by one thread; `carry` is
/// what comes before them, and then what comes before `end`. `store`: the results are written.
template <class S>
DEVICE void scan_part(const typename S::Arguments& a, const Lane<S>& lane, i64 begin, i64 end,
                      bool store, typename S::Wide::type (&carry)[S::kVector]) {
  typedef typename S::In In;
  typedef typename S::Out Out;
  typedef typename S::Local M;
  typedef typename M::type T;
  typedef typename S::Wide Wide;
  typedef typename Wide::type W;
  const int V = S::kVector, U = V > 2 ? 4 : 8;
  // Addresses move on by strides: the compiler would keep one for each of the U steps.
  const i64 first = S::kReverse ? a.n - 1 - begin : begin, way = S::kReverse ? -1 : 1;
  const i64 in_step = way * a.in_stride, out_step = way * a.out_stride;
  const i64 index_step = S::kIndices ? way * a.index_stride : 0;
  const char* from = lane.in + first * a.in_stride;
  char* to = lane.out + first * a.out_stride;
  char* places = S::kIndices ? lane.indices + first * a.index_stride : nullptr;
  // Some tens of elements in the narrow type, then on to the wide one.
  for (i64 i = begin; i < end; i += U) {
    Vec<In, V> in[U], factors[U];
#pragma unroll
    for (int u = 0; u < U; ++u) {
      if (i + u < end) {
        in[u] = elements_at<S, V>(from);
        factors[u] = factors_at<S, V>(a, from);
      }
      from += in_step;
    }
    T sum[V], start[V];
#pragma unroll
    for (int v = 0; v < V; ++v) {
      sum[v] = M::identity();
      start[v] = T(carry[v]);
    }
#pragma unroll
    for (int u = 0; u < U; ++u) {
      if (i + u < end) {
        Vec<Out, V> out;
        Vec<i64, V> at;
#pragma unroll
        for (int v = 0; v < V; ++v) {
          sum[v] = M::combine(sum[v], S::load(in[u].v[v], factors[u].v[v], i + u));
          if (!store) continue;
          const T y = M::combine(start[v], sum[v]);
          out.v[v] = S::store(y);
          if constexpr (S::kIndices) at.v[v] = y.at;
        }
        if (store) {
          *reinterpret_cast<Vec<Out, V>*>(to) = out;
          if constexpr (S::kIndices) *reinterpret_cast<Vec<i64, V>*>(places) = at;
        }
      }
      to += out_step;
      places += index_step;
    }
#pragma unroll
    for (int v = 0; v < V; ++v) carry[v] = Wide::combine(carry[v], W(sum[v]));
  }
}

/// A thread owns kVector lanes or, of each, one chunk.
template <class S>
DEVICE void scan_columns(const typename S::Arguments& a) {
  typedef typename S::Wide Wide;
  typedef typename Wide::type W;
  const int V = S::kVector;
  W* const carries = static_cast<W*>(a.carries);
  if (a.phase == 2) return scan_carries<S>(a, a.parts);
  const i64 threads = i64(gridDim.x) * blockDim.x;
  i64 item = i64(blockIdx.x) * blockDim.x + threadIdx.x;
  const i64 groups = a.lanes / V;
  for (; item < groups * a.parts; item += threads) {
    const i64 chunk = item / groups, number = (item - chunk * groups) * V;
    const Lane<S> lane = find_lane<S>(a, number);
    const i64 begin = chunk * a.chunk, end = begin + a.chunk < a.n ? begin + a.chunk : a.n;
    W carry[V];
#pragma unroll
    for (int v = 0; v < V; ++v)
      carry[v] =
          a.phase == 3 && a.parts > 1 ? carries[(number + v) * a.parts + chunk] : Wide::identity();
    scan_part<S>(a, lane, begin, end, a.phase == 3, carry);
    if (a.phase == 1)
#pragma unroll
      for (int v = 0; v < V; ++v) carries[(number + v) * a.parts + chunk] = carry[v];
  }
}

/// The same in one launch: the warps of a block share 32 kVector lanes, a chunk for each. All but
/// the last add theirs up first, and read it again, from the cache, when all know what comes
/// before.
template <class S>
DEVICE void scan_teams(const typename S::Arguments& a) {
  typedef typename S::Wide Wide;
  typedef typename Wide::type W;
  const int V = S::kVector;
  __shared__ W totals[kScanWarps][V][32];
  const int thread = int(threadIdx.x) & 31, warp = int(threadIdx.x) >> 5;
  const i64 groups = a.lanes / V, from = warp * a.chunk;
  const i64 begin = from < a.n ? from : a.n, end = begin + a.chunk < a.n ? begin + a.chunk : a.n;
  for (i64 first = i64(blockIdx.x) * 32; first < groups; first += i64(gridDim.x) * 32) {
    const bool active = first + thread < groups;
    const Lane<S> lane = find_lane<S>(a, (active ? first + thread : first) * V);
    W carry[V];
#pragma unroll
    for (int v = 0; v < V; ++v) carry[v] = Wide::identity();
    if (active && warp + 1 < kScanWarps) scan_part<S>(a, lane, begin, end, false, carry);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      totals[warp][v][thread] = carry[v];
      carry[v] = Wide::identity();
    }
    __syncthreads();
    for (int w = 0; w < warp; ++w)
#pragma unroll
      for (int v = 0; v < V; ++v) carry[v] = Wide::combine(carry[v], totals[w][v][thread]);
    __syncthreads();
    if (active) scan_part<S>(a, lane, begin, end, true, carry);
  }
}
