// Kernels as text, before compilation. Nothing in codegen/ needs a GPU or the CUDA headers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace arete::cuda {

/// One translation unit for NVRTC with one extern "C" __global__ function. The text may include the
/// embedded headers of backend/cuda/device/ by file name: #include "dtype.cuh".
struct KernelSource {
  std::string name;  // of the function
  std::string text;
  std::vector<std::string> options = {};  // of the compiler, besides those for every kernel
  bool of_user = false;                   // text that is compiled as it is
  bool is_long = false;                   // Note [Early starts]
};

// Note [Early starts]
// From Hopper on, the blocks of a kernel may be placed while the last ones of the kernel before it
// still run (programmatic dependent launch), which hides a microsecond or two of each launch. Our
// kernels let the next one begin at their own first instruction, and wait there until all kernels
// that they come after have ended and can be seen (with_early_start). So each is launched as one
// that may begin early, in streams and in graphs; kernels of others and copies wait as ever.
// Kernels that are long let the next one begin when their blocks end: blocks that wait meanwhile
// are placed where there is room, several to a multiprocessor, and stay there while others have
// nothing to do. (`bench/compiled.py "N-body 16384"` took 419 us instead of 293 on an H100.)
// In graphs a kernel behind a product of a library begins as ever: the product lets nobody begin
// early, so that there is nothing to hide.
// A profiler would show the waiting as work: while it records, kernels begin one after the other.

/// The source with these two instructions at the beginning of its kernel.
KernelSource with_early_start(KernelSource source);

/// The embedded files of backend/cuda/device/ (made by CMake).
struct EmbeddedFile {
  std::string_view name, text;
};
extern const std::vector<EmbeddedFile> kEmbeddedFiles;

/// Sources that stand for everything a family can generate; the test compiles all of them. Each
/// family defines one function of this kind and lists it in samples.cpp.
using SampleFunction = std::vector<KernelSource> (*)();
struct SampleFamily {
  const char* name;
  SampleFunction make;
};
const std::vector<SampleFamily>& sample_families();

}  // namespace arete::cuda
