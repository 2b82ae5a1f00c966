// Random numbers: the same bits as arete/prim/philox.h, whose Note [Random numbers] says how
// numbers are made. Operations are written as intrinsics that the compiler does not contract; where
// fused operations stand instead, what they fuse is exact, so that both ways round once.
#pragma once
#include "philox.cuh"
#include "pointwise.cuh"

// ---- what is made of the lanes. Mirrors the struct in random.cpp.
struct RandomArgs {
  void* out;
  u32 elements_in_last;  // elements of the last group, 1 to all
  u32 whole, groups;     // the first `whole` groups may be stored as vectors
  u32 low, high;         // number of the first block; the low half does not overflow
  u32 keys[20];
  u32 last, never;   // bernoulli: 1 for lanes up to `last`, unless `never`
  u64 start, range;  // integers
  // uniform: first value, range, limits. normal: mean and deviation.
  f32 f[4];
  f64 d[4];
  const u64* state;  // read by kernels with kMoved only
};
// The blocks of a launch by their numbers within it.
template <bool kMoved>
struct LaunchStream {
  const RandomArgs& a;
  __device__ __forceinline__ LaunchStream(const RandomArgs& args) : a(args) {}
  __device__ __forceinline__ Lanes block(u32 number) const {
    return philox(a.low + number, a.high, a.keys);
  }
};
template <>
struct LaunchStream<true> : MovedStream {
  __device__ __forceinline__ LaunchStream(const RandomArgs& a)
      : MovedStream(lane_pair(a.low, a.high), a.keys, a.state) {}
};

// ---- uniform numbers
DEVICE f32 random_uniform(u32 lane, const f32* f) {
  const f32 unit = __fmul_rn(f32(i32(lane >> 8)), 5.9604644775390625e-8f);
  return op_min(op_max(__fadd_rn(__fmul_rn(unit, f[1]), f[0]), f[2]), f[3]);
}
DEVICE f64 random_unit(u32 low, u32 high) {
  return __dmul_rn(f64(i64(lane_pair(low, high) >> 11)), 1.1102230246251565e-16);
}
DEVICE f64 random_uniform(u32 low, u32 high, const f64* d) {
  f64 v = __dadd_rn(__dmul_rn(random_unit(low, high), d[1]), d[0]);
  v = v < d[2] ? d[2] : v;
  return v > d[3] ? d[3] : v;
}

// ---- normal numbers
// The division and the square root of IEEE 754, without the care for numbers out of range that
// takes as long again: these are the instructions of the compiler's own fast paths.
DEVICE f32 random_divide(f32 n, f32 d) {
  f32 r = fast_reciprocal(d);
  r = __fmaf_rn(__fmaf_rn(-d, r, 1.0f), r, r);
  const f32 q = __fmul_rn(n, r);
  return __fmaf_rn(__fmaf_rn(-d, q, n), r, q);
}
DEVICE f32 random_sqrt(f32 x) {
  f32 r;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(fmaxf(x, 1e-20f)));  // x may be 0
  const f32 s = __fmul_rn(x, r);
  return __fmaf_rn(__fmaf_rn(-s, s, x), __fmul_rn(r, 0.5f), s);
}

// -2 ln u. Factors that are powers of two commute with rounding: they are where they cost nothing.
DEVICE f32 random_minus_2_log(f32 u) {
  const u32 bits = __float_as_uint(u), exponent = (bits - 0x3f3504f3u) & 0xff800000u;
  const f32 m = __uint_as_float(bits - exponent);
  const f32 s = random_divide(__fadd_rn(m, -1.0f), __fadd_rn(m, 1.0f)), z = __fmul_rn(s, s);
  f32 p = __fadd_rn(__fmul_rn(z, 1.0f / 9), 1.0f / 7);
  p = __fadd_rn(__fmul_rn(p, z), 1.0f / 5);
  p = __fadd_rn(__fmul_rn(p, z), 1.0f / 3);
  p = __fmul_rn(p, z);
  const f32 half = __fadd_rn(s, __fmul_rn(s, p));  // of the logarithm of m
  // The exponent is a multiple of 2^23.
  const f32 whole = __fmul_rn(f32(i32(exponent)), -2.0f * 0.693147180559945309f / 8388608);
  return __fmaf_rn(half, -4.0f, whole);
}
DEVICE f64 random_minus_2_log(f64 u) {
  const u64 t = u64(__double_as_longlong(u)) - 0x3fe6a09e667f3bcdull;
  const f64 e = f64(i32(t >> 32) >> 20);
  const f64 m = __longlong_as_double(i64((t & 0xfffffffffffffull) + 0x3fe6a09e667f3bcdull));
  const f64 s = __ddiv_rn(__dadd_rn(m, -1.0), __dadd_rn(m, 1.0)), z = __dmul_rn(s, s);
  f64 p = __dadd_rn(__dmul_rn(z, 1.0 / 21), 1.0 / 19);
  p = __dadd_rn(__dmul_rn(p, z), 1.0 / 17);
  p = __dadd_rn(__dmul_rn(p, z), 1.0 / 15);
  p = __dadd_rn(__dmul_rn(p, z), 1.0 / 13);
  p = __dadd_rn(__dmul_rn(p, z), 1.0 / 11);
  p = __dadd_rn(__dmul_rn(p, z), 1.0 / 9);
  p = __dadd_rn(__dmul_rn(p, z), 1.0 / 7);
  p = __dadd_rn(__dmul_rn(p, z), 1.0 / 5);
  p = __dadd_rn(__dmul_rn(p, z), 1.0 / 3);
  p = __dmul_rn(p, z);
  const f64 s4 = __dmul_rn(s, -4.0);
  return __dadd_rn(__dmul_rn(e, -2.0 * 0.693147180559945309417), __dadd_rn(s4, __dmul_rn(s4, p)));
}

// Turns (c, s) by the quadrant in the two highest bits of `lane`.
DEVICE void random_turn(u32 lane, f32 c, f32 s, f32& even, f32& odd) {
  const u32 next = lane << 1;
  const bool swap = i32(next) < 0;
  const u32 x = __float_as_uint(swap ? s : c), y = __float_as_uint(swap ? c : s);
  even = __uint_as_float(x ^ ((lane ^ next) & 0x80000000u));
  odd = __uint_as_float(y ^ (lane & 0x80000000u));
}
DEVICE void random_turn(u32 lane, f64 c, f64 s, f64& even, f64& odd) {
  const bool swap = lane >> 30 & 1;
  const f64 x = swap ? s : c, y = swap ? c : s;
  even = (lane ^ lane << 1) >> 31 ? -x : x;
  odd = lane >> 31 ? -y : y;
}

// kFused: a fused operation scales and shifts the result, for scales that make it exact.
template <bool kFused>
DEVICE void random_normal(u32 l0, u32 l1, const f32* f, f32& even, f32& odd) {
  const f32 u1 = __fmaf_rn(__uint2float_rn(l0), 2.3283064365386963e-10f, 1.1641532182693481e-10f);
  const f32 r = random_sqrt(random_minus_2_log(u1));
  // g = (k + 1/2) 2^-22 - 1/2: the bits of k and that of the half are the mantissa of g + 3/2.
  const f32 g = __fadd_rn(__uint_as_float(l1 >> 7 & 0x7ffffeu | 0x3f800001u), -1.5f);
  const f32 x = __fmul_rn(g, 1.57079632679489662f), z = __fmul_rn(x, x);
  f32 s = __fadd_rn(__fmul_rn(z, 1.0f / 362880), -(1.0f / 5040));
  s = __fadd_rn(__fmul_rn(s, z), 1.0f / 120);
  s = __fadd_rn(__fmul_rn(s, z), -(1.0f / 6));
  s = __fadd_rn(__fmul_rn(__fmul_rn(s, z), x), x);
  f32 c = __fadd_rn(__fmul_rn(z, -1.0f / 3628800), 1.0f / 40320);
  c = __fadd_rn(__fmul_rn(c, z), -(1.0f / 720));
  c = __fadd_rn(__fmul_rn(c, z), 1.0f / 24);
  c = __fadd_rn(__fmul_rn(c, z), -0.5f);
  c = __fadd_rn(__fmul_rn(c, z), 1.0f);
  random_turn(l1, __fmul_rn(r, c), __fmul_rn(r, s), even, odd);
  even = kFused ? __fmaf_rn(even, f[1], f[0]) : __fadd_rn(__fmul_rn(even, f[1]), f[0]);
  odd = kFused ? __fmaf_rn(odd, f[1], f[0]) : __fadd_rn(__fmul_rn(odd, f[1]), f[0]);
}
DEVICE void random_normal(const Lanes& l, const f64* d, f64& even, f64& odd) {
  const f64 u1 = __dadd_rn(random_unit(l.v[0], l.v[1]), 1.1102230246251565e-16);
  const f64 r = __dsqrt_rn(random_minus_2_log(u1));
  const i64 k = i64(lane_pair(l.v[2], l.v[3]) >> 11 & 0x7ffffffffffffull);
  const f64 g = __dadd_rn(__dmul_rn(__dadd_rn(f64(k), 0.5), 4.440892098500626e-16), -0.5);
  const f64 x = __dmul_rn(g, 1.57079632679489661923), z = __dmul_rn(x, x);
  f64 s = __dadd_rn(__dmul_rn(z, 1.0 / 355687428096000.0), -(1.0 / 1307674368000.0));
  s = __dadd_rn(__dmul_rn(s, z), 1.0 / 6227020800.0);
  s = __dadd_rn(__dmul_rn(s, z), -(1.0 / 39916800.0));
  s = __dadd_rn(__dmul_rn(s, z), 1.0 / 362880.0);
  s = __dadd_rn(__dmul_rn(s, z), -(1.0 / 5040.0));
  s = __dadd_rn(__dmul_rn(s, z), 1.0 / 120.0);
  s = __dadd_rn(__dmul_rn(s, z), -(1.0 / 6.0));
  s = __dadd_rn(__dmul_rn(__dmul_rn(s, z), x), x);
  f64 c = __dadd_rn(__dmul_rn(z, 1.0 / 20922789888000.0), -(1.0 / 87178291200.0));
  c = __dadd_rn(__dmul_rn(c, z), 1.0 / 479001600.0);
  c = __dadd_rn(__dmul_rn(c, z), -(1.0 / 3628800.0));
  c = __dadd_rn(__dmul_rn(c, z), 1.0 / 40320.0);
  c = __dadd_rn(__dmul_rn(c, z), -(1.0 / 720.0));
  c = __dadd_rn(__dmul_rn(c, z), 1.0 / 24.0);
  c = __dadd_rn(__dmul_rn(c, z), -0.5);
  c = __dadd_rn(__dmul_rn(c, z), 1.0);
  random_turn(l.v[3], __dmul_rn(r, c), __dmul_rn(r, s), even, odd);
  even = __dadd_rn(__dmul_rn(even, d[1]), d[0]);
  odd = __dadd_rn(__dmul_rn(odd, d[1]), d[0]);
}

// ---- integers as elements of any type
template <class T>
struct FromInteger {
  DEVICE T get(i64 v) { return from_compute<T>(op_cast<compute_of<T>>(v)); }
};
template <>
struct FromInteger<c64> {
  DEVICE c64 get(i64 v) { return c64{f32(v), 0}; }
};
template <>
struct FromInteger<c128> {
  DEVICE c128 get(i64 v) { return c128{f64(v), 0}; }
};

// ---- distributions: kPer elements of type T from a block
template <class T_>
struct Uniform {
  typedef T_ T;
  static const int kPer = 4;
  DEVICE void make(const RandomArgs& a, const Lanes& l, T* out) {
#pragma unroll
    for (int k = 0; k < 4; ++k) out[k] = from_compute<T>(random_uniform(l.v[k], a.f));
  }
};
template <>
struct Uniform<f64> {
  typedef f64 T;
  static const int kPer = 2;
  DEVICE void make(const RandomArgs& a, const Lanes& l, T* out) {
    out[0] = random_uniform(l.v[0], l.v[1], a.d);
    out[1] = random_uniform(l.v[2], l.v[3], a.d);
  }
};
template <class T_, bool kFused = false>
struct Normal {
  typedef T_ T;
  static const int kPer = 4;
  DEVICE void make(const RandomArgs& a, const Lanes& l, T* out) {
#pragma unroll
    for (int k = 0; k < 4; k += 2) {
      f32 even, odd;
      random_normal<kFused>(l.v[k], l.v[k + 1], a.f, even, odd);
      out[k] = from_compute<T>(even);
      out[k + 1] = from_compute<T>(odd);
    }
  }
};
template <>
struct Normal<f64, false> {
  typedef f64 T;
  static const int kPer = 2;
  DEVICE void make(const RandomArgs& a, const Lanes& l, T* out) {
    random_normal(l, a.d, out[0], out[1]);
  }
};
template <class T>
struct FusedNormal : Normal<T, true> {};
template <class T_>
struct Integers {  // range up to 2^32
  typedef T_ T;
  static const int kPer = 4;
  DEVICE void make(const RandomArgs& a, const Lanes& l, T* out) {
#pragma unroll
    for (int k = 0; k < 4; ++k)
      out[k] = FromInteger<T>::get(i64(a.start + (u64(l.v[k]) * a.range >> 32)));
  }
};
template <class T_>
struct WideIntegers {
  typedef T_ T;
  static const int kPer = 2;
  DEVICE void make(const RandomArgs& a, const Lanes& l, T* out) {
#pragma unroll
    for (int k = 0; k < 2; ++k)
      out[k] = FromInteger<T>::get(
          i64(a.start + __umul64hi(lane_pair(l.v[2 * k], l.v[2 * k + 1]), a.range)));
  }
};
template <class T_>
struct Bernoulli {
  typedef T_ T;
  static const int kPer = 4;
  DEVICE void make(const RandomArgs& a, const Lanes& l, T* out) {
#pragma unroll
    for (int k = 0; k < 4; ++k) out[k] = FromInteger<T>::get(l.v[k] <= a.last && !a.never ? 1 : 0);
  }
};

template <class D>
struct RandomGroup {
  typedef typename D::T T;
  static const int kBlockBytes = D::kPer * int(sizeof(T));
  static const u32 kBlocks = kBlockBytes < 16 ? 16 / kBlockBytes : 1, kElements = kBlocks * D::kPer;
  Pack<T, int(kElements)> values;
  template <class Stream>
  __device__ __forceinline__ RandomGroup(const RandomArgs& a, u32 g, const Stream& stream) {
#pragma unroll
    for (u32 b = 0; b < kBlocks; ++b)
      D::make(a, stream.block(g * kBlocks + b), values.v + b * D::kPer);
  }
};

// Of two neighbouring threads each has 32 bytes for neighbouring places, `p` is the thread's own.
// They store those of the first together, then those of the second: half of a sector takes as long
// as all of it.
template <class T, int N>
DEVICE void store_together(T* p, const Pack<T, N>& value) {
  const u32 lane = threadIdx.x & 31, odd = lane & 1, both = 3u << (lane - odd);
  const uint4 own = odd ? value.words[1] : value.words[0];
  const uint4 other = odd ? value.words[0] : value.words[1];
  const uint4 got = {__shfl_xor_sync(both, other.x, 1), __shfl_xor_sync(both, other.y, 1),
                     __shfl_xor_sync(both, other.z, 1), __shfl_xor_sync(both, other.w, 1)};
  uint4* const first = reinterpret_cast<uint4*>(p) - i32(odd);
  first[0] = odd ? got : own;
  first[2] = odd ? own : got;
}

// Contiguous elements. A thread makes groups of blocks: as many as fill 16 bytes.
template <class D, bool kMoved>
DEVICE void random_elements(const RandomArgs& a) {
  const LaunchStream<kMoved> stream(a);
  typedef RandomGroup<D> Group;
  typename D::T* const out = static_cast<typename D::T*>(a.out);
  const u32 threads = gridDim.x * blockDim.x;
  constexpr bool pairs = Group::kElements * sizeof(typename D::T) == 32;
  const u32 whole = pairs ? a.whole & ~1u : a.whole;
  u32 g = blockIdx.x * blockDim.x + threadIdx.x;
  for (; g < whole; g += threads) {
    const Group group(a, g, stream);
    typename D::T* const p = out + i64(g) * Group::kElements;
    if constexpr (pairs)
      store_together(p, group.values);
    else
      store_pack(p, group.values);
  }
  for (; g < a.groups; g += threads) {
    const Group group(a, g, stream);
    const u32 n = g == a.groups - 1 ? a.elements_in_last : Group::kElements;
#pragma unroll
    for (u32 e = 0; e < Group::kElements; ++e)
      if (e < n) out[i64(g) * Group::kElements + e] = group.values.v[e];
  }
}

// ---- a program of the numbers: what the generated kernels read and write beside them
// N elements, or the first n of them where they are no whole vector.
template <class T, int N>
DEVICE Pack<T, N> load_some(const T* p, bool whole, u32 n) {
  if (whole) return load_pack<T, N>(p);
  Pack<T, N> r;
#pragma unroll
  for (u32 e = 0; e < N; ++e) r.v[e] = p[min(e, n - 1)];
  return r;
}
template <class T, int N>
DEVICE void store_some(T* p, const Pack<T, N>& value, bool whole, u32 n) {
  if (whole) return store_pack(p, value);
#pragma unroll
  for (u32 e = 0; e < N; ++e)
    if (e < n) p[e] = value.v[e];
}
