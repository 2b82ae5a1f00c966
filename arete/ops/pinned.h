// Page-locked host memory to write into, as Tensor::pin_memory gives copies in it.
#pragma once

#include "arete/core/tensor.h"

namespace arete {

/// A contiguous tensor of undefined values in host memory that GPUs reach by themselves;
/// DeviceError without a GPU.
Tensor empty_pinned(IntList sizes, DType dtype);

}  // namespace arete
