// The CUDA driver, loaded when the program runs: a table of its functions and checked calls.
#pragma once

#include <cuda.h>

#include <string>

namespace arete::cuda {

// Every driver function used. The names are macros in cuda.h that select a version of the function;
// the table keeps both the type and the versioned name.
#define ARETE_CUDA_DRIVER_FUNCTIONS(X)           \
  X(cuInit)                                      \
  X(cuDriverGetVersion)                          \
  X(cuGetErrorName)                              \
  X(cuGetErrorString)                            \
  X(cuDeviceGet)                                 \
  X(cuDeviceGetCount)                            \
  X(cuDeviceGetName)                             \
  X(cuDeviceGetAttribute)                        \
  X(cuDeviceTotalMem)                            \
  X(cuDeviceGetPCIBusId)                         \
  X(cuDevicePrimaryCtxRetain)                    \
  X(cuCtxSetCurrent)                             \
  X(cuCtxGetCurrent)                             \
  X(cuCtxSynchronize)                            \
  X(cuCtxEnablePeerAccess)                       \
  X(cuDeviceCanAccessPeer)                       \
  X(cuCtxGetStreamPriorityRange)                 \
  X(cuStreamCreateWithPriority)                  \
  X(cuStreamDestroy)                             \
  X(cuStreamSynchronize)                         \
  X(cuStreamQuery)                               \
  X(cuStreamWaitEvent)                           \
  X(cuStreamBeginCapture)                        \
  X(cuStreamEndCapture)                          \
  X(cuStreamIsCapturing)                         \
  X(cuStreamGetCaptureInfo)                      \
  X(cuEventCreate)                               \
  X(cuEventDestroy)                              \
  X(cuEventRecord)                               \
  X(cuEventSynchronize)                          \
  X(cuEventQuery)                                \
  X(cuEventElapsedTime)                          \
  X(cuGraphInstantiate)                          \
  X(cuGraphLaunch)                               \
  X(cuGraphUpload)                               \
  X(cuGraphGetNodes)                             \
  X(cuGraphDestroy)                              \
  X(cuGraphExecDestroy)                          \
  X(cuModuleLoadData)                            \
  X(cuModuleUnload)                              \
  X(cuModuleGetFunction)                         \
  X(cuModuleGetGlobal)                           \
  X(cuFuncGetAttribute)                          \
  X(cuFuncSetAttribute)                          \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor) \
  X(cuLaunchKernelEx)                            \
  X(cuMemGetInfo)                                \
  X(cuMemAlloc)                                  \
  X(cuMemFree)                                   \
  X(cuMemHostAlloc)                              \
  X(cuMemFreeHost)                               \
  X(cuMemHostGetDevicePointer)                   \
  X(cuMemHostRegister)                           \
  X(cuMemHostUnregister)                         \
  X(cuPointerGetAttribute)                       \
  X(cuMemGetAddressRange)                        \
  X(cuIpcGetMemHandle)                           \
  X(cuIpcOpenMemHandle)                          \
  X(cuIpcCloseMemHandle)                         \
  X(cuIpcGetEventHandle)                         \
  X(cuIpcOpenEventHandle)                        \
  X(cuMemcpyAsync)                               \
  X(cuMemcpyPeerAsync)                           \
  X(cuMemcpyHtoDAsync)                           \
  X(cuMemcpyDtoHAsync)                           \
  X(cuMemcpyDtoDAsync)                           \
  X(cuMemsetD8Async)                             \
  X(cuMemsetD32Async)                            \
  X(cuMemAddressReserve)                         \
  X(cuMemAddressFree)                            \
  X(cuMemCreate)                                 \
  X(cuMemRelease)                                \
  X(cuMemMap)                                    \
  X(cuMemUnmap)                                  \
  X(cuMemSetAccess)                              \
  X(cuMemGetAllocationGranularity)               \
  X(cuTensorMapEncodeTiled)

/// Pointers to the driver's functions, under their plain names.
struct Driver {
#define ARETE_CUDA_POINTER(name) decltype(&::name) name = nullptr;
  ARETE_CUDA_DRIVER_FUNCTIONS(ARETE_CUDA_POINTER)
#undef ARETE_CUDA_POINTER
};

/// The loaded and initialised driver. DeviceError with the reason if there is none.
const Driver& driver();
/// Empty if the driver is there and has at least one device, else why not.
const std::string& driver_problem();
/// "13.0": the newest CUDA version that the driver knows.
std::string driver_version();

/// Throws OutOfMemoryError or DeviceError naming `what`, CUDA's name of the error and its text, and
/// the operator if one is given.
[[noreturn]] void throw_cuda_error(CUresult result, const char* what, const char* op = nullptr);
inline void check(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) [[unlikely]]
    throw_cuda_error(result, what);
}

/// Calls a driver function and checks its result: ARETE_CU(cuStreamSynchronize, stream).
#define ARETE_CU(function, ...) \
  ::arete::cuda::check(::arete::cuda::driver().function(__VA_ARGS__), #function)

}  // namespace arete::cuda
