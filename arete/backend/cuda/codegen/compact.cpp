#include "arete/backend/cuda/codegen/compact.h"

namespace arete::cuda {
namespace compaction {

KernelSource compact_source(bool aligned) {
  const std::string name = aligned ? "compact_aligned" : "compact_bytes";
  return {name, "#include \"compact.cuh\"\nextern \"C\" __global__ void __launch_bounds__(512) " +
                    name + "(const __grid_constant__ CompactArgs a) {\n  compact<" +
                    (aligned ? "true" : "false") + ">(a);\n}\n"};
}

}  // namespace compaction

std::vector<KernelSource> compact_samples() {
  return {compaction::compact_source(true), compaction::compact_source(false)};
}

}  // namespace arete::cuda
