#include "arete/backend/cuda/codegen/lu.h"

#include "arete/backend/cuda/codegen/emit.h"

namespace arete::cuda {

KernelSource lu_source(DType dtype) {
  const std::string type = storage_name(dtype), name = "lu_" + type;
  return {name, "#include \"lu.cuh\"\nextern \"C\" __global__ void __launch_bounds__(" +
                    std::to_string(kLuThreads) + ") " + name +
                    "(const __grid_constant__ LuArgs a) {\n  lu<" + type + ">(a);\n}\n"};
}

std::vector<KernelSource> lu_samples() { return {lu_source(kFloat32), lu_source(kFloat64)}; }

}  // namespace arete::cuda
