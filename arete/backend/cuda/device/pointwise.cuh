// What the generated elementwise kernels have in common: the walk over strided operands.
// codegen/pointwise.cpp writes the kernels.
#pragma once
#include "math.cuh"
#include "pack.cuh"

// A run-time parameter of a program.
union ParamSlot {
  f64 f;
  i64 i;
};

// ---- strided operands
// Byte offsets of K operands at a position of a space of R dimensions, the innermost first.
// Division is a multiplication: see fast_divisor() in codegen/pointwise.cpp.
template <int R, int K, class Space>
DEVICE void find_offsets(u32 position, const Space& space, i32 (&offsets)[K]) {
#pragma unroll
  for (int k = 0; k < K; ++k) offsets[k] = 0;
#pragma unroll
  for (int d = 0; d < R; ++d) {
    u32 index = position;
    if (d < R - 1) {
      position = (__umulhi(index, space.magic[d]) + index) >> space.shift[d];
      index -= position * space.size[d];
    }
#pragma unroll
    for (int k = 0; k < K; ++k) offsets[k] += i32(index) * space.stride[k][d];
  }
}
template <class T>
DEVICE T* at_offset(void* base, i32 offset) {
  return reinterpret_cast<T*>(static_cast<char*>(base) + offset);
}
