// Reductions of strided operands, with or without positions: the bodies of the kernels that
// codegen/reduce.cpp and codegen/arg_reduce.cpp generate.
//
// A generated struct K says what is reduced:
//   kVector, kOperands, kOutputs, kRank, kReducedRank   see Note [Reduction plans], reduce_plan.h
//   kMain, kMainSize    operand (and its element size) by whose address rows are aligned
//   Index               i32 or i64: byte offsets and positions
//   Fold                what is accumulated: Lane (one thread's accumulator), Partial (what threads
//                       and blocks exchange), identity(), merge(), shuffle()
//   kFlush              rounds after which lanes are merged into the wider Partial; 0: at the end
//   Loaded<V>, load()   V neighbouring elements of every input
//   value(), add()      the value of one of them, its accumulation
//   Left, Right         tiles: stored elements of the inputs, of which value() takes one each
//   store()             a finished Partial to the outputs
#pragma once
#include "block.cuh"
#include "monoid.cuh"

union ReduceParam {
  f64 f;
  i64 i;
};

// Mirrors ReduceHeader of codegen/reduce_plan.h, then what depends on the kernel.
template <int kOperands, int kRank, int kParams>
struct ReduceArguments {
  i64 outputs;        // results
  i64 reduced;        // elements of each
  i64 splits;         // parts of one result; more than 1: they are written to `partials`
  i64 blocks;         // columns: number of blocks' tasks
  i64 column_blocks;  // columns: blocks along the column dimension ...
  i64 other_blocks;   // ... and along the other kept ones
  void* partials;
  i64 part_step, result_step;  // between partial results of one result, and of one part
  i32 log_x, log_y;  // rows: threads of one result; columns: threads along columns and rows
  char* data[kOperands];
  i64 sizes[kRank];
  i64 strides[kOperands][kRank];  // bytes
  ReduceParam params[kParams > 0 ? kParams : 1];
};

DEVICE i32 quotient(i32 a, i32 b) { return i32(u32(a) / u32(b)); }
DEVICE i64 quotient(i64 a, i64 b) { return ((a | b) >> 32) == 0 ? i64(u32(a) / u32(b)) : a / b; }

/// Adds the byte offsets of position `at` of dimensions [kFirst, kLast), the first one fastest.
template <class K, int kFirst, int kLast>
DEVICE void add_offsets(const typename K::Arguments& a, typename K::Index at,
                        typename K::Index* offsets) {
  typedef typename K::Index Index;
#pragma unroll
  for (int d = kFirst; d < kLast; ++d) {
    Index here = at;
    if (d + 1 < kLast) {
      const Index size = Index(a.sizes[d]);
      at = quotient(at, size);
      here -= at * size;
    }
#pragma unroll
    for (int o = 0; o < K::kOperands; ++o) offsets[o] += here * Index(a.strides[o][d]);
  }
}

/// Loads of each input that a thread has under way at once: with more than four vectors of all
/// inputs together, or two of bytes, compilers run out of the registers of kRowThreads and keep
/// some in memory.
template <class K, int V>
struct AtOnce {
  static const int kLoads = V == 1 ? 8 : K::kOperands - K::kOutputs == 1 && V <= 8 ? 4 : 2;
};

/// Accumulates the loads number begin + lane, begin + lane + step, ... below `end`, each of V
/// neighbours: along the reduced dimensions [kFirst, kLast) (kAlong: all go to total[0], load i
/// starts at element base + i * V) or across results (lane v goes to total[v], load i is element
/// i).
template <class K, int V, bool kAlong, int kFirst, int kLast, int kUnroll>
DEVICE void accumulate(const typename K::Arguments& a, char* const* p, typename K::Index begin,
                       typename K::Index lane, typename K::Index end, typename K::Index step,
                       typename K::Index base, typename K::Fold::Partial* total) {
  typedef typename K::Index Index;
  typedef typename K::template Loaded<V> Loaded;
  const Index kScale = kAlong ? V : 1, kLaneStep = kAlong ? 1 : 0;
  const int kLanes = kAlong && V > 8 ? 4 : V;  // for the same reason few of rows of bytes
  const auto load = [&](Loaded& l, Index number) {
    Index offsets[K::kOperands] = {};
    add_offsets<K, kFirst, kLast>(a, number * kScale, offsets);
    const char* at[K::kOperands];
#pragma unroll
    for (int o = K::kOutputs; o < K::kOperands; ++o) at[o] = p[o] + offsets[o];
    K::load(l, at);
  };
  Index i = begin + lane;
  while (i < end) {
    typename K::Fold::Lane lanes[kLanes];
#pragma unroll
    for (int v = 0; v < kLanes; ++v) lanes[v].clear(base + i * kScale + v * kLaneStep);
    const auto add = [&](const Loaded& l, Index number) {
#pragma unroll
      for (int v = 0; v < V; ++v)
        lanes[v % kLanes].add(K::value(l, v, a), base + number * kScale + v * kLaneStep);
    };
    bool whole = true;  // else the lanes are merged before the end
    int rounds = 0;
    // Along rows rounds are whole for all lanes or for none: a warp would take both ways, one after
    // the other.
    for (; kAlong ? end - (i - lane) >= kUnroll * step : end - i > (kUnroll - 1) * step;
         i += kUnroll * step) {
      if (K::kFlush > 0 && rounds++ == K::kFlush) {
        whole = false;
        break;
      }
      Loaded l[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) load(l[u], i + u * step);
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) add(l[u], i + u * step);
    }
    if (whole && i < end) {
      // The last loads are under way together, too.
      const int kRest = kAlong ? kUnroll : kUnroll - 1;
      Loaded l[kUnroll];
#pragma unroll
      for (int u = 0; u < kRest; ++u)
        if (u * step < end - i) load(l[u], i + u * step);
#pragma unroll
      for (int u = 0; u < kRest; ++u)
        if (u * step < end - i) add(l[u], i + u * step);
      i = end;
    }
#pragma unroll
    for (int v = 0; v < kLanes; ++v) {
      const int to = kAlong ? 0 : v;
      total[to] = K::Fold::merge(total[to], lanes[v].partial());
    }
  }
}

/// One part of one result along contiguous or arbitrary reduced dimensions, by a group of threads.
/// p: the result's operands. Returns this thread's share.
template <class K>
DEVICE typename K::Fold::Partial reduce_part(const typename K::Arguments& a, char* const* p,
                                             i64 split, typename K::Index lane,
                                             typename K::Index group) {
  typedef typename K::Index Index;
  const int V = K::kVector;
  typename K::Fold::Partial total = K::Fold::identity();
  const Index n = Index(a.reduced);
  Index head = 0;
  char* body[K::kOperands];
#pragma unroll
  for (int o = 0; o < K::kOperands; ++o) body[o] = p[o];
  if (K::kReducedRank == 1 && V > 1) {
    // Elements before the first aligned vector.
    const u32 past = u32(u64(p[K::kMain])) % u32(V * K::kMainSize);
    head = Index((u32(V * K::kMainSize) - past) / u32(K::kMainSize)) % V;
    head = head < n ? head : n;
#pragma unroll
    for (int o = K::kOutputs; o < K::kOperands; ++o) body[o] += head * Index(a.strides[o][0]);
  }
  const Index vectors = (n - head) / V;
  Index begin = 0, end = vectors;
  if (a.splits > 1) {
    begin = Index(i64(vectors) * split / a.splits);
    end = Index(i64(vectors) * (split + 1) / a.splits);
  }
  accumulate<K, V, true, 0, K::kReducedRank, AtOnce<K, V>::kLoads>(a, body, begin, lane, end, group,
                                                                   head, &total);
  if (K::kReducedRank == 1 && V > 1 && split == 0) {
    // What is before the first vector and behind the last one.
    for (Index e = lane; e < n - vectors * V; e += group) {
      const Index at = e < head ? e : e + vectors * V;
      accumulate<K, 1, true, 0, 1, 1>(a, p, at, 0, at + 1, 1, 0, &total);
    }
  }
  return total;
}

/// The data run fastest along a reduced dimension: 2^log_x threads (lanes of a warp, or the whole
/// block) for each result or part of one.
template <class K>
DEVICE void reduce_rows(const typename K::Arguments& a) {
  typedef typename K::Fold Fold;
  typedef typename K::Fold::Partial Partial;
  typedef typename K::Index Index;
  __shared__ Partial shared[32];
  const u32 group = 1u << a.log_x, lane = threadIdx.x & (group - 1);
  const u32 per_block = blockDim.x >> a.log_x;
  const i64 items = a.outputs * a.splits;
  for (i64 base = i64(blockIdx.x) * per_block; base < items; base += i64(gridDim.x) * per_block) {
    const i64 item = base + (threadIdx.x >> a.log_x);
    const bool active = item < items;
    i64 output = item, split = 0;
    if (a.splits > 1) {
      output = quotient(item, a.splits);
      split = item - output * a.splits;
    }
    Partial total = Fold::identity();
    char* p[K::kOperands];
    if (active) {
      Index offsets[K::kOperands] = {};
      add_offsets<K, K::kReducedRank, K::kRank>(a, Index(output), offsets);
#pragma unroll
      for (int o = 0; o < K::kOperands; ++o) p[o] = a.data[o] + offsets[o];
      total = reduce_part<K>(a, p, split, Index(lane), Index(group));
    }
    if (group <= 32) {
      for (u32 lanes = group / 2; lanes > 0; lanes /= 2)
        total = Fold::merge(total, Fold::shuffle(total, lanes));
    } else {
#pragma unroll
      for (int lanes = 16; lanes > 0; lanes /= 2)
        total = Fold::merge(total, Fold::shuffle(total, lanes));
      if (lane % 32 == 0) shared[lane / 32] = total;
      __syncthreads();
      if (lane == 0)
        for (u32 w = 1; w < group / 32; ++w) total = Fold::merge(total, shared[w]);
      __syncthreads();
    }
    if (active && lane == 0) {
      if (a.splits > 1)
        static_cast<Partial*>(a.partials)[output * a.result_step + split * a.part_step] = total;
      else
        K::store(total, p, a);
    }
  }
}

/// The element of a vector at which row number `row` of the main operand begins; p: that of row 0.
template <class K>
DEVICE u32 first_in_vector(const typename K::Arguments& a, const char* p, i64 row) {
  return u32(u64(p + row * a.strides[K::kMain][1]) / K::kMainSize) % u32(K::kVector);
}

/// The data run fastest along a kept dimension (number 0; the reduced ones follow): each thread
/// owns kVector columns and every 2^log_y-th row; rows meet in shared memory.
template <class K, int kThreads>
DEVICE void reduce_columns(const typename K::Arguments& a) {
  typedef typename K::Fold Fold;
  typedef typename K::Fold::Partial Partial;
  typedef typename K::Index Index;
  const int V = K::kVector, kReduced = K::kReducedRank;
  __shared__ Partial shared[V][kThreads];
  const u32 t = threadIdx.x, side = 1u << a.log_x, x = t & (side - 1);
  const u32 rows = 1u << a.log_y, y = (t >> a.log_x) & (rows - 1), z = t >> (a.log_x + a.log_y);
  const u32 vectors = side - (K::kShifted ? 1 : 0);  // of columns that a block has
  const i64 width = a.sizes[0], others = quotient(a.outputs, width);
  for (i64 b = blockIdx.x; b < a.blocks; b += gridDim.x) {
    const i64 rest = quotient(b, a.column_blocks), split = quotient(rest, a.other_blocks);
    const i64 first = (b - rest * a.column_blocks) * vectors * V;
    const i64 other = (rest - split * a.other_blocks) * (blockDim.x >> (a.log_x + a.log_y)) + z;
    Index begin = 0, end = Index(a.reduced);
    if (a.splits > 1) {
      begin = Index(a.reduced * split / a.splits);
      end = Index(a.reduced * (split + 1) / a.splits);
    }
    Partial total[V];
#pragma unroll
    for (int v = 0; v < V; ++v) total[v] = Fold::identity();
    // Of column `first`, then of the thread's vector.
    char *block[K::kOperands], *p[K::kOperands];
    const auto move = [&](char* const* from, i64 columns) {
#pragma unroll
      for (int o = 0; o < K::kOperands; ++o) p[o] = from[o] + columns * a.strides[o][0];
    };
    i64 column = first + x * V;
    if (other < others) {
      Index offsets[K::kOperands] = {};
      add_offsets<K, kReduced + 1, K::kRank>(a, Index(other), offsets);
#pragma unroll
      for (int o = 0; o < K::kOperands; ++o)
        block[o] = a.data[o] + (offsets[o] + Index(first) * Index(a.strides[o][0]));
      if (K::kShifted) column -= first_in_vector<K>(a, block[K::kMain], begin + y);
      // Where the row begins with a whole vector, the last one is the next block's.
      if (column < width && (!K::kShifted || column < first + i64(vectors) * V)) {
        move(block, column - first);
        // Columns have registers for twice as many.
        const int kLoads = (V > 1 ? 2 : 1) * AtOnce<K, V>::kLoads;
        accumulate<K, V, false, 1, kReduced + 1, kLoads>(a, p, begin, Index(y), end, Index(rows), 0,
                                                         total);
      }
    }
    const auto finish = [&](i64 at, const Partial& result) {
      if (a.splits > 1) {
        static_cast<Partial*>(
            a.partials)[split * a.part_step + (other * width + at) * a.result_step] = result;
        return;
      }
      move(block, at - first);
      K::store(result, p, a);
    };
    // Rows that begin alike are a multiple of V apart.
    const u32 alike = K::kShifted ? V : 1;
    if (rows > 1) {
#pragma unroll
      for (int v = 0; v < V; ++v) shared[v][t] = total[v];
      __syncthreads();
      for (u32 apart = rows / 2; apart >= alike; apart /= 2) {
        if (y < apart)
#pragma unroll
          for (int v = 0; v < V; ++v)
            shared[v][t] = Fold::merge(shared[v][t], shared[v][t + (apart << a.log_x)]);
        __syncthreads();
      }
    }
    if (K::kShifted) {
      const u32 own = t & ((side << a.log_y) - 1), before = t - own;
      for (u32 c = own; other < others && c < vectors * V && first + c < width;
           c += side << a.log_y) {
        Partial result = Fold::identity();
        for (u32 r = 0; r < alike; ++r) {
          const u32 at = c + first_in_vector<K>(a, block[K::kMain], begin + r);
          result = Fold::merge(result, shared[at % V][before + (r << a.log_x) + at / V]);
        }
        finish(first + c, result);
      }
      __syncthreads();
      continue;
    }
    if (rows > 1) {
#pragma unroll
      for (int v = 0; v < V; ++v) total[v] = shared[v][t];
    }
    if (other >= others || column >= width || y != 0) continue;
#pragma unroll
    for (int v = 0; v < V; ++v) finish(column + v, total[v]);
  }
}

/// The data run fastest along the reduced dimension (number 0); dimension 1 is of the second input
/// alone and dimension 2 of the first: 16 x 16 threads have kTile x kTile results. The elements of
/// the rows that meet there are in shared memory, kStep of each at a time; the next ones are under
/// way meanwhile.
template <class K, int kTile>
DEVICE void reduce_tiles(const typename K::Arguments& a) {
  typedef typename K::Fold Fold;
  typedef typename K::Fold::Partial Partial;
  typedef typename K::Left Left;
  typedef typename K::Right Right;
  const int kStep = 16, kSide = kTile / 16, kLoads = kTile * kStep / 256;
  // Four elements more: threads that store neighbours of a row meet in few banks.
  __shared__ alignas(16) compute_of<Left> left[kStep][kTile + 4];
  __shared__ alignas(16) compute_of<Right> right[kStep][kTile + 4];
  const int t = threadIdx.x, x = t % 16, y = t / 16;
  // Elements that a thread loads: neighbours in one row.
  const int row = t / (kStep / kLoads), from = t % (kStep / kLoads) * kLoads;
  const i64 n = a.reduced, columns = a.sizes[1], rows = a.sizes[2];
  for (i64 b = blockIdx.x; b < a.blocks; b += gridDim.x) {
    const i64 rest = quotient(b, a.column_blocks), batch = quotient(rest, a.other_blocks);
    const i64 column = (b - rest * a.column_blocks) * kTile;
    const i64 first = (rest - batch * a.other_blocks) * kTile;
    i64 offsets[K::kOperands] = {}, at = batch;
#pragma unroll
    for (int d = 3; d < K::kRank; ++d) {
      const i64 above = d + 1 < K::kRank ? quotient(at, a.sizes[d]) : 0;
#pragma unroll
      for (int o = 0; o < K::kOperands; ++o)
        offsets[o] += (at - above * a.sizes[d]) * a.strides[o][d];
      at = above;
    }
    // Rows beyond the last are the last one once more, whose results are not stored.
    const i64 i = first + row < rows ? first + row : rows - 1;
    const i64 j = column + row < columns ? column + row : columns - 1;
    const Left* const lefts =
        reinterpret_cast<const Left*>(a.data[1] + offsets[1] + i * a.strides[1][2]);
    const Right* const rights =
        reinterpret_cast<const Right*>(a.data[2] + offsets[2] + j * a.strides[2][1]);
    Left next_left[kLoads];
    Right next_right[kLoads];
    const auto load = [&](i64 k) {
#pragma unroll
      for (int e = 0; e < kLoads; ++e) {
        const i64 here = k + from + e < n ? k + from + e : n - 1;
        next_left[e] = lefts[here];
        next_right[e] = rights[here];
      }
    };
    Partial total[kSide][kSide];
#pragma unroll
    for (int r = 0; r < kSide; ++r)
#pragma unroll
      for (int c = 0; c < kSide; ++c) total[r][c] = Fold::identity();
    load(0);
    for (i64 k = 0; k < n; k += kStep) {
#pragma unroll
      for (int e = 0; e < kLoads; ++e) {
        left[from + e][row] = to_compute(next_left[e]);
        right[from + e][row] = to_compute(next_right[e]);
      }
      __syncthreads();
      if (k + kStep < n) load(k + kStep);
      typename Fold::Lane lanes[kSide][kSide];
#pragma unroll
      for (int r = 0; r < kSide; ++r)
#pragma unroll
        for (int c = 0; c < kSide; ++c) lanes[r][c].clear(i64(0));
      const auto add = [&](int s) {
        compute_of<Left> l[kSide];
        compute_of<Right> r[kSide];
#pragma unroll
        for (int e = 0; e < kSide; ++e) l[e] = left[s][y * kSide + e];
#pragma unroll
        for (int e = 0; e < kSide; ++e) r[e] = right[s][x * kSide + e];
#pragma unroll
        for (int e = 0; e < kSide; ++e)
#pragma unroll
          for (int c = 0; c < kSide; ++c) lanes[e][c].add(K::value(l[e], r[c], a), i64(0));
      };
      if (n - k >= kStep) {
#pragma unroll
        for (int s = 0; s < kStep; ++s) add(s);
      } else {
        for (int s = 0; s < int(n - k); ++s) add(s);
      }
#pragma unroll
      for (int r = 0; r < kSide; ++r)
#pragma unroll
        for (int c = 0; c < kSide; ++c)
          total[r][c] = Fold::merge(total[r][c], lanes[r][c].partial());
      __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < kSide; ++r)
#pragma unroll
      for (int c = 0; c < kSide; ++c) {
        const i64 to_row = first + y * kSide + r, to_column = column + x * kSide + c;
        if (to_row >= rows || to_column >= columns) continue;
        char* to[K::kOperands];
        to[0] = a.data[0] + offsets[0] + to_row * a.strides[0][2] + to_column * a.strides[0][1];
        K::store(total[r][c], to, a);
      }
  }
}

/// Sums and the like: lanes of monoid Fast, merged by the wider monoid Wide.
template <class Fast, class Wide>
struct MonoidFold {
  typedef typename Wide::type Partial;
  struct Lane {
    typename Fast::type v;
    template <class P>
    __device__ __forceinline__ void clear(P) {
      v = Fast::identity();
    }
    template <class T, class P>
    __device__ __forceinline__ void add(T value, P) {
      v = Fast::combine(v, typename Fast::type(value));
    }
    template <class T, class P>
    __device__ __forceinline__ void add(Product<T> value, P) {
      v = Fast::combine(v, value);
    }
    __device__ __forceinline__ Partial partial() const { return Partial(v); }
  };
  DEVICE Partial identity() { return Wide::identity(); }
  DEVICE Partial merge(Partial a, Partial b) { return Wide::combine(a, b); }
  DEVICE Partial shuffle(Partial v, int lanes) { return shuffle_xor(v, lanes); }
};
