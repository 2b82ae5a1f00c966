// LU factors with partial pivoting of many matrices, for which the libraries have functions only
// where they are square: a block for each, in its memory, column by column.
#pragma once
#include "block.cuh"

struct LuArgs {
  u64 a;               // [matrix][column][row]
  i32 *pivots, *info;  // [matrix][step], [matrix]
  i64 rows, columns;
};

/// The first row from `first` on with the largest magnitude, which NaN has only if all are NaN.
/// For whole warps.
template <class T>
DEVICE i32 find_pivot(const T* column, i32 first, i32 rows, int lane) {
  T best = -1;
  i32 at = first;
  for (i32 i = first + lane; i < rows; i += 32) {
    const T value = column[i] < 0 ? -column[i] : column[i];
    if (value > best) {
      best = value;
      at = i;
    }
  }
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const T other = shuffle_xor(best, lanes);
    const i32 there = shuffle_xor(at, lanes);
    if (other > best || (other == best && there < at)) {
      best = other;
      at = there;
    }
  }
  return at;
}

/// Threads: a multiple of 32, of which each warp updates columns of its own.
template <class T>
DEVICE void lu(const LuArgs& args) {
  __shared__ i32 pivot;
  const int thread = int(threadIdx.x), lane = thread % 32, warp = thread / 32,
            warps = int(blockDim.x) / 32;
  const i32 m = i32(args.rows), n = i32(args.columns), steps = m < n ? m : n;
  T* const a = reinterpret_cast<T*>(args.a) + i64(blockIdx.x) * m * n;
  i32* const pivots = args.pivots + i64(blockIdx.x) * steps;
  i32 info = 0;  // of the first warp
  for (i32 j = 0; j < steps; ++j) {
    T* const column = a + i64(j) * m;
    if (warp == 0) {
      const i32 found = find_pivot(column, j, m, lane);
      if (lane == 0) {
        pivots[j] = found + 1;
        pivot = found;
        if (info == 0 && column[found] == 0) info = j + 1;
      }
    }
    __syncthreads();
    if (const i32 p = pivot; p != j) {
      for (i32 c = thread; c < n; c += int(blockDim.x)) {
        T* const other = a + i64(c) * m;
        const T x = other[j];
        other[j] = other[p];
        other[p] = x;
      }
      __syncthreads();
    }
    // What is below a pivot that is 0 is 0 itself.
    if (const T own = column[j]; own != 0) {
      for (i32 i = j + 1 + thread; i < m; i += int(blockDim.x)) column[i] /= own;
      __syncthreads();
      for (i32 c = j + 1 + warp; c < n; c += warps) {
        T* const other = a + i64(c) * m;
        const T factor = other[j];
        for (i32 i = j + 1 + lane; i < m; i += 32) other[i] -= column[i] * factor;
      }
    }
    __syncthreads();
  }
  if (thread == 0) args.info[blockIdx.x] = info;
}
