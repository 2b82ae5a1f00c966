// Attention without storing the scores: what its passes share.
//
// Note [Attention on tensor cores]
// A block keeps some rows of the scores (FlashAttention: Dao and others, 2022) and takes their
// columns tile by tile through shared memory, the next tile on its way while one is computed:
//
//   kernel               rows     columns  keeps        streams      sums
//   attention_forward    queries  keys     q            k, v         out, largest score, total
//   attention_queries    queries  keys     q, grad_out  k, v         grad_q
//   attention_keys       keys     queries  k, v         q, grad_out  grad_k, grad_v
//   attention_gradients  keys     queries  k, v         q, grad_out  grad_k, grad_v, grad_q
//
// A warp has whole rows, 16 or 32 of them, so that scores never leave its registers: what the first
// product gives is what the second takes (Note [Fragments]), with the scores transposed where keys
// are rows. Backward, attention_prepare comes first: it gives each query's exponent and delta, the
// sum of out * grad_out. Heads of q that share one of k come one after the other where keys are
// rows. Exponents are of 2: scores are multiplied by log2(e), where a mask is added after the
// largest is subtracted, since the lowest finite number, which masks may have in whole rows, must
// not become -inf.
//
// There are two ways backward. attention_queries and attention_keys make each sum by one warp in
// the order of the columns: the same bits every time, for which they compute scores and gradients
// of weights twice, seven products in all. attention_gradients computes them once (FlashAttention
// 2: Dao, 2023): gradients of scores, of a half type, go through shared memory, each warp
// multiplies a part of them by the keys of the block, and blocks add what they have of grad_q by
// atomics, in f32 and in any order. attention_finish rounds these sums.
//
// The order of keys within a tile is free, as long as k and v have the same. It is such that a lane
// has neighbouring ones, whose part of a mask it reads at once and which one block of random
// numbers serves: load_lines() puts them where they belong. Where queries are so few that their
// blocks would leave multiprocessors idle, several blocks take parts of the keys for the same rows
// and attention_combine puts their sums together (FlashDecoding: Dao and others, 2023). Tensor
// cores round sums towards zero. Those of f32 are made for a tile of columns each and added up
// outside, else they would become smaller by 2^-24 with every step.
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
  f32* lse;
  // (batch, head, query) without gaps: the exponent (of lse, as base_of() has it) and delta. Of
  // parts of a forward pass (batch, head, part, query): the largest score and the total.
  Vec<f32, 2>* numbers;
  // Of grad_q, as sums_of() has them. Of parts (batch, head, part, query, kValueDim): of the
  // values.
  f32* sums;
  i64 lse_batch, lse_head, lse_row;
  const void* mask;
  i64 mask_batch, mask_head, mask_query, mask_key;
  u64 block;         // of random numbers
  const u64* state;  // read by kernels with kMoved only
  i32 heads, group;  // of q; how many of them share one of k
  i32 queries, keys, dim, value_dim;
  i32 parts;      // forward: so many blocks share the keys of the same rows
  i32 all_heads;  // of all batches
  f32 scale, kept_scale;
  u32 mask_vectors;  // whether the mask may be read 16 bytes at a time, to its last key
  u32 last, any;     // weights whose lanes are up to `last` are kept; any: 0 if none is, else ~0
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
template <class T_, int kDim_, int kValueDim_, int kWarps_, int kRowTiles_, int kColumns_,
          AttentionMask kMask_, bool kCausal_, AttentionDropout kDropout_, bool kVector_,
          bool kSplit_>
struct AttentionShape {
  typedef T_ T;
  static const int kDim = kDim_, kValueDim = kValueDim_, kWarps = kWarps_, kRowTiles = kRowTiles_,
                   kColumns = kColumns_;
  static const AttentionMask kMask = kMask_;
  static const AttentionDropout kDropout = kDropout_;
  static const bool kCausal = kCausal_, kVector = kVector_, kSplit = kSplit_;
};

/// K: an AttentionShape. The passes are in attention_forward.cuh and attention_backward.cuh.
template <class K>
struct Attention {
  typedef typename K::T T;
  static const int kDim = K::kDim, kValueDim = K::kValueDim, kWarps = K::kWarps,
                   kRowTiles = K::kRowTiles, kColumns = K::kColumns;
  static const AttentionMask kMask = K::kMask;
  static const AttentionDropout kDropout = K::kDropout;
  static const bool kCausal = K::kCausal, kVector = K::kVector, kSplit = K::kSplit;
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
  // Gradients of scores, a line for each key.
  static const int kScorePitch = kColumns * int(sizeof(T)) + 16;
  static const int kGradientsShared = kKeysShared + kRows * kScorePitch;
  static const int kPrepareShared = 0, kFinishShared = 0, kCombineShared = 0;

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
    return place_of(a, rows, heads, last_first, blockIdx.x);
  }
  DEVICE Place place_of(const AttentionArgs& a, i32 rows, i32 heads, bool last_first, u32 block) {
    const u32 tiles = u32(rows + kRows - 1) / kRows, number = block / tiles;
    u32 tile = block % tiles;
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

  // Where line `i` of a tile goes in shared memory: keys in columns are such that a lane has kRun
  // neighbouring ones in each row, keys in rows that it has so many in each column.
  enum class Order { plain, key_columns, key_rows };
  template <bool kKeyRows>
  static constexpr int kRun = kKeyRows ? 2 * kRowTiles : 2 * kTiles;
  template <Order kOrder>
  static constexpr __device__ int place_of_line(int i) {
    constexpr int kColumnRun = kRun<false>, kRowRun = kRun<true>;
    if (kOrder == Order::key_columns) return i % kColumnRun / 2 * 8 + i / kColumnRun * 2 + i % 2;
    if (kOrder == Order::key_rows)
      return i / kWarpRows * kWarpRows + i % kRowRun * 8 + i % kWarpRows / kRowRun;
    return i;
  }

  // Lines [first, first + kLines) of a matrix with `lines` of `width` elements, zeros beyond.
  template <int kLines, int kWidth, Order kOrder = Order::plain>
  DEVICE void load_lines(char* to, const T* from, i64 stride, i32 first, i32 lines, i32 width) {
    constexpr int kChunk = kVector ? 16 / int(sizeof(T)) : 1, kChunks = kWidth / kChunk;
    constexpr int kBytes = kChunk * int(sizeof(T)), kTo = kWidth * int(sizeof(T)) + 16;
    // Threads side by side on a line, the rest of them on the lines after it.
    constexpr int kAcross = (kChunks & -kChunks) < kThreads ? (kChunks & -kChunks) : kThreads;
    constexpr int kDown = kThreads / kAcross;
    const i32 thread = i32(threadIdx.x), across = thread % kAcross, down = thread / kAcross;
    const T* p = from + i64(first + down) * stride + across * kChunk;
    const i64 step = kDown * stride;
    // The places are those of their bits.
    to += place_of_line<kOrder>(down) * kTo + across * kBytes;
#pragma unroll
    for (int line = 0; line < kLines; line += kDown, p += step) {
      if (kLines % kDown != 0 && line + down >= kLines) break;
      char* const q = to + place_of_line<kOrder>(line) * kTo;
      const bool is_line = first + line + down < lines;
#pragma unroll
      for (int i = 0; i < kChunks; i += kAcross) {
        const bool inside = is_line && (i + across) * kChunk < width;
        if constexpr (kBytes >= 4)
          copy_async<kBytes>(q + i * kBytes, inside ? p + i * kChunk : from, inside ? kBytes : 0);
        else
          *reinterpret_cast<T*>(q + i * kBytes) = inside ? p[i * kChunk] : T{};
      }
    }
  }

  // scores = rows @ columns^T, over a width of kWidth.
  template <int kWidth>
  DEVICE void multiply(Scores& s, const char* rows, const char* columns, i32 lane) {
    constexpr int kTo = kWidth * int(sizeof(T)) + 16, kSteps = kWidth / Tile::kStep;
    clear(s);
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
    // Tiles of sums at a time.
    constexpr int kPart = kSplit && kWidth % 64 == 0 ? 8 / kRowTiles : kWidth / 8;
#pragma unroll
    for (int first = 0; first < kWidth / 8; first += kPart) {
      f32 part[kRowTiles][kPart][4];
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
        for (int n = 0; n < kPart; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) part[m][n][i] = kSplit ? 0 : sums[m][first + n][i];
#pragma unroll
      for (int k = 0; k < kColumns / Tile::kStep; ++k) {
        typename Tile::A a[kRowTiles];
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) Tile::set_rows(a[m], &s[m][k * Tile::kTiles]);
#pragma unroll
        for (int n = 0; n < kPart; n += 2) {
          typename Tile::B b[2];
          Tile::template load_rows<kTo>(
              b, lines + k * Tile::kStep * kTo + (first + n) * 8 * int(sizeof(T)), lane);
          Tile::multiply(part, n, a, b);
        }
      }
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
        for (int n = 0; n < kPart; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            sums[m][first + n][i] = kSplit ? sums[m][first + n][i] + part[m][n][i] : part[m][n][i];
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

  // Where element i of tile (m, n) lies that a lane has of the scores from (row, column) on.
  struct Position {
    i32 query, key;
  };
  template <bool kKeyRows>
  DEVICE Position position(i32 row, i32 column, int m, int n, int i, i32 lane) {
    if (kKeyRows)
      return {column + 8 * n + lane % 4 * 2 + i % 2, row + lane / 4 * kRun<true> + 2 * m + i / 2};
    return {row + 16 * m + i / 2 * 8 + lane / 4, column + lane % 4 * kRun<false> + 2 * n + i % 2};
  }

  // The part of the mask that a warp needs, for each lane where its scores are, as words: runs of
  // neighbouring keys, one for each row or column. It is read before the scores are computed, for
  // which time it may take.
  typedef typename MaskElement<T, kMask>::type M;
  DEVICE const M* mask_of(const AttentionArgs& a, i32 batch, i32 head) {
    return static_cast<const M*>(a.mask) + batch * a.mask_batch + head * a.mask_head;
  }
  template <bool kKeyRows>
  struct MaskTile {
    static const int kRuns = kKeyRows ? 2 * kTiles : 2 * kRowTiles;
    static const int kBytes = kRun<kKeyRows> * int(sizeof(M)), kWords = (kBytes + 3) / 4;
    static const int kVectorBytes = kBytes < 16 ? kBytes : 16;
    u32 words[kMask == AttentionMask::none ? 1 : kRuns][kWords];

    __device__ __forceinline__ void load(const AttentionArgs& a, const M* mask, i32 row, i32 column,
                                         i32 lane) {
      if constexpr (kMask == AttentionMask::none) return;
#pragma unroll
      for (int r = 0; r < kRuns; ++r) {
        const Position at = kKeyRows ? position<true>(row, column, 0, r / 2, r % 2, lane)
                                     : position<false>(row, column, r / 2, 0, r % 2 * 2, lane);
        const M* const p = mask + at.query * a.mask_query + at.key * a.mask_key;
#pragma unroll
        for (int w = 0; w < kWords; ++w) words[r][w] = 0;
        if (a.mask_vectors) {
#pragma unroll
          for (int w = 0; w < kBytes; w += kVectorBytes)
            if (at.query < a.queries && at.key + w / int(sizeof(M)) < a.keys)
              load_bytes<kVectorBytes>(words[r] + w / 4, reinterpret_cast<const char*>(p) + w);
        } else {
#pragma unroll
          for (int k = 0; k < kRun<kKeyRows>; ++k)
            if (at.query < a.queries && at.key + k < a.keys)
              words[r][k * int(sizeof(M)) / 4] |= bits_of(p[k * a.mask_key])
                                                  << k * int(sizeof(M)) % 4 * 8;
        }
      }
    }
    // Bytes of the score's mask as they lie in its word, and as a number.
    __device__ __forceinline__ u32 word(int m, int n, int i, int& byte) const {
      const int run = kKeyRows ? 2 * n + i % 2 : 2 * m + i / 2,
                k = kKeyRows ? 2 * m + i / 2 : 2 * n + i % 2;
      byte = k * int(sizeof(M)) % 4;
      return words[run][k * int(sizeof(M)) / 4];
    }
    __device__ __forceinline__ bool shows(int m, int n, int i) const {
      int byte;
      const u32 w = word(m, n, i, byte);
      return (w & 0xffu << 8 * byte) != 0;
    }
    __device__ __forceinline__ f32 number(int m, int n, int i) const {
      int byte;
      const u32 w = word(m, n, i, byte);
      return number_in(w, byte, T());
    }
  };
  DEVICE u32 bits_of(boolean v) { return v.bits; }
  DEVICE u32 bits_of(f16 v) { return v.bits; }
  DEVICE u32 bits_of(bf16 v) { return v.bits; }
  DEVICE u32 bits_of(f32 v) { return __float_as_uint(v); }
  DEVICE f32 number_in(u32 word, int, f32) { return __uint_as_float(word); }
  DEVICE f32 number_in(u32 word, int byte, f16) { return f16_value(u16(word >> 8 * byte)); }
  DEVICE f32 number_in(u32 word, int byte, bf16) {
    return __uint_as_float(byte ? word & 0xffff0000u : word << 16);
  }
  template <int kBytes>
  DEVICE void load_bytes(u32* to, const char* from) {
    if constexpr (kBytes == 2) {
      *to = *reinterpret_cast<const u16*>(from);
    } else {
      const Vec<u32, kBytes / 4> v = *reinterpret_cast<const Vec<u32, kBytes / 4>*>(from);
#pragma unroll
      for (int i = 0; i < kBytes / 4; ++i) to[i] = v.v[i];
    }
  }

  // The weight of a finished score relative to `base`, which base_of() makes of one; that of -inf
  // is 0, so that weights of a row without any key are 0, not NaN.
  static const bool kAdds = kMask == AttentionMask::additive;
  DEVICE f32 factor_of(const AttentionArgs& a) { return kAdds ? 1 : a.scale * kLog2E; }
  DEVICE f32 base_of(f32 v, f32 factor) { return v == minus_infinity() ? 0.0f : v * factor; }
  DEVICE f32 weight_of(f32 score, f32 factor, f32 base) {
    return fast_exp2(kAdds ? (score - base) * kLog2E : score * factor - base);
  }

  // Scores become what weight_of() takes: -inf where the key does not count. kEdge: some may be
  // beyond the last query or key, or the causal mask may hide some.
  template <bool kKeyRows, bool kEdge>
  DEVICE void finish_scores(const AttentionArgs& a, const MaskTile<kKeyRows>& mask, Scores& s,
                            i32 row, i32 column, i32 lane) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          f32& x = s[m][n][i];
          if constexpr (kAdds) x = x * a.scale + mask.number(m, n, i);
          if constexpr (kMask == AttentionMask::boolean)
            x = mask.shows(m, n, i) ? x : minus_infinity();
          if constexpr (kEdge) {
            const Position p = position<kKeyRows>(row, column, m, n, i, lane);
            x = p.query < a.queries && p.key < a.keys && (!kCausal || p.key <= p.query)
                    ? x
                    : minus_infinity();
          }
        }
  }
  template <bool kKeyRows>
  DEVICE void finish_scores(const AttentionArgs& a, const MaskTile<kKeyRows>& mask, Scores& s,
                            i32 row, i32 column, i32 lane) {
    const i32 last_row = row + kWarpRows - 1, last_column = column + kColumns - 1;
    const i32 first_query = kKeyRows ? column : row, last_key = kKeyRows ? last_row : last_column,
              last_query = kKeyRows ? last_column : last_row;
    if (last_key >= a.keys || last_query >= a.queries || (kCausal && last_key > first_query))
      finish_scores<kKeyRows, true>(a, mask, s, row, column, lane);
    else
      finish_scores<kKeyRows, false>(a, mask, s, row, column, lane);
  }

  // Whether dropout keeps kCount neighbouring weights, as bits, from number `first` on; kAcross:
  // which may lie within a block of random numbers.
  template <int kCount, bool kAcross, class Stream>
  DEVICE u32 draw_run(const AttentionArgs& a, const Stream& stream, u64 first) {
    u32 bits = 0;
#pragma unroll
    for (int b = 0; b < kCount / 4 + kAcross; ++b) {
      const Lanes lanes = stream.block(first / 4 + b);
#pragma unroll
      for (int j = 0; j < 4; ++j) bits |= u32(lanes.v[j] <= a.last) << (4 * b + j);
    }
    return kAcross ? bits >> first % 4 & ((1u << kCount) - 1) : bits;
  }
  // Bit 4n + i of word m: whether dropout keeps weight i of tile (m, n). `head`: the number of the
  // head in the batch. kAcross: rows of the scores begin anywhere in blocks of random numbers.
  template <bool kKeyRows, bool kAcross>
  DEVICE void draw(const AttentionArgs& a, u32 (&kept)[kRowTiles], i64 head, i32 row, i32 column,
                   i32 lane) {
    constexpr int kCount = kRun<kKeyRows>;
    const BlockStream<kDropout == AttentionDropout::moved> stream(a.block, a.seed, a.state);
    const Position at = position<kKeyRows>(row, column, 0, 0, 0, lane);
    const u64 first = (u64(head) * u64(a.queries) + u64(at.query)) * u64(a.keys) + u64(at.key);
    // So many queries further on.
    const auto number = [&](int queries) { return first + u64(u32(queries)) * u32(a.keys); };
    if constexpr (!kKeyRows) {
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        kept[m] = 0;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          u32 bits = draw_run<kCount, kAcross>(a, stream, number(16 * m + 8 * h));
          // Pairs of bits to every fourth place.
          bits = (bits | bits << 8) & 0x00ff00ffu;
          bits = (bits | bits << 4) & 0x0f0f0f0fu;
          bits = (bits | bits << 2) & 0x33333333u;
          kept[m] |= bits << 2 * h;
        }
      }
    } else {
      // Four bits for each tile, those of neighbouring keys: for the first of a lane's two queries,
      // and for the second.
      u32 words[2] = {0, 0};
      if constexpr (kCount < 4 && !kAcross) {
        // Two lanes have halves of the same blocks: one draws for the first query, one for the
        // second.
        const i32 half = lane / 4 % 2;
        u32 own = 0;
#pragma unroll
        for (int n = 0; n < kTiles; ++n)
          own |= draw_run<4, false>(a, stream, number(8 * n) + u64(half * a.keys)) << 4 * n;
        const u32 other = __shfl_xor_sync(~0u, own, 4);
        words[0] = (half ? other : own) >> 2 * half;
        words[1] = (half ? own : other) >> 2 * half;
      } else {
#pragma unroll
        for (int n = 0; n < kTiles; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e)
            words[e] |= draw_run<4, kAcross>(a, stream, number(8 * n + e)) << 4 * n;
      }
      // Bits of one word to every second place.
      const auto apart = [](u32 v) { return (v & 0x11111111u) | (v & 0x22222222u) << 1; };
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m)
        kept[m] = apart(words[0] >> 2 * m) | apart(words[1] >> 2 * m) << 1;
    }
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) kept[m] &= a.any;
  }
  template <bool kKeyRows>
  DEVICE void draw(const AttentionArgs& a, u32 (&kept)[kRowTiles], i64 head, i32 row, i32 column,
                   i32 lane) {
    if (a.keys % 4 != 0)
      draw<kKeyRows, true>(a, kept, head, row, column, lane);
    else
      draw<kKeyRows, false>(a, kept, head, row, column, lane);
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
  template <int kWidth, bool kKeyRows>
  DEVICE void store_rows(T* to, i64 stride, i32 first, i32 rows, i32 width,
                         const f32 (&sums)[kRowTiles][kWidth / 8][4],
                         const f32 (&factor)[kRowTiles][2], i32 lane) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const Position at = position<kKeyRows>(first, 0, m, 0, 2 * h, lane);
        const i32 row = kKeyRows ? at.key : at.query;
        if (row >= rows) continue;
        T* const p = to + row * stride;
#pragma unroll
        for (int n = 0; n < kWidth / 8; ++n) {
          const i32 e = 8 * n + lane % 4 * 2;
          Vec<T, 2> pair;
          pair.v[0] = from_compute<T>(sums[m][n][2 * h] * factor[m][h]);
          pair.v[1] = from_compute<T>(sums[m][n][2 * h + 1] * factor[m][h]);
          if constexpr (kVector) {
            if (e < width) *reinterpret_cast<Vec<T, 2>*>(p + e) = pair;
          } else {
            if (e < width) p[e] = pair.v[0];
            if (e + 1 < width) p[e + 1] = pair.v[1];
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
    load_lines<kColumns, kDim, Order::key_columns>(to, k, a.k.row, first, a.keys, a.dim);
    load_lines<kColumns, kValueDim, Order::key_columns>(to + kColumns * kPitch, v, a.v.row, first,
                                                        a.keys, a.value_dim);
  }

  // Weights before dropout, from finished scores. lse(m, n, i) is the logarithm of the element's
  // query as a base.
  template <class Lse>
  DEVICE void make_weights(const AttentionArgs& a, Scores& s, Lse&& lse) {
    const f32 exponents = factor_of(a);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) s[m][n][i] = weight_of(s[m][n][i], exponents, lse(m, n, i));
  }
  // What dropout makes of an element, of a weight or of the gradient of one, but for its scale.
  DEVICE f32 dropped(f32 v, const u32 (&kept)[kRowTiles], int m, int n, int i) {
    if constexpr (kDropout == AttentionDropout::none) return v;
    return kept[m] >> (4 * n + i) & 1 ? v : 0.0f;
  }
  DEVICE f32 kept_scale(const AttentionArgs& a) {
    return kDropout == AttentionDropout::none ? 1.0f : a.kept_scale;
  }
  // Weights become the gradients of scores; `grads` are those of the weights after dropout.
  template <class Delta>
  DEVICE void make_gradients(const AttentionArgs& a, Scores& s, const Scores& grads,
                             const u32 (&kept)[kRowTiles], Delta&& delta) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          s[m][n][i] *= dropped(grads[m][n][i], kept, m, n, i) * kept_scale(a) - delta(m, n, i);
  }

  // The sums of grad_q for tile `tile` of 16 queries, as lanes have them: those of two neighbouring
  // tiles (Note [Fragments]) side by side, for the upper eight queries and then the lower ones.
  DEVICE Vec<f32, 4>* sums_of(const AttentionArgs& a, i64 head, i32 tile, i32 lane) {
    return reinterpret_cast<Vec<f32, 4>*>(a.sums) +
           (head * ((a.queries + 15) / 16) + tile) * (4 * kDim) + lane;
  }

  DEVICE void forward(const AttentionArgs& a, char* shared);
  DEVICE void combine(const AttentionArgs& a, char*);
  // Where a part's numbers and sums of a query are.
  DEVICE i64 place_of_part(const AttentionArgs& a, i64 head, i32 part, i32 query) {
    return (head * a.parts + part) * a.queries + query;
  }
  DEVICE f32* lse_of(const AttentionArgs& a, i32 batch, i32 head, i32 query) {
    return a.lse + batch * a.lse_batch + head * a.lse_head + query * a.lse_row;
  }
  // The logarithm that is stored, from what weights are relative to and their sum.
  DEVICE f32 log_of(f32 base, f32 total) { return (kAdds ? base : base * kLn2) + logf(total); }

  // What the other kernels of the backward pass read of each query, and zeros to add to.
  DEVICE void prepare(const AttentionArgs& a, char*);
  DEVICE void queries(const AttentionArgs& a, char* shared);
  DEVICE void keys(const AttentionArgs& a, char* shared) { stream_queries<false>(a, shared); }
  DEVICE void gradients(const AttentionArgs& a, char* shared) { stream_queries<true>(a, shared); }
  // grad_q from its sums.
  DEVICE void finish(const AttentionArgs& a, char*);

 private:
  template <bool kQueries>
  DEVICE void stream_queries(const AttentionArgs& a, char* shared);
  DEVICE void add_to_queries(const AttentionArgs& a, i64 head, i32 column, const char* scores,
                             const char* keys, i32 lines, i32 lane);
};
