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
    typename K::Fold::Lane lanes[V];
#pragma unroll
    for (int v = 0; v < V; ++v) lanes[v].clear(base + i * kScale + v * kLaneStep);
    const auto add = [&](const Loaded& l, Index number) {
#pragma unroll
      for (int v = 0; v < V; ++v)
        lanes[v].add(K::value(l, v, a), base + number * kScale + v * kLaneStep);
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
    for (int v = 0; v < V; ++v) {
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
  accumulate<K, V, true, 0, K::kReducedRank, (V > 1 ? 4 : 8)>(a, body, begin, lane, end, group,
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
        static_cast<Partial*>(a.partials)[item] = total;
      else
        K::store(total, p, a);
    }
  }
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
  const u32 t = threadIdx.x, x = t & ((1u << a.log_x) - 1);
  const u32 rows = 1u << a.log_y, y = (t >> a.log_x) & (rows - 1), z = t >> (a.log_x + a.log_y);
  const i64 width = a.sizes[0], others = quotient(a.outputs, width);
  for (i64 b = blockIdx.x; b < a.blocks; b += gridDim.x) {
    const i64 rest = quotient(b, a.column_blocks), split = quotient(rest, a.other_blocks);
    const i64 column = (((b - rest * a.column_blocks) << a.log_x) + x) * V;
    const i64 other = (rest - split * a.other_blocks) * (blockDim.x >> (a.log_x + a.log_y)) + z;
    const bool active = column < width && other < others;
    Partial total[V];
#pragma unroll
    for (int v = 0; v < V; ++v) total[v] = Fold::identity();
    char* p[K::kOperands];
    if (active) {
      Index offsets[K::kOperands] = {};
      add_offsets<K, kReduced + 1, K::kRank>(a, Index(other), offsets);
#pragma unroll
      for (int o = 0; o < K::kOperands; ++o)
        p[o] = a.data[o] + (offsets[o] + Index(column) * Index(a.strides[o][0]));
      Index begin = 0, end = Index(a.reduced);
      if (a.splits > 1) {
        begin = Index(a.reduced * split / a.splits);
        end = Index(a.reduced * (split + 1) / a.splits);
      }
      accumulate<K, V, false, 1, kReduced + 1, (V > 1 ? 4 : 8)>(a, p, begin, Index(y), end,
                                                                Index(rows), 0, total);
    }
    if (rows > 1) {
#pragma unroll
      for (int v = 0; v < V; ++v) shared[v][t] = total[v];
      __syncthreads();
      for (u32 apart = rows / 2; apart > 0; apart /= 2) {
        if (y < apart)
#pragma unroll
          for (int v = 0; v < V; ++v)
            shared[v][t] = Fold::merge(shared[v][t], shared[v][t + (apart << a.log_x)]);
        __syncthreads();
      }
#pragma unroll
      for (int v = 0; v < V; ++v) total[v] = shared[v][t];
    }
    if (!active || y != 0) continue;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      if (a.splits > 1) {
        static_cast<Partial*>(a.partials)[split * a.outputs + other * width + column + v] =
            total[v];
        continue;
      }
      char* to[K::kOperands];
#pragma unroll
      for (int o = 0; o < K::kOutputs; ++o) to[o] = p[o] + v * a.strides[o][0];
      K::store(total[v], to, a);
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
