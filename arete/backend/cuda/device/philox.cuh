// The generator of random numbers: the same bits as arete/prim/philox.h.
#pragma once
#include "dtype.cuh"

struct Lanes {
  u32 v[4];
};

// Block number high:low of a stream. `keys`: the two words of the seed for each of the ten rounds.
// They come as arguments of the kernel, where instructions read them for nothing.
DEVICE Lanes philox(u32 low, u32 high, const u32* keys) {
  u32 c0 = low, c1 = high, c2 = 0, c3 = 0;
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const u64 p0 = u64(0xD2511F53u) * c0, p1 = u64(0xCD9E8D57u) * c2;
    c0 = u32(p1 >> 32) ^ c1 ^ keys[2 * round];
    c1 = u32(p1);
    c2 = u32(p0 >> 32) ^ c3 ^ keys[2 * round + 1];
    c3 = u32(p0);
  }
  return {{c0, c1, c2, c3}};
}
DEVICE u64 lane_pair(u32 low, u32 high) { return u64(high) << 32 | low; }

// The same where a state in memory moves seed and counter.
struct MovedStream {
  u64 first;
  u32 keys[20];
  __device__ __forceinline__ MovedStream(u64 block, const u32* seed, const u64* state)
      : first(block + state[1]) {
    keys[0] = seed[0] ^ u32(state[0]);
    keys[1] = seed[1] ^ u32(state[0] >> 32);
#pragma unroll
    for (int k = 2; k < 20; k += 2) {
      keys[k] = keys[k - 2] + 0x9E3779B9u;
      keys[k + 1] = keys[k - 1] + 0xBB67AE85u;
    }
  }
  __device__ __forceinline__ Lanes block(u64 number) const {
    const u64 at = first + number;
    return philox(u32(at), u32(at >> 32), keys);
  }
};

/// Blocks of a stream from number `first` on; kMoved: moved by a state in memory.
template <bool kMoved>
struct BlockStream {
  u64 first;
  const u32* keys;
  __device__ __forceinline__ BlockStream(u64 block, const u32* seed, const u64*)
      : first(block), keys(seed) {}
  __device__ __forceinline__ Lanes block(u64 number) const {
    const u64 at = first + number;
    return philox(u32(at), u32(at >> 32), keys);
  }
};
template <>
struct BlockStream<true> : MovedStream {
  using MovedStream::MovedStream;
};
