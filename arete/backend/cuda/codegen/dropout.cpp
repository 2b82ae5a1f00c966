#include "arete/backend/cuda/codegen/dropout.h"

#include <algorithm>

#include "arete/backend/cuda/codegen/emit.h"

namespace arete::cuda {

int dropout_group(DType dtype) { return std::max(4, int(16 / size_of(dtype))); }

KernelSource dropout_source(DType dtype, bool vectors, bool moved) {
  const std::string type = storage_name(dtype);
  return {"dropout",
          "#include \"dropout.cuh\"\n"
          "extern \"C\" __global__ void __launch_bounds__(256)\n"
          "dropout(const __grid_constant__ DropoutArgs args) {\n"
          "  dropout_elements<" +
              type + ", " + std::to_string(dropout_group(dtype)) + ", " +
              (vectors ? "true" : "false") + ", " + (moved ? "true" : "false") + ">(args);\n}\n"};
}

std::vector<KernelSource> dropout_samples() {
  std::vector<KernelSource> sources;
  for (DType t : {kFloat16, kBFloat16, kFloat32, kFloat64, kFloat8E4M3, kFloat8E5M2})
    for (bool vectors : {false, true})
      for (bool moved : {false, true}) sources.push_back(dropout_source(t, vectors, moved));
  return sources;
}

}  // namespace arete::cuda
