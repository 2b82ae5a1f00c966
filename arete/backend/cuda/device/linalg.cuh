// What the libraries of dense linear algebra lack for batches of matrices. They are column-major;
// one block, or several, work on one of them.
#pragma once
#include "dtype.cuh"

// ---- LU factors of a panel

struct LuPanelArgs {
  void* a;           // the panel of the first matrix
  i64 stride;        // elements from one matrix to the next
  i32* pivots;       // of the panel
  i64 pivot_stride;  // from one matrix to the next
  i32* info;         // one for each matrix
  i32 ld, rows, columns;
  i32 first;      // columns left of the panel, and as many rows above it
  i32 in_shared;  // whether shared memory has room for the panel
};

DEVICE f32 magnitude(f32 x) { return fabsf(x); }
DEVICE f64 magnitude(f64 x) { return fabs(x); }

/// The place of the largest magnitude among column[begin, end): the first one of equal ones, as
/// LAPACK finds it. All lanes of a warp get it.
template <class T>
DEVICE int place_of_largest(const T* column, int begin, int end, int lane) {
  int place = begin;
  T best = magnitude(column[begin]);
  for (int i = begin + lane; i < end; i += 32) {
    const T x = magnitude(column[i]);
    if (x > best) {
      best = x;
      place = i;
    }
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const T other = __shfl_xor_sync(~0u, best, lanes);
    const int at = __shfl_xor_sync(~0u, place, lanes);
    if (other > best || (other == best && at < place)) {
      best = other;
      place = at;
    }
  }
  return __shfl_sync(~0u, place, 0);
}

/// One block for each matrix, with any number of warps. Exchanges rows within the panel only.
template <class T>
DEVICE void lu_panel(const LuPanelArgs& a) {
  extern __shared__ __align__(16) unsigned char shared[];
  const int thread = threadIdx.x, threads = blockDim.x, lane = thread % 32, warp = thread / 32,
            warps = threads / 32, m = a.rows, n = a.columns;
  const i64 matrix = blockIdx.x;
  T* const global = static_cast<T*>(a.a) + matrix * a.stride;
  T* const p = a.in_shared ? reinterpret_cast<T*>(shared) : global;
  const i64 ld = a.in_shared ? m : a.ld;
  if (a.in_shared) {
    for (int c = warp; c < n; c += warps)
      for (int i = lane; i < m; i += 32) p[c * ld + i] = global[i64(c) * a.ld + i];
    __syncthreads();
  }
  int zero = 0;  // where the first pivot is 0, from 1
  for (int j = 0; j < n && j < m; ++j) {
    T* const column = p + j * ld;
    // Every warp looks for itself.
    const int place = place_of_largest(column, j, m, lane);
    const T pivot = column[place], top = column[j];
    if (pivot == T(0) && zero == 0) zero = a.first + j + 1;
    if (thread == 0) a.pivots[matrix * a.pivot_stride + j] = a.first + place + 1;
    __syncthreads();
    if (place != j)
      for (int c = thread; c < n; c += threads) {
        if (c == j) continue;
        const T x = p[c * ld + j];
        p[c * ld + j] = p[c * ld + place];
        p[c * ld + place] = x;
      }
    for (int i = j + thread; i < m; i += threads) {
      const T x = i == place ? top : column[i];
      column[i] = i == j ? pivot : pivot == T(0) ? x : x / pivot;
    }
    __syncthreads();
    for (int c = j + 1 + warp; c < n; c += warps) {
      const T factor = p[c * ld + j];
      for (int i = j + 1 + lane; i < m; i += 32) p[c * ld + i] -= column[i] * factor;
    }
    __syncthreads();
  }
  if (a.in_shared)
    for (int c = warp; c < n; c += warps)
      for (int i = lane; i < m; i += 32) global[i64(c) * a.ld + i] = p[c * ld + i];
  if (thread == 0 && (a.first == 0 || (zero != 0 && a.info[matrix] == 0))) a.info[matrix] = zero;
}

// ---- exchanges of rows

struct ExchangeArgs {
  void* a;  // row 0 is the first one that may move
  i64 stride;
  const i32* pivots;
  i64 pivot_stride;
  i32 ld, rows, columns;
  i32 count;     // of exchanges: of row i with row pivots[i] - 1 - first
  i32 first;     // rows above row 0
  i32 backward;  // the last exchange first
  i32 blocks;    // for each matrix
};

/// Shared memory: the order, the exchanges, and a column for each warp.
template <class T>
DEVICE void exchange_rows(const ExchangeArgs& a) {
  extern __shared__ __align__(16) unsigned char shared[];
  const int thread = threadIdx.x, threads = blockDim.x, lane = thread % 32, warp = thread / 32,
            warps = threads / 32, m = a.rows;
  const i64 matrix = blockIdx.x / a.blocks;
  T* const kept = reinterpret_cast<T*>(shared) + warp * m;
  i32* const order = reinterpret_cast<i32*>(reinterpret_cast<T*>(shared) + warps * m);
  i32* const places = order + m;
  for (int i = thread; i < m; i += threads) order[i] = i;
  for (int i = thread; i < a.count; i += threads)
    places[i] = a.pivots[matrix * a.pivot_stride + i] - 1 - a.first;
  __syncthreads();
  if (thread == 0) {
    for (int s = 0; s < a.count; ++s) {
      const int i = a.backward ? a.count - 1 - s : s, j = places[i];
      if (j < 0 || j >= m) continue;  // of a matrix with numbers that are not finite
      const i32 x = order[i];
      order[i] = order[j];
      order[j] = x;
    }
  }
  __syncthreads();
  T* const first = static_cast<T*>(a.a) + matrix * a.stride;
  const int step = a.blocks * warps;
  for (int c = (blockIdx.x % a.blocks) * warps + warp; c < a.columns; c += step) {
    T* const column = first + i64(c) * a.ld;
    for (int i = lane; i < m; i += 32) kept[i] = column[i];
    __syncwarp();
    for (int i = lane; i < m; i += 32)
      if (order[i] != i) column[i] = kept[order[i]];
    __syncwarp();
  }
}

// ---- products with Q of a QR factorization

struct ReflectArgs {
  void* out;
  const void *in, *reflectors, *tau;
  i64 out_stride, in_stride, reflector_stride, tau_stride;
  i32 rows, columns;        // of out
  i32 in_rows, in_columns;  // what lies beyond them is a part of the identity
  i32 out_ld, in_ld, reflector_ld;
  i32 count;      // of reflectors
  i32 transpose;  // Q^T, not Q
  i32 blocks;     // for each matrix
};

/// out = Q in: a warp for each column, which lies in shared memory.
template <class T>
DEVICE void reflect(const ReflectArgs& a) {
  extern __shared__ __align__(16) unsigned char shared[];
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, warps = blockDim.x / 32,
            m = a.rows;
  const i64 matrix = blockIdx.x / a.blocks;
  const T* const v = static_cast<const T*>(a.reflectors) + matrix * a.reflector_stride;
  const T* const tau = static_cast<const T*>(a.tau) + matrix * a.tau_stride;
  const T* const in = static_cast<const T*>(a.in) + matrix * a.in_stride;
  T* const out = static_cast<T*>(a.out) + matrix * a.out_stride;
  T* const x = reinterpret_cast<T*>(shared) + warp * m;
  const int step = a.blocks * warps;
  for (int c = (blockIdx.x % a.blocks) * warps + warp; c < a.columns; c += step) {
    // Each lane reads and writes its own elements of x only.
    const bool given = c < a.in_columns;
    for (int i = lane; i < m; i += 32)
      x[i] = !given ? T(i == c) : i < a.in_rows ? in[i64(c) * a.in_ld + i] : T(0);
    // Reflectors after c leave column c of the identity as it is.
    const int count = given || a.transpose ? a.count : min(a.count, c + 1);
    for (int s = 0; s < count; ++s) {
      const int r = a.transpose ? s : count - 1 - s;
      const T* const reflector = v + i64(r) * a.reflector_ld;
      T sum = 0;
      for (int i = lane; i < m; i += 32)
        if (i >= r) sum += (i == r ? T(1) : reflector[i]) * x[i];
      for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
      sum *= tau[r];
      for (int i = lane; i < m; i += 32)
        if (i >= r) x[i] -= (i == r ? T(1) : reflector[i]) * sum;
    }
    for (int i = lane; i < m; i += 32) out[i64(c) * a.out_ld + i] = x[i];
  }
}
