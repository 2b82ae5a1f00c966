#include "arete/backend/cuda/codegen/kernel_source.h"

#include "arete/base/error.h"

namespace arete::cuda {

KernelSource with_early_start(KernelSource source) {
  size_t place = source.text.find(kEarlyStart);
  if (!source.of_user) place = source.text.find('{', source.text.find("__global__"));
  if (place == std::string::npos) {
    ARETE_ASSERT(source.of_user);
    return source;
  }
  source.text.insert(place + (source.of_user ? kEarlyStart.size() : 1),
                     "\n#if __CUDA_ARCH__ >= 900\n"
                     "  asm volatile(\"griddepcontrol.launch_dependents;\");\n"
                     "  asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");\n"
                     "#endif\n");
  return source;
}

}  // namespace arete::cuda
