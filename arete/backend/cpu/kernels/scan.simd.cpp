#include "arete/backend/cpu/kernels/scan_table.h"

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
    return bool(kMax ? a > b : a < b) | (a != a) ? a : b;
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
template <class F, class G, class T, class A = T>
constexpr ScanPair<T, A> kPair = {kFunctions<F, T, A>, kFunctions<G, T, A>};

}  // namespace

extern const ScanTable scan_table;
const ScanTable scan_table = {kPair<Sum, Prod, float, double>, kPair<Sum, Prod, double>,
                              kPair<Extremum<false>, Extremum<true>, float>,
                              kPair<Extremum<false>, Extremum<true>, double>,
                              kPair<Extremum<false>, Extremum<true>, int64_t>};

}  // namespace arete::cpu::kernels::ARETE_SIMD_TARGET
