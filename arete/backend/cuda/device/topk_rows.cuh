// topk of rows that fit into the registers of a block: one block for each.
//
// As in Note [Selection by bisection], an interval of keys is halved, which holds the last of the
// wanted elements here, and only until no more elements than there are places in shared memory lie
// up to its end. If these are too many for a single key, an interval of positions is halved next.
// They are then sorted.
#pragma once
#include "row_sort.cuh"
#include "select.cuh"

/// a.log2_slots: of at least a.keep places. Rows are shorter than 2^15.
template <class T, int kGroup, int kItems>
DEVICE void topk_rows(const RowSortArgs& a) {
  typedef typename OrderedKey<T>::U U;
  typedef typename KeyRegister<int(sizeof(U))>::type Key;
  typedef SortItem<int(sizeof(U))> Item;
  typedef decltype(Item::none()) Base;
  constexpr int kPositionBits = 15;
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ u32 found;
  const SortedItems<Base> items{reinterpret_cast<Base*>(shared)};
  const int thread = int(threadIdx.x), length = int(a.length);
  const u32 keep = u32(a.keep), places = 1u << a.log2_slots;
  const Offsets<u64> offsets = offsets_of(a.rows, u64(blockIdx.x));
  Group<kGroup> group;
  if (thread == 0) found = 0;  // the sums below wait for it

  Key keys[kItems], ones = 0, zeros = 0;
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const int i = thread + k * kGroup;
    keys[k] = Key(~Key(0));  // below no bound
    if (i >= length) continue;
    const T value = *at_byte<const T>(a.in, offsets.at[0] + i * a.steps[0]);
    keys[k] = Key(U(OrderedKey<T>::key(value) ^ U(a.flip)));
    ones |= keys[k];
    zeros |= Key(~keys[k]);
  }
  // What the keys do not have in common.
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
  while (bit > 0 && upto > places) {
    const Key middle = low | Key(1) << --bit;
    u32 count = 0;
#pragma unroll
    for (int k = 0; k < kItems; ++k) count += keys[k] < middle;
    count = group.sum(count);
    if (count < keep) {
      low = middle;
      below = count;
    } else {
      upto = count;
    }
  }

  const Key mask = mask_above(bit);
  // Elements in the interval count up to this position.
  u32 end = 1u << kPositionBits;
  if (upto > places) {
    u32 first = 0;
    for (int position_bit = kPositionBits; upto > places && position_bit > 0;) {
      const u32 middle = first | 1u << --position_bit;
      u32 count = 0;
#pragma unroll
      for (int k = 0; k < kItems; ++k) {
        const u32 position = u32(thread + k * kGroup);
        count += position < u32(length) && keys[k] == low && position < middle;
      }
      count = below + group.sum(count);
      if (count < keep) {
        first = middle;
      } else {
        upto = count;
        end = middle;
      }
    }
  }
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const u32 position = u32(thread + k * kGroup);
    const Key group_of_key = keys[k] & mask;
    if (position < u32(length) && (group_of_key < low || (group_of_key == low && position < end)))
      items[atomicAdd(&found, 1u)] = Item::make(U(keys[k]), position);
  }
  __syncthreads();
  const int count = int(found), log2_slots = count <= 1 ? 0 : 32 - __clz(count - 1),
            slots = 1 << log2_slots;
  for (int i = count + thread; i < slots; i += kGroup) items[i] = Item::none();
  __syncthreads();
  bitonic_sort(items, log2_slots, slots, count);
  for (int i = thread; i < int(keep); i += kGroup) {
    const i64 position = i64(Item::place(items[i]));
    *at_byte<T>(a.values, offsets.at[1] + i * a.steps[1]) =
        *at_byte<const T>(a.in, offsets.at[0] + position * a.steps[0]);
    *at_byte<i64>(a.indices, offsets.at[2] + i * a.steps[2]) = position;
  }
}
