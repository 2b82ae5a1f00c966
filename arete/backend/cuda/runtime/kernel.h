// Compiled kernels: the cache in memory and on disk, and their launch.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <string>

#include "arete/backend/cuda/codegen/kernel_source.h"
#include "arete/base/hash.h"

namespace arete::cuda {

class DeviceContext;

/// A kernel loaded on one device; lives for the rest of the process.
struct Kernel {
  CUfunction function = nullptr;
  CUmodule module = nullptr;
  int max_threads = 1024;  // per block
  int registers = 0;
  int static_shared = 0;  // bytes
  bool waits = false;     // for what is before it, itself: Note [Early starts], kernel_source.h
  std::string name;
};

/// Whether kernels that wait themselves are launched early, as they are unless ARETE_EARLY_START is
/// 0 or a profiler records.
void allow_early_starts(bool allowed);

/// The calling thread gives the stream a product of a library: Note [Early starts].
void note_library_kernel(const DeviceContext& device, CUstream stream);

/// The kernel of a source on a device: from memory, from disk, or compiled now. Thread-safe; two
/// threads that ask for different kernels compile at the same time.
const Kernel& find_kernel(DeviceContext& device, const KernelSource& source);

/// Key of a kernel: source, embedded headers, options, architecture and NVRTC version.
Hash128 kernel_key(const KernelSource& source, int arch);

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};

/// Whether kernels may have 32764 bytes of arguments, not 4096: from CUDA 12.1 on.
bool has_long_arguments();

/// Launches with `arguments` pointing to each of the kernel's arguments. Raises `shared` beyond
/// 48 KB as needed. DeviceError naming kernel, operator, grid and stream if the launch fails; with
/// CUDA_LAUNCH_BLOCKING=1 it also waits, so that what a kernel does wrong is reported here.
void launch_raw(DeviceContext& device, const Kernel& kernel, Dim3 grid, Dim3 block, size_t shared,
                CUstream stream, void** arguments);

/// The same with the arguments themselves; their types must be exactly those of the kernel.
template <class... Args>
void launch(DeviceContext& device, const Kernel& kernel, Dim3 grid, Dim3 block, size_t shared,
            CUstream stream, const Args&... args) {
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&args))..., nullptr};
  launch_raw(device, kernel, grid, block, shared, stream, pointers);
}

}  // namespace arete::cuda
