// The stream that the calling thread's work on a GPU goes to, for kernels of extensions.
#pragma once

#include <cuda_runtime_api.h>

#include "arete/device/cuda.h"
#include "torch/types.h"

namespace torch::cuda {

class CUDAStream {
 public:
  explicit CUDAStream(arete::cuda::Stream s) : stream_(std::move(s)) {}
  cudaStream_t stream() const { return static_cast<cudaStream_t>(stream_.native_handle()); }
  operator cudaStream_t() const { return stream(); }

 private:
  arete::cuda::Stream stream_;
};
inline CUDAStream getCurrentCUDAStream(int device = -1) {
  return CUDAStream(arete::cuda::current_stream(device));
}

}  // namespace torch::cuda

#define C10_CUDA_CHECK(call)                                                                \
  do {                                                                                      \
    const cudaError_t arete_error = (call);                                                 \
    if (arete_error != cudaSuccess)                                                         \
      ::torch::check_failed(::torch::str("CUDA error: ", cudaGetErrorString(arete_error))); \
  } while (false)
#define AT_CUDA_CHECK(call) C10_CUDA_CHECK(call)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
