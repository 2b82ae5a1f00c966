// Stable sort of short rows, several in one block: a bitonic network over items in shared memory
// that hold a key and a position, which makes any sort of them stable. With candidates of topk it
// sorts what was selected from long rows.
#pragma once
#include "index.cuh"
#include "lanes.cuh"
#include "ordered_key.cuh"

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

// Note [Bitonic sort of few passes]
// A merge of 2^s items compares each item of the lower half with its mirror image in the upper one
// (i and 2^s - 1 - i), and then items at distances 2^(s-2), ..., 2, 1. All comparisons put the
// smaller item first, so that places past the end of a row stay behind it, and groups of nothing
// else are skipped. A thread takes 2^L items through L of these steps in registers, so that shared
// memory is read and written once for three of them. (K. E. Batcher, Sorting networks and their
// applications, 1968.)

/// Items in shared memory: one place is left free every 128 bytes, so that threads that read eight
/// items in a row meet no bank twice.
template <class Item>
struct SortedItems {
  Item* items;
  __device__ __forceinline__ Item& operator[](int i) const {
    return items[i + i / int(128 / sizeof(Item))];
  }
};

template <class Item>
DEVICE void put_in_order(Item& a, Item& b) {
  if (Item::less(b, a)) {
    const Item c = a;
    a = b;
    b = c;
  }
}

/// The steps at distances `kHalf`, `kHalf` / 2, ... 1 of 2 * kHalf items; `back`: of a mirror
/// image.
template <int kHalf, class Item>
DEVICE void merge_in_registers(Item* v, bool back = false) {
#pragma unroll
  for (int d = kHalf; d > 0; d /= 2)
#pragma unroll
    for (int k = 0; k < 2 * kHalf; ++k)
      if ((k & d) == 0) put_in_order(v[back ? k + d : k], v[back ? k : k + d]);
}

/// The first `kLevels` steps of a merge of 2^bits items.
template <int kLevels, class Item>
DEVICE void mirror_pass(SortedItems<Item> items, int bits, int total, int row_mask, int length) {
  constexpr int kHalf = 1 << (kLevels - 1);
  const int low_bits = bits - kLevels, step = 1 << low_bits, last = (1 << bits) - 1;
  for (int g = int(threadIdx.x); g < total >> kLevels; g += int(blockDim.x)) {
    const int base = g >> low_bits << bits, low = g & (step - 1);
    if (((base + low) & row_mask) >= length) continue;
    Item v[2 * kHalf];
#pragma unroll
    for (int k = 0; k < kHalf; ++k) {
      v[k] = items[base + low + k * step];
      v[kHalf + k] = items[base + last - (low + k * step)];
      put_in_order(v[k], v[kHalf + k]);
    }
    merge_in_registers<kHalf / 2>(v);
    merge_in_registers<kHalf / 2>(v + kHalf, true);
#pragma unroll
    for (int k = 0; k < kHalf; ++k) {
      items[base + low + k * step] = v[k];
      items[base + last - (low + k * step)] = v[kHalf + k];
    }
  }
  __syncthreads();
}

/// The steps at distances 2^(bits - 1), ..., 2^(bits - kLevels).
template <int kLevels, class Item>
DEVICE void merge_pass(SortedItems<Item> items, int bits, int total, int row_mask, int length) {
  const int low_bits = bits - kLevels, step = 1 << low_bits;
  for (int g = int(threadIdx.x); g < total >> kLevels; g += int(blockDim.x)) {
    const int first = (g >> low_bits << bits) + (g & (step - 1));
    if ((first & row_mask) >= length) continue;
    Item v[1 << kLevels];
#pragma unroll
    for (int k = 0; k < 1 << kLevels; ++k) v[k] = items[first + k * step];
    merge_in_registers<(1 << kLevels) / 2>(v);
#pragma unroll
    for (int k = 0; k < 1 << kLevels; ++k) items[first + k * step] = v[k];
  }
  __syncthreads();
}

/// Sorts each of the rows of 2^log2_slots items, of which only the first `length` are to be moved.
template <class Item>
DEVICE void bitonic_sort(SortedItems<Item> items, int log2_slots, int total, int length) {
  const int row_mask = (1 << log2_slots) - 1;
  for (int size_bits = 1; size_bits <= log2_slots; ++size_bits) {
    int bits = size_bits;
    if (bits >= 3) {
      mirror_pass<3>(items, bits, total, row_mask, length);
      bits -= 3;
    } else if (bits == 2) {
      mirror_pass<2>(items, bits, total, row_mask, length);
      bits = 0;
    } else {
      mirror_pass<1>(items, bits, total, row_mask, length);
      bits = 0;
    }
    for (; bits >= 3; bits -= 3) merge_pass<3>(items, bits, total, row_mask, length);
    if (bits == 2) merge_pass<2>(items, bits, total, row_mask, length);
    if (bits == 1) merge_pass<1>(items, bits, total, row_mask, length);
  }
}

/// Index: i64, or u32 for internal use. kCandidates: items are topk's candidates of the row.
template <class T, class Index, bool kCandidates>
DEVICE void row_sort(const RowSortArgs& a) {
  typedef typename OrderedKey<T>::U U;
  // Positions of candidates do not fit beside a key in 32 bits.
  typedef SortItem<kCandidates && sizeof(U) < 4 ? 4 : int(sizeof(U))> Item;
  typedef decltype(Item::none()) Base;  // of which 1-byte and 2-byte keys share one
#ifndef ARETE_EMULATED                  // there it is a variable
  extern __shared__ __align__(16) unsigned char shared[];
#endif
  const SortedItems<Base> items{reinterpret_cast<Base*>(shared)};
  const int slots = 1 << a.log2_slots, total = slots << a.log2_rows;
  const u64 block_row = u64(blockIdx.x) << a.log2_rows;
  // Rows follow each other slowly, so that where they lie is computed once for several items.
  u64 known = ~0ull;
  Offsets<u64> at;
  const auto find_row = [&](u64 row) {
    if (row != known) at = offsets_of(a.rows, u64(a.first_row) + row);
    known = row;
  };
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
        find_row(row);
        const T v = *at_byte<const T>(a.in, at.at[0] + place * a.steps[0]);
        item = Base::make(U(OrderedKey<T>::key(v) ^ U(a.flip)), u32(place));
      }
    }
    items[e] = item;
  }
  __syncthreads();
  // How many candidates there are differs from row to row.
  bitonic_sort(items, a.log2_slots, total, kCandidates ? slots : int(a.length));
  for (int e = int(threadIdx.x); e < total; e += int(blockDim.x)) {
    const u64 row = block_row + u64(e >> a.log2_slots);
    const int place = e & (slots - 1);
    if (row >= u64(a.rows.count) || place >= a.keep) continue;
    find_row(row);
    const i64 position = i64(Base::place(items[e]));
    *at_byte<T>(a.values, at.at[1] + place * a.steps[1]) =
        *at_byte<const T>(a.in, at.at[0] + position * a.steps[0]);
    if (a.indices) *at_byte<Index>(a.indices, at.at[2] + place * a.steps[2]) = Index(position);
  }
}
