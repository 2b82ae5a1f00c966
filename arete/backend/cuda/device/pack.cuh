// N elements in memory, moved by words of at most 16 bytes.
#pragma once
#include "dtype.cuh"

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
