// Convolutions with few channels per group, straight from the definition: a block computes tiles of
// the result, a thread kRows x kStrip neighbouring elements of all channels of one group, out of an
// input tile in shared memory. Sums run in one order, in f32 at least. Gradients of the weights,
// below, read the same tiles. Mirrors the arguments in codegen/direct_conv.h.
#pragma once
#include "block.cuh"
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
  i32 channels, unused;     // of the input in a group
};

DEVICE f32 direct_multiply_add(f32 a, f32 b, f32 c) { return fmaf(a, b, c); }
DEVICE f64 direct_multiply_add(f64 a, f64 b, f64 c) { return fma(a, b, c); }

/// kVector: the input is read 16 bytes of compute type at a time; the first window of a tile then
/// starts kPhase elements into its row, so that rows start where a vector does. Otherwise kPhase is
/// 0 and elements are read one by one. kIn: channels of the input in a group, or 0: p.channels.
/// kSpreadY, kSpreadX: how far elements of the input lie apart, with zeros between them that count
/// in its height and width.
template <class T, int kKernelY, int kKernelX, int kStrideY, int kStrideX, int kDilationY,
          int kDilationX, int kSpreadY, int kSpreadX, int kIn, int kOut, int kRows, int kPhase,
          bool kVector>
struct DirectConv {
  typedef compute_of<T> C;
  static const int kStrip = 16 / sizeof(C);
  typedef Vec<C, kStrip> Strip;
  static const int kUnit = kVector ? kStrip : 1;
  typedef Vec<T, kUnit> Unit;
  // The weights of one channel of the input, rows as vectors, in the order they are used.
  static const int kWeightStrips = (kKernelX + kStrip - 1) / kStrip;
  static const int kWeightWords = kKernelY * kOut * kWeightStrips * kStrip;
  static const int kSpan = kPhase + (kStrip - 1) * kStrideX + (kKernelX - 1) * kDilationX + 1;
  static const int kWindowStrips = (kSpan + kStrip - 1) / kStrip;
  // Loads in flight per thread.
  static const int kBatch = kVector ? 5 : 8;

  static const u32 kWeights = kKernelY * kOut * kKernelX;

  // Weight `i` of channel `in` in the order of shared memory, which has gaps at the ends of rows.
  DEVICE C fetch_weight(const DirectConvArguments& p, u32 group, int in, u32 i) {
    const u32 x = i % kKernelX, row = i / kKernelX, out = row % kOut, y = row / kOut;
    return to_compute(static_cast<const T*>(
        p.w)[group * p.w_group + out * p.w_out + in * p.w_in + y * p.w_row + x * p.w_column]);
  }
  DEVICE void store_weight(C* weights, u32 i, C value) {
    weights[i / kKernelX * (kWeightStrips * kStrip) + i % kKernelX] = value;
  }

  /// The tile whose first element is (first_y, first_x), with zeros outside the input.
  template <class A>
  DEVICE void load_tile(const A& p, const T* from, i32 first_y, i32 first_x, u32 thread,
                        u32 threads, C* to) {
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
        if (in_tile && u32(y) < u32(p.in_height) && u32(x) < u32(p.in_width) &&
            u32(y) % kSpreadY == 0 && u32(x) % kSpreadX == 0)
          loaded[b] = *reinterpret_cast<const Unit*>(
              from + (i64(u32(y) / kSpreadY) * p.in_row + u32(x) / kSpreadX));
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
    const int channels = kIn > 0 ? kIn : p.channels;
    const T* in =
        static_cast<const T*>(p.in) + sample * p.in_sample + i64(group) * channels * p.in_channel;

    const i32 block_x = i32(tile_x << p.log_x) * kStrip, block_y = i32(tile_y << p.log_y) * kRows;
    const i32 x = block_x + own_x * kStrip, y = block_y + own_y * kRows;
    const bool is_active = is_plane && x < p.out_width && y < p.out_height;

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
    for (int channel = 0; channel < channels; ++channel) {
      // The first weight of each thread is on its way while the tile is loaded.
      const C weight =
          is_plane && thread < kWeights ? fetch_weight(p, group, channel, thread) : C(0);
      if (channel > 0) __syncthreads();  // the tile is in use until here
      if (is_plane)
        load_tile(p, in + channel * p.in_channel, block_y * kStrideY - p.top,
                  block_x * kStrideX - p.left - kPhase, thread, threads, tile);
      if (is_plane) {
        if (thread < kWeights) store_weight(weights, thread, weight);
#pragma unroll 1
        for (u32 i = thread + threads; i < kWeights; i += threads)
          store_weight(weights, i, fetch_weight(p, group, channel, i));
      }
      __syncthreads();
      if (is_active)
        accumulate(tile + own_y * kRows * kStrideY * p.tile_row + own_x * kStrip * kStrideX,
                   p.tile_row, weights, sum);
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

// A plane is the channel `pair` of one sample. Strides in elements; neighbours in a row are 1
// apart.
struct DirectConvWeightArguments {
  const void *in, *grad;  // grad: of the result
  void* parts;            // [splits][pairs][kernel], in the type of sums
  i64 in_sample, in_channel, in_row, grad_sample, grad_channel, grad_row;
  i32 in_height, in_width, out_height, out_width, top, left;  // top, left: padding
  u32 samples, pairs, channels_in, channels_out;              // channels of a group
  u32 tiles_x, tiles_y, items, splits;  // items: tiles of all samples, which splits take in turn
  i32 log_x, log_y;
  i32 tile_row, tile_rows, plane_words;
  i32 vector_load;  // the gradient may be read kStrip at once
};

/// The gradient of the weights between one input and one output channel: each thread of a block
/// sums over its places of the result in all tiles of the block, then the threads' sums are added.
template <class T, int kKernelY, int kKernelX, int kStrideY, int kStrideX, int kDilationY,
          int kDilationX, int kRows, int kPhase, bool kVector>
struct DirectConvWeights {
  typedef DirectConv<T, kKernelY, kKernelX, kStrideY, kStrideX, kDilationY, kDilationX, 1, 1, 1, 1,
                     kRows, kPhase, kVector>
      Conv;
  typedef typename Conv::C C;
  typedef typename Conv::Strip Strip;
  static const int kStrip = Conv::kStrip, kTaps = kKernelY * kKernelX;

  DEVICE void load_gradient(const DirectConvWeightArguments& p, const T* from, i32 y, i32 x,
                            C (&to)[kRows][kStrip]) {
#pragma unroll
    for (int v = 0; v < kRows; ++v) {
      Vec<T, kStrip> loaded = Vec<T, kStrip>();
      const T* const row = from + i64(y + v) * p.grad_row + x;
      if (y + v < p.out_height) {
        if (p.vector_load) {
          loaded = *reinterpret_cast<const Vec<T, kStrip>*>(row);
        } else {
#pragma unroll
          for (int s = 0; s < kStrip; ++s)
            if (x + s < p.out_width) loaded.v[s] = row[s];
        }
      }
#pragma unroll
      for (int s = 0; s < kStrip; ++s) to[v][s] = to_compute(loaded.v[s]);
    }
  }

  /// Adds what a thread's places contribute. Each row of the tile is read once.
  DEVICE void accumulate(const C* tile, int tile_row, const C (&grad)[kRows][kStrip],
                         C (&sum)[kKernelY][kKernelX]) {
#pragma unroll
    for (int r = 0; r <= (kRows - 1) * kStrideY + (kKernelY - 1) * kDilationY; ++r) {
      Strip window[Conv::kWindowStrips];
#pragma unroll
      for (int k = 0; k < Conv::kWindowStrips; ++k)
        window[k] = *reinterpret_cast<const Strip*>(tile + r * tile_row + k * kStrip);
#pragma unroll
      for (int v = 0; v < kRows; ++v) {
        const int below = r - v * kStrideY, y = below / kDilationY;
        if (below < 0 || below % kDilationY != 0 || y >= kKernelY) continue;
#pragma unroll
        for (int x = 0; x < kKernelX; ++x)
#pragma unroll
          for (int s = 0; s < kStrip; ++s) {
            const int i = kPhase + s * kStrideX + x * kDilationX;
            sum[y][x] =
                direct_multiply_add(window[i / kStrip].v[i % kStrip], grad[v][s], sum[y][x]);
          }
      }
    }
  }

  DEVICE void run(const DirectConvWeightArguments& p) {
    extern __shared__ __align__(16) unsigned char shared[];
    const u32 across = 1u << p.log_x, threads = across << p.log_y;
    const u32 thread = threadIdx.x & (threads - 1), in_block = threadIdx.x / threads;
    const u32 planes = blockDim.x / threads;
    const int own_x = int(thread & (across - 1)), own_y = int(thread >> p.log_x);
    const u32 pair = blockIdx.x / p.splits, split = blockIdx.x - pair * p.splits;
    const u32 out_channel = pair / p.channels_in,
              in_channel = out_channel / p.channels_out * p.channels_in + pair % p.channels_in;
    C* const tile = reinterpret_cast<C*>(shared) + in_block * p.plane_words;
    const T* const in = static_cast<const T*>(p.in) + in_channel * p.in_channel;
    const T* const grad = static_cast<const T*>(p.grad) + out_channel * p.grad_channel;

    C sum[kKernelY][kKernelX];
#pragma unroll
    for (int y = 0; y < kKernelY; ++y)
#pragma unroll
      for (int x = 0; x < kKernelX; ++x) sum[y][x] = C(0);
#pragma unroll 1
    for (u32 item = split; item < p.items; item += p.splits) {
      const u32 rest = item / p.tiles_x, tile_x = item - rest * p.tiles_x;
      const u32 block = rest / p.tiles_y, tile_y = rest - block * p.tiles_y;
      const u32 sample = block * planes + in_block;
      const i32 block_x = i32(tile_x << p.log_x) * kStrip, block_y = i32(tile_y << p.log_y) * kRows;
      const i32 x = block_x + own_x * kStrip, y = block_y + own_y * kRows;
      const bool is_plane = sample < p.samples;
      const bool is_active = is_plane && x < p.out_width && y < p.out_height;
      C own[kRows][kStrip];  // on their way while the tile is loaded
      if (is_active) load_gradient(p, grad + sample * p.grad_sample, y, x, own);
      __syncthreads();  // the tile is in use until here
      if (is_plane)
        Conv::load_tile(p, in + sample * p.in_sample, block_y * kStrideY - p.top,
                        block_x * kStrideX - p.left - kPhase, thread, threads, tile);
      __syncthreads();
      if (is_active)
        accumulate(tile + own_y * kRows * kStrideY * p.tile_row + own_x * kStrip * kStrideX,
                   p.tile_row, own, sum);
    }
    __syncthreads();

    C* const of_warps = reinterpret_cast<C*>(shared);
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int y = 0; y < kKernelY; ++y)
#pragma unroll
      for (int x = 0; x < kKernelX; ++x) {
        C s = sum[y][x];
#pragma unroll
        for (int d = 16; d > 0; d /= 2) s += shuffle_xor(s, d);
        if (lane == 0) of_warps[warp * kTaps + y * kKernelX + x] = s;
      }
    __syncthreads();
    C* const to = static_cast<C*>(p.parts) + (i64(split) * p.pairs + pair) * kTaps;
    for (u32 tap = threadIdx.x; tap < kTaps; tap += blockDim.x) {
      C s = of_warps[tap];
      for (u32 w = 1; w < blockDim.x / 32; ++w) s += of_warps[w * kTaps + tap];
      to[tap] = s;
    }
  }
};
