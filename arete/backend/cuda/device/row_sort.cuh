// Stable sort of short rows, several in one block: a bitonic network in shared memory over items
// that hold a key and a position, which makes any sort of them stable. With candidates of topk it
// sorts what was selected from long rows.
#pragma once
#include "index.cuh"
#include "lanes.cuh"
#include "ordered_key.cuh"

constexpr int kRowSortLength = 4096;  // of the longest rows

/// A key of kBytes bytes with a position; the largest possible one stands for places past the end.
template <int kBytes>
struct SortItem;
template <>
struct SortItem<1> {
  u32 bits;
  template <class U>
  DEVICE SortItem make(U key, u32 place) {
    return {u32(key) << 16 | place};
  }
  DEVICE SortItem none() { return {~0u}; }
  DEVICE bool less(SortItem a, SortItem b) { return a.bits < b.bits; }
  DEVICE u32 place(SortItem a) { return a.bits & 0xffffu; }
};
template <>
struct SortItem<2> : SortItem<1> {};
template <>
struct SortItem<4> {
  u64 bits;
  DEVICE SortItem make(u32 key, u32 place) { return {u64(key) << 32 | place}; }
  DEVICE SortItem none() { return {~0ull}; }
  DEVICE bool less(SortItem a, SortItem b) { return a.bits < b.bits; }
  DEVICE u32 place(SortItem a) { return u32(a.bits); }
};
template <>
struct alignas(16) SortItem<8> {
  u64 key, position;
  DEVICE SortItem make(u64 key, u32 place) { return {key, place}; }
  DEVICE SortItem none() { return {~0ull, ~0ull}; }
  DEVICE bool less(SortItem a, SortItem b) {
    return a.key < b.key || (a.key == b.key && a.position < b.position);
  }
  DEVICE u32 place(SortItem a) { return u32(a.position); }
};

struct RowSortArgs {
  Walk rows;  // count: of this launch; in, values, indices without the dimension that is sorted
  u64 in, values, indices;  // indices may be 0
  i64 steps[3];             // along the dimension, in bytes
  i64 length, keep;         // of a row in in, and in values
  i32 log2_slots;           // of a row in shared memory, a power of two
  i32 log2_rows;            // in a block
  u64 flip;
  // Of topk: keys and positions of [row][capacity] candidates, how many there are, and the row of
  // the walk that is the first here.
  u64 candidate_keys, candidate_positions;
  const u32* candidate_counts;
  i64 capacity, first_row;
};

template <class Item>
DEVICE void bitonic_sort(Item* items, int log2_slots, int total) {
  const int row_mask = (1 << log2_slots) - 1;
  for (int size_bits = 1; size_bits <= log2_slots; ++size_bits) {
    for (int bits = size_bits - 1; bits >= 0; --bits) {
      const int stride = 1 << bits;
      for (int pair = int(threadIdx.x); pair < total / 2; pair += int(blockDim.x)) {
        const int i = 2 * pair - (pair & (stride - 1)), j = i + stride;
        const bool ascending = ((i & row_mask) >> size_bits & 1) == 0;
        const Item a = items[i], b = items[j];
        if (Item::less(b, a) == ascending) {
          items[i] = b;
          items[j] = a;
        }
      }
      // Strides up to 32 stay within the 64 items of one warp's 32 pairs.
      const int next = bits > 0 ? bits - 1 : size_bits;
      if (bits > 5 || next > 5)
        __syncthreads();
      else
        __syncwarp();
    }
  }
  __syncthreads();
}

/// Index: i64, or u32 for internal use. kCandidates: items are topk's candidates of the row.
template <class T, class Index, bool kCandidates>
DEVICE void row_sort(const RowSortArgs& a) {
  typedef typename OrderedKey<T>::U U;
  // Positions of candidates do not fit beside a key in 32 bits.
  typedef SortItem<kCandidates && sizeof(U) < 4 ? 4 : int(sizeof(U))> Item;
  typedef decltype(Item::none()) Base;  // of which 1-byte and 2-byte keys share one
  extern __shared__ __align__(16) unsigned char shared[];
  Base* const items = reinterpret_cast<Base*>(shared);
  const int slots = 1 << a.log2_slots, total = slots << a.log2_rows;
  const u64 block_row = u64(blockIdx.x) << a.log2_rows;
  for (int e = int(threadIdx.x); e < total; e += int(blockDim.x)) {
    const u64 row = block_row + u64(e >> a.log2_slots);
    const int place = e & (slots - 1);
    Base item = Base::none();
    if (row < u64(a.rows.count)) {
      if (kCandidates) {
        if (u32(place) < a.candidate_counts[row])
          item = Base::make(
              reinterpret_cast<const U*>(a.candidate_keys)[i64(row) * a.capacity + place],
              reinterpret_cast<const u32*>(a.candidate_positions)[i64(row) * a.capacity + place]);
      } else if (place < a.length) {
        const i64 offset = offsets_of(a.rows, u64(a.first_row) + row).at[0];
        const T v = *at_byte<const T>(a.in, offset + place * a.steps[0]);
        item = Base::make(U(OrderedKey<T>::key(v) ^ U(a.flip)), u32(place));
      }
    }
    items[e] = item;
  }
  __syncthreads();
  bitonic_sort(items, a.log2_slots, total);
  for (int e = int(threadIdx.x); e < total; e += int(blockDim.x)) {
    const u64 row = block_row + u64(e >> a.log2_slots);
    const int place = e & (slots - 1);
    if (row >= u64(a.rows.count) || place >= a.keep) continue;
    const Offsets<u64> offsets = offsets_of(a.rows, u64(a.first_row) + row);
    const i64 position = i64(Base::place(items[e]));
    *at_byte<T>(a.values, offsets.at[1] + place * a.steps[1]) =
        *at_byte<const T>(a.in, offsets.at[0] + position * a.steps[0]);
    if (a.indices) *at_byte<Index>(a.indices, offsets.at[2] + place * a.steps[2]) = Index(position);
  }
}
