// What the Fourier transforms of one line (fft.cpp) and of many side by side (fft.simd.cpp) share.
#pragma once

#include <array>
#include <cstdint>

namespace arete::cpu {

/// A complex number, or several side by side where E is a vector.
template <class E>
struct FftComplex {
  E re, im;
};
template <class E>
FftComplex<E> operator+(FftComplex<E> a, FftComplex<E> b) {
  return {a.re + b.re, a.im + b.im};
}
template <class E>
FftComplex<E> operator-(FftComplex<E> a, FftComplex<E> b) {
  return {a.re - b.re, a.im - b.im};
}
/// By a number that is the same for all of a vector.
template <class E, class T>
FftComplex<E> operator*(FftComplex<E> a, FftComplex<T> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
template <class E, class T>
FftComplex<E> scaled(FftComplex<E> a, T s) {
  return {a.re * s, a.im * s};
}
template <class E>
FftComplex<E> times_minus_i(FftComplex<E> a) {
  return {a.im, -a.re};
}

/// The largest prime factor that has a pass of its own.
inline constexpr int64_t kLargestFftFactor = 31;

/// One pass of Stockham's method (Note [FFT]): sequences of length r * m, s of them interleaved.
template <class T>
struct FftPass {
  int64_t r, m, s;
  const FftComplex<T>* twiddles;  // (m, r - 1): exp(-2 pi i p j / (r m)), j from 1
  const FftComplex<T>* roots;     // exp(-2 pi i k / r), for r without code of its own
};

/// The transform of r numbers of scalar type T, for r with code of its own: 2, 3, 4, 5.
template <class T, int r, class E>
[[gnu::always_inline]] inline std::array<FftComplex<E>, r> butterfly(
    const std::array<FftComplex<E>, r>& a) {
  using C = FftComplex<E>;
  if constexpr (r == 2) return {a[0] + a[1], a[0] - a[1]};
  if constexpr (r == 3) {
    const C sum = a[1] + a[2];
    const C mid = a[0] - scaled(sum, T(0.5));
    const C turn = times_minus_i(scaled(a[1] - a[2], T(0.86602540378443864676372317075294)));
    return {a[0] + sum, mid + turn, mid - turn};
  }
  if constexpr (r == 4) {
    const C e = a[0] + a[2], f = a[0] - a[2], g = a[1] + a[3], h = times_minus_i(a[1] - a[3]);
    return {e + g, f + h, e - g, f - h};
  }
  if constexpr (r == 5) {
    constexpr T c1 = T(0.30901699437494742410229341718282),
                c2 = T(-0.80901699437494742410229341718282),
                s1 = T(0.95105651629515357211643933337938),
                s2 = T(0.58778525229247312916870595463907);
    const C p = a[1] + a[4], q = a[2] + a[3], u = a[1] - a[4], v = a[2] - a[3];
    const C x = a[0] + scaled(p, c1) + scaled(q, c2), y = a[0] + scaled(p, c2) + scaled(q, c1);
    const C z = times_minus_i(scaled(u, s1) + scaled(v, s2)),
            w = times_minus_i(scaled(u, s2) - scaled(v, s1));
    return {a[0] + p + q, x + z, y + w, y - w, x - z};
  }
}

// Static: what is compiled for one instruction set must not be linked where another is meant.
template <class T, int r, class E>
static void run_fixed_pass(const FftPass<T>& pass, const FftComplex<E>* __restrict x,
                           FftComplex<E>* __restrict y) {
  const int64_t m = pass.m, s = pass.s;
  for (int64_t p = 0; p < m; ++p) {
    const FftComplex<T>* w = pass.twiddles + p * (r - 1);
    const FftComplex<E>* from = x + s * p;
    FftComplex<E>* to = y + s * r * p;
    for (int64_t q = 0; q < s; ++q) {
      std::array<FftComplex<E>, r> a;
      for (int k = 0; k < r; ++k) a[size_t(k)] = from[q + s * m * k];
      const std::array<FftComplex<E>, r> b = butterfly<T, r>(a);
      to[q] = b[0];
      for (int j = 1; j < r; ++j) to[q + s * j] = b[size_t(j)] * w[j - 1];
    }
  }
}

template <class T, class E>
static void run_any_pass(const FftPass<T>& pass, const FftComplex<E>* __restrict x,
                         FftComplex<E>* __restrict y) {
  const int64_t r = pass.r, m = pass.m, s = pass.s;
  std::array<FftComplex<E>, kLargestFftFactor> a;
  for (int64_t p = 0; p < m; ++p) {
    for (int64_t q = 0; q < s; ++q) {
      for (int64_t k = 0; k < r; ++k) a[size_t(k)] = x[q + s * (p + m * k)];
      for (int64_t j = 0; j < r; ++j) {
        FftComplex<E> sum = a[0];
        for (int64_t k = 1, at = j; k < r; ++k) {
          sum = sum + a[size_t(k)] * pass.roots[at];
          at = at + j >= r ? at + j - r : at + j;
        }
        y[q + s * (r * p + j)] = j ? sum * pass.twiddles[p * (r - 1) + j - 1] : sum;
      }
    }
  }
}

/// All passes in turn over `a`; the result is in the buffer returned, `a` or `b`.
template <class T, class E>
static FftComplex<E>* run_passes(const FftPass<T>* passes, int64_t count, FftComplex<E>* a,
                                 FftComplex<E>* b) {
  for (int64_t i = 0; i < count; ++i) {
    const FftPass<T>& pass = passes[i];
    switch (pass.r) {
      case 2:
        run_fixed_pass<T, 2>(pass, a, b);
        break;
      case 3:
        run_fixed_pass<T, 3>(pass, a, b);
        break;
      case 4:
        run_fixed_pass<T, 4>(pass, a, b);
        break;
      case 5:
        run_fixed_pass<T, 5>(pass, a, b);
        break;
      default:
        run_any_pass(pass, a, b);
    }
    FftComplex<E>* const done = b;
    b = a;
    a = done;
  }
  return a;
}

/// `lines` contiguous lines of n pairs, one in each element of the processor's vectors.
template <class T>
struct FftLines {
  const FftPass<T>* passes;
  int64_t pass_count;
  const T* in;
  T* out;
  int64_t lines, n;
  bool forward;
  T scale;
};

// Compiled once per instruction set (fft.simd.cpp).
#define ARETE_FFT_LINES(target)            \
  namespace target {                       \
  void fft_f32(const FftLines<float>& l);  \
  void fft_f64(const FftLines<double>& l); \
  }
ARETE_FFT_LINES(base)
ARETE_FFT_LINES(avx2)
ARETE_FFT_LINES(avx512)
#undef ARETE_FFT_LINES

}  // namespace arete::cpu
