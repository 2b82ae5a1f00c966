// Products of f32 that take a GPU less time than it needs to begin them. Mirrors ShortGemm in
// codegen/gemm.h.
#pragma once
#include "dtype.cuh"

// Note [Short products]
// The library divides the inner dimension of a small product among blocks and adds up their parts
// in a second kernel, and sums of rows are another one. Here one block has a tile of the result,
// and its threads are groups that take every so many-th four terms of the sums; each thread has
// 4 x 4 elements in registers, which it loads in lines of 16 bytes where it can, from the caches:
// what four threads share is there. The groups' parts are added up in order, in shared memory.
struct ShortGemm {
  const f32 *a, *b, *bias;
  f32 *out, *a_sum;
  i64 a_row, a_column, b_row, b_column, out_row, out_column, bias_stride, sum_stride;
  f32 alpha, beta;
  i32 m, n, k, relu;
  i32 a_lines, b_lines;  // whether lines of the dimension that is side by side begin at 16 bytes
};

struct alignas(16) ShortGemmLine {
  f32 v[4];
};

// Elements (i0, k0) to (i0 + 3, k0 + 3) of `from` as v[i][k], zeros beyond k. With `lines` rows
// beyond the last one are the last one, whose sums nobody stores.
template <bool along_k>
DEVICE void short_gemm_load(f32 (&v)[4][4], const f32* from, i64 by_i, i64 by_k, i32 i0, i32 n,
                            i32 k0, i32 k, bool lines) {
#pragma unroll
  for (i32 e = 0; e < 4; ++e) {
    if (lines) {
      const i32 row = i0 + e < n ? i0 + e : n - 1;
      const f32* p = along_k ? from + row * by_i + k0 : from + i0 + (k0 + e) * by_k;
      const ShortGemmLine line = *reinterpret_cast<const ShortGemmLine*>(p);
#pragma unroll
      for (i32 f = 0; f < 4; ++f) (along_k ? v[e][f] : v[f][e]) = line.v[f];
    } else {
#pragma unroll
      for (i32 f = 0; f < 4; ++f)
        v[e][f] = i0 + e < n && k0 + f < k ? from[(i0 + e) * by_i + (k0 + f) * by_k] : 0.0f;
    }
  }
}

/// out = activation(alpha * a @ b + beta * out + bias), a_sum = sums of a's rows. A block of 256
/// threads for each tile of kTile x kTile. Along which dimension the elements of an operand lie
/// side by side: that of the sums, or the result's.
template <bool a_along_k, bool b_along_k, i32 kTile>
DEVICE void short_gemm(const ShortGemm& g) {
  constexpr i32 kSide = kTile / 4, kGroups = 256 / (kSide * kSide), kStep = 4 * kGroups;
  constexpr i32 kAtOnce = 4;  // steps whose loads are under way together
  __shared__ ShortGemmLine parts[kGroups * kTile * kSide];
  __shared__ f32 sums[kGroups * kTile];
  const i32 t = i32(threadIdx.x), group = t / (kSide * kSide);
  const i32 ty = t / kSide % kSide, tx = t % kSide;
  const i32 row0 = i32(blockIdx.y) * kTile, column0 = i32(blockIdx.x) * kTile;
  const i32 i0 = row0 + 4 * ty, j0 = column0 + 4 * tx;
  const bool sums_rows = g.a_sum && blockIdx.x == 0 && tx == 0;
  const bool a_lines = g.a_lines && (a_along_k || i0 + 4 <= g.m);
  const bool b_lines = g.b_lines && (b_along_k || j0 + 4 <= g.n);
  f32 sum[4][4] = {}, row_sum[4] = {};
  const auto load = [&](f32(&x)[4][4], f32(&y)[4][4], i32 k0, bool whole) {
    short_gemm_load<a_along_k>(x, g.a, g.a_row, g.a_column, i0, g.m, k0, g.k, a_lines && whole);
    short_gemm_load<b_along_k>(y, g.b, g.b_column, g.b_row, j0, g.n, k0, g.k, b_lines && whole);
  };
  const auto add = [&](const f32(&x)[4][4], const f32(&y)[4][4]) {
#pragma unroll
    for (i32 k = 0; k < 4; ++k)
#pragma unroll
      for (i32 i = 0; i < 4; ++i) {
#pragma unroll
        for (i32 j = 0; j < 4; ++j) sum[i][j] = fmaf(x[i][k], y[j][k], sum[i][j]);
        if (sums_rows) row_sum[i] += x[i][k];
      }
  };
  i32 k0 = 4 * group;
  if (a_lines && b_lines)
    for (; k0 + (kAtOnce - 1) * kStep + 4 <= g.k; k0 += kAtOnce * kStep) {
      f32 x[kAtOnce][4][4], y[kAtOnce][4][4];
#pragma unroll
      for (i32 u = 0; u < kAtOnce; ++u) load(x[u], y[u], k0 + u * kStep, true);
#pragma unroll
      for (i32 u = 0; u < kAtOnce; ++u) add(x[u], y[u]);
    }
  for (; k0 < g.k; k0 += kStep) {
    f32 x[4][4], y[4][4];
    load(x, y, k0, k0 + 4 <= g.k);
    add(x, y);
  }
#pragma unroll
  for (i32 i = 0; i < 4; ++i) {
    ShortGemmLine line;
#pragma unroll
    for (i32 j = 0; j < 4; ++j) line.v[j] = sum[i][j];
    parts[(group * kTile + 4 * ty + i) * kSide + tx] = line;
    if (sums_rows) sums[group * kTile + 4 * ty + i] = row_sum[i];
  }
  __syncthreads();
  const f32* const part = parts[0].v;
  for (i32 at = t; at < kTile * kTile; at += 256) {
    const i32 row = row0 + at / kTile, column = column0 + at % kTile;
    if (row >= g.m || column >= g.n) continue;
    f32 v = 0.0f;
#pragma unroll
    for (i32 p = 0; p < kGroups; ++p) v += part[p * kTile * kTile + at];
    f32* const to = g.out + row * g.out_row + column * g.out_column;
    v *= g.alpha;
    if (g.beta != 0.0f) v += g.beta * *to;
    if (g.bias) v += g.bias[column * g.bias_stride];
    *to = g.relu && v < 0.0f ? 0.0f : v;  // NaN stays
  }
  if (g.a_sum && blockIdx.x == 0 && t < kTile && row0 + t < g.m) {
    f32 v = 0.0f;
    for (i32 p = 0; p < kGroups; ++p) v += sums[p * kTile + t];
    g.a_sum[(row0 + t) * g.sum_stride] = v;
  }
}
