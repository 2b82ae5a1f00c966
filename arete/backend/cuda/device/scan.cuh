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
  u64* status;                // long lanes: published totals, zero at first
  i64 status_entries;         // of one lane
  u32* ticket;                // zero at first
  i32 levels;                 // of published totals
  i32 log_group;              // rows: threads of one lane
  i32 phase;                  // columns: see scan_columns
  i32 unused;
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

/// Scans x[round][element] over the lanes of groups of `width` threads, in logical order. before[r]
/// becomes the total of everything before x[r]; returns the total of the group.
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

// Note [Fixed look-back]
// The tiles of a long lane are scanned at the same time. What comes before tile t is put together
// from published values: the totals of the tiles of its group of kGroup that precede it, and the
// base of the group, which is the total of all earlier groups. The block that ends a group
// publishes the group's total and the base of the next group, which it combines from totals of
// groups, of groups of groups and so on. Nothing published depends on a base, so nobody waits for
// a chain; which totals are combined in which order depends on t alone, so the same bits come out
// in every run, unlike with look-back over whatever prefixes happen to be there.
//
// A block publishes the total of its next tile before it looks back for the present one, and
// copies the tile after that to shared memory meanwhile. So what it looks for was published a whole
// tile's time ago, and the waits for memory and for other blocks overlap. Tiles are taken in order
// from a counter. Publishing waits only for the totals and for the look-back of earlier tiles, so
// the earliest tile that is not published belongs to a running block that waits for nobody.
//
// The values of a lane: totals of tiles, of groups, of groups of groups, ...; bases of groups.

constexpr int kGroup = 256, kLogGroup = 8;
constexpr int kScanWarps = 8, kStages = 3;  // kStages: tiles that a block holds

template <class T>
union StatusWords {
  static const int kWords = sizeof(T) <= 4 ? 1 : int(sizeof(T) / 4);
  T value;
  u32 words[kWords];
};
/// A word of the value and the mark that it is there travel in one 8-byte access.
template <class T>
DEVICE void publish(u64* at, T value) {
  StatusWords<T> s;
  s.words[0] = 0;
  s.value = value;
#pragma unroll
  for (int w = 0; w < s.kWords; ++w)
    *static_cast<volatile u64*>(at + w) = (u64(1) << 32) | s.words[w];
}
template <class T>
DEVICE bool read_published(const u64* at, T& value) {
  StatusWords<T> s;
  bool there = true;
#pragma unroll
  for (int w = 0; w < s.kWords; ++w) {
    const u64 word = *static_cast<const volatile u64*>(at + w);
    there &= (word >> 32) != 0;
    s.words[w] = u32(word);
  }
  value = s.value;
  return there;
}

/// Combines `count` <= kGroup published values once they are there; by a whole warp.
template <class M>
DEVICE typename M::type gather_published(const u64* from, int count, int thread) {
  typedef typename M::type T;
  const int kWords = StatusWords<T>::kWords, kEach = kGroup / 32;
  const int kBatch = kWords <= 2 ? kEach : (kEach + 1) / 2;
  T all = M::identity();
#pragma unroll
  for (int first = 0; first < kEach; first += kBatch) {
    if (32 * first >= count) break;
    // No branches here, so that all accesses are under way at once.
    T values[kBatch];
    bool there[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const int i = thread + 32 * (first + k);
      there[k] = read_published(from + (i < count ? i : 0) * kWords, values[k]);
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const int i = thread + 32 * (first + k);
      if (i >= count) continue;
      while (!there[k]) there[k] = read_published(from + i * kWords, values[k]);
      all = M::combine(all, values[k]);
    }
  }
  __syncwarp();
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) all = M::combine(all, lane_xor(all, apart));
  return all;
}

/// Where the bases of groups are published.
template <class T>
DEVICE u64* bases_of(u64* status, i64 tiles, int levels) {
  for (int l = 0; l < levels; ++l) {
    status += tiles * StatusWords<T>::kWords;
    tiles = (tiles + kGroup - 1) >> kLogGroup;
  }
  return status;
}

/// After the last tile of a group, `tile`: publishes the totals of all groups that end with it and
/// the base of the next one. By a whole warp. See Note [Fixed look-back].
template <class M>
DEVICE void finish_group(u64* status, i64 tiles, i64 tile, int levels, int thread) {
  typedef typename M::type T;
  const int kWords = StatusWords<T>::kWords;
  u64* const bases = bases_of<T>(status, tiles, levels);
  i64 next = tile + 1;  // on this level
  const i64 group = next >> kLogGroup;
  T base = M::identity();
  bool ends = true;
  for (int l = 0; l < levels; ++l) {
    const i64 first = next & ~i64(kGroup - 1);
    if (first != next) {
      const int before = int(next - first);
      base = M::combine(gather_published<M>(status + first * kWords, before, thread), base);
    }
    u64* const above = status + tiles * kWords;
    ends = ends && first == next;
    if (ends && l + 1 < levels) {
      const u64* const from = status + (next - kGroup) * kWords;
      const T total = gather_published<M>(from, kGroup, thread);
      if (thread == 0) publish(above + ((next >> kLogGroup) - 1) * kWords, total);
      __syncwarp();
    }
    next >>= kLogGroup;
    status = above;
    tiles = (tiles + kGroup - 1) >> kLogGroup;
  }
  if (thread == 0) publish(bases + group * kWords, base);
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
/// Waits for the copies of this thread.
DEVICE void wait_for_copies() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

/// A tile on its way through shared memory; a thread reads only what it has copied itself.
template <class S>
struct StagedTile {
  static const int kThreads = 32 * kScanWarps, V = S::kVector, R = S::kRounds;
  typedef TileAccess<S, kThreads * R> Access;
  typedef Vec<typename S::In, V> Slot;

  /// Slots of a thread are kThreads apart.
  static __device__ __forceinline__ void copy(const typename S::Arguments& a, const Lane<S>& lane,
                                              const Access& access, Slot* slots) {
    typedef typename S::In In;
    const i64 stride = V > 1 ? i64(sizeof(In)) : a.in_stride;
    const char* const p = lane.in + access.offset(lane, stride);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      Slot* const to = slots + r * kThreads;
      const i64 first = (access.start + r * Access::kStep) * V - lane.shift;
      if (access.whole || (first >= 0 && first + V <= a.n)) {
        copy_to_shared(to, p + r * Access::kStep * V * stride);
        continue;
      }
#pragma unroll
      for (int j = 0; j < V; ++j)
        if (first + j >= 0 && first + j < a.n)
          to->v[j] = *reinterpret_cast<const In*>(lane.in + (first + j) * stride);
    }
  }
  static __device__ __forceinline__ void load(const typename S::Arguments& a, const Lane<S>& lane,
                                              const Access& access, const Slot* slots,
                                              typename S::Local::type (*x)[V]) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const Slot v = slots[r * kThreads];
#pragma unroll
      for (int j = 0; j < V; ++j) x[r][j] = S::load(v.v[S::kReverse ? V - 1 - j : j]);
      if (access.whole) continue;
      const i64 first = (access.start + r * Access::kStep) * V - lane.shift;
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const i64 e = first + (S::kReverse ? V - 1 - j : j);
        if (e < 0 || e >= a.n) x[r][j] = S::Local::identity();
      }
    }
  }
};

/// Long lanes whose tiles all blocks share. See Note [Fixed look-back].
template <class S>
DEVICE void scan_look_back(const typename S::Arguments& a) {
  typedef typename S::Local L;
  typedef typename L::type T;
  typedef typename S::Wide M;
  typedef typename M::type W;
  typedef StagedTile<S> Tile;
  typedef typename Tile::Access Access;
  const int R = S::kRounds, V = S::kVector, kWords = StatusWords<W>::kWords;
  extern __shared__ __align__(16) unsigned char stages[];
  __shared__ W totals[kStages][kScanWarps];
  __shared__ W preceding_tiles;
  __shared__ u32 shared_ticket;
  const int thread = int(threadIdx.x) & 31, warp = int(threadIdx.x) >> 5;
  const int first = warp * R * 32 + thread;
  const u32 parts = u32(a.parts), items = u32(a.lanes) * parts;
  // Not in the warp that looks back, which has enough to wait for.
  const bool takes_tickets = threadIdx.x == 32 * (kScanWarps - 1);
  const auto slots = [&](int stage) {
    return reinterpret_cast<typename Tile::Slot*>(stages) + stage * (R * Tile::kThreads) +
           threadIdx.x;
  };
  const auto copy = [&](u32 item, int stage) {
    if (item >= items) return;
    const u32 number = item / parts;
    const Lane<S> lane = find_lane<S>(a, number);
    Tile::copy(a, lane, Access(a, lane, item - number * parts, first), slots(stage));
  };

  if (takes_tickets) shared_ticket = atomicAdd(a.ticket, 1u);
  __syncthreads();
  u32 present = items, next = shared_ticket, following = items;
  if (next >= items) return;
  __syncthreads();
  int stage = kStages - 1;  // of the present tile; the next ones follow
  copy(next, 0);
  u32 ticket = 0;
  if (takes_tickets) ticket = atomicAdd(a.ticket, 1u);
  for (bool started = false; !started || present < items; started = true) {
    const int next_stage = stage + 1 < kStages ? stage + 1 : 0;
    const int following_stage = next_stage + 1 < kStages ? next_stage + 1 : 0;
    const u32 next_number = next / parts;
    const i64 next_tile = i64(next - next_number * parts);
    wait_for_copies();
    if (next < items) {
      const Lane<S> lane = find_lane<S>(a, next_number);
      T x[R][V];
      Tile::load(a, lane, Access(a, lane, next_tile, first), slots(next_stage), x);
      T sum = L::identity();
#pragma unroll
      for (int r = 0; r < R; ++r) {
#pragma unroll
        for (int j = 1; j < V; ++j) x[r][0] = L::combine(x[r][0], x[r][j]);
        sum = L::combine(sum, x[r][0]);
      }
#pragma unroll
      for (int apart = 16; apart > 0; apart /= 2) sum = L::combine(sum, lane_xor(sum, apart));
      if (thread == 0) totals[next_stage][warp] = W(sum);
    }
    if (takes_tickets) shared_ticket = ticket;
    __syncthreads();
    following = shared_ticket;
    if (next < items) {
      u64* const status = a.status + i64(next_number) * a.status_entries * kWords;
      if (threadIdx.x == 0) {
        W total = totals[next_stage][0];
#pragma unroll
        for (int w = 1; w < kScanWarps; ++w) total = M::combine(total, totals[next_stage][w]);
        publish(status + next_tile * kWords, total);
      }
      copy(following, following_stage);
      if (takes_tickets) ticket = atomicAdd(a.ticket, 1u);
      if (warp == 1 && ((next_tile + 1) & (kGroup - 1)) == 0 && next_tile + 1 < a.parts)
        finish_group<M>(status, a.parts, next_tile, a.levels, thread);
    }
    if (present < items) {
      const u32 number = present / parts;
      const i64 tile = i64(present - number * parts);
      if (warp == 0) {
        u64* const status = a.status + i64(number) * a.status_entries * kWords;
        const i64 group = tile >> kLogGroup, begin = group << kLogGroup;
        W before = gather_published<M>(status + begin * kWords, int(tile - begin), thread);
        if (thread == 0 && group > 0) {
          const u64* const at = bases_of<W>(status, a.parts, a.levels) + group * kWords;
          W base;
          while (!read_published(at, base)) {
          }
          before = M::combine(base, before);
        }
        if (thread == 0) preceding_tiles = before;
        __syncwarp();
      }
      const Lane<S> lane = find_lane<S>(a, number);
      const Access access(a, lane, tile, first);
      T x[R][V], before[R];
      Tile::load(a, lane, access, slots(stage), x);
      scan_group<S, R>(x, before, thread, 32);
      __syncthreads();
      W start = preceding_tiles;
      for (int w = 0; w < warp; ++w) start = M::combine(start, totals[stage][w]);
      access.store(a, lane, T(start), before, x);
    }
    present = next;
    next = following;
    stage = next_stage;
  }
}

/// Longer lanes, each by one block, one tile of 256 threads after the other.
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
