// Attention without storing the scores, backward: Note [Attention on tensor cores].
#pragma once
#include "attention_tiles.cuh"

// What the other kernels of the backward pass read of each query, and zeros to add to.
template <class K>
__device__ __forceinline__ void Attention<K>::prepare(const AttentionArgs& a, char*) {
  const Place at = place_of(a, a.queries, a.heads, false);
  const i32 lane = i32(threadIdx.x) % 32, row = at.first + i32(threadIdx.x) / 32 * kWarpRows;
  const T *const out = matrix(a.out, at.batch, at.head), *const grads =
                                                             matrix(a.grad_out, at.batch, at.head);
  constexpr int kChunk = kVector ? 16 / int(sizeof(T)) : 1, kAcross = 8;
  typedef Vec<T, kChunk> Chunk;
#pragma unroll
  for (int line = 0; line < kWarpRows; line += 32 / kAcross) {
    const i32 query = row + line + lane / kAcross;
    f32 sum = 0;
    if (query < a.queries)
      for (i32 d = lane % kAcross * kChunk; d < a.value_dim; d += kAcross * kChunk) {
        const Chunk x = *reinterpret_cast<const Chunk*>(out + query * a.out.row + d),
                    y = *reinterpret_cast<const Chunk*>(grads + query * a.grad_out.row + d);
#pragma unroll
        for (int i = 0; i < kChunk; ++i) sum += to_compute(x.v[i]) * to_compute(y.v[i]);
      }
    sum = quad_sum(sum);
    sum += __shfl_xor_sync(~0u, sum, 4);
    if (query < a.queries && lane % kAcross == 0) {
      const f32 lse = a.lse[at.batch * a.lse_batch + at.head * a.lse_head + query * a.lse_row];
      a.numbers[at.number * a.queries + query] = {{base_of(lse, kAdds ? 1 : kLog2E), sum}};
    }
  }
  if (a.sums)
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
      if (row + 16 * m < a.queries)
#pragma unroll
        for (int i = 0; i < kDim / 8; ++i)
          sums_of(a, at.number, row / 16 + m, lane)[32 * i] = Vec<f32, 4>{};
}

// grad_q from its sums.
template <class K>
__device__ __forceinline__ void Attention<K>::finish(const AttentionArgs& a, char*) {
  const Place at = place_of(a, a.queries, a.heads, false);
  const i32 lane = i32(threadIdx.x) % 32, row = at.first + i32(threadIdx.x) / 32 * kWarpRows;
  Sums sums;
  f32 factor[kRowTiles][2];
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
    factor[m][0] = factor[m][1] = a.scale;
    if (row + 16 * m < a.queries)
#pragma unroll
      for (int i = 0; i < kDim / 8; ++i) {
        const Vec<f32, 4> v = sums_of(a, at.number, row / 16 + m, lane)[32 * i];
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[m][i / 2 * 2 + j / 2][i % 2 * 2 + j % 2] = v.v[j];
      }
  }
  store_rows<kDim, false>(matrix(a.grad_q, at.batch, at.head), a.grad_q.row, row, a.queries, a.dim,
                          sums, factor, lane);
}

// Adds what the first `lines` keys of a block, a multiple of 16, give to grad_q of a tile of
// queries, from gradients of scores that all warps have written.
template <class K>
__device__ __forceinline__ void Attention<K>::add_to_queries(const AttentionArgs& a, i64 head,
                                                             i32 column, const char* scores,
                                                             const char* keys, i32 lines,
                                                             i32 lane) {
  constexpr int kDown = kColumns / 16, kAcross = kWarps / kDown, kAll = kDim / 16,
                kPairs = (kAll + kAcross - 1) / kAcross;
  static_assert(kWarps % kDown == 0, "each warp has 16 queries");
  const i32 warp = i32(threadIdx.x) / 32, tile = warp % kDown, first = warp / kDown;
  if (column + 16 * tile >= a.queries) return;
  f32 part[1][2 * kPairs][4];
#pragma unroll
  for (int n = 0; n < 2 * kPairs; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) part[0][n][i] = 0;
#pragma unroll
  for (int k = 0; k < kRows; k += 16) {
    if (kCausal && k >= lines) break;
    typename Tile::A of_scores[1];
    Tile::template load_transposed<kScorePitch>(of_scores[0], scores + k * kScorePitch + tile * 32,
                                                lane);
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      const i32 pair = first + p * kAcross;
      if (kAll % kAcross != 0 && pair >= kAll) break;
      typename Tile::B b[2];
      Tile::template load_rows<kPitch>(b, keys + k * kPitch + pair * 32, lane);
      Tile::multiply(part, 2 * p, of_scores, b);
    }
  }
  Vec<f32, 4>* const to = sums_of(a, head, column / 16 + tile, lane);
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    const i32 pair = first + p * kAcross;
    if (kAll % kAcross != 0 && pair >= kAll) break;
#pragma unroll
    for (int h = 0; h < 2; ++h)
      add_atomically(to + (2 * pair + h) * 32,
                     {{part[0][2 * p][2 * h], part[0][2 * p][2 * h + 1], part[0][2 * p + 1][2 * h],
                       part[0][2 * p + 1][2 * h + 1]}});
  }
}

template <class K>
__device__ __forceinline__ void Attention<K>::queries(const AttentionArgs& a, char* shared) {
  const Place at = place_of(a, a.queries, a.heads, kCausal);
  const i32 lane = i32(threadIdx.x) % 32, warp_row = i32(threadIdx.x) / 32 * kWarpRows,
            row = at.first + warp_row;
  char* const grads = shared + kKept;
  load_lines<kRows, kDim>(shared, matrix(a.q, at.batch, at.head), a.q.row, at.first, a.queries,
                          a.dim);
  load_lines<kRows, kValueDim>(grads, matrix(a.grad_out, at.batch, at.head), a.grad_out.row,
                               at.first, a.queries, a.value_dim);
  const T *const k = matrix(a.k, at.batch, at.kv_head), *const v =
                                                            matrix(a.v, at.batch, at.kv_head);
  const M* const mask = mask_of(a, at.batch, at.head);

  f32 exponent[kRowTiles][2], delta[kRowTiles][2];
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const i32 query = row + 16 * m + 8 * h + lane / 4;
      exponent[m][h] = delta[m][h] = 0;
      if (query < a.queries) {
        const Vec<f32, 2> numbers = a.numbers[at.number * a.queries + query];
        exponent[m][h] = numbers.v[0], delta[m][h] = numbers.v[1];
      }
    }

  Sums sums;
  clear(sums);
  stream(
      steps_of(seen_keys(a, at.first)), shared + kKept + kKeptValues, kStage,
      [&](i32 step, char* stage) { load_keys(a, k, v, step * kColumns, stage); },
      [&](i32 step, const char* stage) {
        const i32 column = step * kColumns;
        if (kCausal && column > row + kWarpRows - 1) return;
        MaskTile<false> hides;
        hides.load(a, mask, row, column, lane);
        u32 kept[kRowTiles];
        if constexpr (kDropout != AttentionDropout::none)
          draw<false>(a, kept, at.number, row, column, lane);
        Scores s, g;
        multiply<kDim>(s, shared + warp_row * kPitch, stage, lane);
        finish_scores<false>(a, hides, s, row, column, lane);
        make_weights(a, s, [&](int m, int, int i) { return exponent[m][i / 2]; });
        multiply<kValueDim>(g, grads + warp_row * kValuePitch, stage + kColumns * kPitch, lane);
        make_gradients(a, s, g, kept, [&](int m, int, int i) { return delta[m][i / 2]; });
        accumulate<kDim>(sums, s, stage, lane);
      });
  f32 factor[kRowTiles][2];
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) factor[m][0] = factor[m][1] = a.scale;
  store_rows<kDim, false>(matrix(a.grad_q, at.batch, at.head), a.grad_q.row, row, a.queries, a.dim,
                          sums, factor, lane);
}

// kQueries: grad_q too.
template <class K>
template <bool kQueries>
__device__ __forceinline__ void Attention<K>::stream_queries(const AttentionArgs& a, char* shared) {
  const i32 kv_heads = a.heads / a.group;
  const Place at = place_of(a, a.keys, kv_heads, false);
  const i32 lane = i32(threadIdx.x) % 32, warp_row = i32(threadIdx.x) / 32 * kWarpRows,
            row = at.first + warp_row;
  load_lines<kRows, kDim, Order::key_rows>(shared, matrix(a.k, at.batch, at.head), a.k.row,
                                           at.first, a.keys, a.dim);
  load_lines<kRows, kValueDim, Order::key_rows>(shared + kKept, matrix(a.v, at.batch, at.head),
                                                a.v.row, at.first, a.keys, a.value_dim);
  constexpr int kSize = kStage + 2 * kColumns * int(sizeof(f32));
  // Queries before the first key see nothing here.
  const i32 first_step = kCausal ? at.first / kColumns : 0,
            steps = max(steps_of(a.queries) - first_step, 0);

  Sums sums;
  ValueSums value_sums;
  clear(sums);
  clear(value_sums);
  // Where loading is, and where computing.
  struct Step {
    i32 head, first;
    __device__ __forceinline__ void next(i32 begin, i32 end) {
      first += kColumns;
      if (first >= end) first = begin, ++head;
    }
  };
  char* const scores = shared + kKeysShared;
  const auto compute = [&](i32 head, i64 number, i32 column, const char* stage) {
    const M* const mask = mask_of(a, at.batch, head);
    typedef Vec<f32, 4> Quad;  // exponents and deltas of two queries
    const Quad* const numbers = reinterpret_cast<const Quad*>(stage + kStage) + lane % 4;
    MaskTile<true> hides;
    hides.load(a, mask, row, column, lane);
    u32 kept[kRowTiles];
    if constexpr (kDropout != AttentionDropout::none)
      draw<true>(a, kept, number, row, column, lane);
    Scores s, g;
    multiply<kDim>(s, shared + warp_row * kPitch, stage, lane);
    finish_scores<true>(a, hides, s, row, column, lane);
    make_weights(a, s, [&](int, int n, int i) { return numbers[4 * n].v[i % 2 * 2]; });
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) g[m][n][i] = dropped(s[m][n][i], kept, m, n, i);
    accumulate<kValueDim>(value_sums, g, stage + kColumns * kPitch, lane);
    multiply<kValueDim>(g, shared + kKept + warp_row * kValuePitch, stage + kColumns * kPitch,
                        lane);
    make_gradients(a, s, g, kept,
                   [&](int, int n, int i) { return numbers[4 * n].v[i % 2 * 2 + 1]; });
    // Lines beyond the last query are zeros, but a key times 0 may be NaN.
    if (column + kColumns > a.queries)
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
        for (int n = 0; n < kTiles; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            if (column + 8 * n + lane % 4 * 2 + i % 2 >= a.queries) s[m][n][i] = 0;
    if constexpr (kQueries)
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
        for (int n = 0; n < kTiles; ++n)
#pragma unroll
          for (int h = 0; h < 2; ++h)
            *reinterpret_cast<u32*>(scores + (warp_row + 16 * m + 8 * h + lane / 4) * kScorePitch +
                                    n * 16 + lane % 4 * 4) =
                pack_pair(s[m][n][2 * h], s[m][n][2 * h + 1], T());
    accumulate<kDim>(sums, s, stage, lane);
  };
  const i32 begin = first_step * kColumns;
  Step loaded{at.head * a.group, begin}, computed = loaded;
  stream(
      steps * a.group, shared + kKept + kKeptValues, kSize,
      [&](i32, char* stage) {
        const i32 head = loaded.head, first = loaded.first;
        loaded.next(begin, a.queries);
        load_lines<kColumns, kDim>(stage, matrix(a.q, at.batch, head), a.q.row, first, a.queries,
                                   a.dim);
        load_lines<kColumns, kValueDim>(stage + kColumns * kPitch,
                                        matrix(a.grad_out, at.batch, head), a.grad_out.row, first,
                                        a.queries, a.value_dim);
        const Vec<f32, 2>* const numbers = a.numbers + (i64(at.batch) * a.heads + head) * a.queries;
        const i32 line = i32(threadIdx.x), query = first + line;
        if (line < kColumns) {
          const bool inside = query < a.queries;
          copy_async<8>(stage + kStage + line * 8, inside ? numbers + query : numbers,
                        inside ? 8 : 0);
        }
      },
      [&](i32, const char* stage) {
        const i32 head = computed.head, column = computed.first;
        computed.next(begin, a.queries);
        const i64 number = i64(at.batch) * a.heads + head;
        if (!kCausal || row < column + kColumns) compute(head, number, column, stage);
        if constexpr (kQueries) {
          __syncthreads();
          // Warps whose keys nobody sees have written nothing.
          const i32 seen = (column + kColumns - at.first + kWarpRows - 1) / kWarpRows * kWarpRows;
          add_to_queries(a, number, column, scores, shared, min(seen, kRows), lane);
        }
      });
  f32 factor[kRowTiles][2], kept[kRowTiles][2];
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) factor[m][h] = a.scale, kept[m][h] = kept_scale(a);
  store_rows<kDim, true>(matrix(a.grad_k, at.batch, at.head), a.grad_k.row, row, a.keys, a.dim,
                         sums, factor, lane);
  store_rows<kValueDim, true>(matrix(a.grad_v, at.batch, at.head), a.grad_v.row, row, a.keys,
                              a.value_dim, value_sums, kept, lane);
}
