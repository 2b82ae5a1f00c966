// Transposes through shared memory.
#pragma once
#include "pointwise.cuh"

// out[c][r] = in[r][c] for c < columns, r < rows, in each of the batches. Strides are in bytes;
// those within a row are the element's size. Mirrors the struct in copy.cpp.
struct TransposeArgs {
  const char* in;
  char* out;
  i64 in_stride, out_stride;  // of in's rows, of out's rows
  u32 rows, columns;
  // Tiles in a row of tiles and in a column, and how to divide by them (see find_offsets).
  u32 tiles[2], magic[2], shift[2];
  u32 batch_rank;
  u32 batch_size[14];
  i64 batch_in[14], batch_out[14];
};

struct TransposeTile {
  const char* in;
  char* out;
  u32 row, column;  // of its first element

  __device__ __forceinline__ TransposeTile(const TransposeArgs& a, u32 tile) {
    u32 index = blockIdx.x;
    const u32 above = (__umulhi(index, a.magic[0]) + index) >> a.shift[0];
    column = (index - above * a.tiles[0]) * tile;
    index = (__umulhi(above, a.magic[1]) + above) >> a.shift[1];
    row = (above - index * a.tiles[1]) * tile;
    in = a.in;
    out = a.out;
#pragma unroll 1
    for (u32 d = 0; d < a.batch_rank; ++d) {
      const u32 next = index / a.batch_size[d], at = index - next * a.batch_size[d];
      in += at * a.batch_in[d];
      out += at * a.batch_out[d];
      index = next;
    }
  }
};

// Note [Transposes in registers]
// A tile has 16 x 16 squares of V x V elements, one for each thread: a thread loads the V rows of
// its square as vectors, turns the square round in registers, and stores V vectors to shared
// memory, where a row of the transposed tile is 16 vectors. Then rows are read back and stored,
// again as vectors. Every access moves a whole vector of V elements (16 bytes where possible), and
// each warp touches runs of 256 bytes on both sides. Vectors of a row are permuted (vector g of
// square column j lies at g ^ j), so that neither the writes, whose j differ, nor the reads, whose
// g differ, meet in a bank. rows, columns, strides and addresses are multiples of V elements.
template <class T, int V>
DEVICE void transpose_vectors(const TransposeArgs& a) {
  typedef Pack<T, V> Vector;
  typedef typename Vector::Word Word;
  __shared__ Word tile[16 * V][16];
  const TransposeTile at(a, 16 * V);
  const u32 j = threadIdx.x % 16, g = threadIdx.x / 16;
  // What lies beyond the edge is read from within and not stored.
  const u32 column = min(at.column + j * V, a.columns - V);
  Vector square[V];
#pragma unroll
  for (int k = 0; k < V; ++k) {
    const u32 row = min(at.row + g * V + k, a.rows - 1);
    square[k] =
        load_pack<T, V>(reinterpret_cast<const T*>(at.in + i64(row) * a.in_stride) + column);
  }
#pragma unroll
  for (int k = 0; k < V; ++k) {
    Vector turned;
#pragma unroll
    for (int i = 0; i < V; ++i) turned.v[i] = square[i].v[k];
    tile[j * V + k][g ^ j] = turned.words[0];
  }
  __syncthreads();
  const u32 row = at.row + j * V;
#pragma unroll
  for (int k = 0; k < V; ++k) {
    const u32 c = g + 16 * k;
    if (at.column + c < a.columns && row < a.rows)
      reinterpret_cast<Word*>(at.out + i64(at.column + c) * a.out_stride)[row / V] =
          tile[c][j ^ (c / V)];
  }
}

// Any sizes and strides: single elements, 64 x 64 of them in a tile.
template <class T>
DEVICE void transpose_elements(const TransposeArgs& a) {
  constexpr int kTile = 64, kSteps = kTile * kTile / 256;
  __shared__ T tile[kTile][kTile + 1];
  const TransposeTile at(a, kTile);
  const u32 x = threadIdx.x % kTile, y = threadIdx.x / kTile;
  const u32 column = min(at.column + x, a.columns - 1);
  T values[kSteps];
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    const u32 row = min(at.row + y + k * (256 / kTile), a.rows - 1);
    values[k] = reinterpret_cast<const T*>(at.in + i64(row) * a.in_stride)[column];
  }
#pragma unroll
  for (int k = 0; k < kSteps; ++k) tile[y + k * (256 / kTile)][x] = values[k];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    const u32 c = y + k * (256 / kTile);
    if (at.column + c < a.columns && at.row + x < a.rows)
      reinterpret_cast<T*>(at.out + i64(at.column + c) * a.out_stride)[at.row + x] = tile[x][c];
  }
}
