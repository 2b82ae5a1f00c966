// Running monoids along a dimension: the bodies of the kernels that codegen/scan.cpp generates.
//
// A generated struct S says what is scanned:
//   In, Out           stored elements
//   Local, Wide       monoids: within a few thousand elements, and of what came before them
//   kVector           elements of one access (1: any strides)
//   kRounds           accesses of one thread in a tile
//   kReverse          from the end
//   kRank             dimensions besides the scanned one
//   load(), store()   In to Local::type, Local::type to Out
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

#define SHUFFLES(T)                                                                       \
  DEVICE T lane_up(T v, int n, int width) { return __shfl_up_sync(~0u, v, n, width); }    \
  DEVICE T lane_at(T v, int lane, int width) { return __shfl_sync(~0u, v, lane, width); } \
  DEVICE T lane_xor(T v, int n) { return __shfl_xor_sync(~0u, v, n); }
SHUFFLES(i32)
SHUFFLES(i64)
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

// Mirrors ScanHeader of codegen/scan.h, then what depends on the rank.
template <int kRank>
struct ScanArguments {
  char *in, *out;
  i64 n, lanes;               // length of a lane, number of lanes
  i64 in_stride, out_stride;  // bytes along a lane
  i64 parts;                  // tiles of a lane; columns: chunks of a lane
  i64 chunk;                  // columns: elements of a chunk
  void* carries;              // columns: totals of chunks, [lane][chunk]
  u64* status;                // waves: published totals, zero at first
  i32 log_group;              // rows: threads of one lane
  i32 phase;                  // columns: see scan_columns
  i64 sizes[kRank];
  i64 in_strides[kRank], out_strides[kRank];  // bytes
};

template <class S>
struct Lane {
  const char* in;
  char* out;
  i64 shift;  // elements by which vectors begin before the lane does
};
/// Where lane number `lane` is.
template <class S>
DEVICE Lane<S> find_lane(const typename S::Arguments& a, i64 lane) {
  Lane<S> r{a.in, a.out, 0};
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
  }
  if (S::kVector > 1) r.shift = i64(u64(r.in) / sizeof(typename S::In) % S::kVector);
  return r;
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
    Vec<In, V> v;
    if (V > 1)
      v = *reinterpret_cast<const Vec<In, V>*>(lane.in + first * i64(sizeof(In)));
    else
      v.v[0] = *reinterpret_cast<const In*>(lane.in + first * a.in_stride);
#pragma unroll
    for (int j = 0; j < V; ++j) x[j] = S::load(v.v[S::kReverse ? V - 1 - j : j]);
    return;
  }
#pragma unroll
  for (int j = 0; j < V; ++j) {
    const i64 e = first + (S::kReverse ? V - 1 - j : j);
    x[j] = S::Local::identity();
    if (e >= 0 && e < a.n) x[j] = S::load(*reinterpret_cast<const In*>(lane.in + e * a.in_stride));
  }
}
template <class S>
DEVICE void store_vector(const typename S::Arguments& a, const Lane<S>& lane, i64 vector,
                         typename S::Local::type before, const typename S::Local::type* x) {
  typedef typename S::Out Out;
  const int V = S::kVector;
  const i64 first = vector * V - lane.shift;
  Vec<Out, V> v;
#pragma unroll
  for (int j = 0; j < V; ++j)
    v.v[S::kReverse ? V - 1 - j : j] = S::store(S::Local::combine(before, x[j]));
  if (V > 1 && first >= 0 && first + V <= a.n) {
    *reinterpret_cast<Vec<Out, V>*>(lane.out + first * i64(sizeof(Out))) = v;
    return;
  }
#pragma unroll
  for (int j = 0; j < V; ++j) {
    const i64 e = first + j;
    if (e >= 0 && e < a.n) *reinterpret_cast<Out*>(lane.out + e * a.out_stride) = v.v[j];
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
    Vec<In, V> v[R];
#pragma unroll
    for (int r = 0; r < R; ++r)
      v[r] = *reinterpret_cast<const Vec<In, V>*>(p + r * kStep * V * stride);
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
      for (int j = 0; j < V; ++j) x[r][j] = S::load(v[r].v[S::kReverse ? V - 1 - j : j]);
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
#pragma unroll
      for (int j = 0; j < V; ++j)
        v.v[S::kReverse ? V - 1 - j : j] = S::store(M::combine(from, x[r][j]));
      *reinterpret_cast<Vec<Out, V>*>(p + r * kStep * V * stride) = v;
    }
  }
};

/// Scans the totals of vectors over the lanes of groups of `width` threads and over rounds:
/// before[r] becomes the total of everything before the thread's vector r. Returns the total of the
/// group.
template <class M, int kRounds>
DEVICE typename M::type scan_totals(typename M::type* total, typename M::type* before, int thread,
                                    int width) {
  typedef typename M::type T;
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

/// Scans x[round][element] over the lanes of groups of `width` threads, in logical order, but for
/// before[r], which is yet to be combined with x[r]. Returns the total of the group.
template <class S, int kRounds>
DEVICE typename S::Local::type scan_group(typename S::Local::type (*x)[S::kVector],
                                          typename S::Local::type* before, int thread, int width) {
  typedef typename S::Local M;
  typename M::type total[kRounds];
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
#pragma unroll
    for (int j = 1; j < S::kVector; ++j) x[r][j] = M::combine(x[r][j - 1], x[r][j]);
    total[r] = x[r][S::kVector - 1];
  }
  return scan_totals<M, kRounds>(total, before, thread, width);
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

constexpr int kScanWarps = 8;  // of a block that walks along a lane

/// Longer lanes, each by one block, one tile after the other.
template <class S>
DEVICE void scan_tiles(const typename S::Arguments& a) {
  typedef typename S::Local::type T;
  typedef typename S::Wide M;
  typedef typename M::type W;
  const int R = S::kRounds;
  typedef TileAccess<S, kScanWarps * 32 * R> Access;
  __shared__ W totals[2][kScanWarps];
  const int thread = int(threadIdx.x) & 31, warp = int(threadIdx.x) >> 5;
  const int first = warp * R * 32 + thread;
  int parity = 0;
  for (i64 number = blockIdx.x; number < a.lanes; number += gridDim.x) {
    const Lane<S> lane = find_lane<S>(a, number);
    W carry = M::identity();
    for (i64 tile = 0; tile < a.parts; ++tile) {
      const Access access(a, lane, tile, first);
      T x[R][S::kVector], before[R];
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
      if (tile + 1 < a.parts) Access(a, lane, tile + 1, first).fetch_ahead(lane);
      access.store(a, lane, T(M::combine(carry, preceding)), before, x);
      carry = M::combine(carry, sum);
      parity ^= 1;
    }
  }
}

// Note [Waves of a scan]
// The tiles of long lanes are numbered through, lane after lane, and block b of a grid of G takes
// tile b of each wave of G. All blocks are on the GPU at once (a cooperative launch), so a block
// may wait for what any other publishes. A block publishes the total of its tile one wave ahead of
// the scan of that wave. For the scan it reads the totals of the whole wave and combines them
// itself, to what precedes its tile and to what the next wave starts from. Thus no block waits for
// a chain of others, and which totals are combined in which order depends on the shape and G alone:
// the same bits come out in every run.
//
// 16 warps handle elements. Another one keeps the account: it publishes the total of the next tile
// and collects the wave's totals while the others read, and gives each of them the value that it
// starts from. A block holds three tiles in shared memory: the one that is scanned, the next one,
// whose totals are taken, and one that is on its way from memory. A thread reads only what it has
// copied itself, so that one barrier for each tile is enough:
//
//   16 warps                                           the last warp
//   wait for the copies of tile w + 1, total it        collect wave w
//   ---------------------------------- barrier ----------------------------------
//   scan tile w, start to copy tile w + 3 in its place publish the total of tile w + 1

constexpr int kWaveWarps = 16, kWaveStages = 3;  // kWaveStages: tiles that a block holds

template <class T>
union StatusWords {
  static const int kWords = sizeof(T) <= 4 ? 1 : int(sizeof(T) / 4);
  T value;
  u32 words[kWords];
};
/// A word of the value and the mark that it is there travel in one 8-byte access. The words of a
/// value are `apart` accesses apart.
template <class T>
DEVICE void publish(u64* at, u32 apart, T value) {
  StatusWords<T> s;
  s.words[0] = 0;
  s.value = value;
#pragma unroll
  for (int w = 0; w < s.kWords; ++w, at += apart)
    *static_cast<volatile u64*>(at) = (u64(1) << 32) | s.words[w];
}
template <class T>
DEVICE bool read_published(const u64* at, u32 apart, T& value) {
  StatusWords<T> s;
  bool there = true;
#pragma unroll
  for (int w = 0; w < s.kWords; ++w, at += apart) {
    const u64 word = *static_cast<const volatile u64*>(at);
    there &= (word >> 32) != 0;
    s.words[w] = u32(word);
  }
  value = s.value;
  return there;
}

/// From begin up to, but without, end.
struct Range {
  int begin, end;
  __device__ __forceinline__ bool has(int i) const { return i >= begin && i < end; }
};
/// Combines the published values in either range once they are there; by a whole warp.
template <class M>
DEVICE void gather_published(const u64* from, u32 apart, const Range (&ranges)[2], int thread,
                             typename M::type (&sums)[2]) {
  typedef typename M::type T;
  const int kWords = StatusWords<T>::kWords, kBatch = kWords < 5 ? 10 / kWords : 1;
  sums[0] = sums[1] = M::identity();
  const int end = ranges[0].end > ranges[1].end ? ranges[0].end : ranges[1].end;
  for (int first = 0; first < end; first += 32 * kBatch) {
    // No branches here, so that all accesses are under way at once.
    T values[kBatch];
    bool there[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const int i = first + thread + 32 * k;
      there[k] = read_published(from + (i < end ? i : 0), apart, values[k]);
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const int i = first + thread + 32 * k;
      const bool in[2] = {ranges[0].has(i), ranges[1].has(i)};
      if (!in[0] && !in[1]) continue;
      while (!there[k]) {
        __nanosleep(100);  // many ask for the same few lines of the cache
        there[k] = read_published(from + i, apart, values[k]);
      }
#pragma unroll
      for (int s = 0; s < 2; ++s)
        if (in[s]) sums[s] = M::combine(sums[s], values[k]);
    }
  }
  __syncwarp();
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2)
#pragma unroll
    for (int s = 0; s < 2; ++s) sums[s] = M::combine(sums[s], lane_xor(sums[s], lanes));
}

/// Starts a copy of 4, 8 or 16 bytes to shared memory; others are copied at once.
template <class T>
DEVICE void copy_to_shared(T* to, const char* from) {
#ifdef __CUDA_ARCH__
  if (sizeof(T) == 16) {
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(u32(__cvta_generic_to_shared(to))),
        "l"(from)
        : "memory");
    return;
  }
  if (sizeof(T) >= 4) {
    asm volatile(
        "cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(u32(__cvta_generic_to_shared(to))),
        "l"(from), "n"(sizeof(T) >= 4 ? sizeof(T) : 4)
        : "memory");
    return;
  }
#endif
  *to = *reinterpret_cast<const T*>(from);
}
/// The copies that this thread has started since the last call are a group.
DEVICE void end_copy_group() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/// Waits for the copies of this thread but for the latest kGroups groups.
template <int kGroups>
DEVICE void wait_for_copies() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
#endif
}
/// Stores what nobody will read soon.
template <class T>
DEVICE void store_streaming(char* to, const T& v) {
#ifdef __CUDA_ARCH__
  if (sizeof(T) == 16) {
    const uint4 w = *reinterpret_cast<const uint4*>(&v);
    __stcs(reinterpret_cast<uint4*>(to), w);
    return;
  }
#endif
  *reinterpret_cast<T*>(to) = v;
}

/// What a thread handles of a tile on its way through shared memory. Its slots there are kThreads
/// apart.
template <class S>
struct WaveTile {
  typedef typename S::In In;
  typedef typename S::Out Out;
  typedef typename S::Local M;
  typedef typename M::type T;
  static const int V = S::kVector, R = S::kRounds, kThreads = 32 * kWaveWarps;
  typedef TileAccess<S, kThreads * R> Access;
  typedef Vec<In, V> Slot;
  Lane<S> lane;
  Access access;

  static __device__ __forceinline__ WaveTile make(const typename S::Arguments& a, u32 item) {
    const u32 parts = u32(a.parts), number = a.lanes > 1 ? item / parts : 0;
    const int first = int(threadIdx.x >> 5) * R * 32 + int(threadIdx.x & 31);
    const Lane<S> lane = find_lane<S>(a, number);
    return {lane, Access(a, lane, item - number * parts, first)};
  }
  /// Which elements of round r are in the lane, in memory order.
  __device__ __forceinline__ Range inside(const typename S::Arguments& a, int r) const {
    const i64 first = (access.start + r * Access::kStep) * V - lane.shift, left = a.n - first;
    return {first < 0 ? int(-first) : 0, left < V ? int(left) : V};
  }
  __device__ __forceinline__ void copy(const typename S::Arguments& a, Slot* slots) const {
    const i64 stride = V > 1 ? i64(sizeof(In)) : a.in_stride;
    const char* const p = lane.in + access.offset(lane, stride);
    if (access.whole) {
#pragma unroll
      for (int r = 0; r < R; ++r)
        copy_to_shared(slots + r * kThreads, p + r * Access::kStep * V * stride);
      return;
    }
#pragma unroll 1
    for (int r = 0; r < R; ++r) {
      const Range there = inside(a, r);
#pragma unroll 1
      for (int j = there.begin; j < there.end; ++j)
        slots[r * kThreads].v[j] =
            *reinterpret_cast<const In*>(p + (r * Access::kStep * V + j) * stride);
    }
  }
  /// The elements of round r, in logical order.
  template <bool kWhole>
  __device__ __forceinline__ void load(const typename S::Arguments& a, const Slot* slots, int r,
                                       T* x) const {
    const Slot v = slots[r * kThreads];
#pragma unroll
    for (int j = 0; j < V; ++j) x[j] = S::load(v.v[S::kReverse ? V - 1 - j : j]);
    if (kWhole) return;
    const Range there = inside(a, r);
#pragma unroll
    for (int j = 0; j < V; ++j)
      if (!there.has(S::kReverse ? V - 1 - j : j)) x[j] = M::identity();
  }
  template <bool kWhole>
  __device__ __forceinline__ void store(const typename S::Arguments& a, int r,
                                        const Vec<Out, V>& v) const {
    const i64 stride = V > 1 ? i64(sizeof(Out)) : a.out_stride;
    char* const p = lane.out + access.offset(lane, stride) + r * Access::kStep * V * stride;
    if (kWhole) return store_streaming(p, v);
    const Range there = inside(a, r);
#pragma unroll
    for (int j = 0; j < V; ++j)
      if (there.has(j)) *reinterpret_cast<Out*>(p + j * stride) = v.v[j];
  }
  /// totals[r]: of the thread's elements of round r.
  template <bool kWhole>
  __device__ __forceinline__ void total(const typename S::Arguments& a, const Slot* slots,
                                        T* totals) const {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      T x[V];
      load<kWhole>(a, slots, r, x);
      totals[r] = x[0];
#pragma unroll
      for (int j = 1; j < V; ++j) totals[r] = M::combine(totals[r], x[j]);
    }
  }
  /// start: what precedes the warp; before[r]: what precedes round r within it.
  template <bool kWhole>
  __device__ __forceinline__ void scan(const typename S::Arguments& a, const Slot* slots, T start,
                                       const T* before) const {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      T x[V];
      load<kWhole>(a, slots, r, x);
      const T from = M::combine(start, before[r]);
      Vec<Out, V> v;
#pragma unroll
      for (int j = 0; j < V; ++j) {
        if (j > 0) x[j] = M::combine(x[j - 1], x[j]);
        v.v[S::kReverse ? V - 1 - j : j] = S::store(M::combine(from, x[j]));
      }
      store<kWhole>(a, r, v);
    }
  }
};

/// What the warps of a block tell each other, of one wave and the next.
template <class T>
struct WaveBoard {
  T totals[2][kWaveWarps], starts[2][kWaveWarps];
};
/// All threads of a block; the account is kept at another place of the program.
DEVICE void sync_wave() {
  __syncwarp();
#ifdef __CUDA_ARCH__
  asm volatile("bar.sync 1, %0;" ::"n"(32 * (kWaveWarps + 1)) : "memory");
#else
  __syncthreads();
#endif
}

template <class S, class Board>
DEVICE void scan_wave_tiles(const typename S::Arguments& a, Board& board, unsigned char* stages) {
  typedef typename S::Local M;
  typedef typename M::type T;
  typedef WaveTile<S> Tile;
  const int R = S::kRounds, thread = int(threadIdx.x) & 31, warp = int(threadIdx.x) >> 5;
  const u32 items = u32(a.lanes) * u32(a.parts), step = gridDim.x;
  const auto slots = [&](int stage) {
    return reinterpret_cast<typename Tile::Slot*>(stages) + stage * (R * Tile::kThreads) +
           threadIdx.x;
  };
  const auto copy = [&](u32 item, int stage) {
    if (item < items) Tile::make(a, item).copy(a, slots(stage));
    end_copy_group();
  };
  copy(blockIdx.x, 0);
  copy(blockIdx.x + step, 1);
  T before[R];  // of the present tile: what precedes it within the warp
  int stage = kWaveStages - 1, parity = 0;
  for (u32 next = blockIdx.x;; next += step) {
    const int next_stage = stage + 1 < kWaveStages ? stage + 1 : 0;
    T next_before[R];
    if (next < items) {
      wait_for_copies<kWaveStages - 2>();
      const Tile tile = Tile::make(a, next);
      T totals[R];
      if (tile.access.whole)
        tile.template total<true>(a, slots(next_stage), totals);
      else
        tile.template total<false>(a, slots(next_stage), totals);
      const T total = scan_totals<M, R>(totals, next_before, thread, 32);
      if (thread == 0) board.totals[parity][warp] = total;
    }
    sync_wave();
    if (next != blockIdx.x) {
      const Tile tile = Tile::make(a, next - step);
      const T start = board.starts[parity ^ 1][warp];
      if (tile.access.whole)
        tile.template scan<true>(a, slots(stage), start, before);
      else
        tile.template scan<false>(a, slots(stage), start, before);
    }
    if (next >= items) return;
    copy(next + 2 * step, stage);
#pragma unroll
    for (int r = 0; r < R; ++r) before[r] = next_before[r];
    stage = next_stage;
    parity ^= 1;
  }
}

template <class S, class Board>
DEVICE void account_for_waves(const typename S::Arguments& a, Board& board) {
  typedef typename S::Local::type T;
  typedef typename S::Wide M;
  typedef typename M::type W;
  const int thread = int(threadIdx.x) & 31;
  const u32 parts = u32(a.parts), items = u32(a.lanes) * parts, step = gridDim.x;
  W carry = M::identity();  // of the lane that the wave begins within
  int parity = 0;
  for (u32 begin = 0; begin + blockIdx.x < items; begin += step) {
    sync_wave();
    W total = thread < kWaveWarps ? W(board.totals[parity][thread]) : M::identity();
#pragma unroll
    for (int apart = 1; apart < kWaveWarps; apart *= 2) {
      const W other = lane_up(total, apart, 32);
      if (thread >= apart) total = M::combine(other, total);
    }
    if (thread == kWaveWarps - 1) publish(a.status + begin + blockIdx.x, items, total);
    W preceding = lane_up(total, 1, 32);
    if (thread == 0) preceding = M::identity();

    // The tile's lane up to the tile, and the lane that goes on in this block's next wave.
    const u32 end = begin + step, lane_begin = (begin + blockIdx.x) / parts * parts,
              next_lane_begin = end / parts * parts;
    const auto from = [&](u32 item) { return item > begin ? int(item - begin) : 0; };
    const Range ranges[2] = {{from(lane_begin), int(blockIdx.x)},
                             {from(next_lane_begin), end + blockIdx.x < items ? int(step) : 0}};
    W sums[2];
    gather_published<M>(a.status + begin, items, ranges, thread, sums);
    if (lane_begin < begin) sums[0] = M::combine(carry, sums[0]);
    if (next_lane_begin < begin) sums[1] = M::combine(carry, sums[1]);
    carry = sums[1];
    if (thread < kWaveWarps) board.starts[parity][thread] = T(M::combine(sums[0], preceding));
    parity ^= 1;
  }
  sync_wave();
}

/// Long lanes whose tiles all blocks share. See Note [Waves of a scan].
template <class S>
DEVICE void scan_waves(const typename S::Arguments& a) {
  typedef typename S::Local::type T;
  extern __shared__ __align__(16) unsigned char stages[];
  __shared__ WaveBoard<T> board;
  if (threadIdx.x < 32 * kWaveWarps)
    scan_wave_tiles<S>(a, board, stages);
  else
    account_for_waves<S>(a, board);
}

// ---- across neighbouring lanes

/// A thread owns kVector neighbouring lanes (along dimension 0) or, of each, one chunk. With more
/// than one chunk there are three launches: phase 1 writes the totals of chunks, phase 2 (a warp
/// for each lane) turns them into what precedes each chunk, phase 3 scans. Else phase 3 alone.
template <class S>
DEVICE void scan_columns(const typename S::Arguments& a) {
  typedef typename S::In In;
  typedef typename S::Out Out;
  typedef typename S::Local M;
  typedef typename M::type T;
  typedef typename S::Wide Wide;
  typedef typename Wide::type W;
  const int V = S::kVector, U = V > 2 ? 4 : 8;
  W* const carries = static_cast<W*>(a.carries);
  const i64 threads = i64(gridDim.x) * blockDim.x;
  i64 item = i64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (a.phase == 2) {
    const int thread = int(threadIdx.x) & 31;
    for (item /= 32; item < a.lanes; item += threads / 32) {
      W running = Wide::identity();
      for (i64 c = 0; c < a.parts; c += 32) {
        W* const at = carries + item * a.parts + c + thread;
        W sum = c + thread < a.parts ? *at : Wide::identity();
#pragma unroll
        for (int apart = 1; apart < 32; apart *= 2) {
          const W other = lane_up(sum, apart, 32);
          if (thread >= apart) sum = Wide::combine(other, sum);
        }
        const W other = lane_up(sum, 1, 32);
        if (c + thread < a.parts) *at = thread > 0 ? Wide::combine(running, other) : running;
        running = Wide::combine(running, lane_at(sum, 31, 32));
      }
    }
    return;
  }
  const i64 groups = a.lanes / V;
  for (; item < groups * a.parts; item += threads) {
    const i64 chunk = item / groups, number = (item - chunk * groups) * V;
    const Lane<S> lane = find_lane<S>(a, number);
    const i64 begin = chunk * a.chunk, end = begin + a.chunk < a.n ? begin + a.chunk : a.n;
    const auto element = [&](i64 i) { return S::kReverse ? a.n - 1 - i : i; };
    // Some tens of elements in the narrow type, then on to the wide one.
    W carry[V];
#pragma unroll
    for (int v = 0; v < V; ++v)
      carry[v] =
          a.phase == 3 && a.parts > 1 ? carries[(number + v) * a.parts + chunk] : Wide::identity();
    for (i64 i = begin; i < end; i += U) {
      Vec<In, V> in[U];
#pragma unroll
      for (int u = 0; u < U; ++u)
        if (i + u < end)
          in[u] = *reinterpret_cast<const Vec<In, V>*>(lane.in + element(i + u) * a.in_stride);
      T sum[V], start[V];
#pragma unroll
      for (int v = 0; v < V; ++v) {
        sum[v] = M::identity();
        start[v] = T(carry[v]);
      }
#pragma unroll
      for (int u = 0; u < U; ++u)
        if (i + u < end) {
          Vec<Out, V> out;
#pragma unroll
          for (int v = 0; v < V; ++v) {
            sum[v] = M::combine(sum[v], S::load(in[u].v[v]));
            out.v[v] = S::store(M::combine(start[v], sum[v]));
          }
          if (a.phase == 3)
            *reinterpret_cast<Vec<Out, V>*>(lane.out + element(i + u) * a.out_stride) = out;
        }
#pragma unroll
      for (int v = 0; v < V; ++v) carry[v] = Wide::combine(carry[v], W(sum[v]));
    }
    if (a.phase == 1)
#pragma unroll
      for (int v = 0; v < V; ++v) carries[(number + v) * a.parts + chunk] = carry[v];
  }
}
