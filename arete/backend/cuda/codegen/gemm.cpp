#include "arete/backend/cuda/codegen/gemm.h"

#include <cstddef>

#include "arete/backend/cuda/codegen/emit.h"
#include "arete/base/error.h"

namespace arete::cuda {

static_assert(sizeof(GemmArguments) == 23 * 8 + 5 * 16 * 8 &&
              offsetof(GemmArguments, alpha) == 17 * 8);
static_assert(sizeof(ShortGemm) == 17 * 8 && offsetof(ShortGemm, alpha) == 13 * 8);

KernelSource gemm_source(DType in, DType out) {
  ARETE_ASSERT(in != kBool && (in == out || (is_reduced_float(in) && out == kFloat32)));
  const std::string types = std::string(storage_name(in)) + ", " + storage_name(out);
  KernelSource source;
  source.name = "gemm_" + std::string(storage_name(in));
  if (in != out) source.name += std::string("_") + storage_name(out);
  source.text = "#include \"gemm.cuh\"\nextern \"C\" __global__ void __launch_bounds__(" +
                std::to_string(kGemmThreads) + ") " + source.name +
                "(const __grid_constant__ GemmArguments g) {\n  gemm_tiles<" + types + ">(g);\n}\n";
  return source;
}

KernelSource short_gemm_source(bool a_along_k, bool b_along_k, int tile) {
  const auto side = [](bool along_k) { return along_k ? "k" : "r"; };
  const std::string size = std::to_string(tile);
  KernelSource source;
  source.name = std::string("short_gemm_") + side(a_along_k) + side(b_along_k) + "_" + size;
  source.text = "#include \"short_gemm.cuh\"\nextern \"C\" __global__ void __launch_bounds__(" +
                std::to_string(kShortGemmThreads) + ") " + source.name +
                "(const __grid_constant__ ShortGemm g) {\n  short_gemm<" +
                (a_along_k ? "true, " : "false, ") + (b_along_k ? "true, " : "false, ") + size +
                ">(g);\n}\n";
  return source;
}

std::vector<KernelSource> gemm_samples() {
  std::vector<KernelSource> sources;
  for (const int tile : {16, 32, 64})
    for (int layout = 0; layout < 4; ++layout)
      sources.push_back(short_gemm_source(layout & 1, layout & 2, tile));
  for (int t = 0; t < kNumDTypes; ++t) {
    if (DType(t) == kBool) continue;
    sources.push_back(gemm_source(DType(t), DType(t)));
    if (is_reduced_float(DType(t))) sources.push_back(gemm_source(DType(t), kFloat32));
  }
  return sources;
}

}  // namespace arete::cuda
