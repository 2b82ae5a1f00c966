// The monoids of reductions and scans, as functors over values in registers:
//   Sum<T> Prod<T> Min<T> Max<T> All<bool> Any<bool>, each with identity() and combine(a, b).
// Integers wrap; min and max give NaN if either operand is NaN.
#pragma once
#include "dtype.cuh"

template <class T>
struct Limits;
template <>
struct Limits<bool> {
  DEVICE bool lowest() { return false; }
  DEVICE bool highest() { return true; }
};
template <>
struct Limits<i32> {
  DEVICE i32 lowest() { return i32(0x80000000u); }
  DEVICE i32 highest() { return 0x7fffffff; }
};
template <>
struct Limits<i64> {
  DEVICE i64 lowest() { return i64(0x8000000000000000ull); }
  DEVICE i64 highest() { return 0x7fffffffffffffffll; }
};
template <>
struct Limits<u64> {
  DEVICE u64 lowest() { return 0; }
  DEVICE u64 highest() { return 0xffffffffffffffffull; }
};
template <>
struct Limits<f32> {
  DEVICE f32 lowest() { return __uint_as_float(0xff800000u); }
  DEVICE f32 highest() { return __uint_as_float(0x7f800000u); }
};
template <>
struct Limits<f64> {
  DEVICE f64 lowest() { return __longlong_as_double(i64(0xfff0000000000000ull)); }
  DEVICE f64 highest() { return __longlong_as_double(0x7ff0000000000000ll); }
};

DEVICE f32 wrapping_add(f32 a, f32 b) { return a + b; }
DEVICE f64 wrapping_add(f64 a, f64 b) { return a + b; }
DEVICE i32 wrapping_add(i32 a, i32 b) { return i32(u32(a) + u32(b)); }
DEVICE i64 wrapping_add(i64 a, i64 b) { return i64(u64(a) + u64(b)); }
DEVICE u64 wrapping_add(u64 a, u64 b) { return a + b; }
DEVICE bool wrapping_add(bool a, bool b) { return a | b; }
DEVICE f32 wrapping_mul(f32 a, f32 b) { return a * b; }
DEVICE f64 wrapping_mul(f64 a, f64 b) { return a * b; }
DEVICE i32 wrapping_mul(i32 a, i32 b) { return i32(u32(a) * u32(b)); }
DEVICE i64 wrapping_mul(i64 a, i64 b) { return i64(u64(a) * u64(b)); }
DEVICE u64 wrapping_mul(u64 a, u64 b) { return a * b; }
DEVICE bool wrapping_mul(bool a, bool b) { return a & b; }

template <class T>
DEVICE T nan_min(T a, T b) {
  return a < b ? a : b;
}
template <class T>
DEVICE T nan_max(T a, T b) {
  return a > b ? a : b;
}
DEVICE f64 nan_min(f64 a, f64 b) { return a < b || a != a ? a : b; }
DEVICE f64 nan_max(f64 a, f64 b) { return a > b || a != a ? a : b; }
DEVICE f32 nan_min(f32 a, f32 b) {
#if __CUDA_ARCH__ >= 800
  f32 r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  return a < b || a != a ? a : b;
#endif
}
DEVICE f32 nan_max(f32 a, f32 b) {
#if __CUDA_ARCH__ >= 800
  f32 r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  return a > b || a != a ? a : b;
#endif
}

DEVICE f32 rounded_product(f32 a, f32 b) { return __fmul_rn(a, b); }
DEVICE f64 rounded_product(f64 a, f64 b) { return __dmul_rn(a, b); }
DEVICE f32 add_product(f32 sum, f32 a, f32 b) { return __fmaf_rn(a, b, sum); }
DEVICE f64 add_product(f64 sum, f64 a, f64 b) { return __fma_rn(a, b, sum); }
/// The product of two floats, which a sum takes without a rounding.
template <class T>
struct Product {
  T a, b;
  __device__ __forceinline__ operator T() const { return rounded_product(a, b); }
};

template <class T>
struct Sum {
  typedef T type;
  DEVICE T identity() { return T(0); }
  DEVICE T combine(T a, T b) { return wrapping_add(a, b); }
  DEVICE T combine(T a, Product<T> b) { return add_product(a, b.a, b.b); }
};
template <class T>
struct Prod {
  typedef T type;
  DEVICE T identity() { return T(1); }
  DEVICE T combine(T a, T b) { return wrapping_mul(a, b); }
};
template <class T>
struct Min {
  typedef T type;
  DEVICE T identity() { return Limits<T>::highest(); }
  DEVICE T combine(T a, T b) { return nan_min(a, b); }
};
template <class T>
struct Max {
  typedef T type;
  DEVICE T identity() { return Limits<T>::lowest(); }
  DEVICE T combine(T a, T b) { return nan_max(a, b); }
};
template <class T>
struct All {
  typedef T type;
  DEVICE T identity() { return T(1); }
  DEVICE T combine(T a, T b) { return a & b; }
};
template <class T>
struct Any {
  typedef T type;
  DEVICE T identity() { return T(0); }
  DEVICE T combine(T a, T b) { return a | b; }
};

/// `total` combined with load(first), load(first + step) and so on, before `end`, in this order.
/// kAtOnce loads are under way together: one after the other each would wait for the memory.
template <class M, int kAtOnce, class T, class Load>
DEVICE T combine_loads(T total, i64 first, i64 end, i64 step, Load load) {
  for (; first < end; first += kAtOnce * step) {
    T v[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      v[i] = first + i * step < end ? load(first + i * step) : M::identity();
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) total = M::combine(total, v[i]);
  }
  return total;
}
