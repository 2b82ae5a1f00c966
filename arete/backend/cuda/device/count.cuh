// How many elements have which place, where a program computes the places: the part that
// codegen/pointwise.cpp writes no text for. A block counts in shared memory.
#pragma once
#include "index.cuh"
#include "pointwise.cuh"

constexpr int kCountSlots = 8192;

/// Where counts go, each multiplied by one number. Mirrors codegen/pointwise.h.
struct CountTarget {
  u64 out, factor;  // addresses of i64, or i32 unless is_wide
  i64 size, step;   // places, and the bytes between them
  i64 is_wide;
};

struct PlaceCounter {
  u32* const counts;
  const CountTarget& target;
  const int size, log_copies;
  const u32 own;  // address of this thread's copy of the first count, in shared memory

  __device__ __forceinline__ PlaceCounter(const CountTarget& t, u32* shared)
      : counts(shared),
        target(t),
        size(int(t.size)),
        log_copies(log_of_copies(kCountSlots, size)),
        own(u32(__cvta_generic_to_shared(shared)) + 4 * u32(own_copy(0, log_copies))) {
    for (int k = int(threadIdx.x); k < size << log_copies; k += int(blockDim.x)) counts[k] = 0;
    __syncthreads();
  }
  // Programs give places in range; if one does not, nothing is written elsewhere.
  __device__ __forceinline__ void add(i64 place) const {
    const u32 k = min(u32(place), u32(size - 1));
    asm volatile("red.shared.add.u32 [%0], 1;" ::"r"(own + (k << (log_copies + 2))) : "memory");
  }
  __device__ __forceinline__ void finish() const {
    __syncthreads();
    for (int k = int(threadIdx.x); k < size; k += int(blockDim.x)) {
      u64 sum = 0;
      // Neighbours begin with neighbouring copies, which lie in different banks.
      for (int c = 0; c < 1 << log_copies; ++c)
        sum += counts[(k << log_copies) + ((c + k) & ((1 << log_copies) - 1))];
      if (sum == 0) continue;
      const i64 to = k * target.step;
      if (target.is_wide)
        atomicAdd(at_byte<u64>(target.out, to), sum * *at_byte<const u64>(target.factor, 0));
      else
        atomicAdd(at_byte<u32>(target.out, to), u32(sum) * *at_byte<const u32>(target.factor, 0));
    }
  }
};
