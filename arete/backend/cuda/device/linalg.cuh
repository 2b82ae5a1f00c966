// What the libraries of dense linear algebra lack for batches of matrices. They are column-major;
// one block, or several, work on one of them.
#pragma once
#include "block.cuh"
#include "monoid.cuh"

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

/// x -= tau v (v^T x), where v has zeros above row `first`, 1 there and scale * reflector below.
/// Each lane of a warp reads and writes its own elements of x only.
template <class T>
DEVICE void apply_reflector(T* x, const T* reflector, T tau, T scale, int first, int m, int lane) {
  const int begin = first / 32 * 32 + lane;
  T sum = 0;
  for (int i = begin; i < m; i += 32)
    if (i >= first) sum += (i == first ? T(1) : scale * reflector[i]) * x[i];
  sum = tau * warp_reduce<Sum<T>>(sum);
  for (int i = begin; i < m; i += 32)
    if (i >= first) x[i] -= (i == first ? T(1) : scale * reflector[i]) * sum;
}

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
      apply_reflector(x, v + i64(r) * a.reflector_ld, tau[r], T(1), r, m, lane);
    }
    for (int i = lane; i < m; i += 32) out[i64(c) * a.out_ld + i] = x[i];
  }
}

// ---- singular values

struct SvdArgs {
  const void* a;
  void *values, *left, *right;  // left and right are null where they are not wanted
  void* memory;                 // for matrices that shared memory has no room for, else null
  i32* info;
  i32 rows, columns;  // of B, which is A, or its transpose if that has more rows
  i32 transposed;
  i32 left_columns;  // as many as B has, or a whole basis
};

DEVICE f32 rounding(f32) { return 1.1920929e-7f; }
DEVICE f64 rounding(f64) { return 2.220446049250313e-16; }

// Note [Singular values by rotations]
// One-sided Jacobi (Hestenes): rotations of two columns of B at a time, until all are orthogonal.
// They make B V = U S, so V is their product, and S are the lengths of the columns. Nothing is
// squared but within one dot product, so tall matrices lose no digits. As many pairs as there are
// halves of the columns are rotated at a time, in the rounds of a tournament. Rounding makes
// columns of matrices that lack rank noise; those shorter than the square of a rounding error are
// zero. U is the Q of B V with its columns in order: its R is diagonal but for rounding and signs,
// and Q is a whole basis also where columns are zero.

/// Makes two columns orthogonal, if they are not so already, and the two of V with them.
template <class T>
DEVICE bool rotate(T* x, T* y, int m, T* vx, T* vy, int n, T tolerance, T zero, int lane) {
  T xx = 0, yy = 0, xy = 0;
  for (int i = lane; i < m; i += 32) {
    xx += x[i] * x[i];
    yy += y[i] * y[i];
    xy += x[i] * y[i];
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    xx += shuffle_xor(xx, lanes);
    yy += shuffle_xor(yy, lanes);
    xy += shuffle_xor(xy, lanes);
  }
  if (xx <= zero || yy <= zero || magnitude(xy) <= tolerance * sqrt(xx) * sqrt(yy)) return false;
  const T cotangent = (yy - xx) / (2 * xy), size = magnitude(cotangent);  // of twice the angle
  const T root = size > 1 / rounding(T(0)) ? size : sqrt(1 + size * size);
  const T tangent = copysign(1 / (size + root), cotangent);
  const T cosine = 1 / sqrt(1 + tangent * tangent), sine = cosine * tangent;
  const T half = sine / (1 + cosine);  // differences from x and y round less than new sums
  const auto turn = [&](T* a, T* b, int size) {
    for (int i = lane; i < size; i += 32) {
      const T u = a[i], v = b[i];
      a[i] = u - sine * (v + half * u);
      b[i] = v + sine * (u - half * v);
    }
  };
  turn(x, y, m);
  if (vx) turn(vx, vy, n);
  return true;
}

/// One block for each matrix, with any number of warps. Shared memory: 32 + 3 columns elements,
/// with vectors a column for each warp, without `memory` B and, with vectors, V; columns integers.
template <class T>
DEVICE void svd(const SvdArgs& a) {
  constexpr int kMostSweeps = 60;  // several times what matrices are known to need
  extern __shared__ __align__(16) unsigned char shared[];
  const int thread = threadIdx.x, threads = blockDim.x, lane = thread % 32, warp = thread / 32,
            warps = threads / 32, m = a.rows, n = a.columns;
  const bool vectors = a.left;
  const int elements = m * n, rotations = vectors ? n * n : 0;
  const i64 matrix = blockIdx.x;
  T* const partial = reinterpret_cast<T*>(shared);
  T *const lengths = partial + 32, *const taus = lengths + n, *const scales = taus + n;
  T *const columns = scales + n, *const room = columns + (vectors ? warps * m : 0);
  T* const b = a.memory ? static_cast<T*>(a.memory) + matrix * (elements + rotations) : room;
  T* const v = b + elements;
  i32* const order = reinterpret_cast<i32*>(a.memory ? room : v + rotations);
  const T* const in = static_cast<const T*>(a.a) + matrix * elements;
  T* const values = static_cast<T*>(a.values) + matrix * n;
  const i64 left_size = i64(m) * a.left_columns;
  T* const left = vectors ? static_cast<T*>(a.left) + matrix * left_size : nullptr;
  T* const right = vectors ? static_cast<T*>(a.right) + matrix * rotations : nullptr;

  T largest = 0;
  for (int i = thread; i < elements; i += threads)
    largest = Max<T>::combine(largest, magnitude(in[i]));
  largest = block_reduce<Max<T>>(largest, partial, thread, threads);
  if (!(largest - largest == T(0))) {  // not finite
    const T none = largest - largest;
    for (int i = thread; i < n; i += threads) values[i] = none;
    if (vectors) {
      for (i64 i = thread; i < left_size; i += threads) left[i] = none;
      for (int i = thread; i < rotations; i += threads) right[i] = none;
    }
    if (thread == 0) a.info[matrix] = -1;
    return;
  }
  // By a power of two, so that no square overflows and none that counts is lost.
  const int exponent = largest > T(0) ? ilogb(largest) : 0;
  for (int i = thread; i < elements; i += threads) {
    const int to = a.transposed ? i % n * m + i / n : i;
    b[to] = scalbn(in[i], -exponent);
  }
  for (int i = thread; i < rotations; i += threads) v[i] = T(i / n == i % n);
  __syncthreads();

  const T eps = rounding(T(0)), tolerance = eps * sqrt(T(m)), zero = eps * eps * eps * eps;
  const int players = n + n % 2;  // of an odd number one waits
  bool failed = false;
  for (int sweep = 0; n > 1; ++sweep) {
    int rotated = 0;
    for (int round = 0; round < players - 1; ++round) {
      for (int k = warp; k < players / 2; k += warps) {
        const int one = k == 0 ? players - 1 : (round + k) % (players - 1);
        const int two = (round - k + players - 1) % (players - 1);
        const int p = min(one, two), q = max(one, two);
        if (q >= n) continue;
        T* const vp = vectors ? v + p * n : nullptr;
        rotated |= rotate(b + p * m, b + q * m, m, vp, v + q * n, n, tolerance, zero, lane);
      }
      __syncthreads();
    }
    if (!__syncthreads_or(rotated)) break;
    failed = sweep == kMostSweeps;
    if (failed) break;
  }
  if (thread == 0) a.info[matrix] = failed;

  for (int c = warp; c < n; c += warps) {
    const T* const column = b + c * m;
    T sum = 0;
    for (int i = lane; i < m; i += 32) sum += column[i] * column[i];
    sum = warp_reduce<Sum<T>>(sum);
    if (lane == 0) lengths[c] = sqrt(sum);
  }
  __syncthreads();
  for (int c = thread; c < n; c += threads) {
    const T length = lengths[c];
    int place = 0;
    for (int k = 0; k < n; ++k) place += lengths[k] > length || (lengths[k] == length && k < c);
    order[place] = c;
    values[place] = scalbn(length, exponent);
  }
  if (!vectors) return;
  __syncthreads();
  T* const signs = lengths;  // which are written already

  for (int c = warp; c < n; c += warps)
    for (int i = lane; i < n; i += 32)
      right[a.transposed ? i + c * n : c + i * n] = v[order[c] * n + i];

  // R is not kept, and the reflectors are the columns times `scales`.
  for (int c = 0; c < n; ++c) {
    const T* const column = b + order[c] * m;
    const T head = column[c];  // every warp looks for itself
    T sum = 0;
    for (int i = c + 1 + lane; i < m; i += 32) sum += column[i] * column[i];
    sum = warp_reduce<Sum<T>>(sum);
    T end = head, tau = 0, scale = 0;
    if (sum > zero) {
      end = -copysign(sqrt(head * head + sum), head);
      tau = (end - head) / end;
      scale = 1 / (head - end);
      for (int k = c + 1 + warp; k < n; k += warps)
        apply_reflector(b + order[k] * m, column, tau, scale, c, m, lane);
    }
    if (thread == 0) {
      signs[c] = copysign(T(1), end);
      taus[c] = tau;
      scales[c] = scale;
    }
    __syncthreads();
  }
  T* const x = columns + warp * m;
  for (int c = warp; c < a.left_columns; c += warps) {
    for (int i = lane; i < m; i += 32) x[i] = T(i == c);
    for (int r = min(c, n - 1); r >= 0; --r)
      if (taus[r] != T(0)) apply_reflector(x, b + order[r] * m, taus[r], scales[r], r, m, lane);
    const T sign = c < n ? signs[c] : T(1);
    for (int i = lane; i < m; i += 32)
      left[a.transposed ? c + i64(i) * a.left_columns : i + i64(c) * m] = sign * x[i];
  }
}
