// Attention without storing the scores, forward: Note [Attention on tensor cores].
#pragma once
#include "attention_tiles.cuh"

template <class K>
__device__ __forceinline__ void Attention<K>::forward(const AttentionArgs& a, char* shared) {
  const Place at = place_of(a, a.queries, a.heads, kCausal);
  const i32 lane = i32(threadIdx.x) % 32, warp_row = i32(threadIdx.x) / 32 * kWarpRows,
            row = at.first + warp_row;
  load_lines<kRows, kDim>(shared, matrix(a.q, at.batch, at.head), a.q.row, at.first, a.queries,
                          a.dim);
  const T *const k = matrix(a.k, at.batch, at.kv_head), *const v =
                                                            matrix(a.v, at.batch, at.kv_head);
  const M* const mask = mask_of(a, at.batch, at.head);

  ValueSums sums;
  clear(sums);
  const f32 exponents = factor_of(a);
  f32 largest[kRowTiles][2], total[kRowTiles][2];
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) largest[m][h] = minus_infinity(), total[m][h] = 0;

  stream(
      steps_of(seen_keys(a, at.first)), shared + kKept, kStage,
      [&](i32 step, char* stage) { load_keys(a, k, v, step * kColumns, stage); },
      [&](i32 step, const char* stage) {
        const i32 column = step * kColumns;
        if (kCausal && column > row + kWarpRows - 1) return;
        MaskTile<false> hides;
        hides.load(a, mask, row, column, lane);
        Scores s;
        multiply<kDim>(s, shared + warp_row * kPitch, stage, lane);
        finish_scores<false>(a, hides, s, row, column, lane);
        u32 kept[kRowTiles];
        if constexpr (kDropout != AttentionDropout::none)
          draw<false>(a, kept, at.number, row, column, lane);
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            f32 most = largest[m][h];
#pragma unroll
            for (int n = 0; n < kTiles; ++n)
              most = fmaxf(most, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
            most = quad_max(most);
            const f32 base = base_of(most, exponents),
                      fade = weight_of(largest[m][h], exponents, base);
            largest[m][h] = most;
            f32 sum = 0;
#pragma unroll
            for (int n = 0; n < kTiles; ++n)
#pragma unroll
              for (int i = 2 * h; i < 2 * h + 2; ++i) {
                const f32 p = weight_of(s[m][n][i], exponents, base);
                sum += p;
                s[m][n][i] = dropped(p, kept, m, n, i);
              }
            total[m][h] = total[m][h] * fade + sum;
#pragma unroll
            for (int n = 0; n < kValueDim / 8; ++n)
              sums[m][n][2 * h] *= fade, sums[m][n][2 * h + 1] *= fade;
          }
        accumulate<kValueDim>(sums, s, stage + kColumns * kPitch, lane);
      });

  f32 factor[kRowTiles][2];
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const f32 all = quad_sum(total[m][h]);
      factor[m][h] = all == 0.0f ? 0.0f : kept_scale(a) / all;
      const i32 query = row + 16 * m + 8 * h + lane / 4;
      if (a.lse && lane % 4 == 0 && query < a.queries) {
        const f32 base = base_of(largest[m][h], exponents);
        a.lse[at.batch * a.lse_batch + at.head * a.lse_head + query * a.lse_row] =
            (kAdds ? base : base * kLn2) + logf(all);
      }
    }
  store_rows<kValueDim, false>(matrix(a.out, at.batch, at.head), a.out.row, row, a.queries,
                               a.value_dim, sums, factor, lane);
}
