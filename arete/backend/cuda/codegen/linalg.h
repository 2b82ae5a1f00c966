// Kernels of dense linear algebra for batches, beside what the libraries have.
#pragma once

#include "arete/backend/cuda/codegen/kernel_source.h"

namespace arete::cuda::linear {

// The structs mirror device/linalg.cuh; of float or double.

struct LuPanelArgs {
  uint64_t a;
  int64_t stride;
  uint64_t pivots;
  int64_t pivot_stride;
  uint64_t info;
  int32_t ld, rows, columns, first, in_shared;
};
struct ExchangeArgs {
  uint64_t a;
  int64_t stride;
  uint64_t pivots;
  int64_t pivot_stride;
  int32_t ld, rows, columns, count, first, backward, blocks;
};
struct ReflectArgs {
  uint64_t out, in, reflectors, tau;
  int64_t out_stride, in_stride, reflector_stride, tau_stride;
  int32_t rows, columns, in_rows, in_columns, out_ld, in_ld, reflector_ld, count, transpose, blocks;
};
struct SvdArgs {
  uint64_t a, values, left, right, memory, info;
  int32_t rows, columns, transposed, left_columns;
};

/// Threads of a block: a multiple of 32, at most this; of a decomposition by rotations more.
constexpr int kMostThreads = 256, kMostRotatingThreads = 1024;

/// LU factors of a panel of each matrix, with exchanges of its rows. A block for each matrix;
/// shared memory for the panel with in_shared.
KernelSource lu_panel_source(bool is_double);
/// The exchanges of a factorization made with other columns. Shared memory: rows + count integers
/// and rows elements for each warp.
KernelSource exchange_rows_source(bool is_double);
/// Q or its transpose times columns. Shared memory: rows elements for each warp.
KernelSource reflect_source(bool is_double);
/// Singular values, and vectors where there is room for them. A block for each matrix; the kernel
/// says what shared memory it takes.
KernelSource svd_source(bool is_double);

}  // namespace arete::cuda::linear
