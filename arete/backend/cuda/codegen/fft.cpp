#include "arete/backend/cuda/codegen/fft.h"

#include "arete/backend/cuda/codegen/emit.h"

namespace arete::cuda {

KernelSource fft_pass_source(DType dtype, bool complex, bool tiles, bool wide) {
  return {"fft_pass",
          "#include \"fft.cuh\"\n"
          "extern \"C\" __global__ void __launch_bounds__(256)\n"
          "fft_pass(const __grid_constant__ FftPassArgs args) {\n  fft_pass_" +
              std::string(tiles ? "tiles<" : "rows<") + storage_name(dtype) +
              (complex ? ", 2" : ", 1") + (wide ? ", i64" : ", i32") + ">(args);\n}\n"};
}

std::vector<KernelSource> fft_samples() {
  std::vector<KernelSource> sources;
  for (DType t : {kFloat32, kFloat64})
    for (bool complex : {false, true})
      for (bool tiles : {false, true})
        for (bool wide : {false, true}) sources.push_back(fft_pass_source(t, complex, tiles, wide));
  return sources;
}

}  // namespace arete::cuda
