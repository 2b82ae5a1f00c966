// Stable sort of rows of any length by their keys, with positions: least significant digit first,
// one pass over the data for each digit of 8 bits.
//
// Note [Radix sort in one pass for each digit]
// sort_histogram counts all digits of all keys in one reading; sort_bases turns the counts into
// the place of each digit's first key. In a pass, a block takes the next tile of a row, ranks its
// keys within the tile (warps count equal digits by ballots, so that equal digits keep their
// order), tells the tiles after it how many keys of each digit it has, learns from the tiles before
// it how many they have, and writes its keys sorted, so that writes of one digit are contiguous.
// Tiles are numbered in the order in which blocks start, so a tile waits only for tiles that run.
// The first pass reads elements and makes keys of them; the last one makes elements of keys. Only
// where several values share a key (zeros of both signs, NaN) it looks the element up by position.
// Without positions, keys tell the values, and half as many bytes move.
// A digit that all keys of a row share leaves their order as it is: sort_bases notes it, and the
// blocks of its pass end at once. Such passes are left out two at a time, so that keys end up in
// the same one of two buffers whatever they are; and some pass moves them.
#pragma once
#include "lanes.cuh"
#include "ordered_key.cuh"

constexpr int kDigits = 256, kSortThreads = 384, kSortWarps = kSortThreads / 32;
constexpr int kHistogramThreads = 512, kHistogramItems = 4;

struct SortHistogramArgs {
  u64 in;      // elements
  u64 counts;  // [pass][row][256] of P, 0 at first
  i64 rows, length;
  i64 parts, part_length;  // blocks that share a row
  u64 flip;                // exclusive or on keys: all ones for descending order
  i64 passes;
};

/// How T is sorted, with positions or without.
template <class T, bool kPairs>
struct SortKey : OrderedKey<T> {};
template <class T>
struct SortKey<T, false> : ExactKey<T> {};

template <class T, class P, bool kPairs>
DEVICE void sort_histogram(const SortHistogramArgs& a) {
  typedef SortKey<T, kPairs> Key;
  typedef typename Key::U U;
  constexpr int kPasses = int(sizeof(U));
  __shared__ u32 counts[kPasses * kDigits];
  for (int i = int(threadIdx.x); i < kPasses * kDigits; i += kHistogramThreads) counts[i] = 0;
  __syncthreads();
  const i64 row = i64(blockIdx.x) / a.parts, part = i64(blockIdx.x) % a.parts;
  const i64 begin = part * a.part_length;
  const i64 end = begin + a.part_length < a.length ? begin + a.part_length : a.length;
  const T* const in = reinterpret_cast<const T*>(a.in) + row * a.length;
  const int lane = int(threadIdx.x & 31);
  for (i64 base = begin; base < end; base += kHistogramThreads * kHistogramItems) {
    U keys[kHistogramItems];
#pragma unroll
    for (int k = 0; k < kHistogramItems; ++k) {
      const i64 i = base + k * kHistogramThreads + i64(threadIdx.x);
      keys[k] = i < end ? U(Key::key(in[i]) ^ U(a.flip)) : U(0);
    }
#pragma unroll
    for (int k = 0; k < kHistogramItems; ++k) {
      const bool used = base + k * kHistogramThreads + i64(threadIdx.x) < end;
      const u32 users = __ballot_sync(kAllLanes, used);  // the first ones
      if (users == 0) break;
#pragma unroll
      for (int p = 0; p < kPasses; ++p) {
        if (p >= a.passes) break;
        const u32 digit = u32(keys[k] >> (8 * p)) & 255u;
        // High digits are often all the same; 32 additions to one word would take turns.
        const u32 first = __shfl_sync(kAllLanes, digit, 0);
        if (__all_sync(kAllLanes, !used || digit == first)) {
          if (lane == 0) atomicAdd(&counts[p * kDigits + i32(first)], u32(__popc(users)));
        } else if (used) {
          atomicAdd(&counts[p * kDigits + i32(digit)], 1u);
        }
      }
    }
  }
  __syncthreads();
  P* const out = reinterpret_cast<P*>(a.counts);
  for (int i = int(threadIdx.x); i < i32(a.passes) * kDigits; i += kHistogramThreads)
    if (counts[i])
      atomicAdd(&out[(i64(i / kDigits) * a.rows + row) * kDigits + i % kDigits], P(counts[i]));
}

/// The sum over the threads before this one, of the first 256; all threads of the block call it.
template <class V>
DEVICE V sum_before_of_256(V v, V* warp_sums) {
  const int thread = int(threadIdx.x), lane = thread & 31, warp = thread / 32;
  V sum = v;
  for (int d = 1; d < 32; d *= 2) {
    const V before = shuffle_up(sum, d);
    if (lane >= d) sum += before;
  }
  if (lane == 31 && warp < kDigits / 32) warp_sums[warp] = sum;
  __syncthreads();
  V base = 0;
  for (int w = 0; w < warp && w < kDigits / 32; ++w) base += warp_sums[w];
  return base + sum - v;
}

struct SortBasesArgs {
  u64 counts;  // as in SortHistogramArgs
  u32* idle;   // of each row: bits of passes that would change nothing; 0 at first
  i64 rows, length;
};

/// One block of 256 threads for each pass and row: counts become sums of those before.
template <class P>
DEVICE void sort_bases(const SortBasesArgs& a) {
  __shared__ P warp_sums[kDigits / 32];
  P* const p = reinterpret_cast<P*>(a.counts) + i64(blockIdx.x) * kDigits + threadIdx.x;
  const P count = *p;
  const i64 pass = i64(blockIdx.x) / a.rows, row = i64(blockIdx.x) % a.rows;
  if (i64(count) == a.length) atomicAdd(a.idle + row, 1u << pass);
  *p = sum_before_of_256(count, warp_sums);
}

/// Which passes are left out, of those that would change nothing.
DEVICE u32 left_out(u32 idle, int passes) {
  const int n = __popc(idle);
  if (n % 2) return idle & (idle - 1);
  if (n == passes) idle &= idle - 1, idle &= idle - 1;
  return idle;
}

/// The lanes in whose numbers a bit is as in this one's. Written in C++ the condition is computed
/// twice, from shifted numbers: 76 instructions for a key's rank on sm_90 in place of 47.
DEVICE u32 lanes_alike(u32 number, u32 bit) {
#ifdef ARETE_EMULATED
  const u32 with = __ballot_sync(kAllLanes, (number & bit) != 0);
  return number & bit ? with : ~with;
#else
  u32 lanes;
  asm volatile(
      "{\n"
      ".reg .pred has;\n"
      ".reg .b32 masked, with, flip;\n"
      "and.b32 masked, %1, %2;\n"
      "setp.ne.u32 has, masked, 0;\n"
      "vote.sync.ballot.b32 with, has, 0xffffffff;\n"
      "selp.b32 flip, 0, 0xffffffff, has;\n"
      "xor.b32 %0, with, flip;\n"
      "}"
      : "=r"(lanes)
      : "r"(number), "r"(bit));
  return lanes;
#endif
}

struct SortPassArgs {
  u64 in;       // the unsorted elements, whose positions are 0, 1, ...
  u64 keys[2];  // passes write to the first, then to the second, ...
  u64 positions[2];
  u64 values, indices;  // the last one's: elements, or 0 for keys; i64 positions or 0
  u64 bases;            // of this pass: [row][256]
  u64 states;           // of tiles in this pass: [tile][256], 0 at first
  u32* next_tile;       // 0 at first
  const u32* idle;      // as in SortBasesArgs
  i64 length;           // of a row
  i64 tiles;            // in a row
  u64 flip;
  i32 pass, passes;
};

constexpr int sort_items(int bytes) { return bytes <= 8 ? 16 : bytes <= 12 ? 12 : 8; }

/// P: u32 where rows have fewer than 2^30 elements, else u64. kPairs: with positions.
template <class T, class P, bool kPairs>
DEVICE void sort_pass(const SortPassArgs& a) {
  typedef SortKey<T, kPairs> Key;
  typedef typename Key::U U;
  typedef TileState<P> State;
  constexpr int kItems = sort_items(int(sizeof(U) + (kPairs ? sizeof(P) : 0))),
                kTile = kSortThreads * kItems;
#ifndef ARETE_EMULATED  // there it is a variable
  extern __shared__ __align__(16) unsigned char shared[];
#endif
  P* const digit_base = reinterpret_cast<P*>(shared);  // in the row, less digit_begin
  u32* const digit_begin = reinterpret_cast<u32*>(digit_base + kDigits);  // within the tile
  u32* const warp_sums = digit_begin + kDigits;
  u32& shared_tile = warp_sums[kDigits / 32];
  // First counts of each warp, later the sorted tile.
  unsigned char* const tile_memory = reinterpret_cast<unsigned char*>(digit_begin + kDigits + 16);
  u32* const warp_counts = reinterpret_cast<u32*>(tile_memory);
  U* const sorted_keys = reinterpret_cast<U*>(tile_memory);
  P* const sorted_positions = reinterpret_cast<P*>(tile_memory + kTile * sizeof(U));
  const int thread = int(threadIdx.x), lane = thread & 31, warp = thread / 32;
  if (thread == 0) shared_tile = atomicAdd(a.next_tile, 1u);
  for (int i = thread; i < kSortWarps * kDigits; i += kSortThreads) warp_counts[i] = 0;
  __syncthreads();
  const i64 tile = shared_tile, row = tile / a.tiles, begin = tile % a.tiles * kTile;
  const u32 out = left_out(a.idle[row], a.passes);
  if (out >> a.pass & 1u) return;
  const int shift = 8 * a.pass, number = a.pass - __popc(out & ((1u << a.pass) - 1));
  const bool is_first = number == 0, is_last = a.values && number + 1 == a.passes - __popc(out);
  const u64 in_keys = a.keys[(number + 1) % 2], in_positions = a.positions[(number + 1) % 2];
  const i64 row_begin = row * a.length;
  const int valid = i32(a.length - begin < kTile ? a.length - begin : kTile);
  const int own = warp * 32 * kItems + lane;  // this thread's items: own + 32 k

  // Places past the end of the row have the largest key; they stay behind all others.
  U keys[kItems];
  if (is_first) {
    const T* const in = reinterpret_cast<const T*>(a.in) + row_begin + begin;
#pragma unroll
    for (int k = 0; k < kItems; ++k)
      keys[k] = own + 32 * k < valid ? U(Key::key(in[own + 32 * k]) ^ U(a.flip)) : U(~U(0));
  } else {
    const U* const in = reinterpret_cast<const U*>(in_keys) + row_begin + begin;
#pragma unroll
    for (int k = 0; k < kItems; ++k) keys[k] = own + 32 * k < valid ? in[own + 32 * k] : U(~U(0));
  }

  u32 ranks[kItems];  // among the warp's equal digits
  u32* const own_counts = warp_counts + warp * kDigits;
  const u32 lanes_before = (1u << lane) - 1;
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const u32 digit = u32(keys[k] >> shift) & 255u;
    u32 same = kAllLanes;
#pragma unroll
    for (int b = 0; b < 8; ++b) same &= lanes_alike(digit, 1u << b);
    const u32 seen = own_counts[digit];
    ranks[k] = seen + u32(__popc(same & lanes_before));
    __syncwarp();
    if ((same & lanes_before) == 0) own_counts[digit] = seen + u32(__popc(same));
    __syncwarp();
  }
  __syncthreads();

  u32 count = 0;
  P* const states = reinterpret_cast<P*>(a.states) + tile * kDigits;
  const bool is_first_tile = begin == 0;
  if (thread < kDigits) {
    for (int w = 0; w < kSortWarps; ++w) {
      const u32 c = warp_counts[w * kDigits + thread];
      warp_counts[w * kDigits + thread] = count;
      count += c;
    }
    State::store(states + thread, (is_first_tile ? State::kSum : State::kOwn) | P(count));
  }
  const u32 in_tile = sum_before_of_256(count, warp_sums);
  if (thread < kDigits) {
    digit_begin[thread] = in_tile;
    P before = 0;
    if (!is_first_tile) {
      for (const P* p = states + thread - kDigits;; p -= kDigits) {
        P state;
        do state = State::load(p);
        while (state < State::kOwn);
        before += state & State::kNumber;
        if (state >= State::kSum) break;
      }
      State::store(states + thread, State::kSum | (before + P(count)));
    }
    digit_base[thread] =
        reinterpret_cast<const P*>(a.bases)[row * kDigits + thread] + before - P(in_tile);
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const u32 digit = u32(keys[k] >> shift) & 255u;
    ranks[k] += own_counts[digit] + digit_begin[digit];
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kItems; ++k) sorted_keys[ranks[k]] = keys[k];
  if (kPairs && !is_first) {
    const P* const in = reinterpret_cast<const P*>(in_positions) + row_begin + begin;
#pragma unroll
    for (int k = 0; k < kItems; ++k)
      if (own + 32 * k < valid) sorted_positions[ranks[k]] = in[own + 32 * k];
  } else if (kPairs) {
#pragma unroll
    for (int k = 0; k < kItems; ++k) sorted_positions[ranks[k]] = P(begin + own + 32 * k);
  }
  __syncthreads();
  if (is_last) {
    const T* const source = reinterpret_cast<const T*>(a.in) + row_begin;
    T* const values = reinterpret_cast<T*>(a.values) + row_begin;
    i64* const indices = a.indices ? reinterpret_cast<i64*>(a.indices) + row_begin : nullptr;
    for (int i = thread; i < valid; i += kSortThreads) {
      const U key = sorted_keys[i];
      const P to = digit_base[u32(key >> shift) & 255u] + P(i);
      const U plain = U(key ^ U(a.flip));
      if (!kPairs) {
        values[to] = Key::value(plain);
        continue;
      }
      const P position = sorted_positions[i];
      values[to] = Key::is_exact(plain) ? Key::value(plain) : source[position];
      if (indices) indices[to] = i64(position);
    }
  } else {
    U* const out_keys = reinterpret_cast<U*>(a.keys[number % 2]) + row_begin;
    P* const out_positions = reinterpret_cast<P*>(a.positions[number % 2]) + row_begin;
    for (int i = thread; i < valid; i += kSortThreads) {
      const U key = sorted_keys[i];
      const P to = digit_base[u32(key >> shift) & 255u] + P(i);
      out_keys[to] = key;
      if (kPairs) out_positions[to] = sorted_positions[i];
    }
  }
}
