// The kernels of Fourier transforms (Note [FFT]): many lines at once, each element of a vector
// belonging to a line of its own, and the stages of a long line, which is a vector of one element.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "arete/backend/cpu/arena.h"
#include "arete/backend/cpu/fft_kernels.h"
#include "arete/backend/cpu/kernels/simd.inl.h"

namespace arete::cpu::ARETE_SIMD_TARGET {
namespace {

using kernels::kVectorBytes;

template <class T>
struct VectorOf {
  typedef T type __attribute__((vector_size(kVectorBytes)));
};
template <class T>
using Vector = typename VectorOf<T>::type;
template <class T, class E>
inline constexpr int kWidth = int(sizeof(E) / sizeof(T));

// ---- complex numbers ----

template <class E>
[[gnu::always_inline]] inline FftComplex<E> operator+(FftComplex<E> a, FftComplex<E> b) {
  return {a.re + b.re, a.im + b.im};
}
template <class E>
[[gnu::always_inline]] inline FftComplex<E> operator-(FftComplex<E> a, FftComplex<E> b) {
  return {a.re - b.re, a.im - b.im};
}
/// By a number that is the same for all of a vector, or a vector.
template <class E, class T>
[[gnu::always_inline]] inline FftComplex<E> operator*(FftComplex<E> a, FftComplex<T> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
template <class E, class T>
[[gnu::always_inline]] inline FftComplex<E> scaled(FftComplex<E> a, T s) {
  return {a.re * s, a.im * s};
}
template <class E>
[[gnu::always_inline]] inline FftComplex<E> times_minus_i(FftComplex<E> a) {
  return {a.im, -a.re};
}
template <class E>
[[gnu::always_inline]] inline FftComplex<E> conj(FftComplex<E> a) {
  return {a.re, -a.im};
}
template <class E>
[[gnu::always_inline]] inline FftComplex<E> swapped(FftComplex<E> a) {
  return {a.im, a.re};
}

// ---- passes ----

/// The transform of 2, 4 or 8 numbers.
template <class T, int r, class E>
[[gnu::always_inline]] inline std::array<FftComplex<E>, r> butterfly(
    const std::array<FftComplex<E>, r>& a) {
  using C = FftComplex<E>;
  if constexpr (r == 2) return {a[0] + a[1], a[0] - a[1]};
  if constexpr (r == 4) {
    const C e = a[0] + a[2], f = a[0] - a[2], g = a[1] + a[3], h = times_minus_i(a[1] - a[3]);
    return {e + g, f + h, e - g, f - h};
  }
  if constexpr (r == 8) {
    constexpr T half = T(0.70710678118654752440084436210485);
    const std::array<C, 4> u = butterfly<T, 4, E>({a[0], a[2], a[4], a[6]}),
                           v = butterfly<T, 4, E>({a[1], a[3], a[5], a[7]});
    const C v1{(v[1].re + v[1].im) * half, (v[1].im - v[1].re) * half};
    const C v2 = times_minus_i(v[2]);
    const C v3{(v[3].im - v[3].re) * half, (v[3].re + v[3].im) * -half};
    return {u[0] + v[0], u[1] + v1, u[2] + v2, u[3] + v3,
            u[0] - v[0], u[1] - v1, u[2] - v2, u[3] - v3};
  }
}

// `last`: the only twiddle is 1.
template <class T, int r, bool last, class E>
void run_even_pass(const FftPass<T>& pass, const FftComplex<E>* __restrict x,
                   FftComplex<E>* __restrict y) {
  const int64_t m = last ? 1 : pass.m, s = pass.s;
  for (int64_t p = 0; p < m; ++p) {
    const FftComplex<T>* w = pass.twiddles + p * (r - 1);
    const FftComplex<E>* from = x + s * p;
    FftComplex<E>* to = y + s * r * p;
    for (int64_t q = 0; q < s; ++q) {
      std::array<FftComplex<E>, r> a;
#pragma GCC unroll 8
      for (int k = 0; k < r; ++k) a[size_t(k)] = from[q + s * m * k];
      const std::array<FftComplex<E>, r> b = butterfly<T, r, E>(a);
      to[q] = b[0];
#pragma GCC unroll 8
      for (int j = 1; j < r; ++j) to[q + s * j] = last ? b[size_t(j)] : b[size_t(j)] * w[j - 1];
    }
  }
}

// The transform of an odd number of numbers, a constant where `fixed` is not 0: get(k) gives number
// k, put(j, x) takes result j. By the sums and differences of numbers k and r - k, whose roots are
// conjugates.
template <class T, int fixed, class E, class Get, class Put>
[[gnu::always_inline]] inline void odd_butterfly(const FftPass<T>& pass, Get get, Put put) {
  constexpr int most = fixed ? fixed / 2 : int(kLargestFftFactor) / 2;
  const int64_t r = fixed ? fixed : pass.r, half = r / 2;
  std::array<FftComplex<E>, size_t(most)> sum, difference;
  const FftComplex<E> first = get(0);
  FftComplex<E> all = first;
#pragma GCC unroll 8
  for (int64_t k = 1; k <= half; ++k) {
    const FftComplex<E> a = get(k), b = get(r - k);
    sum[size_t(k - 1)] = a + b;
    difference[size_t(k - 1)] = times_minus_i(a - b);
    all = all + sum[size_t(k - 1)];
  }
  put(0, all);
#pragma GCC unroll 8
  for (int64_t j = 1; j <= half; ++j) {
    FftComplex<E> even = first, odd{};
    int64_t at = 0;
#pragma GCC unroll 8
    for (int64_t k = 1; k <= half; ++k) {
      at = at + j >= r ? at + j - r : at + j;
      even = even + scaled(sum[size_t(k - 1)], pass.roots[at].re);
      odd = odd - scaled(difference[size_t(k - 1)], pass.roots[at].im);
    }
    put(j, even + odd);
    put(r - j, even - odd);
  }
}

template <class T, int fixed, class E>
void run_odd_pass(const FftPass<T>& pass, const FftComplex<E>* __restrict x,
                  FftComplex<E>* __restrict y) {
  const int64_t r = fixed ? fixed : pass.r, m = pass.m, s = pass.s;
  for (int64_t p = 0; p < m; ++p) {
    const FftComplex<T>* w = pass.twiddles + p * (r - 1) - 1;
    for (int64_t q = 0; q < s; ++q) {
      const FftComplex<E>* from = x + q + s * p;
      FftComplex<E>* to = y + q + s * r * p;
      odd_butterfly<T, fixed, E>(
          pass, [&](int64_t k) { return from[s * m * k]; },
          [&](int64_t j, FftComplex<E> v) { to[s * j] = j ? v * w[j] : v; });
    }
  }
}

// Of real sequences the first (length + 1) / 2 numbers of their transforms, the others being
// conjugates: s sequences of odd length r * m from r * s of length m, number k of sequence q at
// q + k times the number of sequences. Numbers k > 0 are transformed as complex ones with those
// that follow by m, half of whose results stand for their conjugates; numbers 0 are real.
template <class T, int fixed, class E>
void run_real_pass(const FftPass<T>& pass, const FftComplex<E>* __restrict x,
                   FftComplex<E>* __restrict y) {
  const int64_t r = fixed ? fixed : pass.r, m = pass.m, s = pass.s, half = r / 2;
  for (int64_t q = 0; q < s; ++q) {
    const FftComplex<E>* from = x + q;
    E all = from[0].re;
    for (int64_t k = 1; k < r; ++k) all = all + from[s * k].re;
    y[q] = {all, E{}};
    for (int64_t j = 1; j <= half; ++j) {
      FftComplex<E> v{from[0].re, E{}};
      int64_t at = 0;
      for (int64_t k = 1; k <= half; ++k) {
        at = at + j >= r ? at + j - r : at + j;
        const E a = from[s * k].re, b = from[s * (r - k)].re;
        v.re += (a + b) * pass.roots[at].re;
        v.im += (a - b) * pass.roots[at].im;
      }
      y[q + s * m * j] = v;
    }
  }
  for (int64_t k = 1; k <= m / 2; ++k) {
    const FftComplex<T>* w = pass.twiddles + k * (r - 1) - 1;
    for (int64_t q = 0; q < s; ++q) {
      const FftComplex<E>* from = x + q + s * r * k;
      FftComplex<E>* to = y + q;
      odd_butterfly<T, fixed, E>(
          pass, [&](int64_t j) { return j ? from[s * j] * w[j] : from[0]; },
          [&](int64_t u, FftComplex<E> v) {
            u <= half ? to[s * (k + m * u)] = v : to[s * (m * (r - u) - k)] = conj(v);
          });
    }
  }
}
// And back, with the opposite sign of the exponent; results j and r - j of a butterfly change
// places for that.
template <class T, int fixed, class E>
void run_reverse_real_pass(const FftPass<T>& pass, const FftComplex<E>* __restrict x,
                           FftComplex<E>* __restrict y) {
  const int64_t r = fixed ? fixed : pass.r, m = pass.m, s = pass.s, half = r / 2;
  for (int64_t q = 0; q < s; ++q) {
    const FftComplex<E>* from = x + q;
    FftComplex<E>* to = y + q;
    E all{};
    for (int64_t u = 1; u <= half; ++u) all = all + from[s * m * u].re;
    to[0] = {from[0].re + all * T(2), E{}};
    for (int64_t j = 1; j <= half; ++j) {
      E even{}, odd{};
      int64_t at = 0;
      for (int64_t u = 1; u <= half; ++u) {
        at = at + j >= r ? at + j - r : at + j;
        even += from[s * m * u].re * pass.roots[at].re;
        odd += from[s * m * u].im * pass.roots[at].im;
      }
      even = from[0].re + even * T(2), odd = odd * T(2);
      to[s * j] = {even + odd, E{}};
      to[s * (r - j)] = {even - odd, E{}};
    }
  }
  for (int64_t k = 1; k <= m / 2; ++k) {
    const FftComplex<T>* w = pass.twiddles + k * (r - 1) - 1;
    for (int64_t q = 0; q < s; ++q) {
      const FftComplex<E>* from = x + q;
      FftComplex<E>* to = y + q + s * r * k;
      odd_butterfly<T, fixed, E>(
          pass,
          [&](int64_t u) {
            return u <= half ? from[s * (k + m * u)] : conj(from[s * (m * (r - u) - k)]);
          },
          [&](int64_t j, FftComplex<E> v) {
            j ? to[s * (r - j)] = v * conj(w[r - j]) : to[0] = v;
          });
    }
  }
}

// All passes in turn over `a`; the result is in the buffer returned, `a` or `b`.
template <class T, class E>
FftComplex<E>* run_passes(const FftSteps<T>& steps, FftComplex<E>* a, FftComplex<E>* b) {
  for (int64_t i = 0; i < steps.pass_count; ++i) {
    // To half spectra the last pass comes first: it has the shortest sequences.
    const bool to_half = steps.real == FftReal::to_half;
    const FftPass<T>& pass = steps.passes[to_half ? steps.pass_count - 1 - i : i];
    const bool last = pass.m == 1;
    switch (pass.r) {
#define ARETE_EVEN(r)                                                                      \
  case r:                                                                                  \
    last ? run_even_pass<T, r, true>(pass, a, b) : run_even_pass<T, r, false>(pass, a, b); \
    break;
#define ARETE_ODD(r)                                                                     \
  if (steps.real == FftReal::none)                                                       \
    run_odd_pass<T, r>(pass, a, b);                                                      \
  else                                                                                   \
    to_half ? run_real_pass<T, r>(pass, a, b) : run_reverse_real_pass<T, r>(pass, a, b); \
  break;
      ARETE_EVEN(2)
      ARETE_EVEN(4)
      ARETE_EVEN(8)
      case 3:
        ARETE_ODD(3)
      case 5:
        ARETE_ODD(5)
      case 7:
        ARETE_ODD(7)
      default:
        ARETE_ODD(0)
#undef ARETE_EVEN
#undef ARETE_ODD
    }
    std::swap(a, b);
  }
  return a;
}

// ---- stages between memory and passes; E is T for one line ----

// n < width numbers, without a call.
template <int width, class T>
[[gnu::always_inline]] inline void copy_some(T* to, const T* from, int64_t n) {
  if constexpr (width > 1) {
    constexpr int half = width / 2;
    if (n & half) {
      std::memcpy(to, from, half * sizeof(T));
      to += half, from += half;
    }
    copy_some<half>(to, from, n);
  }
}

// Addresses of lines of a block.
template <class T, class E>
struct Lanes {
  std::array<T*, size_t(kWidth<T, E>)> at;
  int count;
  int64_t distance;  // between neighbours, 0 if not the same for all

  // A slot is written in place, piece by piece: a vector put together elsewhere would be read
  // before its pieces have left the store buffer.
  void get(int64_t offset, E& slot) const {
    constexpr int width = kWidth<T, E>;
    if (distance == 1 && count == width) {
      std::memcpy(&slot, at[0] + offset, sizeof(E));
      return;
    }
    T* const to = reinterpret_cast<T*>(&slot);
    for (int i = 0; i < count; ++i) to[i] = at[size_t(i)][offset];
    for (int i = count; i < width; ++i) to[i] = T{};
  }
  void put(int64_t offset, const E& slot, T scale) const {
    if (distance == 1 && count == kWidth<T, E>) {
      const E scaled_slot = slot * scale;
      std::memcpy(at[0] + offset, &scaled_slot, sizeof(E));
      return;
    }
    const T* const from = reinterpret_cast<const T*>(&slot);
    for (int i = 0; i < count; ++i) at[size_t(i)][offset] = from[i] * scale;
  }
};

// Exchanges the off-diagonal blocks of size h of two rows, h apart, of a matrix of blocks 2 h.
template <int h, class V, int... lane>
[[gnu::always_inline]] inline void exchange(V& a, V& b, std::integer_sequence<int, lane...>) {
  constexpr int width = sizeof...(lane);
  const V first = __builtin_shufflevector(a, b, (lane & h ? width + lane - h : lane)...);
  b = __builtin_shufflevector(a, b, (lane & h ? width + lane : lane + h)...);
  a = first;
}
// The transpose of a square of vectors, halving the blocks that change places.
template <int width, int h = width / 2, class V>
[[gnu::always_inline]] inline void transpose(V* rows) {
#pragma GCC unroll 16
  for (int i = 0; i < width; ++i)
    if (!(i & h)) exchange<h>(rows[i], rows[i + h], std::make_integer_sequence<int, width>{});
  if constexpr (h > 1) transpose<width, h / 2>(rows);
}

// Two vectors of pairs to one of the first and one of the second numbers, and back.
template <class V, int... lane>
[[gnu::always_inline]] inline FftComplex<V> split_pairs(V a, V b,
                                                        std::integer_sequence<int, lane...>) {
  return {__builtin_shufflevector(a, b, (2 * lane)...),
          __builtin_shufflevector(a, b, (2 * lane + 1)...)};
}
template <int first, class V, int... lane>
[[gnu::always_inline]] inline V join_pairs(V a, V b, std::integer_sequence<int, lane...>) {
  constexpr int width = sizeof...(lane);
  return __builtin_shufflevector(a, b, (first + lane / 2 + (lane & 1 ? width : 0))...);
}

// Calls f(j, n) for squares of rows j to j + n of a side whose lines lie without gaps; the last one
// overlaps another rather than to be smaller. False where that does not pay or the side is another.
template <class T, class E, class F>
[[gnu::always_inline]] inline bool for_squares(const FftSide<T>& s, int64_t first, int64_t last,
                                               F f) {
  constexpr int64_t width = kWidth<T, E>;
  // A square with few rows in it would be mostly exchanged for nothing.
  if (width == 1 || !s.is_gapless() || 4 * (last - first) <= width) return false;
  if (last - first < width) {
    f(first, last - first);
    return true;
  }
  for (int64_t j = first; j < last; j += width) f(std::min(j, last - width), width);
  return true;
}

// Rows [first, last) of memory to slots. Whole pairs where the side is not single.
template <class T, class E>
void load(const FftSide<T>& s, const Lanes<T, E>& lanes, E* slots, int64_t first, int64_t last) {
  constexpr int width = kWidth<T, E>;
  const int64_t swap = s.swapped ? 1 : 0;
  for (int64_t r = first; s.single && r < last; ++r) slots[2 * r + 1 - swap] = E{};
  if constexpr (width > 1) {
    // Missing lines are those of the last one again: without branches the rows stay in registers.
    std::array<const T*, size_t(width)> at;
    for (int v = 0; v < width; ++v) at[size_t(v)] = lanes.at[size_t(std::min(v, lanes.count - 1))];
    // So many short lines beside each other are no stream that the processor would see.
    const int64_t ahead = width * lanes.distance;  // to the lines of the next block, as a rule
    const auto square = [&](int64_t j, int64_t have) {
      E rows[width];
      if (have == width) {
#pragma GCC unroll 16
        for (int v = 0; v < width; ++v) {
          std::memcpy(&rows[v], at[size_t(v)] + j, sizeof(E));
          // May lie outside of the array: no pointer into it.
          __builtin_prefetch(reinterpret_cast<const void*>(
              reinterpret_cast<uintptr_t>(at[size_t(v)] + j) + uintptr_t(ahead) * sizeof(T)));
        }
        transpose<width>(rows);
#pragma GCC unroll 16
        for (int i = 0; i < width; ++i) slots[s.slot(j + i)] = rows[i];
        return;
      }
      for (int v = 0; v < width; ++v) {
        rows[v] = E{};
        copy_some<width>(reinterpret_cast<T*>(&rows[v]), at[size_t(v)] + j, have);
      }
      transpose<width>(rows);
      for (int i = 0; i < have; ++i) slots[s.slot(j + i)] = rows[i];
    };
    if (for_squares<T, E>(s, first, last, square)) return;
    if (!s.single && s.part == 1 && lanes.distance == 2) {
      constexpr std::make_integer_sequence<int, width> all;
      const T* const from = lanes.at[0];
      const bool full = lanes.count == width;
      // Pieces of vectors first, all of them: see Lanes::get.
      for (int64_t r = first; !full && r + 1 < last; r += 2) {
        slots[r] = slots[r + 1] = E{};
        copy_some<2 * width>(reinterpret_cast<T*>(slots + r), from + r / 2 * s.step,
                             2 * lanes.count);
      }
      for (; first + 1 < last; first += 2) {
        E a = slots[first], b = slots[first + 1];
        if (full) {
          std::memcpy(&a, from + first / 2 * s.step, sizeof(E));
          std::memcpy(&b, from + first / 2 * s.step + width, sizeof(E));
        }
        const FftComplex<E> c = split_pairs(a, b, all);
        slots[first + swap] = c.re;
        slots[first + 1 - swap] = c.im;
      }
    }
  }
  for (int64_t r = first; r < last; ++r)  // of pairs a row of real parts alone
    lanes.get(s.offset(r), slots[s.slot(r)]);
}

// Slots times `scale` to rows [first, last) of memory.
template <class T, class E>
void store(const FftSide<T>& s, const Lanes<T, E>& lanes, const E* slots, T scale, int64_t first,
           int64_t last) {
  constexpr int width = kWidth<T, E>;
  const int64_t swap = s.swapped ? 1 : 0;
  if constexpr (width > 1) {
    const auto square = [&](int64_t j, int64_t have) {
      E rows[width];
      if (have == width) {
#pragma GCC unroll 16
        for (int i = 0; i < width; ++i) rows[i] = slots[s.slot(j + i)] * scale;
        transpose<width>(rows);
#pragma GCC unroll 16
        for (int v = 0; v < width; ++v)
          if (v < lanes.count) std::memcpy(lanes.at[size_t(v)] + j, &rows[v], sizeof(E));
        return;
      }
      for (int64_t i = 0; i < width; ++i) rows[i] = i < have ? slots[s.slot(j + i)] * scale : E{};
      transpose<width>(rows);
      for (int v = 0; v < lanes.count; ++v)
        copy_some<width>(lanes.at[size_t(v)] + j, reinterpret_cast<const T*>(&rows[v]), have);
    };
    if (for_squares<T, E>(s, first, last, square)) return;
    if (!s.single && s.part == 1 && lanes.distance == 2) {
      constexpr std::make_integer_sequence<int, width> all;
      T* to = lanes.at[0] + first / 2 * s.step;
      for (; first + 1 < last; first += 2, to += s.step) {
        const E re = slots[first + swap] * scale, im = slots[first + 1 - swap] * scale;
        const E a = join_pairs<0>(re, im, all), b = join_pairs<width / 2>(re, im, all);
        if (lanes.count == width) {
          std::memcpy(to, &a, sizeof(E));
          std::memcpy(to + width, &b, sizeof(E));
        } else {
          const E half[2] = {a, b};
          copy_some<2 * width>(to, reinterpret_cast<const T*>(half), 2 * lanes.count);
        }
      }
    }
  }
  for (int64_t r = first; r < last; ++r) lanes.put(s.offset(r), slots[s.slot(r)], scale);
}

// The factors of a window on rows [first, last).
template <class T, class E>
void apply_window(const T* window, const FftSide<T>& s, bool pairs, E* slots, int64_t first,
                  int64_t last) {
  for (int64_t r = first; r < last; ++r) {
    E& slot = slots[s.slot(r)];
    slot = slot * window[pairs ? r >> 1 : r];
  }
}

// Pairs [first, last) of 0 to n / 2 of half a spectrum of 2 n numbers to n numbers, swapped, whose
// transform, swapped again, is that of all in the other direction: even and odd numbers of it.
template <class T, class E>
void unpack_half(const FftLines<T>& l, FftComplex<E>* x, int64_t first, int64_t last) {
  const int64_t n = l.steps->n;
  for (int64_t k = first; k < last; ++k) {
    if (l.whole && k) {  // the real parts of the results depend on the symmetric part
      x[k] = scaled(x[k] + conj(x[2 * n - k]), T(0.5));
      if (2 * k != n) x[n - k] = scaled(x[n - k] + conj(x[n + k]), T(0.5));
    }
    FftComplex<E> a = x[k], b = conj(x[n - k]);
    if (l.conjugate) a = conj(a), b = conj(b);
    if (k == 0)
      a.im = b.im = E{};
    else
      a = scaled(a, l.inner), b = scaled(b, l.inner);
    const FftComplex<E> even = a + b, odd = (a - b) * conj(l.halves[k]);
    x[k] = {even.im + odd.re, even.re - odd.im};
    if (k) x[n - k] = {odd.re - even.im, even.re + odd.im};
  }
}
// The reverse: z (n numbers) to the first n + 1 of x, which may be z.
template <class T, class E>
void pack_half(const FftLines<T>& l, const FftComplex<E>* z, FftComplex<E>* x, int64_t first,
               int64_t last) {
  const int64_t n = l.steps->n;
  for (int64_t k = first; k < last; ++k) {
    const T weight = T(0.5) * (k ? l.scale * l.inner : l.scale);
    const FftComplex<E> a = scaled(z[k], weight), b = conj(scaled(z[k ? n - k : 0], weight));
    const FftComplex<E> even = a + b, odd = times_minus_i(a - b) * l.halves[k];
    const FftComplex<E> low = even + odd, high = even - odd;  // that of n - k is the conjugate
    x[k] = l.conjugate ? conj(low) : low;
    x[n - k] = l.conjugate ? high : conj(high);
    if (l.whole) {
      x[n + k] = conj(x[n - k]);
      if (k) x[2 * n - k] = conj(x[k]);
    }
  }
}
// The same for odd n, whose transform is that of complex numbers.
template <class T, class E>
void mirror(const FftLines<T>& l, FftComplex<E>* x, int64_t first, int64_t last) {
  const bool half = l.steps->real != FftReal::none;  // is all that the passes need
  for (int64_t k = std::max<int64_t>(first, 1); k < last; ++k) {
    if (l.whole) x[k] = scaled(x[k] + conj(x[l.steps->n - k]), T(0.5));  // as in unpack_half
    x[k] = scaled(l.conjugate ? conj(x[k]) : x[k], l.inner);
    if (half) continue;
    // Where parts are swapped, conjugate numbers differ in the sign of the first one.
    x[l.steps->n - k] = l.in.swapped ? FftComplex<E>{-x[k].re, x[k].im} : conj(x[k]);
  }
  if (first == 0) (l.in.swapped ? x[0].re : x[0].im) = E{};
}

template <FftStage stage, class T, class E>
void run_stage(const FftLines<T>& l, const Lanes<T, E>& lanes, FftComplex<E>* x, int64_t first,
               int64_t last) {
  const FftSteps<T>& steps = *l.steps;
  E* const slots = reinterpret_cast<E*>(x);
  const auto rows_of = [&](const FftSide<T>& s, int64_t k) {
    return std::min(s.single ? k : 2 * k, s.rows);
  };
  if constexpr (stage == FftStage::load) {
    const int64_t from = rows_of(l.in, first), to = rows_of(l.in, last);
    load(l.in, lanes, slots, from, to);
    if (l.window_in) apply_window(l.window_in, l.in, l.window_of_pairs, slots, from, to);
    // Rows may end amid a number.
    for (int64_t r = std::max(l.in.single ? 2 * to : to, 2 * first); r < 2 * last; ++r)
      slots[r ^ (l.in.swapped ? 1 : 0)] = E{};
  }
  if constexpr (stage == FftStage::before) {
    if (l.before == FftEdge::packed) unpack_half(l, x, first, last);
    if (l.before == FftEdge::mirrored) mirror(l, x, first, last);
  }
  if constexpr (stage == FftStage::chirp_in) {
    for (int64_t j = first; j < std::min(last, steps.n); ++j) x[j] = x[j] * steps.chirp[j];
    for (int64_t j = std::max(first, steps.n); j < last; ++j) x[j] = FftComplex<E>{};
  }
  if constexpr (stage == FftStage::filter)
    for (int64_t k = first; k < last; ++k) x[k] = swapped(x[k] * steps.filter[k]);
  if constexpr (stage == FftStage::chirp_out)
    for (int64_t k = first; k < last; ++k) x[k] = swapped(x[k]) * steps.chirp[k];
  if constexpr (stage == FftStage::after) {
    if (l.after == FftEdge::packed) pack_half(l, x, x, first, last);
    if (l.after == FftEdge::mirrored && (l.inner != 1 || l.conjugate || l.whole))
      for (int64_t k = std::max<int64_t>(first, 1); k < last; ++k) {
        x[k] = scaled(l.conjugate ? conj(x[k]) : x[k], l.inner);
        if (l.whole) x[steps.n - k] = conj(x[k]);
      }
  }
  if constexpr (stage == FftStage::store) {
    const int64_t from = rows_of(l.out, first), to = rows_of(l.out, last);
    if (l.window_out) apply_window(l.window_out, l.out, l.window_of_pairs, slots, from, to);
    store(l.out, lanes, slots, l.after == FftEdge::packed ? T(1) : l.scale, from, to);
  }
}

int64_t offset_of(int64_t line, const int64_t* sizes, int rank, const int64_t* strides) {
  int64_t offset = 0;
  for (int d = rank - 1; d >= 0; --d) {
    offset += line % sizes[d] * strides[d];
    line /= sizes[d];
  }
  return offset;
}

// The lines of block `block`.
template <class T>
Lanes<T, Vector<T>> lanes_of(const FftLines<T>& l, const FftSide<T>& s, const FftBlocks& blocks,
                             int64_t block) {
  Lanes<T, Vector<T>> lanes;
  const int64_t stride = s.strides[l.rank - 1];
  const auto address = [&](int64_t row) {
    return s.data + offset_of(row, l.sizes, l.rank - 1, s.strides);
  };
  if (block < blocks.in_rows()) {
    const int64_t line = block % blocks.per_row * blocks.width;
    lanes.count = int(std::min(blocks.width, blocks.inner - line));
    lanes.distance = stride;
    T* const first = address(block / blocks.per_row) + line * stride;
    for (int i = 0; i < lanes.count; ++i) lanes.at[size_t(i)] = first + i * stride;
    return lanes;
  }
  const int64_t line = (block - blocks.in_rows()) * blocks.width;
  lanes.count = int(std::min(blocks.width, blocks.outer * blocks.rest - line));
  lanes.distance = 0;
  int64_t row = line / blocks.rest, index = line % blocks.rest;
  T* at = address(row) + (blocks.inner - blocks.rest + index) * stride;
  for (int i = 0; i < lanes.count; ++i) {
    lanes.at[size_t(i)] = at;
    at += stride;
    if (++index == blocks.rest && i + 1 < lanes.count) {
      index = 0;
      at = address(++row) + (blocks.inner - blocks.rest) * stride;
    }
  }
  if (lanes.count > 1) {
    lanes.distance = lanes.at[1] - lanes.at[0];
    for (int i = 2; i < lanes.count; ++i)
      if (lanes.at[size_t(i)] - lanes.at[size_t(i - 1)] != lanes.distance) lanes.distance = 0;
  }
  return lanes;
}

template <class T, class V>
void apply_turns(const FftLines<T>& l, FftComplex<V>* x, int64_t vector) {
  const FftComplex<T>* const turns = l.turns + vector * l.steps->n;
  for (int64_t k = 0; k < l.steps->n; ++k) {
    FftComplex<V> lane;
    std::memcpy(&lane, l.lanes + k * 2 * kWidth<T, V>, sizeof lane);
    x[k] = x[k] * (lane * turns[k]);
  }
}

template <FftStage stage, class T>
void run_long_stage(const FftLines<T>& l, T* memory, T* x, int64_t first, int64_t last) {
  run_stage<stage>(l, Lanes<T, T>{{memory}, 1, 0}, reinterpret_cast<FftComplex<T>*>(x), first,
                   last);
}

}  // namespace

int fft_width(int bytes) { return kVectorBytes / bytes; }

template <class T>
void fft_lines(const FftLines<T>& l, int64_t first, int64_t last) {
  using V = Vector<T>;
  const FftSteps<T>& steps = *l.steps;
  const FftBlocks blocks(l.sizes, l.rank, kWidth<T, V>);
  // Blocks beside each other in rows are loaded and stored together, some numbers of each in turn:
  // pieces of rows that one block has are too short for the processor to fetch what comes next.
  constexpr int64_t kMost = 8, kBytes = 512 << 10, kTurn = 8;
  const auto beside = [&](const FftSide<T>& s) {
    return s.step > 2 && std::abs(s.strides[l.rank - 1]) <= 2;
  };
  const int64_t bytes = l.numbers() * int64_t(sizeof(FftComplex<V>)),
                panel = beside(l.in) || beside(l.out)
                            ? std::clamp<int64_t>(kBytes / bytes, 1, std::min(kMost, last - first))
                            : 1;
  ArenaScope scope;
  std::array<FftComplex<V>*, kMost + 1> buffers;
  for (int64_t k = 0; k <= panel; ++k)
    buffers[size_t(k)] = scope.take_array<FftComplex<V>>(l.numbers());
  std::array<Lanes<T, V>, kMost> in, out;
  const int64_t stored = l.out.single ? l.out.rows : (l.out.rows + 1) / 2;
  for (int64_t block = first; block < last; block += panel) {
    const int64_t count = std::min(panel, last - block);
    for (int64_t k = 0; k < count; ++k) {
      in[size_t(k)] = lanes_of(l, l.in, blocks, block + k);
      out[size_t(k)] = lanes_of(l, l.out, blocks, block + k);
    }
    // f(block of the panel, first number, last number)
    const auto in_turns = [&](const FftSide<T>& s, int64_t numbers, auto f) {
      const int64_t turn = count > 1 && beside(s) ? kTurn : numbers;
      for (int64_t i = 0; i < numbers; i += turn)
        for (int64_t k = 0; k < count; ++k) f(size_t(k), i, std::min(i + turn, numbers));
    };
    in_turns(l.in, l.numbers_in(), [&](size_t k, int64_t from, int64_t to) {
      run_stage<FftStage::load>(l, in[k], buffers[k], from, to);
    });
    for (size_t k = 0; k < size_t(count); ++k) {
      FftComplex<V>*&x = buffers[k], *&y = buffers[size_t(panel)];
      run_stage<FftStage::before>(l, in[k], x, 0, l.pairs());
      if (steps.chirp) run_stage<FftStage::chirp_in>(l, in[k], x, 0, steps.work);
      const auto transform = [&] {
        if (run_passes(steps, x, y) == y) std::swap(x, y);
      };
      transform();
      if (steps.chirp) {
        run_stage<FftStage::filter>(l, in[k], x, 0, steps.work);
        transform();
        run_stage<FftStage::chirp_out>(l, in[k], x, 0, steps.n);
      }
      if (l.turns) apply_turns(l, x, block + int64_t(k));  // of lines of one dimension
      run_stage<FftStage::after>(l, out[k], x, 0, l.pairs());
    }
    in_turns(l.out, stored, [&](size_t k, int64_t from, int64_t to) {
      run_stage<FftStage::store>(l, out[k], buffers[k], from, to);
    });
  }
}

template <class T>
void fft_stage(const FftLines<T>& l, FftStage stage, T* memory, T* x, int64_t first, int64_t last) {
  switch (stage) {
#define ARETE_STAGE(name) \
  case FftStage::name:    \
    return run_long_stage<FftStage::name>(l, memory, x, first, last);
    ARETE_STAGE(load)
    ARETE_STAGE(before)
    ARETE_STAGE(chirp_in)
    ARETE_STAGE(filter)
    ARETE_STAGE(chirp_out)
    ARETE_STAGE(after)
    ARETE_STAGE(store)
#undef ARETE_STAGE
  }
}

// Complex numbers in memory: step 2 or -2 from one to the next as vectors of pairs.
template <int step, class T>
[[gnu::always_inline]] inline Vector<T> pairs_at(const T* p) {
  constexpr int width = kWidth<T, Vector<T>>;
  Vector<T> v;
  std::memcpy(&v, step > 0 ? p : p - (width - 2), sizeof v);
  if constexpr (step > 0) return v;
  return [&]<int... lane>(std::integer_sequence<int, lane...>) {
    return __builtin_shufflevector(v, v, ((width - 2 - (lane & ~1)) + (lane & 1))...);
  }
  (std::make_integer_sequence<int, width>{});
}
template <class T>
Vector<T> conjugating() {
  Vector<T> v;
  for (int i = 0; i < kWidth<T, Vector<T>>; ++i) v[i] = i & 1 ? T(-1) : T(1);
  return v;
}

template <class T>
void fft_mirror(FftRows<T> to, FftRows<T> from, int64_t rows, int64_t n) {
  constexpr int width = kWidth<T, Vector<T>>;
  const Vector<T> sign = conjugating<T>();
  for (int64_t row = 0; row < rows; ++row) {
    T* const t = to.data + row * to.row;
    const T* const f = from.data + row * from.row;
    int64_t i = 0;
    const auto vectors = [&](auto step) {
      for (; i + width / 2 <= n; i += width / 2) {
        const Vector<T> v = pairs_at<step>(f + i * step) * sign;
        std::memcpy(t + 2 * i, &v, sizeof v);
      }
    };
    if (to.step == 2 && from.step == 2) vectors(std::integral_constant<int, 2>());
    if (to.step == 2 && from.step == -2) vectors(std::integral_constant<int, -2>());
    for (; i < n; ++i) {
      t[i * to.step] = f[i * from.step];
      t[i * to.step + 1] = -f[i * from.step + 1];
    }
  }
}
template <class T>
void fft_fold(FftRows<T> to, FftRows<T> a, FftRows<T> b, int64_t rows, int64_t n) {
  constexpr int width = kWidth<T, Vector<T>>;
  const Vector<T> sign = conjugating<T>();
  for (int64_t row = 0; row < rows; ++row) {
    T* const t = to.data + row * to.row;
    const T *const x = a.data + row * a.row, *const y = b.data + row * b.row;
    int64_t i = 0;
    const auto vectors = [&](auto step) {
      for (; i + width / 2 <= n; i += width / 2) {
        const Vector<T> v = (pairs_at<2>(x + 2 * i) + pairs_at<step>(y + i * step) * sign) * T(0.5);
        std::memcpy(t + 2 * i, &v, sizeof v);
      }
    };
    const bool near = to.step == 2 && a.step == 2;
    if (near && b.step == 2) vectors(std::integral_constant<int, 2>());
    if (near && b.step == -2) vectors(std::integral_constant<int, -2>());
    for (; i < n; ++i) {
      t[i * to.step] = (x[i * a.step] + y[i * b.step]) * T(0.5);
      t[i * to.step + 1] = (x[i * a.step + 1] - y[i * b.step + 1]) * T(0.5);
    }
  }
}

#define ARETE_FOR(T)                                                     \
  template void fft_mirror<T>(FftRows<T>, FftRows<T>, int64_t, int64_t); \
  template void fft_fold<T>(FftRows<T>, FftRows<T>, FftRows<T>, int64_t, int64_t);
ARETE_FOR(float)
ARETE_FOR(double)
#undef ARETE_FOR
template void fft_lines<float>(const FftLines<float>&, int64_t, int64_t);
template void fft_lines<double>(const FftLines<double>&, int64_t, int64_t);
template void fft_stage<float>(const FftLines<float>&, FftStage, float*, float*, int64_t, int64_t);
template void fft_stage<double>(const FftLines<double>&, FftStage, double*, double*, int64_t,
                                int64_t);

}  // namespace arete::cpu::ARETE_SIMD_TARGET
