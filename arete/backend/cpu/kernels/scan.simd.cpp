#include "arete/backend/cpu/kernels/scan_table.h"

#include <utility>

#include "arete/backend/cpu/kernels/simd.inl.h"

namespace arete::cpu::kernels::ARETE_SIMD_TARGET {
namespace {

struct Sum {
  template <class A>
  static A identity() {
    return A(0);
  }
  template <class A>
  static A apply(A a, A b) {
    return a + b;
  }
};
struct Prod {
  template <class A>
  static A identity() {
    return A(1);
  }
  template <class A>
  static A apply(A a, A b) {
    return a * b;
  }
};
template <bool kMax>
struct Extremum {
  template <class A>
  static A identity() {
    if constexpr (A(0.5) != 0)
      return kMax ? -A(__builtin_inf()) : A(__builtin_inf());
    else
      return kMax ? A(uint64_t(1) << 63) : A(~(uint64_t(1) << 63));
  }
  template <class A>
  static A apply(A a, A b) {  // NaN if either is
    if constexpr (kMax)
      return (a > b) | (a != a) ? a : b;
    else
      return (a < b) | (a != a) ? a : b;
  }
};

template <class F, class T, class A>
A fold(const T* in, int64_t n) {
  constexpr int kLanes = 32;
  A acc[kLanes];
  for (int k = 0; k < kLanes; ++k) acc[k] = F::template identity<A>();
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int k = 0; k < kLanes; ++k) acc[k] = F::apply(acc[k], A(in[i + k]));
  for (int64_t k = 0; i + k < n; ++k) acc[k] = F::apply(acc[k], A(in[i + k]));
  for (int step = kLanes / 2; step > 0; step /= 2)
    for (int k = 0; k < step; ++k) acc[k] = F::apply(acc[k], acc[k + step]);
  return acc[0];
}

// Sixteen at a time: the prefix of four columns of four, so that only one operation in sixteen
// elements waits for the one before.
template <class F, class T, class A>
A run(const T* in, T* out, int64_t n, A carry) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    A x[4][4];
    for (int g = 0; g < 4; ++g)
      for (int k = 0; k < 4; ++k) x[k][g] = A(in[i + 4 * g + k]);
    for (int k = 1; k < 4; ++k)
      for (int g = 0; g < 4; ++g) x[k][g] = F::apply(x[k - 1][g], x[k][g]);
    const A t0 = x[3][0], t1 = F::apply(t0, x[3][1]), t2 = F::apply(t1, x[3][2]),
            t3 = F::apply(t2, x[3][3]);
    const A start[4] = {carry, F::apply(carry, t0), F::apply(carry, t1), F::apply(carry, t2)};
    for (int g = 0; g < 4; ++g)
      for (int k = 0; k < 4; ++k) out[i + 4 * g + k] = T(F::apply(start[g], x[k][g]));
    carry = F::apply(carry, t3);
  }
  for (; i < n; ++i) {
    carry = F::apply(carry, A(in[i]));
    out[i] = T(carry);
  }
  return carry;
}

// Extrema do not depend on the order: a vector at a time, each round doubling how many elements
// before it a lane has seen.
template <int kBy, class V, int... i>
inline V moved_up(V v, V rest, std::integer_sequence<int, i...>) {
  constexpr int kLanes = int(sizeof...(i));
  return __builtin_shufflevector(rest, v, (i < kBy ? i : kLanes + i - kBy)...);
}
template <class V, int... i>
inline V last_everywhere(V v, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(v, v, (i - i + int(sizeof...(i)) - 1)...);
}
template <class F, class T>
T run_extrema(const T* in, T* out, int64_t n, T carry) {
  constexpr int kLanes = kVectorBytes / int(sizeof(T));
  constexpr auto lanes = std::make_integer_sequence<int, kLanes>();
  typedef T V __attribute__((vector_size(kVectorBytes)));
  const V rest = V{} + F::template identity<T>();
  V seen = V{} + carry;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    V v;
    __builtin_memcpy(&v, in + i, sizeof(V));
    v = F::apply(v, moved_up<1>(v, rest, lanes));
    if constexpr (kLanes > 2) v = F::apply(v, moved_up<2>(v, rest, lanes));
    if constexpr (kLanes > 4) v = F::apply(v, moved_up<4>(v, rest, lanes));
    if constexpr (kLanes > 8) v = F::apply(v, moved_up<8>(v, rest, lanes));
    v = F::apply(seen, v);
    __builtin_memcpy(out + i, &v, sizeof(V));
    seen = last_everywhere(v, lanes);
  }
  carry = seen[0];
  for (; i < n; ++i) {
    carry = F::apply(carry, in[i]);
    out[i] = carry;
  }
  return carry;
}
template <class F, class T>
T fold_extrema(const T* in, int64_t n) {
  constexpr int kLanes = kVectorBytes / int(sizeof(T));
  typedef T V __attribute__((vector_size(kVectorBytes)));
  V acc[4];
  for (V& a : acc) a = V{} + F::template identity<T>();
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes)
    for (int k = 0; k < 4; ++k) {
      V v;
      __builtin_memcpy(&v, in + i + k * kLanes, sizeof(V));
      acc[k] = F::apply(acc[k], v);
    }
  const V all = F::apply(F::apply(acc[0], acc[1]), F::apply(acc[2], acc[3]));
  T result = all[0];
  for (int k = 1; k < kLanes; ++k) result = F::apply(result, T(all[k]));
  for (; i < n; ++i) result = F::apply(result, in[i]);
  return result;
}

template <class F, class T, class A>
void columns(const T* in, T* out, int64_t rows, int64_t columns, int64_t in_stride,
             int64_t out_stride) {
  constexpr int kTile = 64;
  A acc[kTile];
  for (int64_t c = 0; c < columns; c += kTile) {
    const int64_t width = columns - c < kTile ? columns - c : kTile;
    for (int k = 0; k < kTile; ++k) acc[k] = F::template identity<A>();
    const T* from = in + c;
    T* to = out + c;
    for (int64_t r = 0; r < rows; ++r, from += in_stride, to += out_stride) {
      if (width == kTile) {
        for (int k = 0; k < kTile; ++k) acc[k] = F::apply(acc[k], A(from[k]));
        for (int k = 0; k < kTile; ++k) to[k] = T(acc[k]);
      } else {
        for (int64_t k = 0; k < width; ++k) acc[k] = F::apply(acc[k], A(from[k]));
        for (int64_t k = 0; k < width; ++k) to[k] = T(acc[k]);
      }
    }
  }
}

template <class F, class T, class A>
constexpr ScanFunctions<T, A> kFunctions = {fold<F, T, A>, run<F, T, A>, columns<F, T, A>};
template <class T, class A = T>
constexpr ScanPair<T, A> kSums = {kFunctions<Sum, T, A>, kFunctions<Prod, T, A>};
template <class F, class T>
constexpr ScanFunctions<T, T> kRunning = {fold_extrema<F, T>, run_extrema<F, T>, columns<F, T, T>};
template <class T>
constexpr ScanPair<T> kExtrema = {kRunning<Extremum<false>, T>, kRunning<Extremum<true>, T>};

}  // namespace

extern const ScanTable scan_table;
const ScanTable scan_table = {kSums<float, double>, kSums<double>,    kSums<int64_t, uint64_t>,
                              kExtrema<float>,      kExtrema<double>, kExtrema<int64_t>};

}  // namespace arete::cpu::kernels::ARETE_SIMD_TARGET
