// Kernels of convolutions with few channels per group. See device/direct_conv.cuh.
#pragma once

#include <cstdint>

#include "arete/backend/cuda/codegen/kernel_source.h"
#include "arete/core/dtype.h"

namespace arete::cuda {

/// The argument of these kernels; mirrors device/direct_conv.cuh.
struct DirectConvArguments {
  const void *in, *w, *bias;
  void* out;
  int64_t in_sample, in_channel, in_row, out_sample, out_channel, out_row;
  int64_t w_group, w_out, w_in, w_row, w_column, bias_stride;
  int32_t in_height, in_width, out_height, out_width, top, left;
  uint32_t groups, planes, tiles_x, tiles_y;
  int32_t log_x, log_y;
  int32_t tile_row, tile_rows;
  int32_t plane_words;
  int32_t vector_store;
  int32_t channels, unused;
};
/// The argument of those for the gradient of the weights.
struct DirectConvWeightArguments {
  const void *in, *grad;
  void* parts;
  int64_t in_sample, in_channel, in_row, grad_sample, grad_channel, grad_row;
  int32_t in_height, in_width, out_height, out_width, top, left;
  uint32_t samples, pairs, channels_in, channels_out;
  uint32_t tiles_x, tiles_y, items, splits;
  int32_t log_x, log_y;
  int32_t tile_row, tile_rows, plane_words;
  int32_t vector_load;
};
/// The most threads of a block.
inline constexpr int kDirectConvThreads = 256;

/// What one kernel is made for: a cross-correlation over rows and columns.
struct DirectConvKernel {
  DType dtype = kFloat32;
  int kernel_y = 1, kernel_x = 1;      // 1 to 11
  int stride_y = 1, stride_x = 1;      // 1 or 2
  int dilation_y = 1, dilation_x = 1;  // 1 or 2
  /// 1 or 2: how far elements of the input lie apart, with zeros between them, as those of a
  /// strided convolution's result do for the gradient of its input.
  int spread_y = 1, spread_x = 1;
  int in = 1, out = 1;  // channels per group: 1 to 4, or 0 for any; 1 to 16
  /// Rows of the result per thread: 1, 2 or 4.
  int rows = 1;
  /// Read several elements at once, with spread_x 1 only; the first window of a tile then starts
  /// `phase` elements into its row, fewer than strip(). Else phase is 0.
  bool vector = false;
  int phase = 0;
  /// The gradient of the weights, of one channel in and out at a time.
  bool is_weight_gradient = false;

  /// Neighbouring results per thread: 16 bytes of the type that sums are kept in.
  int strip() const { return dtype == kFloat64 ? 2 : 4; }
  int taps() const { return kernel_y * kernel_x * in * out; }
  /// Products that a thread adds for each channel of the input and each row: all are unrolled.
  int products() const { return kernel_y * kernel_x * out * strip(); }
  /// Words of 32 bits in a sum.
  int words() const { return dtype == kFloat64 ? 2 : 1; }
  /// Whether the sums of all weights between two channels fit in a thread's registers.
  bool has_weight_gradient() const;
  /// The most rows whose sums and weights fit in registers and whose code stays short.
  int most_rows() const;
  /// Elements in a row of the tile that serves `threads` threads side by side, and the number of
  /// rows of that for `threads` above each other.
  int tile_row(int threads) const;
  int tile_rows(int threads) const { return (threads * rows - 1) * stride_y + reach_y() + 1; }
  /// Elements of shared memory that weights of one channel take; none for their gradient.
  int weight_words() const;
  /// Different for different kernels.
  uint64_t number() const;

 private:
  int reach_y() const { return (kernel_y - 1) * dilation_y; }
};

/// Of the floating types of 16 bits and more.
KernelSource direct_conv_source(const DirectConvKernel& kernel);

}  // namespace arete::cuda
