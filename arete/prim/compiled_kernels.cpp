#include "arete/prim/compiled_kernels.h"

#include <utility>

namespace arete::prim {

static thread_local std::vector<CompiledKernel> kernels;

void note_compiled_kernel(std::string name, double seconds) {
  kernels.push_back({std::move(name), seconds});
}
const std::vector<CompiledKernel>& compiled_kernels() noexcept { return kernels; }

}  // namespace arete::prim
