// Kernels of arithmetic progressions.
#pragma once

#include "arete/backend/cuda/codegen/kernel_source.h"
#include "arete/core/dtype.h"

namespace arete::cuda {

/// Arguments: T* out; i64 stride (elements), n; f64 start, step; i64 istart, istep (instead of the
/// former two for integers). Any grid; `iota_vector` elements are stored at a time where possible.
KernelSource iota_source(DType dtype);
constexpr int iota_vector(DType dtype) { return int(16 / size_of(dtype)); }

}  // namespace arete::cuda
