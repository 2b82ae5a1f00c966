// Convolutions with few channels per group, straight from the definition: a block computes tiles of
// the result, a thread kRows x kStrip neighbouring elements of all channels of one group, out of an
// input tile in shared memory. Sums run in one order, in f32 at least.
// Mirrors DirectConvArguments in codegen/direct_conv.h.
#pragma once
#include "dtype.cuh"

// A plane is one group of one sample. Strides in elements; neighbours in a row are 1 apart.
struct DirectConvArguments {
  const void *in, *w, *bias;  // bias null: none
  void* out;
  i64 in_sample, in_channel, in_row, out_sample, out_channel, out_row;
  i64 w_group, w_out, w_in, w_row, w_column, bias_stride;
  i32 in_height, in_width, out_height, out_width, top, left;  // top, left: padding
  u32 groups, planes, tiles_x, tiles_y;
  i32 log_x, log_y;         // of the number of threads along a row and a column of a tile
  i32 tile_row, tile_rows;  // of the input: elements in a row, and rows
  i32 plane_words;          // elements of shared memory, for weights and a tile
  i32 vector_store;         // results may be written kStrip at once
};

DEVICE f32 direct_multiply_add(f32 a, f32 b, f32 c) { return fmaf(a, b, c); }
DEVICE f64 direct_multiply_add(f64 a, f64 b, f64 c) { return fma(a, b, c); }

/// kVector: the input is read 16 bytes of compute type at a time; the first window of a tile then
/// starts kPhase elements into its row, so that rows start where a vector does. Otherwise kPhase is
/// 0 and elements are read one by one.
template <class T, int kKernelY, int kKernelX, int kStrideY, int kStrideX, int kDilationY,
          int kDilationX, int kIn, int kOut, int kRows, int kPhase, bool kVector>
struct DirectConv {
  typedef compute_of<T> C;
  static const int kStrip = 16 / sizeof(C);
  typedef Vec<C, kStrip> Strip;
  static const int kUnit = kVector ? kStrip : 1;
  typedef Vec<T, kUnit> Unit;
  // One row of weights for one pair of channels, as vectors; in the order they are used.
  static const int kWeightStrips = (kKernelX + kStrip - 1) / kStrip;
  static const int kWeightWords = kIn * kKernelY * kOut * kWeightStrips * kStrip;
  static const int kSpan = kPhase + (kStrip - 1) * kStrideX + (kKernelX - 1) * kDilationX + 1;
  static const int kWindowStrips = (kSpan + kStrip - 1) / kStrip;
  // Loads in flight per thread.
  static const int kBatch = kVector ? 5 : 8;

  static const u32 kWeights = kIn * kKernelY * kOut * kKernelX;

  // Weight `i` in the order of shared memory, which has gaps at the ends of rows.
  DEVICE C fetch_weight(const DirectConvArguments& p, u32 group, u32 i) {
    const u32 x = i % kKernelX, row = i / kKernelX;
    const u32 out = row % kOut, y = row / kOut % kKernelY, in = row / (kOut * kKernelY);
    return to_compute(static_cast<const T*>(
        p.w)[group * p.w_group + out * p.w_out + in * p.w_in + y * p.w_row + x * p.w_column]);
  }
  DEVICE void store_weight(C* weights, u32 i, C value) {
    weights[i / kKernelX * (kWeightStrips * kStrip) + i % kKernelX] = value;
  }

  /// The tile whose first element is (first_y, first_x), with zeros outside the input.
  DEVICE void load_tile(const DirectConvArguments& p, const T* from, i32 first_y, i32 first_x,
                        u32 thread, u32 threads, C* to) {
    const int units = p.tile_row / kUnit;
    const int step_rows = int(threads / u32(units)), step_units = int(threads) - step_rows * units;
    int row = int(thread / u32(units)), unit = int(thread) - row * units;
    while (row < p.tile_rows) {
      Unit loaded[kBatch];
      int at[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const i32 y = first_y + row, x = first_x + unit * kUnit;
        const bool in_tile = row < p.tile_rows;
        at[b] = in_tile ? row * p.tile_row + unit * kUnit : -1;
        loaded[b] = Unit();
        if (in_tile && u32(y) < u32(p.in_height) && u32(x) < u32(p.in_width))
          loaded[b] = *reinterpret_cast<const Unit*>(from + (i64(y) * p.in_row + x));
        row += step_rows;
        unit += step_units;
        if (unit >= units) {
          unit -= units;
          ++row;
        }
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (at[b] < 0) continue;
        Vec<C, kUnit> converted;
#pragma unroll
        for (int k = 0; k < kUnit; ++k) converted.v[k] = to_compute(loaded[b].v[k]);
        *reinterpret_cast<Vec<C, kUnit>*>(to + at[b]) = converted;
      }
    }
  }

  /// Adds what one input channel contributes. Each row of the tile is read once for all rows of
  /// the result that it belongs to.
  DEVICE void accumulate(const C* tile, int tile_row, const C* weights,
                         C (&sum)[kOut][kRows][kStrip]) {
#pragma unroll
    for (int r = 0; r <= (kRows - 1) * kStrideY + (kKernelY - 1) * kDilationY; ++r) {
      Strip window[kWindowStrips];
#pragma unroll
      for (int k = 0; k < kWindowStrips; ++k)
        window[k] = *reinterpret_cast<const Strip*>(tile + r * tile_row + k * kStrip);
#pragma unroll
      for (int v = 0; v < kRows; ++v) {
        const int below = r - v * kStrideY, y = below / kDilationY;
        if (below < 0 || below % kDilationY != 0 || y >= kKernelY) continue;
#pragma unroll
        for (int out = 0; out < kOut; ++out) {
          Strip w[kWeightStrips];
#pragma unroll
          for (int k = 0; k < kWeightStrips; ++k)
            w[k] = *reinterpret_cast<const Strip*>(weights +
                                                   ((y * kOut + out) * kWeightStrips + k) * kStrip);
#pragma unroll
          for (int x = 0; x < kKernelX; ++x)
#pragma unroll
            for (int s = 0; s < kStrip; ++s) {
              const int i = kPhase + s * kStrideX + x * kDilationX;
              sum[out][v][s] = direct_multiply_add(window[i / kStrip].v[i % kStrip],
                                                   w[x / kStrip].v[x % kStrip], sum[out][v][s]);
            }
        }
      }
    }
  }

  DEVICE void run(const DirectConvArguments& p) {
    extern __shared__ __align__(16) unsigned char shared[];
    const u32 across = 1u << p.log_x, threads = across << p.log_y;
    const u32 thread = threadIdx.x & (threads - 1), in_block = threadIdx.x / threads;
    const int own_x = int(thread & (across - 1)), own_y = int(thread >> p.log_x);
    const u32 tile_y_and_planes = blockIdx.x / p.tiles_x;
    const u32 tile_x = blockIdx.x - tile_y_and_planes * p.tiles_x;
    const u32 plane_block = tile_y_and_planes / p.tiles_y;
    const u32 tile_y = tile_y_and_planes - plane_block * p.tiles_y;
    const u32 plane = plane_block * (blockDim.x / threads) + in_block;
    const bool is_plane = plane < p.planes;
    const u32 sample = plane / p.groups, group = plane - sample * p.groups;
    C* const weights = reinterpret_cast<C*>(shared) + in_block * p.plane_words;
    C* const tile = weights + kWeightWords;
    const T* in =
        static_cast<const T*>(p.in) + sample * p.in_sample + i64(group) * kIn * p.in_channel;

    const i32 block_x = i32(tile_x << p.log_x) * kStrip, block_y = i32(tile_y << p.log_y) * kRows;
    const i32 x = block_x + own_x * kStrip, y = block_y + own_y * kRows;
    const bool is_active = is_plane && x < p.out_width && y < p.out_height;
    // The first weight of each thread is on its way while the tile is loaded.
    const C weight = is_plane && thread < kWeights ? fetch_weight(p, group, thread) : C(0);

    C sum[kOut][kRows][kStrip];
#pragma unroll
    for (int out = 0; out < kOut; ++out) {
      const C start =
          p.bias && is_plane
              ? to_compute(static_cast<const T*>(p.bias)[(i64(group) * kOut + out) * p.bias_stride])
              : C(0);
#pragma unroll
      for (int v = 0; v < kRows; ++v)
#pragma unroll
        for (int s = 0; s < kStrip; ++s) sum[out][v][s] = start;
    }

#pragma unroll 1
    for (int channel = 0; channel < kIn; ++channel) {
      if (channel > 0) __syncthreads();  // the tile is in use until here
      if (is_plane)
        load_tile(p, in + channel * p.in_channel, block_y * kStrideY - p.top,
                  block_x * kStrideX - p.left - kPhase, thread, threads, tile);
      if (is_plane && channel == 0) {
        if (thread < kWeights) store_weight(weights, thread, weight);
#pragma unroll 1
        for (u32 i = thread + threads; i < kWeights; i += threads)
          store_weight(weights, i, fetch_weight(p, group, i));
      }
      __syncthreads();
      if (is_active)
        accumulate(tile + own_y * kRows * kStrideY * p.tile_row + own_x * kStrip * kStrideX,
                   p.tile_row, weights + channel * (kWeightWords / kIn), sum);
    }
    if (!is_active) return;

    T* const to =
        static_cast<T*>(p.out) + sample * p.out_sample + i64(group) * kOut * p.out_channel + x;
#pragma unroll
    for (int out = 0; out < kOut; ++out)
#pragma unroll
      for (int v = 0; v < kRows; ++v) {
        if (y + v >= p.out_height) continue;
        T* const row = to + out * p.out_channel + (y + v) * p.out_row;
        Vec<T, kStrip> result;
#pragma unroll
        for (int s = 0; s < kStrip; ++s) result.v[s] = from_compute<T>(sum[out][v][s]);
        if (p.vector_store) {
          *reinterpret_cast<Vec<T, kStrip>*>(row) = result;
        } else {
#pragma unroll
          for (int s = 0; s < kStrip; ++s)
            if (x + s < p.out_width) row[s] = result.v[s];
        }
      }
  }
};
