// Note [Sorting by vectors]
// A quicksort whose partitions compare a vector of keys at once and write those of each side by one
// compressed store, down to blocks that a network sorts in registers: bitonic merges, whose second
// half is turned round first (K. E. Batcher, Sorting networks and their applications, 1968). In
// place: of both ends some vectors are held in registers, so that there is always room for a block
// on the side that has less of it, from which the next block is read (B. Bramas, A novel hybrid
// quicksort algorithm vectorized using AVX-512, 2017). The key that splits is the median of a
// sample. Where that was unlucky too often it is the middle between the least and the greatest key,
// which ends after as many splits as keys have bits.
#include "arete/backend/cpu/kernels/sort_table.h"

#include "arete/backend/cpu/kernels/simd.inl.h"

#if defined(__AVX512F__)
// GCC 12's intrinsics begin with a vector that they set to itself.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#endif

namespace arete::cpu::kernels::ARETE_SIMD_TARGET {

#if defined(__AVX512F__)
namespace {

template <class Key>
struct Keys;
template <>
struct Keys<uint32_t> {
  static constexpr int kLanes = 16;
  using Mask = __mmask16;
  static __m512i lanes() {
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  }
  static __m512i all(uint32_t k) { return _mm512_set1_epi32(int(k)); }
  static __m512i load(Mask m, const uint32_t* p, __m512i others) {
    return _mm512_mask_loadu_epi32(others, m, p);
  }
  static void store(uint32_t* p, Mask m, __m512i v) { _mm512_mask_storeu_epi32(p, m, v); }
  static __m512i least(__m512i a, __m512i b) { return _mm512_min_epu32(a, b); }
  static __m512i greatest(__m512i a, __m512i b) { return _mm512_max_epu32(a, b); }
  static Mask less(__m512i a, __m512i b) { return _mm512_cmplt_epu32_mask(a, b); }
  static __m512i compress(Mask m, __m512i v) { return _mm512_maskz_compress_epi32(m, v); }
  static __m512i permute(__m512i v, __m512i at) { return _mm512_permutexvar_epi32(at, v); }
  static __m512i choose(Mask m, __m512i no, __m512i yes) {
    return _mm512_mask_blend_epi32(m, no, yes);
  }
};
template <>
struct Keys<uint64_t> {
  static constexpr int kLanes = 8;
  using Mask = __mmask8;
  static __m512i lanes() { return _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7); }
  static __m512i all(uint64_t k) { return _mm512_set1_epi64(int64_t(k)); }
  static __m512i load(Mask m, const uint64_t* p, __m512i others) {
    return _mm512_mask_loadu_epi64(others, m, p);
  }
  static void store(uint64_t* p, Mask m, __m512i v) { _mm512_mask_storeu_epi64(p, m, v); }
  static __m512i least(__m512i a, __m512i b) { return _mm512_min_epu64(a, b); }
  static __m512i greatest(__m512i a, __m512i b) { return _mm512_max_epu64(a, b); }
  static Mask less(__m512i a, __m512i b) { return _mm512_cmplt_epu64_mask(a, b); }
  static __m512i compress(Mask m, __m512i v) { return _mm512_maskz_compress_epi64(m, v); }
  static __m512i permute(__m512i v, __m512i at) { return _mm512_permutexvar_epi64(at, v); }
  static __m512i choose(Mask m, __m512i no, __m512i yes) {
    return _mm512_mask_blend_epi64(m, no, yes);
  }
};

template <class Key>
struct Sorter {
  using K = Keys<Key>;
  using Mask = typename K::Mask;
  static constexpr int kLanes = K::kLanes, kMostVectors = 16, kHeld = 4;
  static constexpr int64_t kNetwork = int64_t(kMostVectors) * kLanes;
  static constexpr Mask kEvery = Mask(~Mask(0));
  static_assert(kFewestSplit >= 2 * kHeld * kLanes && kNetwork >= 2 * kHeld * kLanes);

  /// The lowest bits.
  static Mask first(int64_t lanes) { return Mask((uint32_t(1) << lanes) - 1); }

  // ---- the network

  /// The lanes l ^ by.
  static __m512i exchanged(__m512i v, int by) {
    return K::permute(v, _mm512_xor_si512(K::lanes(), K::all(Key(by))));
  }
  /// The lanes l for which l & bit is set.
  static constexpr Mask lanes_with(int bit) {
    uint32_t m = 0;
    for (int l = 0; l < kLanes; ++l) m |= uint32_t((l & bit) != 0) << l;
    return Mask(m);
  }
  /// Puts lanes l and l ^ by into order, the one with `bit` last.
  static __m512i ordered(__m512i v, int by, int bit) {
    const __m512i other = exchanged(v, by);
    return K::choose(lanes_with(bit), K::least(v, other), K::greatest(v, other));
  }
  static void exchange(__m512i& a, __m512i& b) {
    const __m512i least = K::least(a, b);
    b = K::greatest(a, b);
    a = least;
  }
  template <int kVectors>
  static void network(Key* keys, int64_t n) {
    __m512i v[kVectors];
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) {
      const int64_t here = n - i * kLanes;
      v[i] = K::load(here >= kLanes ? kEvery
                     : here > 0     ? first(here)
                                    : Mask(0),
                     keys + i * kLanes, K::all(Key(~Key(0))));
    }
#pragma GCC unroll 8
    for (int run = 1; run < kLanes; run *= 2) {  // merges of neighbours in each vector
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; ++i) v[i] = ordered(v[i], 2 * run - 1, run);
#pragma GCC unroll 8
      for (int by = run / 2; by > 0; by /= 2)
#pragma GCC unroll 16
        for (int i = 0; i < kVectors; ++i) v[i] = ordered(v[i], by, by);
    }
#pragma GCC unroll 8
    for (int run = 1; run < kVectors; run *= 2) {  // merges of runs of that many vectors
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; i += 2 * run)
#pragma GCC unroll 16
        for (int k = 0; k < run; ++k) {
          const int last = i + 2 * run - 1 - k;
          v[last] = exchanged(v[last], kLanes - 1);
          exchange(v[i + k], v[last]);
          v[last] = exchanged(v[last], kLanes - 1);
        }
#pragma GCC unroll 8
      for (int by = run / 2; by > 0; by /= 2)
#pragma GCC unroll 16
        for (int i = 0; i < kVectors; ++i)
          if (!(i & by)) exchange(v[i], v[i + by]);
#pragma GCC unroll 8
      for (int by = kLanes / 2; by > 0; by /= 2)
#pragma GCC unroll 16
        for (int i = 0; i < kVectors; ++i) v[i] = ordered(v[i], by, by);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) {
      const int64_t here = n - i * kLanes;
      K::store(keys + i * kLanes, here >= kLanes ? kEvery : here > 0 ? first(here) : Mask(0), v[i]);
    }
  }
  static void sort_few(Key* keys, int64_t n) {
    if (n <= kLanes) return network<1>(keys, n);
    if (n <= 2 * kLanes) return network<2>(keys, n);
    if (n <= 4 * kLanes) return network<4>(keys, n);
    if (n <= 8 * kLanes) return network<8>(keys, n);
    network<kMostVectors>(keys, n);
  }

  // ---- partitions

  /// Writes keys of both sides into what is free between `front` and `back`.
  struct Sides {
    Key *front, *back;
    __m512i pivot;
    void put(__m512i v, Mask given) {
      const Mask before = K::less(v, pivot) & given, after = Mask(~before & given);
      const int n = __builtin_popcount(before), m = __builtin_popcount(after);
      K::store(front, first(n), K::compress(before, v));
      front += n;
      back -= m;
      K::store(back, first(m), K::compress(after, v));
    }
    /// The same where there is room for a vector at the front.
    void put_all(__m512i v) {
      const Mask before = K::less(v, pivot);
      const int n = __builtin_popcount(before), m = kLanes - n;
      _mm512_storeu_si512(front, K::compress(before, v));
      front += n;
      back -= m;
      K::store(back, first(m), K::compress(Mask(~before), v));
    }
  };
  /// Keys less than `pivot` to the front: how many they are. n >= 2 * kHeld * kLanes.
  static int64_t partition(Key* keys, int64_t n, Key pivot) {
    constexpr int kBlock = kHeld * kLanes;
    __m512i held[2 * kHeld];
    Key *from = keys + kBlock, *to = keys + n - kBlock;
    for (int i = 0; i < kHeld; ++i) {
      held[i] = _mm512_loadu_si512(keys + i * kLanes);
      held[kHeld + i] = _mm512_loadu_si512(to + i * kLanes);
    }
    Sides sides{keys, keys + n, K::all(pivot)};
    while (to - from >= kBlock) {
      const Key* block = from;
      if (from - sides.front <= sides.back - to)
        from += kBlock;
      else
        block = to -= kBlock;
      __m512i v[kHeld];
      for (int i = 0; i < kHeld; ++i) v[i] = _mm512_loadu_si512(block + i * kLanes);
      for (int i = 0; i < kHeld; ++i) sides.put_all(v[i]);
    }
    // The rest is less than a block: all of it is read before anything is written.
    __m512i rest[kHeld];
    Mask given[kHeld];
    for (int i = 0; i < kHeld; ++i) {
      const int64_t here = to - from - i * kLanes;
      given[i] = here >= kLanes ? kEvery : here > 0 ? first(here) : Mask(0);
      rest[i] = K::load(given[i], from + i * kLanes, _mm512_setzero_si512());
    }
    for (int i = 0; i < kHeld; ++i) sides.put(rest[i], given[i]);
    for (const __m512i& v : held) sides.put(v, kEvery);
    return sides.front - keys;
  }

  static Key median_of_sample(const Key* keys, int64_t n) {
    constexpr int kSample = 4 * kLanes;
    Key sample[kSample];
    const int64_t step = n / kSample;
    for (int i = 0; i < kSample; ++i) sample[i] = keys[i * step + step / 2];
    network<4>(sample, kSample);
    return sample[kSample / 2];
  }
  struct Ends {
    Key least, greatest;
  };
  static Ends ends(const Key* keys, int64_t n) {
    Ends e{keys[0], keys[0]};
    for (int64_t i = 1; i < n; ++i) {
      e.least = keys[i] < e.least ? keys[i] : e.least;
      e.greatest = keys[i] > e.greatest ? keys[i] : e.greatest;
    }
    return e;
  }
  static int64_t split_evenly(Key* keys, int64_t n) {
    const Ends e = ends(keys, n);
    if (e.least == e.greatest) return n;
    return partition(keys, n, Key(e.least + (e.greatest - e.least) / 2 + 1));
  }
  static int64_t split(Key* keys, int64_t n) {
    if (const int64_t before = partition(keys, n, median_of_sample(keys, n))) return before;
    return split_evenly(keys, n);  // the median is the least one: there are many of it
  }

  static void sort_to(Key* keys, int64_t n, int splits) {
    while (n > kNetwork) {
      int64_t before;
      if (splits-- > 0) {
        const Key pivot = median_of_sample(keys, n);
        before = partition(keys, n, pivot);
        if (before == 0) {  // it is the least one: of it there may be many, which are in place then
          if (pivot == Key(~Key(0))) return;
          before = partition(keys, n, Key(pivot + 1));
          keys += before;
          n -= before;
          continue;
        }
      } else {
        before = split_evenly(keys, n);
        if (before == n) return;
      }
      sort_to(keys, before, splits);
      keys += before;
      n -= before;
    }
    sort_few(keys, n);
  }
  static void sort(Key* keys, int64_t n) {
    sort_to(keys, n, 2 * (64 - __builtin_clzll(uint64_t(n) | 1)));
  }
};

template <class Key>
constexpr KeySort<Key> kSort = {Sorter<Key>::sort, Sorter<Key>::split};
}  // namespace

extern const SortTable sort_table;
const SortTable sort_table = {kSort<uint32_t>, kSort<uint64_t>};
#else
extern const SortTable sort_table;
const SortTable sort_table = {};
#endif

}  // namespace arete::cpu::kernels::ARETE_SIMD_TARGET
