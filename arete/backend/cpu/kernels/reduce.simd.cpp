// Reductions of a block by rows or by columns. The order of the additions depends on the shape of
// the block only.
#include <utility>

#include "arete/backend/cpu/fetch.h"
#include "arete/backend/cpu/kernels/simd.inl.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace arete::cpu::kernels {
namespace {

template <class T, int kLanes>
struct VectorOf {
  typedef T type __attribute__((vector_size(sizeof(T) * kLanes)));
};

struct Sum {
  template <class A>
  static A run(A a, A b) {
    return a + b;
  }
  template <class A>
  static constexpr A identity() {
    return 0;
  }
};
struct Prod {
  template <class A>
  static A run(A a, A b) {
    return a * b;
  }
  template <class A>
  static constexpr A identity() {
    return 1;
  }
};
// The smaller and the larger of two, b where either is NaN: instructions, which the compiler would
// take apart.
template <class V>
inline V least(V a, V b) {
  return a < b ? a : b;
}
template <class V>
inline V most(V a, V b) {
  return a > b ? a : b;
}
#if defined(__x86_64__)
#define ARETE_EXTREMES(T, lanes, prefix, suffix, V)                                               \
  inline VectorOf<T, lanes>::type least(VectorOf<T, lanes>::type a, VectorOf<T, lanes>::type b) { \
    return (VectorOf<T, lanes>::type)prefix##_min_##suffix((V)a, (V)b);                           \
  }                                                                                               \
  inline VectorOf<T, lanes>::type most(VectorOf<T, lanes>::type a, VectorOf<T, lanes>::type b) {  \
    return (VectorOf<T, lanes>::type)prefix##_max_##suffix((V)a, (V)b);                           \
  }
ARETE_EXTREMES(float, 4, _mm, ps, __m128)
ARETE_EXTREMES(double, 2, _mm, pd, __m128d)
#if defined(__AVX2__)
ARETE_EXTREMES(float, 8, _mm256, ps, __m256)
ARETE_EXTREMES(double, 4, _mm256, pd, __m256d)
#endif
#if defined(__AVX512F__)
ARETE_EXTREMES(float, 16, _mm512, ps, __m512)
ARETE_EXTREMES(double, 8, _mm512, pd, __m512d)
#endif
#undef ARETE_EXTREMES
#endif

// On vectors too: comparisons there give masks.
struct Min {
  template <class A>
  static A run(A a, A b) {
    const A y = least(a, b);
    return a != a ? a : y;
  }
};
struct Max {
  template <class A>
  static A run(A a, A b) {
    const A y = most(a, b);
    return a != a ? a : y;
  }
};

// An element may be met twice.
template <class M>
inline constexpr bool kIdempotent = false;
template <>
inline constexpr bool kIdempotent<Min> = true;
template <>
inline constexpr bool kIdempotent<Max> = true;

/// The first lane with those kHalf further, and so on with half as many.
template <class M, int kHalf, class V, int... i>
V fold_lanes(V v, std::integer_sequence<int, i...> lanes) {
  v = M::run(v, V(__builtin_shufflevector(v, v, ((i + kHalf) % int(sizeof...(i)))...)));
  if constexpr (kHalf > 1)
    return fold_lanes<M, kHalf / 2>(v, lanes);
  else
    return v;
}
/// The elements of a vector in one: of halves, of their halves and so on.
template <class M, class A, int kLanes>
A reduce_lanes(typename VectorOf<A, kLanes>::type v) {
  if constexpr (kLanes * sizeof(A) > 16) {
    typename VectorOf<A, kLanes / 2>::type half[2];
    __builtin_memcpy(half, &v, sizeof(v));
    return reduce_lanes<M, A, kLanes / 2>(M::run(half[0], half[1]));
  } else {
    return fold_lanes<M, kLanes / 2>(v, std::make_integer_sequence<int, kLanes>())[0];
  }
}

template <class T, int kLanes>
inline typename VectorOf<T, kLanes>::type load(const T* p) {
  typename VectorOf<T, kLanes>::type v;
  __builtin_memcpy(&v, p, sizeof(v));
  return v;
}

template <class T, class C, int kLanes>
inline typename VectorOf<C, kLanes>::type converted(typename VectorOf<T, kLanes>::type v) {
// The compiler does these by halves.
#if defined(__AVX2__)
  if constexpr (kIsFloat<T> && kIsFloat<C> && sizeof(C) > sizeof(T) && kLanes == 4)
    return (typename VectorOf<C, kLanes>::type)_mm256_cvtps_pd((__m128)v);
#endif
#if defined(__AVX512F__)
  if constexpr (kIsFloat<T> && kIsFloat<C> && sizeof(C) > sizeof(T) && kLanes == 8)
    return (typename VectorOf<C, kLanes>::type)_mm512_cvtps_pd((__m256)v);
  else if constexpr (sizeof(T) == 1 && sizeof(C) == 4 && !kIsFloat<C> && kLanes == 8) {
    const __m128i bytes = _mm_cvtsi64_si128(__builtin_bit_cast(int64_t, v));
    return (typename VectorOf<C, kLanes>::type)(T(-1) > 0 ? _mm256_cvtepu8_epi32(bytes)
                                                          : _mm256_cvtepi8_epi32(bytes));
  } else
#endif
    return __builtin_convertvector(v, typename VectorOf<C, kLanes>::type);
}

// Note [Sums of floats]
// Converting each float to the type of the accumulator takes longer than reading it. So a few are
// added as floats, in a tree, before the sum of them is converted: its error is that of two
// additions (three of columns), however many there are, and as in any sum of floats, what is beyond
// their range on the way is infinite. Which ones belong together does not depend on the instruction
// set; products are rounded before they are added only where it has no fused multiply-add.
// Integers of 8 and 16 bits are added as those of 32 bits.
template <class M, class T, class A>
struct Few {
  using Type = A;
};
template <>
struct Few<Sum, float, double> {
  using Type = float;
};
template <class T, class A>
requires(sizeof(T) <= 2) struct Few<Sum, T, A> {
  using Type = int32_t;
};
/// What a few of them are added as, and whether that is not the accumulator's type.
template <class M, class T, class A>
using FewType = typename Few<M, T, A>::Type;
template <class M, class T, class A>
inline constexpr bool kNarrow = sizeof(FewType<M, T, A>) < sizeof(A);
constexpr int kGroup = 16;  // floats of a row that are added lane by lane

/// What is reduced: elements, those that are numbers, or products of two operands' elements.
template <class T>
struct Values {
  using Type = T;
  const T* p;
  template <int kLanes>
  auto vector(int64_t i) const {
    return load<T, kLanes>(p + i);
  }
};
template <class T>
struct Numbers {
  using Type = T;
  const T* p;
  template <int kLanes>
  auto vector(int64_t i) const {
    const auto v = load<T, kLanes>(p + i);
    return v == v ? v : decltype(v){};
  }
};
template <class T>
struct Products {
  using Type = T;
  const T *p, *q;
  template <int kLanes>
  auto vector(int64_t i) const {
    return load<T, kLanes>(p + i) * load<T, kLanes>(q + i);
  }
};

template <class T>
struct Squares {  // of differences
  using Type = T;
  const T *p, *q;
  template <int kLanes>
  auto vector(int64_t i) const {
    const auto d = load<T, kLanes>(p + i) - load<T, kLanes>(q + i);
    return d * d;
  }
};

#if defined(__AVX2__) && defined(__F16C__)
template <bool kBrain>  // bf16, else f16
struct Halves {
  using Type = float;
  const uint16_t* p;
  template <int kLanes>
  auto vector(int64_t i) const {
    typename VectorOf<float, kLanes>::type y;
#if defined(__AVX512F__)
    if constexpr (kLanes == 16) {
      const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + i));
      const __m512 wide =
          kBrain ? _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))
                 : _mm512_cvtph_ps(bits);
      __builtin_memcpy(&y, &wide, sizeof(y));
      return y;
    }
#endif
    __m128i bits = _mm_setzero_si128();
    __builtin_memcpy(&bits, p + i, kLanes * sizeof(uint16_t));
    const __m256 wide =
        kBrain ? _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16))
               : _mm256_cvtph_ps(bits);
    __builtin_memcpy(&y, &wide, sizeof(y));
    return y;
  }
};
#endif

// Note [Fetching ahead]
// What reads one or two long runs and keeps little of them waits for memory: the hardware fetches
// what follows within a page, and a loop of loads has only as many lines under way as it has loads
// in flight. So these loops ask for lines that are about two pages ahead: on an AMD EPYC the sum of
// 16 MB of floats took half as long, and lines that are in the caches cost nothing that is seen.
// Loops that also write are bounded by the memory itself.
constexpr int64_t kAheadBytes = 8192;

/// Of each element of S its opposite in order: -x of floats, ~x of integers.
template <class S>
struct Opposites {
  using Type = typename S::Type;
  S of;
  template <int kLanes>
  auto vector(int64_t i) const {
    if constexpr (kIsFloat<Type>)
      return -of.template vector<kLanes>(i);
    else
      return ~of.template vector<kLanes>(i);
  }
};

/// Squares of the differences from a number.
template <class S>
struct Deviations {
  using Type = typename S::Type;
  S of;
  Type from;
  template <int kLanes>
  auto vector(int64_t i) const {
    const auto d = of.template vector<kLanes>(i) - from;
    return d * d;
  }
};

/// Asks for what lies kAheadBytes behind elements [i, i + kCount).
template <int kCount, class T>
inline void fetch_ahead(const T* p, int64_t i) {
  fetch_lines(reinterpret_cast<const char*>(p + i) + kAheadBytes, kCount * sizeof(T));
}
template <class S>
inline constexpr int kElementBytes = int(sizeof(*S::p));
template <template <class> class F, class S>
requires requires(F<S> f) { f.of; }
inline constexpr int kElementBytes<F<S>> = kElementBytes<S>;
template <int kCount, class S>
inline void fetch_ahead(S in, int64_t i) {
  if constexpr (requires { in.of; })
    fetch_ahead<kCount>(in.of, i);
  else
    fetch_ahead<kCount>(in.p, i);
  if constexpr (requires { in.q; }) fetch_ahead<kCount>(in.q, i);
}

/// Of kCount vectors from element i on, `stride` elements apart, as vectors of C.
template <class M, class C, int kLanes, int kCount, class S>
inline typename VectorOf<C, kLanes>::type tree(S in, int64_t i, int64_t stride) {
  if constexpr (kCount == 1)
    return converted<typename S::Type, C, kLanes>(in.template vector<kLanes>(i));
  else
    return M::run(tree<M, C, kLanes, kCount / 2>(in, i, stride),
                  tree<M, C, kLanes, kCount / 2>(in, i + kCount / 2 * stride, stride));
}
template <class M, class A, int kLanes, int kCount, class S>
inline typename VectorOf<A, kLanes>::type folded(S in, int64_t i, int64_t stride) {
  using Type = FewType<M, typename S::Type, A>;
  return converted<Type, A, kLanes>(tree<M, Type, kLanes, kCount>(in, i, stride));
}

/// Four groups from element i on, added lane by lane, as vectors of A: loaded as many at a time as
/// a vector of the narrow type holds.
template <class M, class A, int kLanes, class S>
inline void fold_groups(S in, int64_t i, typename VectorOf<A, kLanes>::type* parts) {
  using Type = FewType<M, typename S::Type, A>;
  constexpr int kWide = kVectorBytes / sizeof(Type) < kGroup ? kVectorBytes / sizeof(Type) : kGroup;
  for (int k = 0; k < kGroup / kWide; ++k) {
    const auto few = tree<M, Type, kWide, 4>(in, i + k * kWide, kGroup);
    typename VectorOf<Type, kLanes>::type piece[kWide / kLanes];
    __builtin_memcpy(piece, &few, sizeof(few));
    for (int j = 0; j < kWide / kLanes; ++j)
      parts[k * (kWide / kLanes) + j] = converted<Type, A, kLanes>(piece[j]);
  }
}

/// Elements [i, n), fewer than 2 kLanes.
template <class M, class A, int kLanes, class S>
inline A reduce_rest(S in, int64_t i, int64_t n, A acc) {
  if constexpr (kLanes == 1) {
    return i < n ? M::run(acc, A(in.template vector<1>(i)[0])) : acc;
  } else {
    if (i + kLanes <= n) {
      acc = M::run(acc, reduce_lanes<M, A, kLanes>(folded<M, A, kLanes, 1>(in, i, 0)));
      i += kLanes;
    }
    return reduce_rest<M, A, kLanes / 2>(in, i, n, acc);
  }
}

template <class M, class A, class S>
A reduce_run(S in, int64_t begin, int64_t n, A acc) {
  constexpr int kLanes = kVectorBytes / sizeof(A);
  using VA = typename VectorOf<A, kLanes>::type;
  const int64_t end = begin + n;
  const auto at = [in](int64_t i) { return folded<M, A, kLanes, 1>(in, i, 0); };
  int64_t i = begin;
  if (n >= kLanes) {
    VA lanes;
    if (kNarrow<M, typename S::Type, A> && n >= 4 * kGroup) {
      constexpr int kParts = kGroup / kLanes;
      VA part[kParts], few[kParts];
      fold_groups<M, A, kLanes>(in, i, part);
      for (i += 4 * kGroup; i + 4 * kGroup <= end; i += 4 * kGroup) {
        fetch_ahead<4 * kGroup>(in, i);
        fold_groups<M, A, kLanes>(in, i, few);
        for (int k = 0; k < kParts; ++k) part[k] = M::run(part[k], few[k]);
      }
      lanes = part[0];
      for (int k = 1; k < kParts; ++k) lanes = M::run(lanes, part[k]);
      for (; i + 4 * kLanes <= end; i += 4 * kLanes)
        lanes = M::run(lanes, folded<M, A, kLanes, 4>(in, i, kLanes));
    } else {
      lanes = at(i);
      if (n >= 4 * kLanes) {
        VA lane1 = at(i + kLanes), lane2 = at(i + 2 * kLanes), lane3 = at(i + 3 * kLanes);
        for (i += 4 * kLanes; i + 4 * kLanes <= end; i += 4 * kLanes) {
          fetch_ahead<4 * kLanes>(in, i);
          lanes = M::run(lanes, at(i));
          lane1 = M::run(lane1, at(i + kLanes));
          lane2 = M::run(lane2, at(i + 2 * kLanes));
          lane3 = M::run(lane3, at(i + 3 * kLanes));
        }
        lanes = M::run(M::run(lanes, lane1), M::run(lane2, lane3));
      } else {
        i += kLanes;
      }
    }
    for (; i + kLanes <= end; i += kLanes) lanes = M::run(lanes, at(i));
    if constexpr (kIdempotent<M>) {
      lanes = M::run(lanes, at(end - kLanes));
      i = end;
    }
    acc = M::run(acc, reduce_lanes<M, A, kLanes>(lanes));
  }
  return reduce_rest<M, A, kLanes / 2>(in, i, end, acc);
}

template <class M, class A, class S>
inline void rows_of(A* a, S in, int64_t n_rows, int64_t n_cols, int64_t stride) {
  for (int64_t r = 0; r < n_rows; ++r) a[r] = reduce_run<M>(in, r * stride, n_cols, a[r]);
}
template <class M, class T, class A>
void rows(void* acc, const void* in, int64_t n_rows, int64_t n_cols, int64_t stride) {
  rows_of<M>(static_cast<A*>(acc), Values<T>{static_cast<const T*>(in)}, n_rows, n_cols, stride);
}
template <class T>
void opposite_rows(void* acc, const void* in, int64_t n_rows, int64_t n_cols, int64_t stride) {
  rows_of<Min>(static_cast<T*>(acc), Opposites<Values<T>>{{static_cast<const T*>(in)}}, n_rows,
               n_cols, stride);
}
template <class T>
void number_rows(void* acc, const void* in, int64_t n_rows, int64_t n_cols, int64_t stride) {
  rows_of<Sum>(static_cast<double*>(acc), Numbers<T>{static_cast<const T*>(in)}, n_rows, n_cols,
               stride);
}
template <template <class> class S, class T>
void pair_rows(void* acc, const void* in, const void* other, int64_t n_rows, int64_t n_cols,
               int64_t stride) {
  rows_of<Sum>(static_cast<double*>(acc),
               S<T>{static_cast<const T*>(in), static_cast<const T*>(other)}, n_rows, n_cols,
               stride);
}

#if defined(__AVX2__) && defined(__F16C__)
template <class M, bool kBrain, class A>
void half_rows(void* acc, const void* in, int64_t n_rows, int64_t n_cols, int64_t stride) {
  rows_of<M>(static_cast<A*>(acc), Halves<kBrain>{static_cast<const uint16_t*>(in)}, n_rows, n_cols,
             stride);
}
template <bool kBrain>
void opposite_half_rows(void* acc, const void* in, int64_t n_rows, int64_t n_cols, int64_t stride) {
  rows_of<Min>(static_cast<float*>(acc),
               Opposites<Halves<kBrain>>{{static_cast<const uint16_t*>(in)}}, n_rows, n_cols,
               stride);
}
#endif

/// kRows rows of n elements into the accumulators, kLanes columns at a time, then half as many.
template <class M, int kLanes, int kRows, class A, class S>
inline void add_rows(A* a, S in, int64_t at, int64_t n, int64_t stride) {
  const auto add = [&](int64_t i) {
    const auto v = M::run(load<A, kLanes>(a + i), folded<M, A, kLanes, kRows>(in, at + i, stride));
    __builtin_memcpy(a + i, &v, sizeof(v));
  };
  int64_t i = 0;
  // Short rows end before the hardware has seen where they lead.
  constexpr int kLine = 64 / kElementBytes<S>;
  if (kRows > 2 && kLine >= kLanes && n == stride && n <= kAheadBytes / kRows / kElementBytes<S>)
    for (; i + kLine <= n; i += kLine) {
      fetch_ahead<kLine * kRows>(in, at + i * kRows);
      for (int k = 0; k < kLine; k += kLanes) add(i + k);
    }
  for (; i + kLanes <= n; i += kLanes) add(i);
  if constexpr (kLanes > 1) {
    if (i < n) add_rows<M, kLanes / 2, kRows>(a + i, in, at + i, n - i, stride);
  }
}

template <class M, class A, class S>
inline void cols_of(A* a, S in, int64_t n_rows, int64_t n, int64_t stride) {
  constexpr int kLanes = kVectorBytes / sizeof(A);
  constexpr int kMany = kNarrow<M, typename S::Type, A> ? 8 : 4;
  int64_t r = 0;
  for (; r + kMany <= n_rows; r += kMany) add_rows<M, kLanes, kMany>(a, in, r * stride, n, stride);
  for (; r + 2 <= n_rows; r += 2) add_rows<M, kLanes, 2>(a, in, r * stride, n, stride);
  if (r < n_rows) add_rows<M, kLanes, 1>(a, in, r * stride, n, stride);
}
template <class M, class T, class A>
void cols(void* acc, const void* in, int64_t n_rows, int64_t n, int64_t stride) {
  cols_of<M>(static_cast<A*>(acc), Values<T>{static_cast<const T*>(in)}, n_rows, n, stride);
}
template <class T>
void opposite_cols(void* acc, const void* in, int64_t n_rows, int64_t n, int64_t stride) {
  cols_of<Min>(static_cast<T*>(acc), Opposites<Values<T>>{{static_cast<const T*>(in)}}, n_rows, n,
               stride);
}
template <class T>
void put_opposites(KernelTable& t) {
  t.opposite_rows[kTypeOf<T>] = opposite_rows<T>;
  t.opposite_cols[kTypeOf<T>] = opposite_cols<T>;
}
template <class T>
void number_cols(void* acc, const void* in, int64_t n_rows, int64_t n, int64_t stride) {
  cols_of<Sum>(static_cast<double*>(acc), Numbers<T>{static_cast<const T*>(in)}, n_rows, n, stride);
}
template <template <class> class S, class T>
void pair_cols(void* acc, const void* in, const void* other, int64_t n_rows, int64_t n,
               int64_t stride) {
  cols_of<Sum>(static_cast<double*>(acc),
               S<T>{static_cast<const T*>(in), static_cast<const T*>(other)}, n_rows, n, stride);
}
template <class S>
inline Deviations<S> deviations(const void* in, const void* from) {
  return {{static_cast<decltype(S::p)>(in)}, *static_cast<const typename S::Type*>(from)};
}
template <class S>
void deviation_rows(void* acc, const void* in, const void* from, int64_t n_rows, int64_t n,
                    int64_t stride) {
  rows_of<Sum>(static_cast<double*>(acc), deviations<S>(in, from), n_rows, n, stride);
}
template <class S>
void deviation_cols(void* acc, const void* in, const void* from, int64_t n_rows, int64_t n,
                    int64_t stride) {
  cols_of<Sum>(static_cast<double*>(acc), deviations<S>(in, from), n_rows, n, stride);
}
template <class T>
void put_pairs(KernelTable& t) {
  t.product_rows[kTypeOf<T>] = pair_rows<Products, T>;
  t.product_cols[kTypeOf<T>] = pair_cols<Products, T>;
  t.square_rows[kTypeOf<T>] = pair_rows<Squares, T>;
  t.square_cols[kTypeOf<T>] = pair_cols<Squares, T>;
  t.deviation_rows[kTypeOf<T>] = deviation_rows<Values<T>>;
  t.deviation_cols[kTypeOf<T>] = deviation_cols<Values<T>>;
}
#if defined(__AVX2__) && defined(__F16C__)
template <class M, bool kBrain, class A>
void half_cols(void* acc, const void* in, int64_t n_rows, int64_t n, int64_t stride) {
  cols_of<M>(static_cast<A*>(acc), Halves<kBrain>{static_cast<const uint16_t*>(in)}, n_rows, n,
             stride);
}
template <bool kBrain>
void opposite_half_cols(void* acc, const void* in, int64_t n_rows, int64_t n, int64_t stride) {
  cols_of<Min>(static_cast<float*>(acc),
               Opposites<Halves<kBrain>>{{static_cast<const uint16_t*>(in)}}, n_rows, n, stride);
}
template <bool kBrain>
void put_halves(KernelTable& t, int d) {
  t.half_rows[m_sum][d] = half_rows<Sum, kBrain, double>;
  t.half_cols[m_sum][d] = half_cols<Sum, kBrain, double>;
  t.half_rows[m_min][d] = half_rows<Min, kBrain, float>;
  t.half_cols[m_min][d] = half_cols<Min, kBrain, float>;
  t.half_rows[m_max][d] = half_rows<Max, kBrain, float>;
  t.half_cols[m_max][d] = half_cols<Max, kBrain, float>;
  t.opposite_half_rows[d] = opposite_half_rows<kBrain>;
  t.opposite_half_cols[d] = opposite_half_cols<kBrain>;
  t.half_deviation_rows[d] = deviation_rows<Halves<kBrain>>;
  t.half_deviation_cols[d] = deviation_cols<Halves<kBrain>>;
}
#endif

// Booleans are bytes 0 and 1.
template <bool kAll>
struct Logical {
  static uint8_t run(uint8_t a, uint8_t b) { return kAll ? a & b : a | b; }
};
template <bool kAll>
void logical_rows(void* acc, const void* in, int64_t n_rows, int64_t n, int64_t stride) {
  auto* a = static_cast<uint8_t*>(acc);
  auto* p = static_cast<const uint8_t*>(in);
  for (int64_t r = 0; r < n_rows; ++r, p += stride) {
    uint8_t v = a[r];
    for (int64_t i = 0; i < n; ++i) v = Logical<kAll>::run(v, p[i]);
    a[r] = v;
  }
}
template <bool kAll>
void logical_cols(void* acc, const void* in, int64_t n_rows, int64_t n, int64_t stride) {
  auto* a = static_cast<uint8_t*>(acc);
  auto* p = static_cast<const uint8_t*>(in);
  for (int64_t r = 0; r < n_rows; ++r, p += stride) {
    ARETE_LOOP a[i] = Logical<kAll>::run(a[i], p[i]);
  }
}
// So many 16-bit integers have a sum of 32 bits.
template <class T>
void narrow_sum_rows(void* acc, const void* in, int64_t n_rows, int64_t n, int64_t stride) {
  constexpr int64_t kMany = 1 << 15;
  auto* a = static_cast<int64_t*>(acc);
  auto* p = static_cast<const T*>(in);
  for (int64_t r = 0; r < n_rows; ++r, p += stride)
    for (int64_t from = 0; from < n; from += kMany) {
      const int64_t to = from + kMany < n ? from + kMany : n;
      int32_t sum = 0;
      for (int64_t i = from; i < to; ++i) sum += p[i];
      a[r] += sum;
    }
}

template <class M, class T, class A>
void put(KernelTable& t, KMonoid m) {
  t.reduce_rows[m][kTypeOf<T>] = rows<M, T, A>;
  t.reduce_cols[m][kTypeOf<T>] = cols<M, T, A>;
}
template <class T, class A>
void put_all(KernelTable& t) {
  put<Sum, T, A>(t, m_sum);
  put<Prod, T, A>(t, m_prod);
  put<Min, T, T>(t, m_min);
  put<Max, T, T>(t, m_max);
}
template <class T>
void put_narrow(KernelTable& t) {
  put<Min, T, T>(t, m_min);
  put<Max, T, T>(t, m_max);
  put<Prod, T, uint64_t>(t, m_prod);
  t.reduce_rows[m_sum][kTypeOf<T>] = narrow_sum_rows<T>;
  t.reduce_cols[m_sum][kTypeOf<T>] = cols<Sum, T, uint64_t>;
}

}  // namespace

void ARETE_FILL(reduce)(KernelTable& t) {
  put_all<float, double>(t);
  put_all<double, double>(t);
  t.number_rows[t_f32] = number_rows<float>;
  t.number_cols[t_f32] = number_cols<float>;
  t.number_rows[t_f64] = number_rows<double>;
  t.number_cols[t_f64] = number_cols<double>;
#if defined(__AVX2__) && defined(__F16C__)
  put_halves<false>(t, d_f16);
  put_halves<true>(t, d_bf16);
#endif
  put_opposites<float>(t);
  put_opposites<double>(t);
  put_opposites<int32_t>(t);
  put_opposites<int64_t>(t);
  put_opposites<char8_t>(t);
  put_opposites<int8_t>(t);
  put_opposites<int16_t>(t);
  put_pairs<float>(t);
  put_pairs<double>(t);
  // Accumulators wrap; unsigned arithmetic says so to the compiler, min and max compare signed.
  put<Min, int32_t, int32_t>(t, m_min);
  put<Max, int32_t, int32_t>(t, m_max);
  put<Min, int64_t, int64_t>(t, m_min);
  put<Max, int64_t, int64_t>(t, m_max);
  put_all<uint64_t, uint64_t>(t);
  t.reduce_rows[m_sum][t_i32] = rows<Sum, int32_t, uint64_t>;
  t.reduce_cols[m_sum][t_i32] = cols<Sum, int32_t, uint64_t>;
  t.reduce_rows[m_prod][t_i32] = rows<Prod, int32_t, uint64_t>;
  t.reduce_cols[m_prod][t_i32] = cols<Prod, int32_t, uint64_t>;
  t.reduce_rows[m_sum][t_i64] = rows<Sum, int64_t, uint64_t>;
  t.reduce_cols[m_sum][t_i64] = cols<Sum, int64_t, uint64_t>;
  t.reduce_rows[m_prod][t_i64] = rows<Prod, int64_t, uint64_t>;
  t.reduce_cols[m_prod][t_i64] = cols<Prod, int64_t, uint64_t>;
  put_narrow<char8_t>(t);
  put_narrow<int8_t>(t);
  put_narrow<int16_t>(t);
  t.reduce_rows[m_sum][t_bool] = narrow_sum_rows<uint8_t>;
  t.reduce_cols[m_sum][t_bool] = cols<Sum, uint8_t, int64_t>;
  t.reduce_rows[m_prod][t_bool] = rows<Prod, uint8_t, int64_t>;
  t.reduce_cols[m_prod][t_bool] = cols<Prod, uint8_t, int64_t>;
  t.reduce_rows[m_all][t_bool] = t.reduce_rows[m_min][t_bool] = logical_rows<true>;
  t.reduce_cols[m_all][t_bool] = t.reduce_cols[m_min][t_bool] = logical_cols<true>;
  t.reduce_rows[m_any][t_bool] = t.reduce_rows[m_max][t_bool] = logical_rows<false>;
  t.reduce_cols[m_any][t_bool] = t.reduce_cols[m_max][t_bool] = logical_cols<false>;
}

}  // namespace arete::cpu::kernels
