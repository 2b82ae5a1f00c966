// Elements of rows by their place in the row's order.
//
// Note [Selection by bisection]
// A group of threads holds a row's keys in registers, kItems in each. It knows an interval of keys
// [low, low + 2^bit) in which the wanted one lies, counts the keys below the middle and goes on
// with one half, until the interval holds one element or one key. A step is a comparison and an
// addition for each key and a sum over the group; it has no collisions, whatever the keys are. The
// interval at first is what the row's keys do not have in common, so that small numbers in wide
// types take few steps. Of several equal keys the position decides, in the same way.
//
// Longer rows are reduced first to the elements whose keys begin as the wanted one does, see
// Note [Selection by digits]; then these candidates are what is bisected.
#pragma once
#include "lanes.cuh"
#include "ordered_key.cuh"
#include "place.cuh"
#include "topk.cuh"

struct SelectArgs {
  Walk rows;  // in without the dimension, values, indices
  u64 in, values, indices;
  i64 step;  // of in along the dimension, in bytes
  i64 length;
  Place place;
  // Of candidates: as in TopkArgs.
  const TopkState* states;
  u64 candidate_keys, candidate_positions;
  const u32* candidate_counts;
  i64 capacity, first_row;
};

template <int kBytes>
struct KeyRegister {
  typedef u32 type;
};
template <>
struct KeyRegister<8> {
  typedef u64 type;
};

/// Sums and unions over a group of kGroup neighbouring threads, which all get the result. Of groups
/// within a warp all groups of the warp must take part, of larger ones the block is one.
template <int kGroup>
class Group {
 public:
  __device__ __forceinline__ u32 sum(u32 v) { return reduce<true>(v); }
  __device__ __forceinline__ u32 unite(u32 v) { return reduce<false>(v); }
  __device__ __forceinline__ u64 unite(u64 v) {
    const u64 low = reduce<false>(u32(v));
    return u64(reduce<false>(u32(v >> 32))) << 32 | low;
  }

 private:
  template <bool kSum>
  __device__ __forceinline__ static u32 within_warp(u32 v) {
    return kSum ? __reduce_add_sync(kAllLanes, v) : __reduce_or_sync(kAllLanes, v);
  }
  template <bool kSum>
  __device__ __forceinline__ u32 reduce(u32 v) {
    if (kGroup < 32) {
#pragma unroll
      for (int lanes = kGroup / 2; lanes > 0; lanes /= 2) {
        const u32 other = __shfl_xor_sync(kAllLanes, v, lanes);
        v = kSum ? v + other : v | other;
      }
      return v;
    }
    v = within_warp<kSum>(v);
    if (kGroup == 32) return v;
    // Two sets of words in turn: who writes to one again has waited, in between, for all that read
    // it.
    __shared__ u32 words[2][32];
    turn_ ^= 1;
    const int thread = int(threadIdx.x);
    if (thread % 32 == 0) words[turn_][thread / 32] = v;
    __syncthreads();
    return within_warp<kSum>(thread % 32 < kGroup / 32 ? words[turn_][thread % 32] : 0);
  }

  int turn_ = 0;
};

template <class T, int kGroup, int kItems, bool kCandidates>
DEVICE void select_rows(const SelectArgs& a) {
  typedef typename OrderedKey<T>::U U;
  typedef typename KeyRegister<int(sizeof(U))>::type Key;
  constexpr Key kNan = Key(U(~U(0)));  // of floating numbers
  const int lane = int(threadIdx.x) % kGroup;
  const u64 row = u64(blockIdx.x) * (blockDim.x / kGroup) + threadIdx.x / kGroup;
  // Groups without a row go through the motions with nothing.
  const bool exists = row < u64(a.rows.count);
  const u64 walked = kCandidates ? u64(a.first_row) + row : row;
  Group<kGroup> group;

  Offsets<u64> offsets = {{0, 0, 0}};
  if (exists) offsets = offsets_of(a.rows, walked);
  const u64 in = a.in + u64(offsets.at[0]);
  const int length = !exists ? 0 : kCandidates ? int(a.candidate_counts[row]) : int(a.length);
  Key keys[kItems];
  u32 positions[kCandidates ? kItems : 1];
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const int i = lane + k * kGroup;
    keys[k] = Key(~Key(0));  // below no bound
    if (kCandidates) positions[k] = 0;
    if (i >= length) continue;
    if (kCandidates) {
      const i64 at = i64(row) * a.capacity + i;
      keys[k] = Key(reinterpret_cast<const U*>(a.candidate_keys)[at]);
      positions[k] = reinterpret_cast<const u32*>(a.candidate_positions)[at];
    } else {
      keys[k] = Key(OrderedKey<T>::key(*at_byte<const T>(in, i * a.step)));
    }
  }

  u32 rank = 0;
  if (kCandidates) {
    if (exists) rank = a.place.of(walked, a.length, i64(a.states[row].nans)) - a.states[row].below;
  } else {
    u32 nans = 0;
    if (a.place.asks_for_nans()) {
#pragma unroll
      for (int k = 0; k < kItems; ++k) nans += lane + k * kGroup < length && keys[k] == kNan;
      nans = group.sum(nans);
    }
    if (exists) rank = a.place.of(walked, a.length, i64(nans));
  }

  // What the keys do not have in common.
  Key ones = 0, zeros = 0;
#pragma unroll
  for (int k = 0; k < kItems; ++k)
    if (lane + k * kGroup < length) {
      ones |= keys[k];
      zeros |= Key(~keys[k]);
    }
  ones = group.unite(ones);
  zeros = group.unite(zeros);
  const Key differing = ones & zeros;
  int bit = differing == 0 ? 0
                           : int(8 * sizeof(Key)) - (sizeof(Key) == 8 ? __clzll(i64(differing))
                                                                      : __clz(i32(differing)));
  const auto mask_above = [](int bits) {
    return bits >= int(8 * sizeof(Key)) ? Key(0) : Key(~Key(0)) << bits;
  };
  Key low = ones & mask_above(bit);
  u32 below = 0, upto = u32(length);  // elements below low, and below low + 2^bit
  const auto goes_on = [](bool wanted) {
    return kGroup < 32 ? __any_sync(kAllLanes, wanted) != 0 : wanted;
  };
  while (goes_on(bit > 0 && upto - below > 1)) {
    const bool active = bit > 0 && upto - below > 1;
    const Key middle = low | Key(1) << (bit > 0 ? bit - 1 : 0);
    u32 count = 0;
#pragma unroll
    for (int k = 0; k < kItems; ++k) count += keys[k] < middle;
    count = group.sum(count);
    if (!active) continue;
    --bit;
    if (count <= rank) {
      low = middle;
      below = count;
    } else {
      upto = count;
    }
  }

  const Key mask = mask_above(bit);
  u32 matches = 0;  // bit k: element k lies in the interval
#pragma unroll
  for (int k = 0; k < kItems; ++k)
    matches |= u32(lane + k * kGroup < length && (keys[k] & mask) == low) << k;
  const auto position_of = [&](int k) {
    return kCandidates ? positions[k] : u32(lane + k * kGroup);
  };
  rank -= below;
  upto -= below;
  below = 0;
  constexpr int kPositionBits = kCandidates ? 32 : 15;
  int position_bit = kPositionBits;
  u32 first = 0;
  while (goes_on(position_bit > 0 && upto - below > 1)) {
    const bool active = position_bit > 0 && upto - below > 1;
    const u32 middle = first | 1u << (position_bit > 0 ? position_bit - 1 : 0);
    u32 count = 0;
#pragma unroll
    for (int k = 0; k < kItems; ++k) count += (matches >> k & 1u) && position_of(k) < middle;
    count = group.sum(count);
    if (!active) continue;
    --position_bit;
    if (count <= rank) {
      first = middle;
      below = count;
    } else {
      upto = count;
    }
  }

  const u32 position_mask = position_bit >= 32 ? 0 : ~0u << position_bit;
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    if (!(matches >> k & 1u) || (position_of(k) & position_mask) != first) continue;
    const i64 position = i64(position_of(k));
    *at_byte<T>(a.values, offsets.at[1]) = *at_byte<const T>(in, position * a.step);
    *at_byte<i64>(a.indices, offsets.at[2]) = position;
  }
}
