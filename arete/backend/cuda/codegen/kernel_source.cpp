#include "arete/backend/cuda/codegen/kernel_source.h"

#include "arete/base/error.h"

namespace arete::cuda {

KernelSource with_early_start(KernelSource source) {
  const size_t body = source.text.find('{', source.text.find("__global__"));
  ARETE_ASSERT(body != std::string::npos);
  // Before all that touches memory. In streams kernels wait for events as ever, but captures make
  // every edge from a kernel to one of ours programmatic, those by events too: where branches of a
  // graph join, nothing else holds the kernel back.
  source.text.insert(
      body + 1,
      std::string("\n#if __CUDA_ARCH__ >= 900\n") +
          (source.is_long ? "" : "  asm volatile(\"griddepcontrol.launch_dependents;\");\n") +
          "  asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");\n"
          "#endif\n");
  return source;
}

}  // namespace arete::cuda
