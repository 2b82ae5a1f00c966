// The kernel of dropout.
#pragma once

#include "arete/backend/cuda/codegen/kernel_source.h"
#include "arete/core/dtype.h"

namespace arete::cuda {

/// Elements that a thread makes at a time.
int dropout_group(DType dtype);
/// dropout(DropoutArgs) for contiguous tensors. `vectors`: both start at multiples of 16 bytes.
/// `moved`: the random numbers have a state.
KernelSource dropout_source(DType dtype, bool vectors, bool moved);

}  // namespace arete::cuda
