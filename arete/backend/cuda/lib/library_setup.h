// What has to follow when a vendor's library has made a handle or a plan, and when it used one.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

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

/// Whether what is submitted to `stream` goes into a CUDA graph, which may be other code's.
inline bool is_capturing(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  ARETE_CU(cuStreamIsCapturing, stream, &status);
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/// Keeps a plan, with the kernels that were compiled for it and the tables that it has on the
/// device, for the rest of the process if `stream` is being captured: the graph may be launched at
/// any time. Gives whether it is.
inline bool keep_if_captured(std::shared_ptr<const void> plan, CUstream stream) {
  if (!is_capturing(stream)) return false;
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::shared_ptr<const void>>;
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(plan));
  return true;
}

}  // namespace arete::cuda
