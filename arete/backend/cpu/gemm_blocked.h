// A packed, blocked matrix product for the types that oneDNN has not: f64 and the integers.
#pragma once

#include <cstdint>

#include "arete/core/dtype.h"

namespace arete::cpu {

/// A matrix of any strides, in elements.
struct MatrixRef {
  void* data;
  int64_t row_stride, col_stride;
};

/// out (m, n) = alpha * a (m, k) @ b (k, n) + beta * out, k >= 1. dtype f64, or an integer, which
/// wraps around (alpha and beta are converted to it). Old values of out are not read if beta is 0.
struct BlockedGemm {
  DType dtype;
  int64_t m, n, k;
  MatrixRef a, b, out;
  double alpha, beta;
};

/// Runs with the widest instructions of this machine, in parallel unless in a parallel region.
void gemm_blocked(const BlockedGemm& problem);

/// out += bias, then aux = out, then out = max(out, 0) where NaN stays; `bias` and `aux` may be
/// null. `n` elements of f32 or f64 side by side.
struct FinishRow {
  DType dtype;
  int64_t n;
  void* out;
  const void* bias;
  void* aux;
  bool relu;
};
void finish_row(const FinishRow& row);

/// The code compiled for one instruction set (gemm_blocked.simd.cpp).
#define ARETE_GEMM_KERNELS(target)               \
  namespace target {                             \
  void gemm_blocked(const BlockedGemm& problem); \
  void finish_row(const FinishRow& row);         \
  }
ARETE_GEMM_KERNELS(base)
ARETE_GEMM_KERNELS(avx2)
ARETE_GEMM_KERNELS(avx512)
#undef ARETE_GEMM_KERNELS

}  // namespace arete::cpu
