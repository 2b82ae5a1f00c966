// Reductions over the threads of a warp and of a block, in a fixed order. M is a monoid functor of
// monoid.cuh. Every thread of the warp or block must take part.
#pragma once
#include "dtype.cuh"

DEVICE f32 shuffle_xor(f32 v, int lanes) { return __shfl_xor_sync(~0u, v, lanes); }
DEVICE f64 shuffle_xor(f64 v, int lanes) { return __shfl_xor_sync(~0u, v, lanes); }
DEVICE i32 shuffle_xor(i32 v, int lanes) { return __shfl_xor_sync(~0u, v, lanes); }
DEVICE i64 shuffle_xor(i64 v, int lanes) { return __shfl_xor_sync(~0u, v, lanes); }
DEVICE u64 shuffle_xor(u64 v, int lanes) { return __shfl_xor_sync(~0u, v, lanes); }
DEVICE bool shuffle_xor(bool v, int lanes) { return __shfl_xor_sync(~0u, int(v), lanes) != 0; }

/// Combines groups of kWidth neighbouring lanes (a power of two); all lanes of a group get the
/// result, the same bits in each: the operations are commutative.
template <class M, int kWidth = 32, class T>
DEVICE T warp_reduce(T v) {
#pragma unroll
  for (int lanes = kWidth / 2; lanes > 0; lanes /= 2) v = M::combine(v, shuffle_xor(v, lanes));
  return v;
}

/// Combines all kThreads threads of a block (a multiple of 32) whose number within it is `thread`.
/// All threads get the result. `shared`: kThreads / 32 values, free for reuse on return.
template <class M, int kThreads, class T>
DEVICE T block_reduce(T v, T* shared, int thread) {
  v = warp_reduce<M>(v);
  if (kThreads == 32) return v;
  constexpr int kWarps = kThreads / 32;
  if (thread % 32 == 0) shared[thread / 32] = v;
  __syncthreads();
  T r = shared[0];
#pragma unroll
  for (int w = 1; w < kWarps; ++w) r = M::combine(r, shared[w]);
  __syncthreads();
  return r;
}
/// The same for any number of threads that is a multiple of 32.
template <class M, class T>
DEVICE T block_reduce(T v, T* shared, int thread, int threads) {
  v = warp_reduce<M>(v);
  if (threads == 32) return v;
  if (thread % 32 == 0) shared[thread / 32] = v;
  __syncthreads();
  T r = shared[0];
  for (int w = 1; w < threads / 32; ++w) r = M::combine(r, shared[w]);
  __syncthreads();
  return r;
}
