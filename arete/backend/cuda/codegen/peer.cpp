#include "arete/backend/cuda/codegen/peer.h"

#include "arete/backend/cuda/codegen/emit.h"

namespace arete::cuda {

KernelSource peer_sum_source(DType dtype, int ranks) {
  const std::string type = storage_name(dtype), n = std::to_string(ranks);
  const std::string name = "peer_sum_" + type + "_" + n;
  return {name, "#include \"peer.cuh\"\nextern \"C\" __global__ void __launch_bounds__(256) " +
                    name + "(const __grid_constant__ PeerSumArgs a) {\n  add_peers<" + type + ", " +
                    n + ">(a);\n}\n"};
}

KernelSource peer_meet_source() {
  return {.name = "peer_meet",
          .text =
              "#include \"peer.cuh\"\nextern \"C\" __global__ void __launch_bounds__(32) "
              "peer_meet(const __grid_constant__ PeerMeetArgs a) {\n  meet_peers(a);\n}\n",
          .of_user = true};
}

std::vector<KernelSource> peer_samples() {
  std::vector<KernelSource> all = {peer_meet_source()};
  for (const DType dtype : {kFloat16, kBFloat16, kFloat32, kFloat64})
    for (const int ranks : {2, 8}) all.push_back(peer_sum_source(dtype, ranks));
  return all;
}

}  // namespace arete::cuda
