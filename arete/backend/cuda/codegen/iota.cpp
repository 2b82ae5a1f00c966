#include "arete/backend/cuda/codegen/iota.h"

#include "arete/backend/cuda/codegen/emit.h"

namespace arete::cuda {

KernelSource iota_source(DType dtype) {
  const std::string type = storage_name(dtype), name = "iota_" + type;
  return {name, "#include \"iota.cuh\"\nextern \"C\" __global__ void __launch_bounds__(256) " +
                    name + "(const __grid_constant__ IotaArgs a) {\n  iota_elements<" + type +
                    ">(a);\n}\n"};
}

}  // namespace arete::cuda
