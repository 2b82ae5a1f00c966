// Attention without storing the scores, forward and backward.
//
// Note [Attention on tensor cores]
// A block keeps some rows of the scores (FlashAttention: Dao and others, 2022) and takes their
// columns tile by tile through shared memory, the next tile on its way while one is computed:
//
//   kernel              rows     columns  keeps        streams      sums
//   attention_forward   queries  keys     q            k, v         out, largest score, total
//   attention_queries   queries  keys     q, grad_out  k, v         grad_q
//   attention_keys      keys     queries  k, v         q, grad_out  grad_k, grad_v
//
// A warp has whole rows, 16 or 32 of them, so that scores never leave its registers: what the first
// product gives is what the second takes (Note [Fragments]), with the scores transposed where keys
// are rows. Each sum is made by one warp in the order of the columns: the same bits every time,
// with no atomics, for which the scores are computed once more than they would have to be.
// Backward, attention_queries comes first: it also gives delta, the sum of out * grad_out of each
// query, which attention_keys reads. Heads of q that share one of k come one after the other there.
// Exponents are of 2: scores are multiplied by log2(e).
#pragma once
#include "mma.cuh"
#include "philox.cuh"

struct AttentionMatrix {
  void* data;
  i64 batch, head, row;  // strides in elements; those of a row are neighbours
};
// Mirrors the struct in codegen/attention.h.
struct AttentionArgs {
  AttentionMatrix q, k, v, out, grad_out, grad_q, grad_k, grad_v;
  f32 *lse, *delta;  // delta: (batch, head, query) without gaps
  i64 lse_batch, lse_head, lse_row;
  const void* mask;
  i64 mask_batch, mask_head, mask_query, mask_key;
  u64 block;         // of random numbers
  const u64* state;  // read by kernels with kMoved only
  i32 heads, group;  // of q; how many of them share one of k
  i32 queries, keys, dim, value_dim;
  f32 scale, kept_scale;
  u32 mask_pairs;  // whether two neighbouring keys of the mask may be read at once
  u32 last, any;   // weights whose lanes are up to `last` are kept; any: 0 if none is, else ~0
  u32 seed[20];
};

enum class AttentionMask { none, boolean, additive };
template <class T, AttentionMask kMask>
struct MaskElement {
  typedef T type;
};
template <class T>
struct MaskElement<T, AttentionMask::boolean> {
  typedef boolean type;
};
enum class AttentionDropout { none, fixed, moved };

constexpr f32 kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;
DEVICE f32 minus_infinity() { return __uint_as_float(0xff800000u); }

// kDim, kValueDim: multiples of 16, not below those of the call. kColumns: of a tile, a multiple of
// 16. kVector: matrices are read and written 16 bytes at a time. kSplit: f32 keeps its precision.
template <class T, int kDim, int kValueDim, int kWarps, int kRowTiles, int kColumns,
          AttentionMask kMask, bool kCausal, AttentionDropout kDropout, bool kVector, bool kSplit>
struct Attention {
  typedef Tiles<T, kSplit> Tile;
  static const int kThreads = 32 * kWarps, kWarpRows = 16 * kRowTiles, kRows = kWarps * kWarpRows;
  static const int kTiles = kColumns / 8;
  // Bytes from one line in shared memory to the next.
  static const int kPitch = kDim * int(sizeof(T)) + 16,
                   kValuePitch = kValueDim * int(sizeof(T)) + 16;
  // Shared memory: the lines that are kept, then two stages of those that come and go.
  static const int kStage = kColumns * (kPitch + kValuePitch);
  static const int kKept = kRows * kPitch, kKeptValues = kRows * kValuePitch;
  static const int kForwardShared = kKept + 2 * kStage;
  static const int kQueriesShared = kKept + kKeptValues + 2 * kStage;
  static const int kKeysShared = kQueriesShared + 2 * kColumns * 2 * int(sizeof(f32));

  typedef f32 Scores[kRowTiles][kTiles][4];
  typedef f32 Sums[kRowTiles][kDim / 8][4];
  typedef f32 ValueSums[kRowTiles][kValueDim / 8][4];

  // Which head of the batch, and which rows of it.
  struct Place {
    i32 batch, head, kv_head, first;
    i64 number;
  };
  // Blocks of one head are neighbours, those with the most columns first.
  DEVICE Place place_of(const AttentionArgs& a, i32 rows, i32 heads, bool last_first) {
    const u32 tiles = u32(rows + kRows - 1) / kRows, number = blockIdx.x / tiles;
    u32 tile = blockIdx.x % tiles;
    if (last_first) tile = tiles - 1 - tile;
    Place p;
    p.number = number;
    p.batch = i32(number / u32(heads));
    p.head = i32(number % u32(heads));
    p.kv_head = p.head / a.group;
    p.first = i32(tile) * kRows;
    return p;
  }
  DEVICE T* matrix(const AttentionMatrix& m, i32 batch, i32 head) {
    return static_cast<T*>(m.data) + batch * m.batch + head * m.head;
  }

  // Lines [first, first + kLines) of a matrix with `lines` of `width` elements, zeros beyond.
  template <int kLines, int kWidth>
  DEVICE void load_lines(char* to, const T* from, i64 stride, i32 first, i32 lines, i32 width) {
    constexpr int kChunk = kVector ? 16 / int(sizeof(T)) : 1, kChunks = kWidth / kChunk;
    constexpr int kBytes = kChunk * int(sizeof(T)), kTo = kWidth * int(sizeof(T)) + 16;
    // Threads side by side on a line, the rest of them on the lines after it.
    constexpr int kAcross = (kChunks & -kChunks) < kThreads ? (kChunks & -kChunks) : kThreads;
    constexpr int kDown = kThreads / kAcross;
    const i32 thread = i32(threadIdx.x), across = thread % kAcross, down = thread / kAcross;
    const T* p = from + i64(first + down) * stride + across * kChunk;
    char* q = to + down * kTo + across * kBytes;
    const i64 step = kDown * stride;
#pragma unroll
    for (int line = 0; line < kLines; line += kDown, p += step, q += kDown * kTo) {
      if (kLines % kDown != 0 && line + down >= kLines) break;
      const bool is_line = first + line + down < lines;
#pragma unroll
      for (int i = 0; i < kChunks; i += kAcross) {
        const bool inside = is_line && (i + across) * kChunk < width;
        if constexpr (kBytes >= 4)
          copy_async<kBytes>(q + i * kBytes, inside ? p + i * kChunk : from, inside);
        else
          *reinterpret_cast<T*>(q + i * kBytes) = inside ? p[i * kChunk] : T{};
      }
    }
  }

  // scores = rows @ columns^T, over a width of kWidth.
  template <int kWidth>
  DEVICE void multiply(Scores& s, const char* rows, const char* columns, i32 lane) {
    constexpr int kTo = kWidth * int(sizeof(T)) + 16, kSteps = kWidth / Tile::kStep;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) s[m][n][i] = 0;
#pragma unroll kSteps <= 4 ? kSteps : 2
    for (int k = 0; k < kSteps; ++k) {
      typename Tile::A a[kRowTiles];
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m)
        Tile::template load<kTo>(a[m], rows + m * 16 * kTo + k * 32, lane);
#pragma unroll
      for (int n = 0; n < kTiles; n += 2) {
        typename Tile::B b[2];
        Tile::template load_columns<kTo>(b, columns + n * 8 * kTo + k * 32, lane);
        Tile::multiply(s, n, a, b);
      }
    }
  }
  // sums += scores @ lines, of a width of kWidth.
  template <int kWidth>
  DEVICE void accumulate(f32 (&sums)[kRowTiles][kWidth / 8][4], const Scores& s, const char* lines,
                         i32 lane) {
    constexpr int kTo = kWidth * int(sizeof(T)) + 16;
#pragma unroll
    for (int k = 0; k < kColumns / Tile::kStep; ++k) {
      typename Tile::A a[kRowTiles];
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) Tile::set_rows(a[m], &s[m][k * Tile::kTiles]);
#pragma unroll
      for (int n = 0; n < kWidth / 8; n += 2) {
        typename Tile::B b[2];
        Tile::template load_rows<kTo>(b, lines + k * Tile::kStep * kTo + n * 8 * int(sizeof(T)),
                                      lane);
        Tile::multiply(sums, n, a, b);
      }
    }
  }
  template <int kN>
  DEVICE void clear(f32 (&sums)[kRowTiles][kN][4]) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[m][n][i] = 0;
  }

  // What lies where in the four elements that a lane has of a tile at (row, column).
  struct Position {
    i32 query, key;
  };
  template <bool kKeyRows>
  DEVICE Position position(i32 row, i32 column, int i, i32 lane) {
    const i32 r = row + lane / 4 + i / 2 * 8, c = column + lane % 4 * 2 + i % 2;
    return kKeyRows ? Position{c, r} : Position{r, c};
  }

  // The part of the mask that a warp needs, for each lane where its scores are; zeros beyond it. It
  // is read before the scores are computed, for which time it may take.
  typedef typename MaskElement<T, kMask>::type M;
  typedef Vec<M, 2> MaskTile[kMask == AttentionMask::none ? 1 : kRowTiles][kTiles][2];
  DEVICE const M* mask_of(const AttentionArgs& a, i32 batch, i32 head) {
    return static_cast<const M*>(a.mask) + batch * a.mask_batch + head * a.mask_head;
  }
  template <bool kKeyRows>
  DEVICE void load_mask(const AttentionArgs& a, const M* mask, MaskTile& tile, i32 row, i32 column,
                        i32 lane) {
    if constexpr (kMask == AttentionMask::none) return;
    const i64 row_step = kKeyRows ? a.mask_key : a.mask_query,
              column_step = kKeyRows ? a.mask_query : a.mask_key;
    row += lane / 4, column += lane % 4 * 2;
    const i32 rows = (kKeyRows ? a.keys : a.queries) - row,
              columns = (kKeyRows ? a.queries : a.keys) - column;
    const M* p = mask + row * row_step + column * column_step;
    const bool pairs = !kKeyRows && a.mask_pairs;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const M* const at = p + (16 * m + 8 * h) * row_step;
          const bool is_row = 16 * m + 8 * h < rows;
          Vec<M, 2> pair{};
          if (pairs) {
            if (is_row && 8 * n < columns) pair = *reinterpret_cast<const Vec<M, 2>*>(at);
          } else {
            if (is_row && 8 * n < columns) pair.v[0] = *at;
            if (is_row && 8 * n + 1 < columns) pair.v[1] = at[column_step];
          }
          tile[m][n][h] = pair;
        }
      p += 8 * column_step;
    }
  }

  // The scores of 16 rows as exponents of 2; -inf where the key does not count. kEdge: some may be
  // beyond the last query or key, or the causal mask may hide some.
  template <bool kKeyRows, bool kEdge>
  DEVICE void finish_scores(const AttentionArgs& a, const Vec<M, 2> (&mask)[kTiles][2],
                            f32 (&s)[kTiles][4], i32 row, i32 column, i32 lane) {
    const f32 scale = a.scale * kLog2E;
#pragma unroll
    for (int n = 0; n < kTiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Position p = position<kKeyRows>(row, column + 8 * n, i, lane);
        bool counts = true;
        if constexpr (kEdge)
          counts = p.query < a.queries && p.key < a.keys && (!kCausal || p.key <= p.query);
        f32 x = s[n][i] * scale;
        if constexpr (kMask == AttentionMask::boolean)
          counts = counts && to_compute(mask[n][i / 2].v[i % 2]);
        if constexpr (kMask == AttentionMask::additive)
          x += to_compute(mask[n][i / 2].v[i % 2]) * kLog2E;
        s[n][i] = counts ? x : minus_infinity();
      }
  }
  template <bool kKeyRows>
  DEVICE void finish_scores(const AttentionArgs& a, const MaskTile& mask, Scores& s, i32 row,
                            i32 column, i32 lane) {
    const i32 last_row = row + kWarpRows - 1, last_column = column + kColumns - 1;
    const i32 first_query = kKeyRows ? column : row, last_key = kKeyRows ? last_row : last_column,
              last_query = kKeyRows ? last_column : last_row;
    const bool edge =
        last_key >= a.keys || last_query >= a.queries || (kCausal && last_key > first_query);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      const auto& part = mask[kMask == AttentionMask::none ? 0 : m];
      if (edge)
        finish_scores<kKeyRows, true>(a, part, s[m], row + 16 * m, column, lane);
      else
        finish_scores<kKeyRows, false>(a, part, s[m], row + 16 * m, column, lane);
    }
  }

  // Bit 4n + i: whether dropout keeps weight i of tile n of 16 rows. `head`: the number of the head
  // in the batch.
  template <bool kKeyRows>
  DEVICE u32 kept_weights(const AttentionArgs& a, i64 head, i32 row, i32 column, i32 lane) {
    const BlockStream<kDropout == AttentionDropout::moved> stream(a.block, a.seed, a.state);
    const auto number = [&](Position p) {
      return (u64(head) * u64(a.queries) + u64(p.query)) * u64(a.keys) + u64(p.key);
    };
    u32 kept = 0;
    if (a.keys % 4 != 0) {
#pragma unroll 1
      for (int i = 0; i < 4 * kTiles; ++i) {
        const u64 at = number(position<kKeyRows>(row, column + i / 4 * 8, i % 4, lane));
        const Lanes lanes = stream.block(at / 4);
        const u32 j = u32(at % 4), low = j & 1 ? lanes.v[1] : lanes.v[0],
                  high = j & 1 ? lanes.v[3] : lanes.v[2];
        kept |= u32((j & 2 ? high : low) <= a.last) << i;
      }
      return kept & a.any;
    }
    // Lanes with the four keys of a block have four blocks, or two, among them: each makes one, and
    // they tell each other.
    const int part = kKeyRows ? lane / 4 % 4 : lane % 2;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      Position p = position<kKeyRows>(row, column + 8 * n, kKeyRows ? part : 2 * part, lane);
      p.key &= ~3;
      const Lanes lanes = stream.block(number(p) / 4);
      u32 bits = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) bits |= u32(lanes.v[j] <= a.last) << j;
      bits <<= 4 * part;
      if constexpr (kKeyRows) {
        bits |= __shfl_xor_sync(~0u, bits, 4);
        bits |= __shfl_xor_sync(~0u, bits, 8);
        bits >>= lane / 4 % 4;
#pragma unroll
        for (int i = 0; i < 4; ++i) kept |= (bits >> 4 * i & 1) << (4 * n + i);
      } else {
        bits |= __shfl_xor_sync(~0u, bits, 1);
        bits >>= lane % 2 * 2;
        kept |= ((bits & 3) | (bits >> 2 & 12)) << (4 * n);
      }
    }
    return kept & a.any;
  }

  DEVICE f32 quad_max(f32 v) {
    v = fmaxf(v, __shfl_xor_sync(~0u, v, 1));
    return fmaxf(v, __shfl_xor_sync(~0u, v, 2));
  }
  DEVICE f32 quad_sum(f32 v) {
    v += __shfl_xor_sync(~0u, v, 1);
    return v + __shfl_xor_sync(~0u, v, 2);
  }

  // Rows [first, ...) of `rows` of a matrix from the sums of a warp, times factors by row.
  template <int kWidth>
  DEVICE void store_rows(T* to, i64 stride, i32 first, i32 rows, i32 width,
                         const f32 (&sums)[kRowTiles][kWidth / 8][4],
                         const f32 (&factor)[kRowTiles][2], i32 lane) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const i32 row = first + 16 * m + 8 * h + lane / 4;
        if (row >= rows) continue;
        T* const p = to + row * stride;
#pragma unroll
        for (int n = 0; n < kWidth / 8; ++n) {
          const i32 at = 8 * n + lane % 4 * 2;
          Vec<T, 2> pair;
          pair.v[0] = from_compute<T>(sums[m][n][2 * h] * factor[m][h]);
          pair.v[1] = from_compute<T>(sums[m][n][2 * h + 1] * factor[m][h]);
          if constexpr (kVector) {
            if (at < width) *reinterpret_cast<Vec<T, 2>*>(p + at) = pair;
          } else {
            if (at < width) p[at] = pair.v[0];
            if (at + 1 < width) p[at + 1] = pair.v[1];
          }
        }
      }
  }

  // Calls compute(step, memory) for all steps, while load(step, memory) of the next one goes on.
  template <class Load, class Compute>
  DEVICE void stream(i32 steps, char* stages, int size, Load&& load, Compute&& compute) {
    if (steps > 0) load(0, stages);
    for (i32 s = 0; s < steps; ++s) {
      wait_for_copies();
      __syncthreads();  // all see this stage, and are done with the other
      if (s + 1 < steps) load(s + 1, stages + (s + 1) % 2 * size);
      compute(s, stages + s % 2 * size);
    }
    if (steps == 0) {
      wait_for_copies();
      __syncthreads();
    }
  }
  DEVICE i32 steps_of(i32 columns) { return (columns + kColumns - 1) / kColumns; }
  // The keys that some query among the rows sees.
  DEVICE i32 seen_keys(const AttentionArgs& a, i32 first) {
    return kCausal ? min(a.keys, first + kRows) : a.keys;
  }
  DEVICE void load_keys(const AttentionArgs& a, const T* k, const T* v, i32 first, char* to) {
    load_lines<kColumns, kDim>(to, k, a.k.row, first, a.keys, a.dim);
    load_lines<kColumns, kValueDim>(to + kColumns * kPitch, v, a.v.row, first, a.keys, a.value_dim);
  }

  DEVICE void forward(const AttentionArgs& a, char* shared) {
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
          MaskTile hides;
          load_mask<false>(a, mask, hides, row, column, lane);
          Scores s;
          multiply<kDim>(s, shared + warp_row * kPitch, stage, lane);
          finish_scores<false>(a, hides, s, row, column, lane);
#pragma unroll
          for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
              f32 most = largest[m][h];
#pragma unroll
              for (int n = 0; n < kTiles; ++n)
                most = fmaxf(most, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
              most = quad_max(most);
              // Without any key so far: weights 0, not NaN.
              const f32 base = most == minus_infinity() ? 0.0f : most;
              const f32 fade = fast_exp2(largest[m][h] - base);
              largest[m][h] = most;
              f32 sum = 0;
#pragma unroll
              for (int n = 0; n < kTiles; ++n)
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                  s[m][n][2 * h + e] = fast_exp2(s[m][n][2 * h + e] - base);
                  sum += s[m][n][2 * h + e];
                }
              total[m][h] = total[m][h] * fade + sum;
#pragma unroll
              for (int n = 0; n < kValueDim / 8; ++n)
                sums[m][n][2 * h] *= fade, sums[m][n][2 * h + 1] *= fade;
            }
            if constexpr (kDropout != AttentionDropout::none) {
              const u32 kept = kept_weights<false>(a, at.number, row + 16 * m, column, lane);
#pragma unroll
              for (int n = 0; n < kTiles; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i)
                  s[m][n][i] = kept >> (4 * n + i) & 1 ? s[m][n][i] * a.kept_scale : 0.0f;
            }
          }
          accumulate<kValueDim>(sums, s, stage + kColumns * kPitch, lane);
        });

    f32 factor[kRowTiles][2];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const f32 all = quad_sum(total[m][h]);
        factor[m][h] = all == 0.0f ? 0.0f : 1.0f / all;
        const i32 query = row + 16 * m + 8 * h + lane / 4;
        if (a.lse && lane % 4 == 0 && query < a.queries) {
          const f32 base = largest[m][h] == minus_infinity() ? 0.0f : largest[m][h];
          a.lse[at.batch * a.lse_batch + at.head * a.lse_head + query * a.lse_row] =
              base * kLn2 + logf(all);
        }
      }
    store_rows<kValueDim>(matrix(a.out, at.batch, at.head), a.out.row, row, a.queries, a.value_dim,
                          sums, factor, lane);
  }

  // From scores as exponents and the gradients of the weights that were dropped: scores becomes the
  // weights after dropout, grads the gradients of the scores. lse(m, i) is the logarithm of element
  // i's query in row tile m, delta the same.
  template <bool kKeyRows, class Lse, class Delta>
  DEVICE void gradients(const AttentionArgs& a, i64 head, Scores& s, Scores& grads, i32 row,
                        i32 column, i32 lane, Lse&& lse, Delta&& delta) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      u32 kept = 0;
      if constexpr (kDropout != AttentionDropout::none)
        kept = kept_weights<kKeyRows>(a, head, row + 16 * m, column, lane);
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const f32 p = fast_exp2(s[m][n][i] - lse(m, n, i));
          f32 g = grads[m][n][i];
          s[m][n][i] = p;
          if constexpr (kDropout != AttentionDropout::none) {
            const bool is_kept = kept >> (4 * n + i) & 1;
            g = is_kept ? g * a.kept_scale : 0.0f;
            s[m][n][i] = is_kept ? p * a.kept_scale : 0.0f;
          }
          grads[m][n][i] = p * (g - delta(m, n, i));
        }
    }
  }
  // Of a row without any key the logarithm is -inf, as its scores are.
  DEVICE f32 exponent_of(f32 lse) { return lse == minus_infinity() ? 0.0f : lse * kLog2E; }

  DEVICE void queries(const AttentionArgs& a, char* shared) {
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
    const auto prepare = [&] {
      const T* const out = matrix(a.out, at.batch, at.head);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const i32 line = warp_row + 16 * m + 8 * h + lane / 4, query = at.first + line;
          f32 sum = 0;
          if (query < a.queries)
#pragma unroll 8
            for (i32 d = lane % 4; d < a.value_dim; d += 4)
              sum += to_compute(out[query * a.out.row + d]) *
                     to_compute(reinterpret_cast<const T*>(grads + line * kValuePitch)[d]);
          delta[m][h] = quad_sum(sum);
          exponent[m][h] = 0;
          if (query < a.queries) {
            exponent[m][h] = exponent_of(
                a.lse[at.batch * a.lse_batch + at.head * a.lse_head + query * a.lse_row]);
            if (lane % 4 == 0) a.delta[at.number * a.queries + query] = delta[m][h];
          }
        }
    };

    Sums sums;
    clear(sums);
    stream(
        steps_of(seen_keys(a, at.first)), shared + kKept + kKeptValues, kStage,
        [&](i32 step, char* stage) { load_keys(a, k, v, step * kColumns, stage); },
        [&](i32 step, const char* stage) {
          if (step == 0) prepare();
          const i32 column = step * kColumns;
          if (kCausal && column > row + kWarpRows - 1) return;
          MaskTile hides;
          load_mask<false>(a, mask, hides, row, column, lane);
          Scores s, g;
          multiply<kDim>(s, shared + warp_row * kPitch, stage, lane);
          multiply<kValueDim>(g, grads + warp_row * kValuePitch, stage + kColumns * kPitch, lane);
          finish_scores<false>(a, hides, s, row, column, lane);
          gradients<false>(
              a, at.number, s, g, row, column, lane,
              [&](int m, int, int i) { return exponent[m][i / 2]; },
              [&](int m, int, int i) { return delta[m][i / 2]; });
          accumulate<kDim>(sums, g, stage, lane);
        });
    f32 factor[kRowTiles][2];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) factor[m][0] = factor[m][1] = a.scale;
    store_rows<kDim>(matrix(a.grad_q, at.batch, at.head), a.grad_q.row, row, a.queries, a.dim, sums,
                     factor, lane);
  }

  DEVICE void keys(const AttentionArgs& a, char* shared) {
    const i32 kv_heads = a.heads / a.group;
    const Place at = place_of(a, a.keys, kv_heads, false);
    const i32 lane = i32(threadIdx.x) % 32, warp_row = i32(threadIdx.x) / 32 * kWarpRows,
              row = at.first + warp_row;
    load_lines<kRows, kDim>(shared, matrix(a.k, at.batch, at.head), a.k.row, at.first, a.keys,
                            a.dim);
    load_lines<kRows, kValueDim>(shared + kKept, matrix(a.v, at.batch, at.head), a.v.row, at.first,
                                 a.keys, a.value_dim);
    constexpr int kSize = kStage + 2 * kColumns * int(sizeof(f32));
    // Queries before the first key see nothing here.
    const i32 first_step = kCausal ? at.first / kColumns : 0,
              steps = max(steps_of(a.queries) - first_step, 0);

    Sums sums;
    ValueSums value_sums;
    clear(sums);
    clear(value_sums);
    stream(
        steps * a.group, shared + kKept + kKeptValues, kSize,
        [&](i32 step, char* stage) {
          const i32 head = at.head * a.group + step / steps,
                    first = (first_step + step % steps) * kColumns;
          load_lines<kColumns, kDim>(stage, matrix(a.q, at.batch, head), a.q.row, first, a.queries,
                                     a.dim);
          load_lines<kColumns, kValueDim>(stage + kColumns * kPitch,
                                          matrix(a.grad_out, at.batch, head), a.grad_out.row, first,
                                          a.queries, a.value_dim);
          const i64 number = i64(at.batch) * a.heads + head;
          const f32 *const lse = a.lse + at.batch * a.lse_batch + head * a.lse_head,
                           *const delta = a.delta + number * a.queries;
          for (i32 i = i32(threadIdx.x); i < 2 * kColumns; i += kThreads) {
            const i32 query = first + i % kColumns;
            const bool inside = query < a.queries;
            const f32* const from = i < kColumns ? lse + query * a.lse_row : delta + query;
            copy_async<4>(stage + kStage + i * 4, inside ? from : delta, inside);
          }
        },
        [&](i32 step, const char* stage) {
          const i32 head = at.head * a.group + step / steps,
                    column = (first_step + step % steps) * kColumns;
          if (kCausal && row > column + kColumns - 1) return;
          const M* const mask = mask_of(a, at.batch, head);
          const f32* const numbers = reinterpret_cast<const f32*>(stage + kStage);
          MaskTile hides;
          load_mask<true>(a, mask, hides, row, column, lane);
          Scores s, g;
          multiply<kDim>(s, shared + warp_row * kPitch, stage, lane);
          multiply<kValueDim>(g, shared + kKept + warp_row * kValuePitch, stage + kColumns * kPitch,
                              lane);
          finish_scores<true>(a, hides, s, row, column, lane);
          const auto place = [&](int n, int i) { return 8 * n + lane % 4 * 2 + i % 2; };
          gradients<true>(
              a, i64(at.batch) * a.heads + head, s, g, row, column, lane,
              [&](int, int n, int i) { return exponent_of(numbers[place(n, i)]); },
              [&](int, int n, int i) { return numbers[kColumns + place(n, i)]; });
          // Lines beyond the last query are zeros, but a key times 0 may be NaN.
          if (column + kColumns > a.queries)
#pragma unroll
            for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
              for (int n = 0; n < kTiles; ++n)
#pragma unroll
                for (int i = 0; i < 4; ++i)
                  if (column + place(n, i) >= a.queries) g[m][n][i] = 0;
          accumulate<kValueDim>(value_sums, s, stage + kColumns * kPitch, lane);
          accumulate<kDim>(sums, g, stage, lane);
        });
    f32 factor[kRowTiles][2], one[kRowTiles][2];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) factor[m][h] = a.scale, one[m][h] = 1;
    store_rows<kDim>(matrix(a.grad_k, at.batch, at.head), a.grad_k.row, row, a.keys, a.dim, sums,
                     factor, lane);
    store_rows<kValueDim>(matrix(a.grad_v, at.batch, at.head), a.grad_v.row, row, a.keys,
                          a.value_dim, value_sums, one, lane);
  }
};
