// What Fourier transforms do with memory besides transforming it. See Note [Transforms by cuFFT].
#pragma once
#include "index.cuh"

// out[i] = factor * in[i], zero where `in` has no such number. Dimensions are those of `out`, the
// innermost first. Strides are in real numbers. Mirrors the struct in fft.cpp.
struct FftPassArgs {
  const void* in;
  void* out;
  const void* window;        // factors of the numbers along dimension `last`; may be null
  f64 factor, factor_twice;  // the second one of numbers of a half spectrum that stand for two
  i64 in_stride[16], out_stride[16], size[16], in_size[16];
  i64 points[16];  // of dimensions in which conjugates are mirrored, else 0
  i64 last_points, count;
  Divisor divisor[16];  // of the sizes if they fit; of tiles along a dimension where there are such
  u32 rank;
  i32 last;  // the dimension of a half spectrum; -1: none
  u32 flags;
};
enum FftPassFlags : u32 {
  kFftConjugate = 1,
  kFftFold = 2,      // the half spectrum of the real part of what `in` is transformed to
  kFftEdges = 4,     // without what a half spectrum of real numbers cannot have
  kFftSpread = 8,    // the other half is written too
  kFftPairsIn = 16,  // complex numbers are aligned as such
  kFftPairsOut = 32,
  kFftKept = 64,  // a number's own place has it already
  kFftMirrors = kFftFold | kFftEdges | kFftSpread,
};

template <class T>
struct PairOf;
template <>
struct PairOf<f32> {
  typedef c64 type;
};
template <>
struct PairOf<f64> {
  typedef c128 type;
};

// Where a number is and its mirror, which only complex numbers have. I is i32 where all positions
// fit, else i64.
template <class I, int kParts>
struct FftPlace {
  I in = 0, out = 0, in_mirror = 0, out_mirror = 0, last = 0;
  bool present = true, mirror_present = true;

  // Its place along one more dimension.
  __device__ __forceinline__ void add(const FftPassArgs& a, u32 d, I i) {
    in += i * I(a.in_stride[d]);
    out += i * I(a.out_stride[d]);
    present = present && i < I(a.in_size[d]);
    if (i32(d) == a.last) last = i;
    if (kParts == 1 || !(a.flags & kFftMirrors)) return;
    const I points = I(a.points[d]), m = points && i ? points - i : i;
    in_mirror += m * I(a.in_stride[d]);
    out_mirror += m * I(a.out_stride[d]);
    mirror_present = mirror_present && m < I(a.in_size[d]);
  }
  __device__ __forceinline__ bool twice(const FftPassArgs& a) const {
    return last > 0 && last < I(a.last_points) - last;
  }
};

template <class T, int kParts>
DEVICE typename PairOf<T>::type fft_load(const T* p, bool pairs) {
  typedef typename PairOf<T>::type Pair;
  if (kParts == 1) return {p[0], T(0)};
  if (pairs) return *reinterpret_cast<const Pair*>(p);
  return {p[0], p[1]};
}
template <class T, int kParts>
DEVICE void fft_store(T* p, typename PairOf<T>::type v, bool pairs) {
  typedef typename PairOf<T>::type Pair;
  if (kParts == 1) {
    p[0] = v.re;
  } else if (pairs) {
    *reinterpret_cast<Pair*>(p) = v;
  } else {
    p[0] = v.re;
    p[1] = v.im;
  }
}

// The numbers for `n` places: all are on their way before the first one is waited for, so no branch
// stands between the loads of two of them.
template <class T, int kParts, class I, int n>
DEVICE void fft_values(const FftPassArgs& a, const FftPlace<I, kParts> (&p)[n],
                       typename PairOf<T>::type (&v)[n]) {
  typedef typename PairOf<T>::type Pair;
  const T* const in = static_cast<const T*>(a.in);
  if (a.flags & kFftPairsIn) {
#pragma unroll
    for (int k = 0; k < n; ++k)
      v[k] = p[k].present ? fft_load<T, kParts>(in + p[k].in, true) : Pair{T(0), T(0)};
  } else {
#pragma unroll
    for (int k = 0; k < n; ++k)
      v[k] = p[k].present ? fft_load<T, kParts>(in + p[k].in, false) : Pair{T(0), T(0)};
  }
  if (kParts == 2 && a.flags & (kFftFold | kFftEdges)) {
    const bool pairs = a.flags & kFftPairsIn, all = a.flags & kFftFold;
    Pair w[n];
#pragma unroll
    for (int k = 0; k < n; ++k) {
      w[k] = {T(0), T(0)};
      if (p[k].mirror_present && (all || !p[k].twice(a)))
        w[k] = fft_load<T, kParts>(in + p[k].in_mirror, pairs);
    }
#pragma unroll
    for (int k = 0; k < n; ++k) {
      if (!all && p[k].twice(a)) continue;
      // Of a number that is its own mirror infinite ones are ignored as well.
      const bool own = p[k].mirror_present && p[k].present && p[k].in_mirror == p[k].in;
      v[k].re = (v[k].re + w[k].re) * T(0.5);
      v[k].im = own ? T(0) : (v[k].im - w[k].im) * T(0.5);
    }
  }
  T factor[n];
#pragma unroll
  for (int k = 0; k < n; ++k) factor[k] = T(p[k].twice(a) ? a.factor_twice : a.factor);
  if (a.window) {
#pragma unroll
    for (int k = 0; k < n; ++k)
      if (p[k].present) factor[k] *= static_cast<const T*>(a.window)[p[k].last];
  }
#pragma unroll
  for (int k = 0; k < n; ++k) {
    v[k].re *= factor[k];
    v[k].im *= a.flags & kFftConjugate ? -factor[k] : factor[k];
  }
}
template <class T, int kParts, class I>
DEVICE void fft_put(const FftPassArgs& a, const FftPlace<I, kParts>& p,
                    typename PairOf<T>::type v) {
  T* const out = static_cast<T*>(a.out);
  const bool pairs = a.flags & kFftPairsOut;
  if (!(a.flags & kFftKept)) fft_store<T, kParts>(out + p.out, v, pairs);
  if (kParts == 1 || !(a.flags & kFftSpread && p.twice(a))) return;
  v.im = -v.im;
  fft_store<T, kParts>(out + p.out_mirror, v, pairs);
}

DEVICE i32 fft_quotient(const FftPassArgs& a, u32 d, i32 i) {
  return i32(divide(u32(i), a.divisor[d]));
}
DEVICE i64 fft_quotient(const FftPassArgs& a, u32 d, i64 i) { return i / a.size[d]; }

// Numbers in the order of `out`. `out` may be `in`: a thread reads its own before it writes.
template <class T, int kParts, class I>
DEVICE void fft_pass_rows(const FftPassArgs& a) {
  constexpr int kItems = 32 / (kParts * sizeof(T));
  FftPlace<I, kParts> place[kItems];
  I rest[kItems];
  bool exists[kItems];
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const I i = I(blockIdx.x) * (256 * kItems) + k * 256 + I(threadIdx.x);
    exists[k] = i < I(a.count);
    rest[k] = exists[k] ? i : 0;
    place[k].present = place[k].mirror_present = exists[k];
  }
#pragma unroll 1
  for (u32 d = 0; d < a.rank; ++d) {
    const bool outermost = d + 1 == a.rank;
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      const I next = outermost ? 0 : fft_quotient(a, d, rest[k]);
      place[k].add(a, d, rest[k] - next * I(a.size[d]));
      rest[k] = next;
    }
  }
  typename PairOf<T>::type v[kItems];
  fft_values<T>(a, place, v);
#pragma unroll
  for (int k = 0; k < kItems; ++k)
    if (exists[k]) fft_put<T>(a, place[k], v[k]);
}

// Through shared memory: dimension 1 is the innermost one of `in`.
template <class T, int kParts, class I>
DEVICE void fft_pass_tiles(const FftPassArgs& a) {
  __shared__ typename PairOf<T>::type tile[32][33];
  FftPlace<I, kParts> outer;
  I first[2];
  u32 rest = blockIdx.x;
#pragma unroll
  for (u32 d = 0; d < 2; ++d) {
    const u32 next = divide(rest, a.divisor[d]);
    first[d] = I(rest - next * a.divisor[d].value) * 32;
    rest = next;
  }
#pragma unroll 1
  for (u32 d = 2; d < a.rank; ++d) {
    const u32 next = divide(rest, a.divisor[d]);
    outer.add(a, d, I(rest - next * a.divisor[d].value));
    rest = next;
  }
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  FftPlace<I, kParts> place[4];
  typename PairOf<T>::type v[4];
#pragma unroll
  for (u32 k = 0; k < 4; ++k) {
    const I i0 = first[0] + I(warp + 8 * k), i1 = first[1] + I(lane);
    place[k] = outer;
    place[k].add(a, 0, i0);
    place[k].add(a, 1, i1);
    const bool exists = i0 < I(a.size[0]) && i1 < I(a.size[1]);
    place[k].present = place[k].present && exists;
    place[k].mirror_present = place[k].mirror_present && exists;
  }
  fft_values<T>(a, place, v);
#pragma unroll
  for (u32 k = 0; k < 4; ++k) tile[warp + 8 * k][lane] = v[k];
  __syncthreads();
#pragma unroll
  for (u32 k = 0; k < 4; ++k) {
    const I i0 = first[0] + I(lane), i1 = first[1] + I(warp + 8 * k);
    FftPlace<I, kParts> p = outer;
    p.add(a, 0, i0);
    p.add(a, 1, i1);
    if (i0 < I(a.size[0]) && i1 < I(a.size[1])) fft_put<T>(a, p, tile[lane][warp + 8 * k]);
  }
}
