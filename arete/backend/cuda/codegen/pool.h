// Kernels of pooling.
#pragma once

#include <cstddef>
#include <cstdint>

#include "arete/backend/cuda/codegen/kernel_source.h"
#include "arete/core/dtype.h"

namespace arete::cuda {

/// The argument of these kernels; mirrors device/pool.cuh.
struct PoolArguments {
  void *x, *y;
  int64_t* indices;
  int64_t count, size[5];
  int64_t x_size[3], y_size[3];
  int64_t x_stride[5], y_stride[5], index_stride[5];
  int64_t kernel[3], stride[3], padding[3], dilation[3];
  int64_t divisor;
  const void* samples;
  int64_t sample_stride[5];
  double random_step[3], random_slack;
  uint32_t size_magic[5], size_shift[5], x_magic[3], x_shift[3], stride_magic[3], stride_shift[3];
  int32_t count_include_pad, samples_f64;
};
inline constexpr int kPoolThreads = 256, kPoolWarp = 32, kPoolFew = 8;

/// What one kernel is made for.
struct PoolKernel {
  DType dtype;
  bool max, backward;
  /// Channels change fastest from thread to thread.
  bool channels_last = false;
  /// Threads take pool_vector(dtype) neighbouring channels; with channels_last only.
  bool vector = false;
  /// Positions need 64 bits.
  bool wide = false;
  /// 2 or 3: windows of 2 x 2 or 3 x 3 in the last two dimensions; 0: of any size. 0 if backward.
  int window = 0;
  /// prim::PoolArgs::Placement; without `vector` if random, without `window` if adaptive.
  int placement = 0;
  /// 1, kPoolFew, kPoolWarp or kPoolThreads: how many threads share a window. 1 if backward or
  /// `window`.
  int team = 1;
  /// 1, 2 or 4: how many neighbours in a row of x a thread takes. 1 unless backward, and with
  /// channels_last.
  int run = 1;
  /// Whether all runs are whole, and aligned.
  bool aligned = true;

  static constexpr size_t kNumbers = size_t(kNumDTypes) * 64 * 18;
  /// Different for different kernels.
  size_t number() const {
    size_t n = size_t(dtype);
    for (bool b : {max, backward, channels_last, vector, wide, aligned}) n = 2 * n + size_t(b);
    const int form = team == kPoolFew       ? 5
                     : team == kPoolThreads ? 4
                     : team == kPoolWarp    ? 3
                     : window > 0           ? window - 1
                                            : run / 2;
    return 18 * n + size_t(6 * placement + form);
  }
};
/// As many elements as fit in 16 bytes, at most 8.
int pool_vector(DType dtype);
/// Every type but complex ones and bool; averages of floating types only.
KernelSource pool_source(const PoolKernel& kernel);

}  // namespace arete::cuda
