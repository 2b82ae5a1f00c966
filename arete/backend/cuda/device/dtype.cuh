// Element types of tensors on the device: storage formats and their conversion to the types that
// registers compute in. Mirrors arete/core/half.h; NVRTC's own half headers would cost 10 ms each.
#pragma once

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;

#define DEVICE static __device__ __forceinline__

struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};
struct f8e4m3 {
  u8 bits;
};
struct f8e5m2 {
  u8 bits;
};
struct boolean {
  u8 bits;
};
struct alignas(8) c64 {
  f32 re, im;
};
struct alignas(16) c128 {
  f64 re, im;
};

// ---- half types, as words
#ifndef ARETE_EMULATED  // a test that runs kernels on the host has its own
DEVICE f32 f16_value(u16 bits) {
  f32 r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(bits));
  return r;
}
DEVICE u16 f16_bits(f32 v) {
  u16 r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(v));
  return r;
}
DEVICE u16 bf16_bits(f32 v) {
  u16 r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(v));
  return r;
}
#endif

// ---- to the compute type
DEVICE f32 to_compute(f32 v) { return v; }
DEVICE f64 to_compute(f64 v) { return v; }
DEVICE i64 to_compute(i64 v) { return v; }
DEVICE u64 to_compute(u64 v) { return v; }
DEVICE i64 to_compute(u32 v) { return v; }
DEVICE i32 to_compute(u16 v) { return v; }
DEVICE i32 to_compute(i32 v) { return v; }
DEVICE i32 to_compute(i16 v) { return v; }
DEVICE i32 to_compute(i8 v) { return v; }
DEVICE i32 to_compute(u8 v) { return v; }
DEVICE bool to_compute(boolean v) { return v.bits != 0; }
DEVICE f32 to_compute(f16 v) { return f16_value(v.bits); }
DEVICE f32 to_compute(bf16 v) { return __uint_as_float(u32(v.bits) << 16); }

template <int E, int M, bool kFinite>
DEVICE f32 decode_small_float(u32 v) {
  const int kBias = (1 << (E - 1)) - 1, kShift = 23 - M;
  const u32 kInf = ((1u << E) - 1) << M, kNan = kInf | ((1u << M) - 1);
  const u32 abs = v & ((1u << (E + M)) - 1);
  u32 r = abs < (1u << M)
              ? __float_as_uint(f32(abs) * __uint_as_float(u32(127 + 1 - kBias - M) << 23))
              : (abs << kShift) + (u32(127 - kBias) << 23);
  if (kFinite)
    r = abs == kNan ? 0x7fc00000u : r;
  else if (abs >= kInf)
    r = 0x7f800000u | (abs - kInf) << kShift;
  return __uint_as_float((v >> (E + M) & 1u) << 31 | r);
}
template <int E, int M, bool kFinite>
DEVICE u32 encode_small_float(f32 value) {
  const int kBias = (1 << (E - 1)) - 1, kShift = 23 - M;
  const u32 kInf = ((1u << E) - 1) << M;
  const u32 kNan = kFinite ? (kInf | ((1u << M) - 1)) : (kInf | (1u << (M - 1)));
  const u32 kOverflow = kFinite ? kNan : kInf;
  const u32 bits = __float_as_uint(value), abs = bits & 0x7fffffffu;
  const u32 rebased = abs - (u32(127 - kBias) << 23);
  const u32 normal = (rebased + ((1u << (kShift - 1)) - 1) + ((rebased >> kShift) & 1)) >> kShift;
  const u32 kMagic = u32(127 + 23 + 1 - kBias - M) << 23;
  const u32 subnormal =
      __float_as_uint(__fadd_rn(__uint_as_float(abs), __uint_as_float(kMagic))) - kMagic;
  u32 r = abs < (u32(128 - kBias) << 23) ? subnormal : normal;
  r = r > kOverflow || abs == 0x7f800000u ? kOverflow : r;
  r = abs > 0x7f800000u ? kNan : r;
  return (bits >> 31) << (E + M) | r;
}
DEVICE f32 to_compute(f8e4m3 v) { return decode_small_float<4, 3, true>(v.bits); }
DEVICE f32 to_compute(f8e5m2 v) { return decode_small_float<5, 2, false>(v.bits); }
DEVICE c64 to_compute(c64 v) { return v; }
DEVICE c128 to_compute(c128 v) { return v; }

// ---- from the compute type: the one rounding (or wrapping) of an output
template <class T>
struct FromCompute;
template <>
struct FromCompute<f32> {
  DEVICE f32 get(f32 v) { return v; }
};
template <>
struct FromCompute<f64> {
  DEVICE f64 get(f64 v) { return v; }
};
template <>
struct FromCompute<i64> {
  DEVICE i64 get(i64 v) { return v; }
};
template <>
struct FromCompute<u64> {
  DEVICE u64 get(u64 v) { return v; }
};
template <>
struct FromCompute<u32> {
  DEVICE u32 get(i64 v) { return u32(v); }
};
template <>
struct FromCompute<u16> {
  DEVICE u16 get(i32 v) { return u16(v); }
};
template <>
struct FromCompute<i32> {
  DEVICE i32 get(i32 v) { return v; }
};
template <>
struct FromCompute<i16> {
  DEVICE i16 get(i32 v) { return i16(v); }
};
template <>
struct FromCompute<i8> {
  DEVICE i8 get(i32 v) { return i8(v); }
};
template <>
struct FromCompute<u8> {
  DEVICE u8 get(i32 v) { return u8(v); }
};
template <>
struct FromCompute<boolean> {
  DEVICE boolean get(bool v) { return boolean{u8(v)}; }
};
template <>
struct FromCompute<f16> {
  DEVICE f16 get(f32 v) { return f16{f16_bits(v)}; }
};
template <>
struct FromCompute<bf16> {
  DEVICE bf16 get(f32 v) { return bf16{bf16_bits(v)}; }
};
template <>
struct FromCompute<f8e4m3> {
  DEVICE f8e4m3 get(f32 v) { return f8e4m3{u8(encode_small_float<4, 3, true>(v))}; }
};
template <>
struct FromCompute<f8e5m2> {
  DEVICE f8e5m2 get(f32 v) { return f8e5m2{u8(encode_small_float<5, 2, false>(v))}; }
};
template <>
struct FromCompute<c64> {
  DEVICE c64 get(c64 v) { return v; }
};
template <>
struct FromCompute<c128> {
  DEVICE c128 get(c128 v) { return v; }
};
template <class T, class V>
DEVICE T from_compute(V v) {
  return FromCompute<T>::get(v);
}

// ---- the type that registers compute in
template <class T>
struct ComputeOf {
  typedef T type;
};
template <>
struct ComputeOf<i16> {
  typedef i32 type;
};
template <>
struct ComputeOf<u32> {
  typedef i64 type;
};
template <>
struct ComputeOf<u16> {
  typedef i32 type;
};
template <>
struct ComputeOf<i8> {
  typedef i32 type;
};
template <>
struct ComputeOf<u8> {
  typedef i32 type;
};
template <>
struct ComputeOf<boolean> {
  typedef bool type;
};
template <>
struct ComputeOf<f16> {
  typedef f32 type;
};
template <>
struct ComputeOf<bf16> {
  typedef f32 type;
};
template <>
struct ComputeOf<f8e4m3> {
  typedef f32 type;
};
template <>
struct ComputeOf<f8e5m2> {
  typedef f32 type;
};
template <class T>
using compute_of = typename ComputeOf<T>::type;

// ---- N elements moved at once (N * sizeof(T) a power of two up to 16 bytes)
template <class T, int N>
struct alignas(sizeof(T) * N) Vec {
  T v[N];
};

/// Number j of neighbouring elements as the compute type.
template <template <class, int> class Group, class T, int N>
DEVICE compute_of<T> element_of(const Group<T, N>& group, int j) {
  return to_compute(group.v[j]);
}
// The upper of two in a word is the word without the lower: one instruction where getting at its
// own 16 bits takes a second.
template <template <class, int> class Group, int N>
DEVICE f32 element_of(const Group<bf16, N>& group, int j) {
  if (N % 2 != 0) return to_compute(group.v[j]);
  u32 word;
  memcpy(&word, &group.v[j & ~1], 4);
  return __uint_as_float(j & 1 ? word & 0xffff0000u : word << 16);
}
