// What Fourier transforms do with memory besides transforming it. See Note [Transforms by cuFFT].
#pragma once
#include "dtype.cuh"

// out[i] = factor * in[i], zero where `in` has no such number. Dimensions are those of `out`, the
// innermost first; there are at least two. Strides are in real numbers. Mirrors the struct in
// fft.cpp.
struct FftPassArgs {
  const void* in;
  void* out;
  const void* window;        // factors of the numbers along dimension `last`; may be null
  f64 factor, factor_twice;  // the second one of numbers of a half spectrum that stand for two
  i64 in_stride[16], out_stride[16], size[16], in_size[16];
  i64 points[16];  // of dimensions in which conjugates are mirrored, else 0
  i64 last_points;
  u32 blocks[16], magic[16], shift[16];  // blocks along a dimension, and how to divide by them
  u32 rank, width;                       // a block has 2^width numbers of dimension 0
  i32 last;                              // the dimension of a half spectrum; -1: none
  u32 flags;
};
enum FftPassFlags : u32 {
  kFftConjugate = 1,
  kFftFold = 2,      // the half spectrum of the real part of what `in` is transformed to
  kFftEdges = 4,     // without what a half spectrum of real numbers cannot have
  kFftSpread = 8,    // the other half is written too
  kFftPairsIn = 16,  // complex numbers are aligned as such
  kFftPairsOut = 32,
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

DEVICE i64 fft_mirror(i64 i, i64 points) { return points && i ? points - i : i; }

// Where a block's numbers are, but for the two inner dimensions.
struct FftBlock {
  i64 in = 0, out = 0, in_mirror = 0, out_mirror = 0, last = 0;
  i64 first[2];
  bool present = true, mirror_present = true;

  __device__ __forceinline__ FftBlock(const FftPassArgs& a, u32 extent0, u32 extent1) {
    u32 index = blockIdx.x;
#pragma unroll 1
    for (i32 d = 0; d < i32(a.rank); ++d) {
      const u32 next = (__umulhi(index, a.magic[d]) + index) >> a.shift[d];
      const i64 i = index - next * a.blocks[d];
      index = next;
      if (d < 2) {
        first[d] = i * (d ? extent1 : extent0);
        continue;
      }
      const i64 m = fft_mirror(i, a.points[d]);
      in += i * a.in_stride[d];
      out += i * a.out_stride[d];
      in_mirror += m * a.in_stride[d];
      out_mirror += m * a.out_stride[d];
      present = present && i < a.in_size[d];
      mirror_present = mirror_present && m < a.in_size[d];
      if (d == a.last) last = i;
    }
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

// One number at (i0, i1) of a block.
template <class T, int kParts>
struct FftNumber {
  typedef typename PairOf<T>::type Pair;
  const FftPassArgs& a;
  const FftBlock& b;
  i64 i0, i1, last;
  bool twice;

  __device__ __forceinline__ FftNumber(const FftPassArgs& args, const FftBlock& block, i64 at0,
                                       i64 at1)
      : a(args), b(block), i0(at0), i1(at1) {
    last = a.last == 0 ? i0 : a.last == 1 ? i1 : b.last;
    twice = last > 0 && 2 * last < a.last_points;
  }
  __device__ __forceinline__ Pair value() const {
    const T* const in = static_cast<const T*>(a.in);
    const bool pairs = a.flags & kFftPairsIn,
               there = b.present && i0 < a.in_size[0] && i1 < a.in_size[1];
    const i64 at = b.in + i0 * a.in_stride[0] + i1 * a.in_stride[1];
    Pair v = {T(0), T(0)};
    if (there) v = fft_load<T, kParts>(in + at, pairs);
    if (a.flags & kFftFold || (a.flags & kFftEdges && !twice)) {
      const i64 m0 = fft_mirror(i0, a.points[0]), m1 = fft_mirror(i1, a.points[1]);
      const i64 mirror = b.in_mirror + m0 * a.in_stride[0] + m1 * a.in_stride[1];
      const bool both = b.mirror_present && m0 < a.in_size[0] && m1 < a.in_size[1];
      Pair w = {T(0), T(0)};
      if (both) w = fft_load<T, kParts>(in + mirror, pairs);
      v.re = (v.re + w.re) * T(0.5);
      // Of a number that is its own mirror infinite ones are ignored as well.
      v.im = both && there && mirror == at ? T(0) : (v.im - w.im) * T(0.5);
    }
    T factor = T(twice ? a.factor_twice : a.factor);
    if (a.window && there) factor *= static_cast<const T*>(a.window)[last];
    v.re *= factor;
    v.im *= a.flags & kFftConjugate ? -factor : factor;
    return v;
  }
  __device__ __forceinline__ void store(Pair v) const {
    T* const out = static_cast<T*>(a.out);
    const bool pairs = a.flags & kFftPairsOut;
    fft_store<T, kParts>(out + b.out + i0 * a.out_stride[0] + i1 * a.out_stride[1], v, pairs);
    if (!(a.flags & kFftSpread && twice)) return;
    v.im = -v.im;
    fft_store<T, kParts>(out + b.out_mirror + fft_mirror(i0, a.points[0]) * a.out_stride[0] +
                             fft_mirror(i1, a.points[1]) * a.out_stride[1],
                         v, pairs);
  }
};

// `out` may be `in`: a thread reads its own numbers before it writes.
template <class T, int kParts>
DEVICE void fft_pass_rows(const FftPassArgs& a) {
  const u32 width = 1u << a.width, height = 256 / width;
  const FftBlock b(a, width, 4 * height);
  const i64 i0 = b.first[0] + (threadIdx.x & (width - 1)),
            i1 = b.first[1] + (threadIdx.x >> a.width);
  if (i0 >= a.size[0]) return;
  typename PairOf<T>::type v[4];
#pragma unroll
  for (u32 k = 0; k < 4; ++k)
    if (i1 + k * height < a.size[1]) v[k] = FftNumber<T, kParts>(a, b, i0, i1 + k * height).value();
#pragma unroll
  for (u32 k = 0; k < 4; ++k)
    if (i1 + k * height < a.size[1]) FftNumber<T, kParts>(a, b, i0, i1 + k * height).store(v[k]);
}

// Through shared memory: dimension 1 is the innermost one of `in`.
template <class T, int kParts>
DEVICE void fft_pass_tiles(const FftPassArgs& a) {
  __shared__ typename PairOf<T>::type tile[32][33];
  const FftBlock b(a, 32, 32);
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (u32 k = 0; k < 4; ++k) {
    const i64 i0 = b.first[0] + warp + 8 * k, i1 = b.first[1] + lane;
    if (i0 < a.size[0] && i1 < a.size[1])
      tile[warp + 8 * k][lane] = FftNumber<T, kParts>(a, b, i0, i1).value();
  }
  __syncthreads();
#pragma unroll
  for (u32 k = 0; k < 4; ++k) {
    const i64 i0 = b.first[0] + lane, i1 = b.first[1] + warp + 8 * k;
    if (i0 < a.size[0] && i1 < a.size[1])
      FftNumber<T, kParts>(a, b, i0, i1).store(tile[lane][warp + 8 * k]);
  }
}
