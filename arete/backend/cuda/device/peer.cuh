// Exchange between GPUs that reach each other's memory.
#pragma once
#include "pack.cuh"

struct PeerSumArgs {
  const void* parts[8];
  void* out;
  void* shared;  // null: none
  i64 n;
  f64 scale;
  i32 aligned;  // all to 16 bytes
};

template <class T, int R>
DEVICE T peer_sum(const T (&parts)[R], compute_of<T> scale) {
  compute_of<T> sum = to_compute(parts[0]) * scale;
#pragma unroll
  for (int r = 1; r < R; ++r) sum += to_compute(parts[r]) * scale;
  return from_compute<T>(sum);
}

// Of R parts, in their order.
template <class T, int R>
DEVICE void add_peers(const PeerSumArgs& a) {
  constexpr int N = 16 / int(sizeof(T));
  T* const out = static_cast<T*>(a.out);
  T* const shared = static_cast<T*>(a.shared);
  const compute_of<T> scale = compute_of<T>(a.scale);
  const i64 thread = i64(blockIdx.x) * blockDim.x + threadIdx.x,
            threads = i64(gridDim.x) * blockDim.x;
  i64 done = 0;
  if (a.aligned) {
    done = a.n / N * N;
    for (i64 at = thread * N; at < done; at += threads * N) {
      Pack<T, N> in[R], sums;
#pragma unroll
      for (int r = 0; r < R; ++r) in[r] = load_pack<T, N>(static_cast<const T*>(a.parts[r]) + at);
#pragma unroll
      for (int e = 0; e < N; ++e) {
        T parts[R];
#pragma unroll
        for (int r = 0; r < R; ++r) parts[r] = in[r].v[e];
        sums.v[e] = peer_sum<T, R>(parts, scale);
      }
      store_pack(out + at, sums);
      if (shared) store_pack(shared + at, sums);
    }
  }
  for (i64 i = done + thread; i < a.n; i += threads) {
    T parts[R];
#pragma unroll
    for (int r = 0; r < R; ++r) parts[r] = static_cast<const T*>(a.parts[r])[i];
    const T sum = peer_sum<T, R>(parts, scale);
    out[i] = sum;
    if (shared) shared[i] = sum;
  }
}

struct PeerMeetArgs {
  u32* flags[8];     // of every rank, as this one reaches them: one for each that comes
  u32* round;        // how often this rank has come, in its own memory
  const u32* ended;  // in host memory: nobody waits any more
  i32 rank, ranks;
};

#ifndef ARETE_EMULATED  // a test that runs kernels on the host has its own
DEVICE void store_release(u32* p, u32 v) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
DEVICE u32 load_acquire(const u32* p) {
  u32 v;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
#endif

// One warp, a thread for each rank: tells the others that this one has come, and waits for them.
// The number of the meeting is in memory, so that a graph that holds one can be replayed.
DEVICE void meet_peers(const PeerMeetArgs& a) {
  const i32 other = i32(threadIdx.x);
  const u32 round = *a.round + 1;
  __syncwarp();
  if (other == 0) *a.round = round;
  if (other >= a.ranks || other == a.rank) return;
  __threadfence_system();
  store_release(a.flags[other] + a.rank, round);
  const u32* const mine = a.flags[a.rank] + other;
  for (u32 looks = 1;; ++looks) {
    if (i32(load_acquire(mine) - round) >= 0) return;
    // Over the bus, so not often.
    if (looks % 256 == 0 && *reinterpret_cast<const volatile u32*>(a.ended)) return;
  }
}
