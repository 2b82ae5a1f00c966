#include "arete/backend/cuda/codegen/gemm.h"

#include <algorithm>
#include <cstddef>

#include "arete/backend/cuda/codegen/emit.h"
#include "arete/base/error.h"

namespace arete::cuda {

static_assert(sizeof(GemmArguments) == 23 * 8 + 5 * 16 * 8 &&
              offsetof(GemmArguments, alpha) == 17 * 8);
static_assert(sizeof(ShortGemm) == 20 * 8 && offsetof(ShortGemm, alpha) == 13 * 8);

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
                std::to_string(kShortGemmThreads) + ", 2) " + source.name +
                "(const __grid_constant__ ShortGemm g) {\n"
                "  extern __shared__ __align__(16) f32 shared[];\n  short_gemm<" +
                (a_along_k ? "true, " : "false, ") + (b_along_k ? "true, " : "false, ") + size +
                ">(g, shared);\n}\n";
  return source;
}

int plan_short_gemm(ShortGemm& g, bool a_along_k, bool b_along_k, int tile, int most) {
  // Fewer terms than these are no stage: to begin one costs what the loads of some thirty do.
  constexpr int kFewestTerms = 64;
  const int side = tile / 4, groups = kShortGemmThreads / (side * side), step = 4 * groups;
  const auto divide = [](int a, int b) { return (a + b - 1) / b; };
  // Lines along k are read by 8 lanes each another one, of a tile of 16 by 4 lanes for two groups.
  const auto pitch = [&](bool along_k) {
    const int fours = divide(g.span, 4);
    return !along_k ? tile + 4 : 4 * (tile == 16 ? ((fours + 1) & ~3) + 2 : fours | 1);
  };
  const auto elements = [&](bool along_k) {
    return pitch(along_k) * (along_k ? tile : divide(g.span, 4) * 4);
  };
  const int parts = groups * (tile * (tile + 4) + 16 + tile);
  for (int passes = 1;; ++passes) {
    const int steps = divide(divide(g.k, step), passes);
    g.stage = std::max(divide(steps, kShortGemmStages) * step, kFewestTerms);
    g.span = passes == 1 ? g.k : steps * step;
    const int bytes = 4 * std::max(elements(a_along_k) + elements(b_along_k), parts);
    if (bytes > most && steps > 1) continue;
    ARETE_ASSERT(bytes <= most);
    g.a_pitch = pitch(a_along_k), g.b_pitch = pitch(b_along_k), g.b_first = elements(a_along_k);
    return bytes;
  }
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
