// topk of long rows, and the part of select's work that leaves few elements of such rows.
//
// Note [Selection by digits]
// Each row's elements have a key under which the wanted ones are the smallest, and a position; the
// two in sequence are a number that no other element of the row has. topk_count finds the k-th
// smallest of these numbers digit by digit, from the highest: it counts the next digit of the
// elements that begin as the k-th is known to begin; the last block of a row to finish picks the
// digit. As soon as no more than `capacity` elements lie up to the end of the group that is left,
// the row is done, and the remaining launches return at once. topk_collect then writes down these
// elements in any order, and row_sort sorts them. So an input is read two or three times as a rule,
// and never more often than its digits demand.
// Where select wants one element, it is enough that its group is no larger than `capacity`, and the
// group alone is collected.
//
// Note [Selection from a sample]
// Very long rows are first reduced to their likely candidates, in one reading: topk_bound takes a
// sample and finds a key that some times more elements than wanted should not exceed; topk_filter
// writes down the elements up to it. If they are enough and have found room, then the wanted ones
// are among them, and the selection by digits goes on with the few that were written down (or is
// not needed, when they are no more than `capacity`). Else it reads the row as if nothing had been.
#pragma once
#include "index.cuh"
#include "lanes.cuh"
#include "ordered_key.cuh"
#include "place.cuh"

constexpr int kTopkThreads = 512, kTopkItems = 8, kTopkBins = 2048;
constexpr int kTopkSamples = 64;  // of a thread

struct TopkState {                  // all 0 at first
  u64 key_prefix, position_prefix;  // the digits found so far
  u32 below;                        // elements before the group that begins so
  u32 ticket;                       // blocks that have counted
  i32 key_shift, position_shift;    // bits of key and position not yet known
  u32 by_position, done;
  u32 nans, unused;  // elements that are NaN, where the place asks for them
};

struct TopkArgs {
  Walk rows;  // operand 0: in without the dimension
  u64 in;
  i64 step;  // along the dimension, in bytes
  i64 length, keep;
  i64 parts, part_length;  // blocks that share a row
  u64 flip;
  TopkState* states;
  u32* histograms;        // [row][kTopkBins], 0 at first
  u32* candidate_counts;  // 0 at first
  u64 candidate_keys, candidate_positions;
  i64 capacity, first_row;         // row 0 of states and candidates
  i32 on_positions, shift, width;  // the digit
  i32 is_first;                    // boolean
  i32 bound_rank;                  // topk_bound: which of the threads' smallest keys
  i32 unused;
  // See Note [Selection from a sample]; filter_capacity is 0 for rows that are not filtered.
  i64 filter_capacity;
  u64* bounds;
  u32* filter_counts;  // elements up to the bound, 0 at first
  u64 filter_keys, filter_positions;
  Place place;
};

/// Where the candidates of a row are: those elements that the filter wrote down, or all.
template <class T>
struct TopkSource {
  typedef typename OrderedKey<T>::U U;
  u64 in;
  const U* keys;  // null: all elements
  const u32* positions;
  i64 length;

  __device__ __forceinline__ TopkSource(const TopkArgs& a, i64 row)
      : in(a.in + u64(offsets_of(a.rows, u64(a.first_row + row)).at[0])),
        keys(nullptr),
        positions(nullptr),
        length(a.length) {
    if (a.filter_capacity == 0) return;
    const i64 found = i64(a.filter_counts[row]);
    if (found < a.keep || found > a.filter_capacity) return;
    keys = reinterpret_cast<const U*>(a.filter_keys) + row * a.filter_capacity;
    positions = reinterpret_cast<const u32*>(a.filter_positions) + row * a.filter_capacity;
    length = found;
  }
  __device__ __forceinline__ U key(const TopkArgs& a, i64 i) const {
    return keys ? keys[i] : U(OrderedKey<T>::key(*at_byte<const T>(in, i * a.step)) ^ U(a.flip));
  }
  __device__ __forceinline__ u64 position(i64 i) const { return keys ? u64(positions[i]) : u64(i); }
  /// The elements of one of the row's blocks.
  __device__ __forceinline__ void part(const TopkArgs& a, i64 number, i64& begin, i64& end) const {
    const i64 step = kTopkThreads * kTopkItems;
    const i64 part_length =
        keys ? ((length + a.parts - 1) / a.parts + step - 1) / step * step : a.part_length;
    begin = number * part_length;
    end = begin + part_length < length ? begin + part_length : length;
  }
};

/// Finds the bound of each row, by one block.
template <class T>
DEVICE void topk_bound(const TopkArgs& a) {
  typedef typename OrderedKey<T>::U U;
  __shared__ U smallest[kTopkThreads];
  const i64 row = i64(blockIdx.x);
  const u64 in = a.in + u64(offsets_of(a.rows, u64(a.first_row + row)).at[0]);
  // One element of each of equal stretches, at scattered places, so that no period is met.
  const u32 stretch = u32(a.length / (kTopkThreads * kTopkSamples));
  U own = U(~U(0));
#pragma unroll 16
  for (int k = 0; k < kTopkSamples; ++k) {
    const u32 number = u32(k) * kTopkThreads + threadIdx.x;
    u32 mix = number * 0x9e3779b9u;
    mix = (mix ^ mix >> 15) * 0x85ebca6bu;
    mix ^= mix >> 13;
    const i64 i = i64(number) * stretch + i64(u64(mix) * stretch >> 32);
    const U key = U(OrderedKey<T>::key(*at_byte<const T>(in, i * a.step)) ^ U(a.flip));
    own = key < own ? key : own;
  }
  smallest[threadIdx.x] = own;
  __syncthreads();
  int rank = 0;
#pragma unroll 8
  for (int t = 0; t < kTopkThreads; ++t) {
    const U other = smallest[t];
    rank += other < own || (other == own && t < int(threadIdx.x));
  }
  if (rank == a.bound_rank) a.bounds[row] = u64(own);
}

template <class T>
DEVICE void topk_filter(const TopkArgs& a) {
  typedef typename OrderedKey<T>::U U;
  const int thread = int(threadIdx.x), lane = thread & 31;
  const i64 row = i64(blockIdx.x) / a.parts, part = i64(blockIdx.x) % a.parts;
  const u64 in = a.in + u64(offsets_of(a.rows, u64(a.first_row + row)).at[0]);
  const i64 begin = part * a.part_length;
  const i64 end = begin + a.part_length < a.length ? begin + a.part_length : a.length;
  const U bound = U(a.bounds[row]);
  U* const keys_found = reinterpret_cast<U*>(a.filter_keys) + row * a.filter_capacity;
  u32* const positions_found = reinterpret_cast<u32*>(a.filter_positions) + row * a.filter_capacity;
  for (i64 base = begin; base < end; base += kTopkThreads * kTopkItems) {
    U keys[kTopkItems];
    u32 chosen = 0;  // bit k: keys[k]
    if (base + kTopkThreads * kTopkItems <= end) {
      const u64 from = in + u64((base + thread) * i64(sizeof(T)));
#pragma unroll
      for (int k = 0; k < kTopkItems; ++k)
        keys[k] = U(OrderedKey<T>::key(*at_byte<const T>(from, k * kTopkThreads * i64(sizeof(T)))) ^
                    U(a.flip));
#pragma unroll
      for (int k = 0; k < kTopkItems; ++k) chosen |= u32(keys[k] <= bound) << k;
    } else {
#pragma unroll
      for (int k = 0; k < kTopkItems; ++k) {
        const i64 i = base + k * kTopkThreads + thread;
        keys[k] = U(~U(0));
        if (i >= end) continue;
        keys[k] = U(OrderedKey<T>::key(*at_byte<const T>(in, i * i64(sizeof(T)))) ^ U(a.flip));
        chosen |= u32(keys[k] <= bound) << k;
      }
    }
    if (!__any_sync(kAllLanes, chosen != 0)) continue;
    // One addition for all of the warp's elements.
    const u32 own = u32(__popc(chosen));
    u32 sum = own;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const u32 before = __shfl_up_sync(kAllLanes, sum, d);
      if (lane >= d) sum += before;
    }
    u32 place = 0;
    if (lane == 31) place = atomicAdd(a.filter_counts + row, sum);
    place = __shfl_sync(kAllLanes, place, 31) + sum - own;
#pragma unroll
    for (int k = 0; k < kTopkItems; ++k)
      if (chosen >> k & 1u) {
        if (i64(place) < a.filter_capacity) {
          keys_found[place] = keys[k];
          positions_found[place] = u32(base + k * kTopkThreads + thread);
        }
        ++place;
      }
  }
}

/// kSelects: for the element at `place`, not the first `keep`.
template <class T, bool kSelects>
DEVICE void topk_count(const TopkArgs& a) {
  typedef typename OrderedKey<T>::U U;
  __shared__ u32 counts[kTopkBins];
  __shared__ u32 warp_sums[kTopkThreads / 32];
  __shared__ bool is_last;
  const int thread = int(threadIdx.x), lane = thread & 31, warp = thread / 32;
  const i64 row = i64(blockIdx.x) / a.parts, part = i64(blockIdx.x) % a.parts;
  TopkState& state = a.states[row];
  if (state.done) return;
  const TopkSource<T> source(a, row);
  if (source.keys && source.length <= a.capacity) return;
  const u64 key_prefix = state.key_prefix, position_prefix = state.position_prefix;
  for (int i = thread; i < kTopkBins; i += kTopkThreads) counts[i] = 0;
  __syncthreads();
  i64 begin, end;
  source.part(a, part, begin, end);
  const u32 mask = (1u << a.width) - 1;
  const bool counts_nans = kSelects && a.is_first && a.place.asks_for_nans();
  u32 nans = 0;
  for (i64 base = begin; base < end; base += kTopkThreads * kTopkItems) {
    U keys[kTopkItems];
#pragma unroll
    for (int k = 0; k < kTopkItems; ++k) {
      const i64 i = base + k * kTopkThreads + thread;
      keys[k] = i < end ? source.key(a, i) : U(0);
    }
#pragma unroll
    for (int k = 0; k < kTopkItems; ++k) {
      const i64 i = base + k * kTopkThreads + thread;
      const u64 key = u64(keys[k]);
      bool used = i < end;
      if (kSelects) nans += used && keys[k] == U(~U(0));
      u64 position = 0;
      if (a.on_positions) {
        used = used && key == key_prefix;
        if (used) position = source.position(i);
        used = used && position >> (a.shift + a.width) == position_prefix;
      } else if (!a.is_first)
        used = used && key >> (a.shift + a.width) == key_prefix;
      const u32 users = __ballot_sync(kAllLanes, used);
      if (users == 0) continue;
      const u32 digit = u32((a.on_positions ? position : key) >> a.shift) & mask;
      const int leader = __ffs(i32(users)) - 1;
      const u32 first = __shfl_sync(kAllLanes, digit, leader);
      // Equal digits are common; 32 additions to one word would take turns.
      if (__all_sync(kAllLanes, !used || digit == first)) {
        if (lane == leader) atomicAdd(&counts[first], u32(__popc(users)));
      } else if (used) {
        atomicAdd(&counts[digit], 1u);
      }
    }
  }
  __syncthreads();
  u32* const histogram = a.histograms + row * kTopkBins;
  for (int i = thread; i < kTopkBins; i += kTopkThreads)
    if (counts[i]) atomicAdd(&histogram[i], counts[i]);
  if (counts_nans) {
    nans = __reduce_add_sync(kAllLanes, nans);
    if (lane == 0 && nans) atomicAdd(&state.nans, nans);
  }
  __threadfence();
  __syncthreads();
  if (thread == 0) is_last = atomicAdd(&state.ticket, 1u) + 1 == u32(a.parts);
  __syncthreads();
  if (!is_last) return;
  __threadfence();

  // The bin that holds the wanted element. Each thread has four neighbours.
  constexpr int kBins = kTopkBins / kTopkThreads;
  u32 own[kBins], total = 0;
#pragma unroll
  for (int k = 0; k < kBins; ++k) {
    u32* const p = histogram + thread * kBins + k;
    own[k] = *reinterpret_cast<volatile u32*>(p);
    *p = 0;  // for the next digit
    total += own[k];
  }
  u32 sum = total;
  for (int d = 1; d < 32; d *= 2) {
    const u32 before = shuffle_up(sum, d);
    if (lane >= d) sum += before;
  }
  if (lane == 31) warp_sums[warp] = sum;
  u32 last = u32(a.keep);
  if (kSelects)
    last = 1 + a.place.of(u64(a.first_row + row), a.length,
                          i64(*reinterpret_cast<volatile u32*>(&state.nans)));
  const u32 below = state.below, wanted = last - below;  // the wanted-th of the group
  __syncthreads();
  u32 before = sum - total;
  for (int w = 0; w < warp; ++w) before += warp_sums[w];
#pragma unroll
  for (int k = 0; k < kBins; ++k) {
    if (before < wanted && wanted - before <= own[k]) {
      const u64 digit = u64(thread * kBins + k);
      if (a.on_positions) {
        state.position_prefix = position_prefix << a.width | digit;
        state.position_shift = a.shift;
        state.by_position = 1;
      } else {
        state.key_prefix = key_prefix << a.width | digit;
        state.key_shift = a.shift;
      }
      state.below = below + before;
      state.done = (kSelects ? 0 : u64(below) + before) + own[k] <= u64(a.capacity);
      state.ticket = 0;
    }
    before += own[k];
  }
}

template <class T, bool kSelects>
DEVICE void topk_collect(const TopkArgs& a) {
  typedef typename OrderedKey<T>::U U;
  const int thread = int(threadIdx.x), lane = thread & 31;
  const i64 row = i64(blockIdx.x) / a.parts, part = i64(blockIdx.x) % a.parts;
  const TopkState state = a.states[row];
  const TopkSource<T> source(a, row);
  const bool everything = source.keys && source.length <= a.capacity;
  i64 begin, end;
  source.part(a, part, begin, end);
  for (i64 base = begin; base < end; base += kTopkThreads * kTopkItems) {
    U keys[kTopkItems];
#pragma unroll
    for (int k = 0; k < kTopkItems; ++k) {
      const i64 i = base + k * kTopkThreads + thread;
      keys[k] = i < end ? source.key(a, i) : U(0);
    }
#pragma unroll
    for (int k = 0; k < kTopkItems; ++k) {
      const i64 i = base + k * kTopkThreads + thread;
      const u64 group = u64(keys[k]) >> state.key_shift;
      // Up to the end of the group, or of the group alone.
      const bool chosen =
          i < end &&
          (everything || (!kSelects && group < state.key_prefix) ||
           (group == state.key_prefix &&
            (!state.by_position ||
             (kSelects ? source.position(i) >> state.position_shift == state.position_prefix
                       : source.position(i) >> state.position_shift <= state.position_prefix))));
      const u32 all = __ballot_sync(kAllLanes, chosen);
      if (all == 0) continue;
      const int leader = __ffs(i32(all)) - 1;
      u32 place = 0;
      if (lane == leader) place = atomicAdd(a.candidate_counts + row, u32(__popc(all)));
      place = __shfl_sync(kAllLanes, place, leader) + u32(__popc(all & ((1u << lane) - 1)));
      if (chosen && place < u32(a.capacity)) {
        const i64 to = row * a.capacity + i64(place);
        reinterpret_cast<U*>(a.candidate_keys)[to] = keys[k];
        reinterpret_cast<u32*>(a.candidate_positions)[to] = u32(source.position(i));
      }
    }
  }
}
