// The fixed part of fused kernels; the rest is generated (codegen/fused.cpp).
#pragma once
#include "async_copy.cuh"
#include "block.cuh"
#include "dtype.cuh"
#include "math.cuh"
#include "monoid.cuh"

union FusedParameter {
  f64 f;
  i64 i;
};

/// N neighbouring elements in registers.
template <class T, int N>
struct Elements {
  T v[N];
};

template <int kBytes>
struct Piece;
template <>
struct Piece<1> {
  typedef unsigned char type;
};
template <>
struct Piece<2> {
  typedef unsigned short type;
};
template <>
struct Piece<4> {
  typedef unsigned int type;
};
template <>
struct Piece<8> {
  typedef uint2 type;
};
template <>
struct Piece<16> {
  typedef uint4 type;
};

/// Elements from memory at an address aligned to their size or to 16 bytes. kWritten: the kernel
/// also writes this memory, so that the read-only path is not allowed.
template <class T, int N, bool kWritten>
DEVICE Elements<T, N> load_elements(const u8* p) {
  constexpr int kBytes = int(sizeof(T)) * N, kPiece = kBytes < 16 ? kBytes : 16;
  typedef typename Piece<kPiece>::type P;
  P pieces[kBytes / kPiece];
#pragma unroll
  for (int i = 0; i < kBytes / kPiece; ++i) {
    const P* q = reinterpret_cast<const P*>(p) + i;
    pieces[i] = kWritten ? *q : __ldg(q);
  }
  Elements<T, N> e;
  memcpy(&e, pieces, kBytes);
  return e;
}
/// What is read at computed places. A load that nothing can write to may move before a store.
template <class T, bool kWritten>
struct Table {
  const u8* data;
  __device__ __forceinline__ T operator[](i64 i) const {
    return load_elements<T, 1, kWritten>(data + i * i64(sizeof(T))).v[0];
  }
};
template <class T, int N>
DEVICE void store_elements(u8* p, const Elements<T, N>& e) {
  constexpr int kBytes = int(sizeof(T)) * N, kPiece = kBytes < 16 ? kBytes : 16;
  typedef typename Piece<kPiece>::type P;
  P pieces[kBytes / kPiece];
  memcpy(pieces, &e, kBytes);
#pragma unroll
  for (int i = 0; i < kBytes / kPiece; ++i) reinterpret_cast<P*>(p)[i] = pieces[i];
}

/// N neighbours from number `first` on of the `count` elements at p, one by one; beyond the ends
/// those at the ends.
template <class T, int N, bool kWritten, class Index>
DEVICE Elements<T, N> load_within(const u8* p, Index first, Index count) {
  Elements<T, N> e;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const Index last = count - 1, at = first + j < last ? first + j : last;
    e.v[j] = load_elements<T, 1, kWritten>(p + i64(at < 0 ? 0 : at) * i64(sizeof(T))).v[0];
  }
  return e;
}
/// Bit j: number first + j is in [0, count).
template <int N, class Index>
DEVICE u32 bits_within(Index first, Index count) {
  const u32 all = (1u << N) - 1;
  const Index left = count - first, before = first < 0 ? -first : 0;
  const u32 up_to = left >= N ? all : left > 0 ? (1u << left) - 1 : 0;
  return before < N ? up_to & all << before : 0;
}
/// One of two values that are there both.
template <class T>
DEVICE T chosen(bool first, T a, T b) {
  return first ? a : b;
}
/// Stores those of N neighbours whose bit is set.
template <class T, int N>
DEVICE void store_within(u8* p, const Elements<T, N>& e, u32 inside) {
  if (inside == (1u << N) - 1) return store_elements(p, e);
#pragma unroll
  for (int j = 0; j < N; ++j)
    if (inside >> j & 1) store_elements(p + j * i64(sizeof(T)), Elements<T, 1>{{e.v[j]}});
}

/// Elements from global to shared memory while the thread goes on; sizeof(T) * N is at least 4.
template <class T, int N>
DEVICE void copy_async(u8* shared, const u8* p) {
  constexpr int kBytes = int(sizeof(T)) * N, kPiece = kBytes < 16 ? kBytes : 16;
#pragma unroll
  for (int at = 0; at < kBytes; at += kPiece) copy_async<kPiece>(shared + at, p + at);
}

/// Combines N accumulators as a tree.
template <class M, int N, class T>
DEVICE T fold(const T (&v)[N]) {
  T r[N];
#pragma unroll
  for (int i = 0; i < N; ++i) r[i] = v[i];
#pragma unroll
  for (int n = N / 2; n > 0; n /= 2) {
#pragma unroll
    for (int i = 0; i < n; ++i) r[i] = M::combine(r[i], r[i + n]);
  }
  return r[0];
}

/// A row's threads are the block's: each warp leaves its part in `shared`, and after a barrier
/// every thread combines the parts. kWarps is a power of two.
template <class M, class T>
DEVICE void leave_partial(T v, T* shared, int thread) {
  v = warp_reduce<M>(v);
  if (thread % 32 == 0) shared[thread / 32] = v;
}
template <class M, int kWarps, class T>
DEVICE T total_of_partials(const T* shared, int thread) {
  return warp_reduce<M, kWarps>(shared[thread % kWarps]);
}

/// kLanes neighbouring rows, each with kThreads (a power of two) threads that are kLanes apart.
/// `shared`: one value a thread.
template <class M, int kLanes, int kThreads, class T>
DEVICE T column_reduce(T v, T* shared, int lane, int thread) {
  if (kThreads == 1) return v;
  __syncthreads();  // the last result has been read
  T* own = shared + thread * kLanes + lane;
  *own = v;
#pragma unroll
  for (int step = kThreads / 2; step > 0; step /= 2) {
    __syncthreads();
    if (thread < step) *own = M::combine(*own, own[step * kLanes]);
  }
  __syncthreads();
  return shared[lane];
}

/// Of 32 columns the results of all blocks (rows of `partials`), combined and stored: a block of
/// 32 x 32 threads, of which those with one lane share a column.
template <class M, class T, class Out>
DEVICE void total_of_blocks(const u8* partials, i64 blocks, i64 columns, u8* out) {
  __shared__ u64 shared[1024];
  const int lane = int(threadIdx.x) % 32, part = int(threadIdx.x) / 32;
  const i64 column = i64(blockIdx.x) * 32 + lane;
  const T* from = reinterpret_cast<const T*>(partials) + (column < columns ? column : 0);
  T total = combine_loads<M, 16>(M::identity(), part, blocks, 32,
                                 [&](i64 b) { return from[b * columns]; });
  total = column_reduce<M, 32, 32>(total, reinterpret_cast<T*>(shared), lane, part);
  if (part == 0 && column < columns) reinterpret_cast<Out*>(out)[column] = from_compute<Out>(total);
}

// The exponential where every tensor has 16-bit elements: its error, at most 1e-5 where the result
// is not denormal, is small beside their rounding.
DEVICE f32 short_exp(f32 v) {
  f32 r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v * 1.4426950408889634f));
  return r;
}
DEVICE f64 short_exp(f64 v) { return exp(v); }
