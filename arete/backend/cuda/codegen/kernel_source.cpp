#include "arete/backend/cuda/codegen/kernel_source.h"

#include "arete/base/error.h"

namespace arete::cuda {

KernelSource with_early_start(KernelSource source) {
  const size_t body = source.text.find('{', source.text.find("__global__"));
  ARETE_ASSERT(body != std::string::npos);
  source.text.insert(body + 1,
                     "\n#if __CUDA_ARCH__ >= 900\n"
                     "  asm volatile(\"griddepcontrol.launch_dependents;\");\n"
                     "  asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");\n"
                     "#endif\n");
  return source;
}

}  // namespace arete::cuda
