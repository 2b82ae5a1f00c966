// What compiling kernels took, by kernel.
#pragma once

#include <string>
#include <vector>

namespace arete::prim {

/// A kernel that a backend compiled; one that was found on disk is none.
struct CompiledKernel {
  std::string name;
  double seconds;
};

/// Called by backends that compile kernels, on the thread that asked for one.
void note_compiled_kernel(std::string name, double seconds);
/// Those that were compiled for this thread so far.
const std::vector<CompiledKernel>& compiled_kernels() noexcept;

}  // namespace arete::prim
