// What the generated elementwise kernels have in common: vectors in memory and the walk over
// strided operands. codegen/pointwise.cpp writes the kernels.
#pragma once
#include "math.cuh"

// A run-time parameter of a program.
union ParamSlot {
  f64 f;
  i64 i;
};

// ---- N elements in memory, moved by words of at most 16 bytes
template <int kBytes>
struct WordOf {
  typedef uint4 type;
};
template <>
struct WordOf<1> {
  typedef u8 type;
};
template <>
struct WordOf<2> {
  typedef u16 type;
};
template <>
struct WordOf<4> {
  typedef u32 type;
};
template <>
struct WordOf<8> {
  typedef uint2 type;
};

template <class T, int N>
union Pack {
  static const int kBytes = int(sizeof(T)) * N, kWords = kBytes > 16 ? kBytes / 16 : 1;
  typedef typename WordOf<kBytes>::type Word;
  T v[N];
  Word words[kWords];
};
// `p` is aligned to the vector's size or to 16 bytes.
template <class T, int N>
DEVICE Pack<T, N> load_pack(const T* p) {
  Pack<T, N> r;
#pragma unroll
  for (int w = 0; w < Pack<T, N>::kWords; ++w)
    r.words[w] = reinterpret_cast<const typename Pack<T, N>::Word*>(p)[w];
  return r;
}
template <class T, int N>
DEVICE void store_pack(T* p, const Pack<T, N>& value) {
#pragma unroll
  for (int w = 0; w < Pack<T, N>::kWords; ++w)
    reinterpret_cast<typename Pack<T, N>::Word*>(p)[w] = value.words[w];
}

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
