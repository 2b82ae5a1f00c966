// Compilation of kernels while the program runs.
#pragma once

#include <string>
#include <vector>

#include "arete/backend/cuda/codegen/kernel_source.h"

namespace arete::cuda {

/// "" if NVRTC can be loaded, else why not.
const std::string& nvrtc_problem();
/// "13.0".
std::string nvrtc_version();

/// Compiles to machine code for `arch`, such as 90 for sm_90. BugError with the compiler's log and
/// the source if it does not compile. Needs no GPU; may run on several threads at once. `lowered`:
/// becomes what the code calls the function, for names that are expressions ("scale<float>").
std::string compile_to_cubin(const KernelSource& source, int arch,
                             const std::vector<std::string>& options = {},
                             std::string* lowered = nullptr);
/// The options used for every kernel, part of the cache key.
std::vector<std::string> default_compile_options();

}  // namespace arete::cuda
