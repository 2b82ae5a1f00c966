// What has to follow when a vendor's library has made a handle or a plan.
#pragma once

#include "arete/backend/cuda/runtime/context.h"
#include "arete/backend/cuda/runtime/driver.h"

namespace arete::cuda {

/// Waits until what the library needs on the device is there. Tables are copied to it in CUDA's
/// legacy stream (cuFFT calls cuMemcpyHtoD), by calls that may return before a copy from ordinary
/// memory has ended, and no stream of ours waits for that one. Kernels that run before find in the
/// tables what the memory held before, and some tables hold positions.
/// Captures may be open: they are relaxed, and of streams that do not block, which the legacy
/// stream has nothing to do with. Where other code captures a stream that blocks, what the library
/// does in the legacy stream is an error before this.
inline void finish_setup(DeviceContext& device) {
  device.make_current();
  ARETE_CU(cuStreamSynchronize, CU_STREAM_LEGACY);
}

}  // namespace arete::cuda
