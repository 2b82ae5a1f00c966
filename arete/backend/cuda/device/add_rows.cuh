// add_rows: out[index[i], :] += src[i, :]. The positions i are sorted stably by index, so that each
// row of out is summed in the order of i, by one warp for each run of columns.
//
// Note [Pieces of long runs]
// The entries of one row of out are a run of the sorted positions. A run is cut every kPiece
// entries, counted from its beginning; each piece is summed in order by one warp. The sum of a run
// of one piece begins with the row of out and goes back there. Longer runs (a padding token) leave
// the sums of their pieces in scratch memory, and add_row_pieces adds those up in order. All
// depends on the data alone, so results are the same from run to run. Runs that are given as such
// (add_runs) are cut in the same way, or if all are equally long and there are enough for the GPU,
// a warp sums the pieces of one and needs no scratch memory. Slots of it:
// within kPiece consecutive entries at most one run of several pieces begins (slot 2 w + 1 for
// window w), and at most one other piece of such runs (slot 2 w).
#pragma once
#include "index.cuh"
#include "lanes.cuh"

constexpr int kPiece = 256;

struct AddRowsKeysArgs {
  const i64* index;
  u64 keys;
  i64 count, rows;  // rows: the key of an index out of range, after all others
  ErrorSink error;
};
template <class K>
DEVICE void add_rows_keys(const AddRowsKeysArgs& a) {
  const u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= u64(a.count)) return;
  i64 row;
  if (!resolve_index(a.index[i], a.rows, a.error, &row)) row = a.rows;
  reinterpret_cast<K*>(a.keys)[i] = K(row);
}

struct AddRowsArgs {
  u64 out, src;
  u64 keys, positions;  // sorted; positions 0: the entries lie in that order
  u64 partial;          // sums of pieces, (slots, width)
  i64 count, rows, width;
  i64 out_stride, src_stride;  // between rows, in elements
  i64 out_step, src_step;      // between columns
  i64 slices;                  // warps across a row
  // Of kRouted, each 0 if there is none:
  u64 source, factors;
  i64 src_rows, left_out;
  ErrorSink error;
  // Of add_runs: where runs begin, or 0 if each has `run` entries.
  u64 begins;
  i64 run;
  i32 mean;
  u64 counts;      // of means: how many entries of each piece count, by slot
  u64 top;         // of maxima: the rows of src that they are from, (rows, width), or 0
  u64 piece_tops;  // of maxima: the same of pieces, (slots, width)
};

// What sums are formed in.
template <class T>
struct SumOf {
  typedef compute_of<T> type;
};
template <>
struct SumOf<boolean> {
  typedef i32 type;
};

DEVICE f32 plus(f32 a, f32 b) { return a + b; }
DEVICE f64 plus(f64 a, f64 b) { return a + b; }
DEVICE i32 plus(i32 a, i32 b) { return i32(u32(a) + u32(b)); }
DEVICE i64 plus(i64 a, i64 b) { return i64(u64(a) + u64(b)); }
DEVICE u64 plus(u64 a, u64 b) { return a + b; }
DEVICE c64 plus(c64 a, c64 b) { return c64{a.re + b.re, a.im + b.im}; }
DEVICE c128 plus(c128 a, c128 b) { return c128{a.re + b.re, a.im + b.im}; }

DEVICE f32 times(f32 a, f32 b) { return a * b; }
DEVICE f64 times(f64 a, f64 b) { return a * b; }
template <class C>
DEVICE C times(C a, C b) {
  return C{a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

DEVICE f32 divided(f32 a, i64 n) { return a / f32(n); }
DEVICE f64 divided(f64 a, i64 n) { return a / f64(n); }
template <class C>
DEVICE C divided(C a, i64 n) {
  return C{divided(a.re, n), divided(a.im, n)};
}

// Booleans count: any true gives a sum that is not 0. Counts of one run fit in 31 bits.
template <class T>
struct Stored {
  DEVICE T get(typename SumOf<T>::type v) { return from_compute<T>(v); }
};
template <>
struct Stored<boolean> {
  DEVICE boolean get(i32 v) { return boolean{u8(v != 0)}; }
};

/// kWidth columns of one row: side by side and aligned, or (kSpread) those of a warp in turn, with
/// any step between columns.
template <class T, int kWidth, bool kSpread>
struct Columns {
  typedef typename SumOf<T>::type S;
  typedef T Element;
  static constexpr int kCount = kWidth;
  S v[kWidth];
  /// Where column k is from the first one on, and whether it is one of the `left` that there are.
  DEVICE int place(int k) { return kSpread ? 32 * k : k; }
  DEVICE bool has(int k, i64 left) { return !kSpread || 32 * k < left; }
  /// The first column of a lane of a slice.
  DEVICE i64 first(i64 slice, int lane) {
    return slice * (32 * kWidth) + (kSpread ? lane : lane * kWidth);
  }
  DEVICE Columns zero() {
    Columns c;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) c.v[k] = S{};
    return c;
  }
  // `left`: how many columns there are from the first one on.
  DEVICE Columns load(const T* p, i64 step, i64 left) {
    Columns c = zero();
    if (kSpread) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k)
        if (32 * k < left) c.v[k] = S(to_compute(p[32 * k * step]));
    } else {
      const Vec<T, kWidth> stored = *reinterpret_cast<const Vec<T, kWidth>*>(p);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) c.v[k] = S(to_compute(stored.v[k]));
    }
    return c;
  }
  DEVICE void store(T* p, i64 step, i64 left, const Columns& c) {
    if (kSpread) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k)
        if (32 * k < left) p[32 * k * step] = Stored<T>::get(c.v[k]);
    } else {
      Vec<T, kWidth> stored;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) stored.v[k] = Stored<T>::get(c.v[k]);
      *reinterpret_cast<Vec<T, kWidth>*>(p) = stored;
    }
  }
  DEVICE void add(Columns& to, const Columns& c) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) to.v[k] = plus(to.v[k], c.v[k]);
  }
  DEVICE void scale(Columns& c, S factor) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) c.v[k] = times(factor, c.v[k]);
  }
  DEVICE void divide(Columns& c, i64 n) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) c.v[k] = divided(c.v[k], n);
  }
  DEVICE void save(S* p, i64 left, const Columns& c) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k)
      if (has(k, left)) p[place(k)] = c.v[k];
  }
  DEVICE void add_saved(Columns& to, const S* p, i64 left) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k)
      if (has(k, left)) to.v[k] = plus(to.v[k], p[place(k)]);
  }
};

/// Where the run that holds entry `at` begins, given that entry at - 1 belongs to it too. By a
/// whole warp.
template <class K>
DEVICE u64 run_begin(const K* keys, u64 at, K key) {
  const int lane = int(threadIdx.x & 31);
  // Usually close by.
  const bool near_same = u64(31 - lane) < at && keys[at - 1 - u64(31 - lane)] == key;
  const u32 near_mask = __ballot_sync(kAllLanes, near_same);
  if (near_mask != kAllLanes) return at - u64(__popc(near_mask));
  u64 low = 0, high = at - 32;  // the beginning is in [low, high]
  while (low < high) {
    const u64 step = (high - low + 31) / 32, probe = low + u64(lane) * step;
    const bool less = probe < high && keys[probe] < key;
    const u64 count = u64(__popc(__ballot_sync(kAllLanes, less)));
    const u64 end = low + count * step;
    if (end < high) high = end;
    if (count > 0) low += (count - 1) * step + 1;
  }
  return low;
}

/// What an entry adds: a row of src, in kRouted kernels -1 for none, and a factor.
template <class S, class P, bool kRouted>
struct RowEntry {
  P row;
  DEVICE RowEntry none() { return {P(0)}; }
  template <class T>
  DEVICE RowEntry of(const AddRowsArgs&, P position) {
    return {position};
  }
  __device__ __forceinline__ RowEntry from(const AddRowsArgs&, int lane) const {
    return {shuffle_from(row, lane)};
  }
  template <class C, class T>
  __device__ __forceinline__ C load(const AddRowsArgs& a, const T* src, i64 left) const {
    return C::load(src + i64(row) * a.src_stride, a.src_step, left);
  }
};
template <class S, class P>
struct RowEntry<S, P, true> {
  i64 row;
  S factor;
  DEVICE RowEntry none() { return {-1, S{}}; }
  template <class T>
  DEVICE RowEntry of(const AddRowsArgs& a, P position) {
    RowEntry e = {i64(position), S{}};
    if (a.source) {
      const i64 wanted = reinterpret_cast<const i64*>(a.source)[position];
      if (!resolve_index(wanted, a.src_rows, a.error, &e.row)) e.row = -1;
    }
    if (e.row == a.left_out) e.row = -1;
    if (a.factors) e.factor = S(to_compute(reinterpret_cast<const T*>(a.factors)[position]));
    return e;
  }
  __device__ __forceinline__ RowEntry from(const AddRowsArgs& a, int lane) const {
    return {shuffle_from(row, lane), a.factors ? shuffle_from(factor, lane) : factor};
  }
  template <class C, class T>
  __device__ __forceinline__ C load(const AddRowsArgs& a, const T* src, i64 left) const {
    if (row < 0) return C::zero();
    C c = C::load(src + row * a.src_stride, a.src_step, left);
    if (a.factors) C::scale(c, factor);
    return c;
  }
};

template <class T, int kWidth, bool kSpread, class K, class P, bool kRouted>
DEVICE void add_rows(const AddRowsArgs& a) {
  typedef Columns<T, kWidth, kSpread> C;
  typedef RowEntry<typename C::S, P, kRouted> Entry;
  const K* const keys = reinterpret_cast<const K*>(a.keys);
  const P* const positions = reinterpret_cast<const P*>(a.positions);
  const auto entry_at = [&](u64 i) {
    return Entry::template of<T>(a, positions ? positions[i] : P(i));
  };
  const int lane = int(threadIdx.x & 31);
  const u64 warp = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / 32, n = u64(a.count);
  const u64 chunk = warp / u64(a.slices) * 32;
  if (chunk >= n) return;
  const i64 column = C::first(i64(warp % u64(a.slices)), lane), left = a.width - column;
  const bool active = left > 0;  // idle lanes still take part in exchanges
  T* const out = reinterpret_cast<T*>(a.out) + column * a.out_step;
  const T* const src = reinterpret_cast<const T*>(a.src) + column * a.src_step;

  const K none = K(~K(0));
  const u64 i = chunk + u64(lane);
  const K key = i < n ? keys[i] : none;
  const Entry first_entry = i < n ? entry_at(i) : Entry::none();
  K before = shuffle_up(key, 1);
  if (lane == 0) before = chunk > 0 ? keys[chunk - 1] : none;
  const u32 begins = __ballot_sync(kAllLanes, i < n && before != key);
  const u32 up_to_lane = kAllLanes >> (31 - lane);
  const K first_key = shuffle_from(key, 0);
  const u64 first_begin = begins & 1 ? chunk : run_begin(keys, chunk, first_key);
  const u32 mine = begins & up_to_lane;
  const u64 begin = mine ? chunk + u64(31 - __clz(i32(mine))) : first_begin;
  u32 heads =
      __ballot_sync(kAllLanes, i < n && u64(key) < u64(a.rows) && (i - begin) % u64(kPiece) == 0);
  while (heads) {
    const int head = __ffs(i32(heads)) - 1;
    heads &= heads - 1;
    const K row = shuffle_from(key, head);
    const u64 run = shuffle_from(begin, head), start = chunk + u64(head);
    const u64 limit = start + kPiece < n ? start + kPiece : n;
    const bool is_first = run == start;
    C sum = C::zero();
    if (is_first && active) sum = C::load(out + i64(row) * a.out_stride, a.out_step, left);
    // 32 entries at a time, of which the first `count` from lane `from` on belong to the piece.
    int from = head;
    u64 at = chunk;
    Entry entry = first_entry;
    u32 same = __ballot_sync(kAllLanes, key == row && i >= start && i < limit);
    for (;;) {
      const int count = __popc(same);
      int k = 0;
      for (; k + 4 <= count; k += 4) {
        C c[4];
#pragma unroll
        for (int u = 0; u < 4; ++u) {
          const Entry e = entry.from(a, from + k + u);
          c[u] = C::zero();
          if (active) c[u] = e.template load<C>(a, src, left);
        }
#pragma unroll
        for (int u = 0; u < 4; ++u) C::add(sum, c[u]);
      }
      for (; k < count; ++k) {
        const Entry e = entry.from(a, from + k);
        if (active) C::add(sum, e.template load<C>(a, src, left));
      }
      at += 32;
      if (from + count < 32 || at >= limit) break;
      const u64 j = at + u64(lane);
      const bool next_same = j < limit && keys[j] == row;
      entry = next_same ? entry_at(j) : Entry::none();
      same = __ballot_sync(kAllLanes, next_same);
      from = 0;
      if (same == 0) break;
    }
    if (!active) continue;
    const bool goes_on = start + kPiece < n && keys[start + kPiece] == row;
    if (is_first && !goes_on)
      C::store(out + i64(row) * a.out_stride, a.out_step, left, sum);
    else
      C::save(reinterpret_cast<typename C::S*>(a.partial) +
                  i64(start / kPiece * 2 + (is_first ? 1 : 0)) * a.width + column,
              left, sum);
  }
}

/// Where a run given as such begins and ends.
struct RunBounds {
  i64 begin, end;
  __device__ __forceinline__ RunBounds(const AddRowsArgs& a, i64 run)
      : begin(run * a.run), end(begin + a.run) {
    if (!a.begins) return;
    const i64* const begins = reinterpret_cast<const i64*>(a.begins);
    begin = begins[run] > 0 ? begins[run] : 0;
    end = run + 1 < a.rows && begins[run + 1] < a.count ? begins[run + 1] : a.count;
  }
};
/// The run that entry `at` belongs to. By a whole warp.
DEVICE i64 run_at(const AddRowsArgs& a, i64 at) {
  if (!a.begins) return at / a.run < a.rows ? at / a.run : a.rows - 1;
  const i64* const begins = reinterpret_cast<const i64*>(a.begins);
  const int lane = int(threadIdx.x & 31);
  i64 low = 0, high = a.rows;  // it is in [low, high)
  while (high - low > 1) {
    const i64 step = (high - low + 31) / 32, probe = low + (lane + 1) * step;
    const u32 before = __ballot_sync(kAllLanes, probe < high && begins[probe] <= at);
    low += i64(__popc(before)) * step;
    high = low + step < high ? low + step : high;
  }
  return low;
}

/// What entries of a run come to: their sum, or mean.
template <class Cols>
struct RunSum {
  typedef Cols C;
  C sum;
  DEVICE RunSum none() { return {C::zero()}; }
  __device__ __forceinline__ void add(const C& c, i64, bool) { C::add(sum, c); }
  __device__ __forceinline__ void join(const RunSum& behind) { C::add(sum, behind.sum); }
  /// As slot `slot` of the pieces.
  __device__ __forceinline__ void save(const AddRowsArgs& a, i64 slot, i64 column, i64 left) const {
    C::save(reinterpret_cast<typename C::S*>(a.partial) + slot * a.width + column, left, sum);
  }
  __device__ __forceinline__ void store(const AddRowsArgs& a, i64 run, i64 column, i64 left,
                                        i64 counted) {
    typedef typename C::Element T;
    if (a.mean && counted > 1) C::divide(sum, counted);
    C::store(reinterpret_cast<T*>(a.out) + run * a.out_stride + column * a.out_step, a.out_step,
             left, sum);
  }
};

/// The largest of each column, NaN before all others, and the row that it is from, -1 where there
/// is none; of equal ones the first.
template <class Cols>
struct RunMax {
  typedef Cols C;
  C most;
  i64 row[C::kCount];
  DEVICE RunMax none() {
    RunMax r;
    r.most = C::zero();
#pragma unroll
    for (int k = 0; k < C::kCount; ++k) r.row[k] = -1;
    return r;
  }
  __device__ __forceinline__ void take(int k, typename C::S x, i64 from) {
    const typename C::S most_yet = most.v[k];
    if (row[k] >= 0 && (x <= most_yet || most_yet != most_yet)) return;
    most.v[k] = x;
    row[k] = from;
  }
  __device__ __forceinline__ void add(const C& c, i64 from, bool counts) {
    if (!counts) return;
#pragma unroll
    for (int k = 0; k < C::kCount; ++k) take(k, c.v[k], from);
  }
  __device__ __forceinline__ void join(const RunMax& behind) {
#pragma unroll
    for (int k = 0; k < C::kCount; ++k)
      if (behind.row[k] >= 0) take(k, behind.most.v[k], behind.row[k]);
  }
  __device__ __forceinline__ void save_rows(u64 to, i64 at, i64 left) const {
#pragma unroll
    for (int k = 0; k < C::kCount; ++k)
      if (C::has(k, left)) reinterpret_cast<i64*>(to)[at + C::place(k)] = row[k];
  }
  __device__ __forceinline__ void save(const AddRowsArgs& a, i64 slot, i64 column, i64 left) const {
    const i64 at = slot * a.width + column;
    C::save(reinterpret_cast<typename C::S*>(a.partial) + at, left, most);
    save_rows(a.piece_tops, at, left);
  }
  __device__ __forceinline__ void add_saved(const AddRowsArgs& a, i64 slot, i64 column, i64 left) {
    const i64 at = slot * a.width + column;
#pragma unroll
    for (int k = 0; k < C::kCount; ++k) {
      if (!C::has(k, left)) continue;
      const i64 from = reinterpret_cast<const i64*>(a.piece_tops)[at + C::place(k)];
      if (from >= 0)
        take(k, reinterpret_cast<const typename C::S*>(a.partial)[at + C::place(k)], from);
    }
  }
  __device__ __forceinline__ void store(const AddRowsArgs& a, i64 run, i64 column, i64 left, i64) {
    typedef typename C::Element T;
    C::store(reinterpret_cast<T*>(a.out) + run * a.out_stride + column * a.out_step, a.out_step,
             left, most);
    if (a.top) save_rows(a.top, run * a.width + column, left);
  }
};

/// Adds the entries of [begin, end), in order, and how many of them count.
template <class T, class R>
DEVICE void add_entries(const AddRowsArgs& a, const T* src, i64 left, i64 begin, i64 end, R& result,
                        i64& counted) {
  typedef typename R::C C;
  const bool active = left > 0;
  typedef RowEntry<typename C::S, u64, true> Entry;
  const int lane = int(threadIdx.x & 31);
  for (i64 at = begin; at < end; at += 32) {
    const Entry entry = at + lane < end ? Entry::template of<T>(a, u64(at + lane)) : Entry::none();
    counted += __popc(__ballot_sync(kAllLanes, entry.row >= 0));
    const int count = end - at < 32 ? int(end - at) : 32;
    int k = 0;
    for (; k + 4 <= count; k += 4) {
      C c[4];
      i64 row[4];
#pragma unroll
      for (int u = 0; u < 4; ++u) {
        const Entry e = entry.from(a, k + u);
        row[u] = e.row;
        c[u] = C::zero();
        if (active) c[u] = e.template load<C>(a, src, left);
      }
#pragma unroll
      for (int u = 0; u < 4; ++u) result.add(c[u], row[u], row[u] >= 0);
    }
    for (; k < count; ++k) {
      const Entry e = entry.from(a, k);
      if (active) result.add(e.template load<C>(a, src, left), e.row, e.row >= 0);
    }
  }
}

/// out[r, :] = what the entries of run r come to (RunSum, RunMax), in order: a warp for each run
/// and slice of columns. Sums are made in pieces as in Note [Pieces of long runs]. Where there is
/// scratch memory further warps, one for each window, take those behind the first one, and
/// add_run_pieces puts them together; else one warp takes them in turn, to the same bits.
template <class R>
DEVICE void add_runs(const AddRowsArgs& a) {
  typedef typename R::C C;
  typedef typename C::Element T;
  const int lane = int(threadIdx.x & 31);
  const u64 warp = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  const i64 number = i64(warp / u64(a.slices)), slice = i64(warp % u64(a.slices)),
            window = number - a.rows;
  const bool is_first = window < 0;
  if (!is_first && (a.partial == 0 || window * kPiece >= a.count)) return;
  const i64 run = is_first ? number : run_at(a, window * kPiece);
  const RunBounds bounds(a, run);
  i64 begin = bounds.begin, end = bounds.end, slot = 2 * window;
  if (is_first) {
    slot = 2 * (begin / kPiece) + 1;
  } else {
    // The one piece behind a first one that may begin within the window.
    if (begin >= window * kPiece) return;
    begin += (window * kPiece - begin + kPiece - 1) / kPiece * kPiece;
    if (begin >= end || begin >= (window + 1) * kPiece) return;
  }
  const bool cut = a.partial != 0 && (!is_first || end - begin > kPiece);
  if (cut && end - begin > kPiece) end = begin + kPiece;
  const i64 column = C::first(slice, lane), left = a.width - column;
  const bool active = left > 0;  // idle lanes still take part in exchanges
  R result = R::none();
  i64 counted = 0;
  for (; begin < end; begin += kPiece) {
    R piece = R::none();
    add_entries(a, reinterpret_cast<const T*>(a.src) + column * a.src_step, left, begin,
                begin + kPiece < end ? begin + kPiece : end, piece, counted);
    result.join(piece);
  }
  if (cut && a.mean && slice == 0 && lane == 0) reinterpret_cast<i64*>(a.counts)[slot] = counted;
  if (!active) return;
  if (cut)
    result.save(a, slot, column, left);
  else
    result.store(a, run, column, left, counted);
}

/// Adds to the first of a run's pieces those behind it: of entries from `at` on, where goes_on(p)
/// says whether entry p is the run's.
template <class C, class F>
DEVICE void add_pieces(C& sum, const typename C::S* partial, i64 width, i64 left, i64 at,
                       F goes_on) {
  const auto slot = [&](i64 p) { return partial + p / kPiece * 2 * width; };
  for (; goes_on(at + 3 * kPiece); at += 4 * kPiece) {
    C c[4];
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      c[u] = C::zero();
      C::add_saved(c[u], slot(at + u * kPiece), left);
    }
#pragma unroll
    for (int u = 0; u < 4; ++u) C::add(sum, c[u]);
  }
  for (; goes_on(at); at += kPiece) C::add_saved(sum, slot(at), left);
}

/// The pieces of a run that ends at `end`, the first of which is in `slot`.
template <class C>
DEVICE void join_pieces(const AddRowsArgs& a, RunSum<C>& result, i64 slot, i64 column, i64 left,
                        i64 at, i64 end) {
  const typename C::S* const partial = reinterpret_cast<const typename C::S*>(a.partial) + column;
  C::add_saved(result.sum, partial + slot * a.width, left);
  add_pieces(result.sum, partial, a.width, left, at, [&](i64 p) { return p < end; });
}
template <class C>
DEVICE void join_pieces(const AddRowsArgs& a, RunMax<C>& result, i64 slot, i64 column, i64 left,
                        i64 at, i64 end) {
  result.add_saved(a, slot, column, left);
  for (; at < end; at += kPiece) result.add_saved(a, at / kPiece * 2, column, left);
}

/// Puts the pieces of runs together that begin in a window: a warp for each window and slice.
template <class R>
DEVICE void add_run_pieces(const AddRowsArgs& a) {
  typedef typename R::C C;
  const u64 warp = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  const i64 window = i64(warp / u64(a.slices)), behind = (window + 1) * kPiece;
  if (behind >= a.count) return;  // no run of several pieces begins here
  // One that does has the first entry behind the window, too.
  const i64 run = run_at(a, behind);
  const RunBounds bounds(a, run);
  if (bounds.begin < behind - kPiece || bounds.begin >= behind ||
      bounds.end - bounds.begin <= kPiece)
    return;
  const i64 column = C::first(i64(warp % u64(a.slices)), int(threadIdx.x & 31)),
            left = a.width - column;
  if (left <= 0) return;
  R result = R::none();
  const i64 first = bounds.begin + kPiece;
  join_pieces(a, result, 2 * window + 1, column, left, first, bounds.end);
  i64 counted = 0;
  if (a.mean) {
    const i64* const counts = reinterpret_cast<const i64*>(a.counts);
    counted = counts[2 * window + 1];
    for (i64 at = first; at < bounds.end; at += kPiece) counted += counts[at / kPiece * 2];
  }
  result.store(a, run, column, left, counted);
}

/// A warp for each window of kPiece entries and slice of columns.
template <class T, int kWidth, bool kSpread, class K>
DEVICE void add_row_pieces(const AddRowsArgs& a) {
  typedef Columns<T, kWidth, kSpread> C;
  const K* const keys = reinterpret_cast<const K*>(a.keys);
  const int lane = int(threadIdx.x & 31);
  const u64 warp = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / 32, n = u64(a.count);
  const u64 window = warp / u64(a.slices), first = window * kPiece;
  if (first + kPiece >= n) return;  // no run of several pieces begins here
  u64 start = n;
  for (u64 i = first + u64(lane); i < first + kPiece; i += 32) {
    const K key = i + kPiece < n ? keys[i] : K(~K(0));
    const bool found = i + kPiece < n && u64(key) < u64(a.rows) && keys[i + kPiece] == key &&
                       (i == 0 || keys[i - 1] != key);
    const u32 mask = __ballot_sync(kAllLanes, found);
    if (mask) {
      start = i - u64(lane) + u64(__ffs(i32(mask)) - 1);
      break;
    }
  }
  if (start == n) return;
  const i64 column = C::first(i64(warp % u64(a.slices)), lane), left = a.width - column;
  if (left <= 0) return;
  const K row = keys[start];
  const typename C::S* const partial = reinterpret_cast<const typename C::S*>(a.partial) + column;
  C sum = C::zero();
  C::add_saved(sum, partial + i64(2 * window + 1) * a.width, left);
  add_pieces(sum, partial, a.width, left, i64(start) + kPiece,
             [&](i64 at) { return u64(at) < n && keys[at] == row; });
  C::store(reinterpret_cast<T*>(a.out) + i64(row) * a.out_stride + column * a.out_step, a.out_step,
           left, sum);
}
