// Attention without storing the scores, forward: Note [Attention on tensor cores].
#pragma once
#include "attention_tiles.cuh"

template <class K>
__device__ __forceinline__ void Attention<K>::forward(const AttentionArgs& a, char* shared) {
  const i32 part = i32(blockIdx.x % u32(a.parts));
  const Place at = place_of(a, a.queries, a.heads, kCausal, blockIdx.x / u32(a.parts));
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

  const i32 all_steps = steps_of(seen_keys(a, at.first)),
            part_steps = (all_steps + a.parts - 1) / a.parts, first_step = part * part_steps;
  stream(
      max(min(part_steps, all_steps - first_step), 0), shared + kKept, kStage,
      [&](i32 step, char* stage) { load_keys(a, k, v, (first_step + step) * kColumns, stage); },
      [&](i32 step, const char* stage) {
        const i32 column = (first_step + step) * kColumns;
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
      if (query >= a.queries) continue;
      if (a.parts > 1) {
        const i64 place = place_of_part(a, at.number, part, query);
        if (lane % 4 == 0) a.numbers[place] = {largest[m][h], all};
#pragma unroll
        for (int n = 0; n < kValueDim / 8; ++n)
          *reinterpret_cast<Vec<f32, 2>*>(a.sums + place * kValueDim + 8 * n + lane % 4 * 2) = {
              sums[m][n][2 * h], sums[m][n][2 * h + 1]};
      } else if (a.lse && lane % 4 == 0) {
        *lse_of(a, at.batch, at.head, query) = log_of(base_of(largest[m][h], exponents), all);
      }
    }
  if (a.parts > 1) return;
  store_rows<kValueDim, false>(matrix(a.out, at.batch, at.head), a.out.row, row, a.queries,
                               a.value_dim, sums, factor, lane);
}

// A warp puts the parts of a query together; blocks have kWarps of them, of all heads in order.
template <class K>
__device__ __forceinline__ void Attention<K>::combine(const AttentionArgs& a, char*) {
  constexpr int kOwn = (kValueDim + 31) / 32;  // elements that a lane has
  const i32 lane = i32(threadIdx.x) % 32;
  const i64 row = i64(blockIdx.x) * kWarps + i32(threadIdx.x) / 32, head = row / a.queries;
  if (head >= a.all_heads) return;
  const i32 query = i32(row % a.queries), of_batch = i32(head % a.heads),
            batch = i32(head / a.heads);
  const f32 exponents = factor_of(a);
  f32 most = minus_infinity();
#pragma unroll 4
  for (i32 p = 0; p < a.parts; ++p)
    most = fmaxf(most, a.numbers[place_of_part(a, head, p, query)].v[0]);
  const f32 base = base_of(most, exponents);
  f32 total = 0, sums[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) sums[i] = 0;
#pragma unroll 4
  for (i32 p = 0; p < a.parts; ++p) {
    const i64 place = place_of_part(a, head, p, query);
    const Vec<f32, 2> numbers = a.numbers[place];
    const f32 weight = weight_of(numbers.v[0], exponents, base);
    total += weight * numbers.v[1];
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
      if (32 * i + lane < kValueDim) sums[i] += weight * a.sums[place * kValueDim + 32 * i + lane];
  }
  const f32 factor = total == 0.0f ? 0.0f : kept_scale(a) / total;
  T* const out = matrix(a.out, batch, of_batch) + query * a.out.row;
#pragma unroll
  for (int i = 0; i < kOwn; ++i)
    if (32 * i + lane < a.value_dim) out[32 * i + lane] = from_compute<T>(sums[i] * factor);
  if (a.lse && lane == 0) *lse_of(a, batch, of_batch, query) = log_of(base, total);
}
