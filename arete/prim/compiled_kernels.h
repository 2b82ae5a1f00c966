// What compiling kernels took, by kernel.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace arete::prim {

/// A kernel that a backend compiled; one that was found on disk is none.
struct CompiledKernel {
  std::string name;
  double seconds;
};

/// Called by backends that compile kernels. Thread-safe, as the others.
void note_compiled_kernel(std::string name, double seconds);
/// How many since the process started.
size_t count_compiled_kernels() noexcept;
/// Those behind the first `skip`.
std::vector<CompiledKernel> compiled_kernels(size_t skip);

}  // namespace arete::prim
