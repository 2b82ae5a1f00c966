// Arithmetic progressions.
#pragma once
#include "pointwise.cuh"

struct IotaArgs {
  void* out;
  i64 stride, n;
  f64 start, step;
  i64 istart, istep;
};

// The element at a position; integers wrap, floats are computed in f64.
template <class C>
struct IotaValue {  // of compute type C
  DEVICE C get(const IotaArgs& a, i64 i) {
    return op_cast<C>(op_add(a.istart, op_mul(i, a.istep)));
  }
};
DEVICE f64 iota_f64(const IotaArgs& a, i64 i) {
  return __dadd_rn(a.start, __dmul_rn(f64(i), a.step));
}
template <>
struct IotaValue<f32> {
  DEVICE f32 get(const IotaArgs& a, i64 i) { return f32(iota_f64(a, i)); }
};
template <>
struct IotaValue<f64> {
  DEVICE f64 get(const IotaArgs& a, i64 i) { return iota_f64(a, i); }
};
template <>
struct IotaValue<c64> {
  DEVICE c64 get(const IotaArgs& a, i64 i) { return c64{f32(iota_f64(a, i)), 0}; }
};
template <>
struct IotaValue<c128> {
  DEVICE c128 get(const IotaArgs& a, i64 i) { return c128{iota_f64(a, i), 0}; }
};

template <class T>
DEVICE T iota_element(const IotaArgs& a, i64 i) {
  return from_compute<T>(IotaValue<compute_of<T>>::get(a, i));
}

template <class T>
DEVICE void iota_elements(const IotaArgs& a) {
  constexpr int N = 16 / int(sizeof(T));
  T* const out = static_cast<T*>(a.out);
  const i64 thread = i64(blockIdx.x) * blockDim.x + threadIdx.x,
            threads = i64(gridDim.x) * blockDim.x;
  i64 done = 0;
  if (a.stride == 1 && reinterpret_cast<u64>(out) % 16 == 0) {
    done = a.n / N * N;
    for (i64 at = thread * N; at < done; at += threads * N) {
      Pack<T, N> values;
#pragma unroll
      for (int e = 0; e < N; ++e) values.v[e] = iota_element<T>(a, at + e);
      store_pack(out + at, values);
    }
  }
  for (i64 i = done + thread; i < a.n; i += threads) out[i * a.stride] = iota_element<T>(a, i);
}
