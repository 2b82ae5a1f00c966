// Products of f32 that take a GPU less time than it needs to begin them. Mirrors ShortGemm in
// codegen/gemm.h.
#pragma once
#include "async_copy.cuh"
#include "dtype.cuh"

// Note [Short products]
// The library divides the inner dimension of a small product among blocks and adds up their parts
// in a second kernel, and sums of rows are another one. Here one block has a tile of the result,
// and its threads are groups that take every so many-th four terms of the sums; each thread has
// 4 x 4 elements in registers. All that the tile is made of is under way to shared memory at once,
// so that its latency is waited for once: the terms come in stages, and the first ones are added
// up while later ones arrive. Only if the sums are too long for shared memory they are a loop over
// `span` terms. The groups' parts are added up in order, in shared memory.
//
// In shared memory an operand has the order that it has in memory, lines of `pitch` elements. Where
// they run along k a thread has every (kTile / 4)th row, else four neighbours, and the pitches are
// such that the lines of 16 bytes that eight lanes read together lie in different banks.
struct ShortGemm {
  const f32 *a, *b, *bias;
  f32 *out, *a_sum;
  i64 a_row, a_column, b_row, b_column, out_row, out_column, bias_stride, sum_stride;
  f32 alpha, beta;
  i32 m, n, k, relu;
  i32 a_lines, b_lines;  // whether lines of the dimension that is side by side begin at 16 bytes
  i32 stage, span;       // terms; whole steps of all groups
  i32 a_pitch, b_pitch;  // elements
  i32 b_first;           // where b begins in shared memory
};

struct alignas(16) ShortGemmLine {
  f32 v[4];
};

constexpr i32 kShortGemmThreads = 256, kShortGemmStages = 4;

/// Begins to copy `rows` rows of `terms` terms from `from`, a tile's first row and a stage's first
/// term, to `to`; zeros for rows that are not there, and to the next multiple of four terms. The
/// block copies kTile rows of 1024 / kTile terms at once.
template <bool along_k, i32 kTile>
DEVICE void short_gemm_copy(f32* to, i32 pitch, const f32* from, i64 by_row, i64 by_k, i32 rows,
                            i32 terms, bool lines) {
  constexpr i32 kAtOnce = 4 * kShortGemmThreads / kTile;
  constexpr i32 kLine = along_k ? kAtOnce / 4 : kTile / 4;  // threads of a line
  const i32 t = i32(threadIdx.x);
  const i32 row = along_k ? t / kLine : t % kLine * 4;
  i32 k = along_k ? t % kLine * 4 : t / kLine;
  const i64 by_element = along_k ? by_k : by_row;
  const f32* p = from + row * by_row + k * by_k;
  f32* q = to + (along_k ? row * pitch + k : k * pitch + row);
#pragma unroll 1
  for (; k < terms + 3 - (terms + 3) % 4; k += kAtOnce) {
    const i32 left = along_k ? (row < rows ? terms - k : 0) : (k < terms ? rows - row : 0);
    if (lines) {
      copy_async<16>(q, p, left >= 4 ? 16 : left > 0 ? 4 * left : 0);
    } else {
#pragma unroll
      for (i32 e = 0; e < 4; ++e) copy_async<4>(q + e, p + e * by_element, e < left ? 4 : 0);
    }
    p += kAtOnce * by_k;
    q += along_k ? kAtOnce : kAtOnce * pitch;
  }
}

/// Four rows and four terms from `k` on, as v[row][term].
template <bool along_k, i32 kSide>
DEVICE void short_gemm_read(f32 (&v)[4][4], const f32* shared, i32 pitch, i32 side, i32 k) {
#pragma unroll
  for (i32 e = 0; e < 4; ++e) {
    const f32* const p =
        along_k ? shared + (side + e * kSide) * pitch + k : shared + (k + e) * pitch + 4 * side;
    const ShortGemmLine line = *reinterpret_cast<const ShortGemmLine*>(p);
#pragma unroll
    for (i32 f = 0; f < 4; ++f) (along_k ? v[e][f] : v[f][e]) = line.v[f];
  }
}

/// out = activation(alpha * a @ b + beta * out + bias), a_sum = sums of a's rows. A block of 256
/// threads for each tile of kTile x kTile. Along which dimension the elements of an operand lie
/// side by side: that of the sums, or the result's.
template <bool a_along_k, bool b_along_k, i32 kTile>
DEVICE void short_gemm(const ShortGemm& g, f32* shared) {
  constexpr i32 kSide = kTile / 4, kGroups = kShortGemmThreads / (kSide * kSide);
  constexpr i32 kStep = 4 * kGroups;
  const i32 t = i32(threadIdx.x), group = t / (kSide * kSide);
  const i32 ty = t / kSide % kSide, tx = t % kSide;
  const i32 row0 = i32(blockIdx.y) * kTile, column0 = i32(blockIdx.x) * kTile;
  const bool sums_rows = g.a_sum && blockIdx.x == 0 && tx == 0;
  f32* const a = shared;
  f32* const b = shared + g.b_first;
  f32 sum[4][4] = {}, row_sum[4] = {};
  for (i32 k0 = 0; k0 < g.k; k0 += g.span) {
    const i32 span = g.k - k0 < g.span ? g.k - k0 : g.span;
    const auto terms = [&](i32 s) {
      const i32 left = span - s * g.stage;
      return left < g.stage ? left : g.stage;
    };
#pragma unroll 1
    for (i32 s = 0; s < kShortGemmStages; ++s) {
      const i32 at = s * g.stage, k = k0 + at;
      if (terms(s) > 0) {
        short_gemm_copy<a_along_k, kTile>(a + (a_along_k ? at : at * g.a_pitch), g.a_pitch,
                                          g.a + row0 * g.a_row + k * g.a_column, g.a_row,
                                          g.a_column, g.m - row0, terms(s), g.a_lines);
        short_gemm_copy<b_along_k, kTile>(b + (b_along_k ? at : at * g.b_pitch), g.b_pitch,
                                          g.b + column0 * g.b_column + k * g.b_row, g.b_column,
                                          g.b_row, g.n - column0, terms(s), g.b_lines);
      }
      copy_commit();
    }
#pragma unroll 1
    for (i32 s = 0; s < kShortGemmStages && terms(s) > 0; ++s) {
      switch (s) {
        case 0:
          copy_wait<3>();
          break;
        case 1:
          copy_wait<2>();
          break;
        case 2:
          copy_wait<1>();
          break;
        default:
          copy_wait<0>();
      }
      __syncthreads();
      const i32 end = s * g.stage + terms(s);
#pragma unroll 1
      for (i32 k = s * g.stage + 4 * group; k < end; k += kStep) {
        f32 x[4][4], y[4][4];
        short_gemm_read<a_along_k, kSide>(x, a, g.a_pitch, ty, k);
        short_gemm_read<b_along_k, kSide>(y, b, g.b_pitch, tx, k);
#pragma unroll
        for (i32 f = 0; f < 4; ++f)
#pragma unroll
          for (i32 i = 0; i < 4; ++i)
#pragma unroll
            for (i32 j = 0; j < 4; ++j) sum[i][j] = fmaf(x[i][f], y[j][f], sum[i][j]);
        if (sums_rows)
#pragma unroll
          for (i32 i = 0; i < 4; ++i) row_sum[i] += (x[i][0] + x[i][1]) + (x[i][2] + x[i][3]);
      }
    }
    __syncthreads();
  }
  // Of the operands nothing is needed any more.
  constexpr i32 kPitch = kTile + 4, kPart = kTile * kPitch + 16;
  f32* const parts = shared;
  f32* const sums = shared + kGroups * kPart;
#pragma unroll
  for (i32 i = 0; i < 4; ++i) {
    const i32 row = a_along_k ? ty + i * kSide : 4 * ty + i;
    f32* const to = parts + group * kPart + row * kPitch;
    if (b_along_k) {
#pragma unroll
      for (i32 j = 0; j < 4; ++j) to[tx + j * kSide] = sum[i][j];
    } else {
      ShortGemmLine line;
#pragma unroll
      for (i32 j = 0; j < 4; ++j) line.v[j] = sum[i][j];
      *reinterpret_cast<ShortGemmLine*>(to + 4 * tx) = line;
    }
    if (sums_rows) sums[group * kTile + row] = row_sum[i];
  }
  __syncthreads();
#pragma unroll(kTile == 16 ? 1 : 4)
  for (i32 e = 0; e < kTile * kTile / kShortGemmThreads; ++e) {
    const i32 at = t + e * kShortGemmThreads;
    const i32 row = row0 + at / kTile, column = column0 + at % kTile;
    if (row >= g.m || column >= g.n) continue;
    f32 v = 0.0f;
#pragma unroll
    for (i32 p = 0; p < kGroups; ++p) v += parts[p * kPart + at / kTile * kPitch + at % kTile];
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
