// dropout: in * scale where the number of the element's position is kept, else 0. Nothing but the
// input is read: the mask is made anew from the random numbers wherever it is needed.
#pragma once
#include "random.cuh"

// Mirrors the struct in dropout.cpp.
struct DropoutArgs {
  const void* in;
  void* out;
  u64 numel, block;  // elements; number of the first block
  u64 kept;          // lanes below this are kept
  u32 keys[20];
  f64 scale;
  const u64* state;  // read by kernels with kMoved only
};

// Each thread makes kGroup elements, a multiple of the 4 of a block, at a time.
template <class T, int kGroup, bool kVectors, bool kMoved>
DEVICE void dropout_elements(const DropoutArgs& a) {
  typedef compute_of<T> C;
  constexpr int kWidth = kGroup * sizeof(T) <= 16 ? kGroup : 16 / sizeof(T);
  typedef Vec<T, kWidth> V;
  const C scale = C(a.scale);
  const BlockStream<kMoved> random(a.block, a.keys, a.state);
  const T* in = static_cast<const T*>(a.in);
  T* out = static_cast<T*>(a.out);
  const u64 stride = u64(gridDim.x) * blockDim.x;
  for (u64 g = u64(blockIdx.x) * blockDim.x + threadIdx.x; g * kGroup < a.numel; g += stride) {
    const u64 begin = g * kGroup;
    const bool whole = kVectors && begin + kGroup <= a.numel;
    alignas(16) T x[kGroup];
    alignas(16) T y[kGroup];
    if (whole) {
#pragma unroll
      for (int k = 0; k < kGroup / kWidth; ++k)
        *reinterpret_cast<V*>(x + k * kWidth) =
            *reinterpret_cast<const V*>(in + begin + k * kWidth);
    } else {
#pragma unroll
      for (int e = 0; e < kGroup; ++e) x[e] = begin + e < a.numel ? in[begin + e] : T();
    }
#pragma unroll
    for (int b = 0; b < kGroup / 4; ++b) {
      const Lanes lanes = random.block(g * (kGroup / 4) + b);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const C v = to_compute(x[4 * b + e]) * scale;
        y[4 * b + e] = from_compute<T>(lanes.v[e] < a.kept ? v : C(0));
      }
    }
    if (whole) {
#pragma unroll
      for (int k = 0; k < kGroup / kWidth; ++k)
        *reinterpret_cast<V*>(out + begin + k * kWidth) = *reinterpret_cast<V*>(y + k * kWidth);
    } else {
#pragma unroll
      for (int e = 0; e < kGroup; ++e)
        if (begin + e < a.numel) out[begin + e] = y[e];
    }
  }
}
