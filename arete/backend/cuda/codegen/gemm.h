// Kernels of matrix products that the vendor library does not do, or not as fast.
#pragma once

#include <cstdint>

#include "arete/backend/cuda/codegen/kernel_source.h"
#include "arete/core/dtype.h"

namespace arete::cuda {

/// The argument of these kernels; mirrors device/gemm.cuh.
struct GemmArguments {
  const void *a, *b, *bias;
  void *out, *aux;
  int64_t m, n, k;
  int64_t a_row, a_column, b_row, b_column, out_row, out_column, aux_row, aux_column, bias_stride;
  double alpha, beta;
  int64_t ialpha, ibeta;
  int64_t batches;
  int32_t loops, activation;
  int64_t size[16], a_stride[16], b_stride[16], out_stride[16], aux_stride[16];
};
inline constexpr int kGemmTile = 64, kGemmThreads = 256;

/// The kernel for operands of type `in` and a result of type `out`: any one type but bool, or f32
/// from a narrower floating type. Everything else is an argument.
KernelSource gemm_source(DType in, DType out);

/// The argument of kernels of short products; mirrors device/short_gemm.cuh.
struct ShortGemm {
  const void *a, *b, *bias;
  void *out, *a_sum;
  int64_t a_row, a_column, b_row, b_column, out_row, out_column, bias_stride, sum_stride;
  float alpha, beta;
  int32_t m, n, k, relu;
  int32_t a_lines, b_lines;
  int32_t stage, span, a_pitch, b_pitch, b_first;
};
inline constexpr int kShortGemmThreads = 256, kShortGemmStages = 4;

/// The kernel of f32 for tiles of 16, 32 or 64 rows and columns; `a_along_k`, `b_along_k`: whether
/// an operand's elements lie side by side along the inner dimension.
KernelSource short_gemm_source(bool a_along_k, bool b_along_k, int tile);

/// Where that kernel keeps what of its operands: sets `stage` and all behind it for a product of
/// g.k terms. The bytes of shared memory that it is launched with, `most` or fewer (48 KB are
/// enough for any product).
int plan_short_gemm(ShortGemm& g, bool a_along_k, bool b_along_k, int tile, int most);

}  // namespace arete::cuda
