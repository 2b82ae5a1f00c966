// Kernels of LU factors.
#pragma once

#include "arete/backend/cuda/codegen/kernel_source.h"
#include "arete/core/dtype.h"

namespace arete::cuda {

/// Mirrors device/lu.cuh: dense column-major matrices, and the memory of their pivots and infos.
struct LuKernelArgs {
  uint64_t a, pivots, info;
  int64_t rows, columns;
};
inline constexpr int kLuThreads = 256;  // at most; a multiple of 32

/// A block for each matrix, f32 or f64.
KernelSource lu_source(DType dtype);

}  // namespace arete::cuda
