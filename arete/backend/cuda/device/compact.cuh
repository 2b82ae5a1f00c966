// compact: positions of the bytes that are not 0, or their coordinates, in one pass over the mask.
// Tiles are taken in order, and each waits for the count of what came before it (see TileState).
#pragma once
#include "index.cuh"
#include "lanes.cuh"

constexpr int kCompactThreads = 512, kCompactBytes = 16;  // of one thread
constexpr int kCompactTile = kCompactThreads * kCompactBytes;

struct CompactDim {
  i64 size;
  Divisor divisor;  // where everything fits in 32 bits
};
struct CompactArgs {
  const u8* mask;
  i64* out;
  i64* total;      // written
  u64* states;     // of tiles, 0 at first
  u32* next_tile;  // 0 at first
  i64 count;
  // Of coordinates: dimensions of the mask, and from one coordinate and from one of its elements to
  // the next in `out`.
  i64 rank, coordinate_step, step, is_wide;
  CompactDim dims[16];
};

// What all tiles before `tile` hold, by one warp.
DEVICE i64 sum_before(const u64* states, i64 tile) {
  typedef TileState<u64> State;
  const int lane = int(threadIdx.x & 31);
  i64 sum = 0;
  for (i64 at = tile - 1 - lane;; at -= 32) {
    u64 state = State::kSum;
    do {
      if (at >= 0) state = State::load(states + at);
    } while (__any_sync(kAllLanes, state < State::kOwn));
    const u32 sums = __ballot_sync(kAllLanes, state >= State::kSum);
    const int last = sums ? __ffs(i32(sums)) - 1 : 31;
    i64 number = lane <= last ? i64(state & State::kNumber) : 0;
    for (int d = 16; d > 0; d /= 2) number += shuffle_down(number, d);
    sum += shuffle_from(number, 0);
    if (sums) return sum;
  }
}

// The coordinates of a row-major position.
DEVICE void store_coordinates(const CompactArgs& a, i64 position, i64* to) {
  i64 rest = position;
  for (i64 d = a.rank - 1; d > 0; --d) {
    const CompactDim& dim = a.dims[d];
    const i64 next =
        a.is_wide ? i64(u64(rest) / u64(dim.size)) : i64(divide(u32(rest), dim.divisor));
    to[d * a.coordinate_step] = rest - next * dim.size;
    rest = next;
  }
  to[0] = rest;
}

/// kAligned: the mask begins at a multiple of 16 bytes.
template <bool kAligned, bool kCoordinates>
DEVICE void compact(const CompactArgs& a) {
  __shared__ u16 found[kCompactTile];
  __shared__ u32 warp_counts[kCompactThreads / 32];
  __shared__ i64 shared_base;
  __shared__ u32 shared_tile;
  const int thread = int(threadIdx.x), lane = thread & 31, warp = thread / 32;
  if (thread == 0) shared_tile = atomicAdd(a.next_tile, 1u);
  __syncthreads();
  const i64 tile = shared_tile, begin = tile * kCompactTile;
  const int here = thread * kCompactBytes;

  u32 bits = 0;
  if (kAligned && begin + here + kCompactBytes <= a.count) {
    const Vec<u32, 4> words = *reinterpret_cast<const Vec<u32, 4>*>(a.mask + begin + here);
#pragma unroll
    for (int k = 0; k < kCompactBytes; ++k)
      bits |= u32((words.v[k / 4] >> (k % 4 * 8) & 0xffu) != 0) << k;
  } else {
    for (int k = 0; k < kCompactBytes; ++k)
      if (begin + here + k < a.count) bits |= u32(a.mask[begin + here + k] != 0) << k;
  }
  const u32 own = u32(__popc(bits));
  u32 sum = own;
  for (int d = 1; d < 32; d *= 2) {
    const u32 before = shuffle_up(sum, d);
    if (lane >= d) sum += before;
  }
  if (lane == 31) warp_counts[warp] = sum;
  __syncthreads();
  u32 at = sum - own, count = 0;
  for (int w = 0; w < kCompactThreads / 32; ++w) {
    if (w < warp) at += warp_counts[w];
    count += warp_counts[w];
  }
  if (warp == 0) {
    typedef TileState<u64> State;
    if (lane == 0) State::store(a.states + tile, (tile == 0 ? State::kSum : State::kOwn) | count);
    const i64 base = tile == 0 ? 0 : sum_before(a.states, tile);
    if (lane == 0) {
      if (tile > 0) State::store(a.states + tile, State::kSum | u64(base + count));
      shared_base = base;
      if (begin + kCompactTile >= a.count) *a.total = base + count;
    }
  }
  for (; bits; bits &= bits - 1) found[at++] = u16(here + __ffs(i32(bits)) - 1);
  __syncthreads();
  i64* const out = a.out + (kCoordinates ? shared_base * a.step : shared_base);
  for (u32 k = u32(thread); k < count; k += kCompactThreads) {
    if (kCoordinates)
      store_coordinates(a, begin + found[k], out + k * a.step);
    else
      out[k] = begin + found[k];
  }
}
