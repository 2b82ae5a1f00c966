#include "arete/backend/cuda/codegen/compact.h"

namespace arete::cuda {
namespace compaction {

KernelSource compact_source(bool aligned, bool coordinates) {
  const auto text = [](bool b) { return b ? "true" : "false"; };
  const std::string name = std::string("compact_") + (aligned ? "aligned" : "bytes") +
                           (coordinates ? "_coordinates" : "");
  return {name, "#include \"compact.cuh\"\nextern \"C\" __global__ void __launch_bounds__(512) " +
                    name + "(const __grid_constant__ CompactArgs a) {\n  compact<" + text(aligned) +
                    ", " + text(coordinates) + ">(a);\n}\n"};
}

}  // namespace compaction

std::vector<KernelSource> compact_samples() {
  std::vector<KernelSource> all;
  for (const bool aligned : {false, true})
    for (const bool coordinates : {false, true})
      all.push_back(compaction::compact_source(aligned, coordinates));
  return all;
}

}  // namespace arete::cuda
