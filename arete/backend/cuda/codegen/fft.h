// Kernels around Fourier transforms.
#pragma once

#include "arete/backend/cuda/codegen/kernel_source.h"
#include "arete/core/dtype.h"

namespace arete::cuda {

/// fft_pass(FftPassArgs) with blocks of 256 threads for real numbers of `dtype`, or pairs of them;
/// `tiles`: for operands that are contiguous along different dimensions; `wide`: for positions of
/// more than 32 bits. See device/fft.cuh.
KernelSource fft_pass_source(DType dtype, bool complex, bool tiles, bool wide);

}  // namespace arete::cuda
