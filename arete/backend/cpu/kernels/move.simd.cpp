// Transposition of blocks; reversal, thinning and interleaving of runs; arithmetic progressions.
#include <utility>

#include "arete/backend/cpu/kernels/simd.inl.h"

namespace arete::cpu::kernels {
namespace {

struct Bytes16 {
  uint64_t low, high;
};

/// A square of as many rows as a vector has elements, through registers: log2(lanes) rounds that
/// each interleave row i with row i + lanes / 2. Whole vectors are read and written, so that every
/// cache line is touched once.
template <class T>
struct Square {
  // Sixteen registers at most: beyond, the compiler spills.
  static constexpr int kLanes =
      kVectorBytes / int(sizeof(T)) < 16 ? kVectorBytes / int(sizeof(T)) : 16;
  typedef T V __attribute__((vector_size(sizeof(T) * kLanes)));

  template <int... i>
  static V low(V a, V b, std::integer_sequence<int, i...>) {
    return __builtin_shufflevector(a, b, (i / 2 + i % 2 * kLanes)...);
  }
  template <int... i>
  static V high(V a, V b, std::integer_sequence<int, i...>) {
    return __builtin_shufflevector(a, b, (kLanes / 2 + i / 2 + i % 2 * kLanes)...);
  }
  static void run(T* d, const T* s, int64_t dst_stride, int64_t src_stride) {
    constexpr auto lanes = std::make_integer_sequence<int, kLanes>();
    V rows[kLanes], next[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) __builtin_memcpy(&rows[i], s + i * src_stride, sizeof(V));
#pragma GCC unroll 4
    for (int round = 1; round < kLanes; round *= 2) {
#pragma GCC unroll 8
      for (int i = 0; i < kLanes / 2; ++i) {
        next[2 * i] = low(rows[i], rows[i + kLanes / 2], lanes);
        next[2 * i + 1] = high(rows[i], rows[i + kLanes / 2], lanes);
      }
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) rows[i] = next[i];
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) __builtin_memcpy(d + i * dst_stride, &rows[i], sizeof(V));
  }
};

template <class T>
void transpose(void* dst, const void* src, int64_t rows, int64_t cols, int64_t dst_stride,
               int64_t src_stride) {
  auto* d = static_cast<T*>(dst);
  auto* s = static_cast<const T*>(src);
  constexpr int64_t kBlock = Square<T>::kLanes;
  if (rows >= kBlock && cols >= kBlock) {
    // The last square of a row or column overlaps the one before.
    for (int64_t r = 0;; r = r + 2 * kBlock <= rows ? r + kBlock : rows - kBlock) {
      for (int64_t c = 0;; c = c + 2 * kBlock <= cols ? c + kBlock : cols - kBlock) {
        Square<T>::run(d + c * dst_stride + r, s + r * src_stride + c, dst_stride, src_stride);
        if (c + kBlock == cols) break;
      }
      if (r + kBlock == rows) break;
    }
    return;
  }
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) d[c * dst_stride + r] = s[r * src_stride + c];
}
template <>
void transpose<Bytes16>(void* dst, const void* src, int64_t rows, int64_t cols, int64_t dst_stride,
                        int64_t src_stride) {
  auto* d = static_cast<Bytes16*>(dst);
  auto* s = static_cast<const Bytes16*>(src);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) d[c * dst_stride + r] = s[r * src_stride + c];
}

template <class T, int... i>
inline T backwards(T v, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(v, v, (int(sizeof...(i)) - 1 - i)...);
}
template <class T>
void reverse(void* out, const void* a, const void*, const void*, int64_t n) {
  auto* o = static_cast<T*>(out);
  auto* x = static_cast<const T*>(a);
  constexpr int kLanes = kVectorBytes / int(sizeof(T));
  typedef T V __attribute__((vector_size(kVectorBytes)));
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    V v;
    __builtin_memcpy(&v, x + n - kLanes - i, sizeof(V));
    v = backwards(v, std::make_integer_sequence<int, kLanes>());
    __builtin_memcpy(o + i, &v, sizeof(V));
  }
  for (; i < n; ++i) o[i] = x[n - 1 - i];
}
template <>
void reverse<Bytes16>(void* out, const void* a, const void*, const void*, int64_t n) {
  auto* o = static_cast<Bytes16*>(out);
  auto* x = static_cast<const Bytes16*>(a);
  for (int64_t i = 0; i < n; ++i) o[i] = x[n - 1 - i];
}

template <class T, int... i>
inline T evens(T v, T w, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(v, w, (2 * i)...);
}
template <class T>
void every_other(void* out, const void* a, const void*, const void*, int64_t n) {
  auto* o = static_cast<T*>(out);
  auto* x = static_cast<const T*>(a);
  constexpr int kLanes = kVectorBytes / int(sizeof(T));
  typedef T V __attribute__((vector_size(kVectorBytes)));
  int64_t i = 0;
  // Not the last one: what follows it may be nobody's.
  for (; i + kLanes < n; i += kLanes) {
    V v, w;
    __builtin_memcpy(&v, x + 2 * i, sizeof(V));
    __builtin_memcpy(&w, x + 2 * i + kLanes, sizeof(V));
    v = evens(v, w, std::make_integer_sequence<int, kLanes>());
    __builtin_memcpy(o + i, &v, sizeof(V));
  }
  for (; i < n; ++i) o[i] = x[2 * i];
}

template <class T, int... i>
inline T odds(T v, T w, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(v, w, (2 * i + 1)...);
}
template <class T>
void separate(void* first, void* second, const void* a, int64_t n) {
  auto *even = static_cast<T*>(first), *odd = static_cast<T*>(second);
  auto* x = static_cast<const T*>(a);
  constexpr int kLanes = kVectorBytes / int(sizeof(T));
  typedef T V __attribute__((vector_size(kVectorBytes)));
  constexpr auto lanes = std::make_integer_sequence<int, kLanes>();
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    V v, w;
    __builtin_memcpy(&v, x + 2 * i, sizeof(V));
    __builtin_memcpy(&w, x + 2 * i + kLanes, sizeof(V));
    const V low = evens(v, w, lanes), high = odds(v, w, lanes);
    __builtin_memcpy(even + i, &low, sizeof(V));
    __builtin_memcpy(odd + i, &high, sizeof(V));
  }
  for (; i < n; ++i) {
    even[i] = x[2 * i];
    odd[i] = x[2 * i + 1];
  }
}

template <int kFirst, class T, int... i>
inline T mixed(T v, T w, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(v, w, (kFirst + i / 2 + i % 2 * int(sizeof...(i)))...);
}
template <class T>
void interleave(void* out, const void* a, const void* b, const void*, int64_t n) {
  auto* o = static_cast<T*>(out);
  auto* x = static_cast<const T*>(a);
  auto* y = static_cast<const T*>(b);
  constexpr int kLanes = kVectorBytes / int(sizeof(T));
  typedef T V __attribute__((vector_size(kVectorBytes)));
  constexpr auto lanes = std::make_integer_sequence<int, kLanes>();
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    V v, w;
    __builtin_memcpy(&v, x + i, sizeof(V));
    __builtin_memcpy(&w, y + i, sizeof(V));
    const V low = mixed<0>(v, w, lanes), high = mixed<kLanes / 2>(v, w, lanes);
    __builtin_memcpy(o + 2 * i, &low, sizeof(V));
    __builtin_memcpy(o + 2 * i + kLanes, &high, sizeof(V));
  }
  for (; i < n; ++i) {
    o[2 * i] = x[i];
    o[2 * i + 1] = y[i];
  }
}

template <class T, class Wide>
void progression(void* out, const void* start, const void* step, int64_t first, int64_t n) {
  auto* o = static_cast<T*>(out);
  const Wide from = *static_cast<const Wide*>(start), by = *static_cast<const Wide*>(step);
  constexpr int kLanes = kVectorBytes / int(sizeof(Wide));
  typedef Wide V __attribute__((vector_size(kVectorBytes)));
  typedef T R __attribute__((vector_size(kLanes * sizeof(T))));
  V at;  // whole numbers, which f64 has exactly up to 2^53
  for (int k = 0; k < kLanes; ++k) at[k] = Wide(first + k);
  // The barrier keeps product and sum from becoming one operation where the processor has it. (It
  // does not in loops that the compiler makes into vectors itself.)
  const auto terms = [&] {
    return __builtin_convertvector(from + __builtin_assoc_barrier(at * by), R);
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const R v = terms();
    __builtin_memcpy(o + i, &v, sizeof(v));
    at += Wide(kLanes);
  }
  const R last = terms();
  if (i < n) __builtin_memcpy(o + i, &last, uint64_t(n - i) * sizeof(T));
}

// Each key is compared with all others: for few of them that is less work than it seems, as none of
// it depends on what is found.
void rank(const uint32_t* keys, int32_t* ranks, int64_t n) {
  constexpr int kLanes = kVectorBytes / 4, kVectors = 2;
  typedef int32_t V __attribute__((vector_size(kVectorBytes)));
  int32_t own[kMostRanked], place[kLanes];  // comparisons of signed numbers are instructions
  for (int64_t i = 0; i < n; ++i) own[i] = int32_t(keys[i] ^ 0x80000000u);
  for (int64_t i = n; i % (kVectors * kLanes); ++i) own[i] = 0;
  for (int k = 0; k < kLanes; ++k) place[k] = k;
  V lane;
  __builtin_memcpy(&lane, place, sizeof(V));
  for (int64_t i = 0; i < n; i += kVectors * kLanes) {
    V key[kVectors], count[kVectors]{};
    __builtin_memcpy(key, own + i, sizeof(key));
    const int64_t end = i + kVectors * kLanes < n ? i + kVectors * kLanes : n;
    for (int64_t j = 0; j < i; ++j)
      for (int k = 0; k < kVectors; ++k) count[k] -= own[j] <= key[k];
    for (int64_t j = i; j < end; ++j)
      for (int k = 0; k < kVectors; ++k)
        count[k] -= (own[j] < key[k]) | ((own[j] == key[k]) & (int32_t(j - i) - k * kLanes < lane));
    for (int64_t j = end; j < n; ++j)
      for (int k = 0; k < kVectors; ++k) count[k] -= own[j] < key[k];
    __builtin_memcpy(ranks + i, count, sizeof(count));
  }
}

}  // namespace

void ARETE_FILL(move)(KernelTable& t) {
  t.rank = rank;
  t.transpose[1] = transpose<uint8_t>;
  t.transpose[2] = transpose<uint16_t>;
  t.transpose[4] = transpose<uint32_t>;
  t.transpose[8] = transpose<uint64_t>;
  t.transpose[16] = transpose<Bytes16>;
  t.reverse[1] = reverse<uint8_t>;
  t.reverse[2] = reverse<uint16_t>;
  t.reverse[4] = reverse<uint32_t>;
  t.reverse[8] = reverse<uint64_t>;
  t.reverse[16] = reverse<Bytes16>;
  t.progression[t_i32] = progression<int32_t, uint64_t>;
  t.progression[t_i64] = progression<int64_t, uint64_t>;
  t.progression[t_u64] = progression<uint64_t, uint64_t>;
  t.progression[t_f32] = progression<float, double>;
  t.progression[t_f64] = progression<double, double>;
  t.every_other[1] = every_other<uint8_t>;
  t.every_other[2] = every_other<uint16_t>;
  t.every_other[4] = every_other<uint32_t>;
  t.every_other[8] = every_other<uint64_t>;
  t.separate[1] = separate<uint8_t>;
  t.separate[2] = separate<uint16_t>;
  t.separate[4] = separate<uint32_t>;
  t.separate[8] = separate<uint64_t>;
  t.interleave[1] = interleave<uint8_t>;
  t.interleave[2] = interleave<uint16_t>;
  t.interleave[4] = interleave<uint32_t>;
  t.interleave[8] = interleave<uint64_t>;
}

}  // namespace arete::cpu::kernels
