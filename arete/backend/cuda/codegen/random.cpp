#include "arete/backend/cuda/codegen/random.h"

#include "arete/backend/cuda/codegen/emit.h"

namespace arete::cuda {

KernelSource random_source(RandomKind kind, DType dtype, bool moved) {
  static constexpr const char* kStructs[] = {"Uniform",   "Normal",       "Integers",
                                             "Bernoulli", "WideIntegers", "FusedNormal"};
  static constexpr const char* kNames[] = {"uniform",   "normal",        "integers",
                                           "bernoulli", "wide_integers", "fused_normal"};
  const std::string type = storage_name(dtype);
  const std::string name =
      std::string(moved ? "moved_" : "random_") + kNames[int(kind)] + "_" + type;
  return {name, "#include \"random.cuh\"\nextern \"C\" __global__ void __launch_bounds__(256) " +
                    name + "(const __grid_constant__ RandomArgs a) {\n  random_elements<" +
                    kStructs[int(kind)] + "<" + type + ">, " + (moved ? "true" : "false") +
                    ">(a);\n}\n"};
}

int random_group(DType dtype, int elements_per_block) {
  const int bytes = elements_per_block * int(size_of(dtype));
  return bytes < 16 ? 16 / bytes : 1;
}

void philox_keys(uint64_t seed, uint32_t (&keys)[20]) {
  uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
  for (size_t round = 0; round < 10; ++round) {
    keys[2 * round] = k0;
    keys[2 * round + 1] = k1;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

std::vector<KernelSource> random_samples() {
  std::vector<KernelSource> all;
  for (int t = 0; t < kNumDTypes; ++t) {
    const DType dtype = DType(t);
    for (int kind = 0; kind < kNumRandomKinds; ++kind) {
      const RandomKind k = RandomKind(kind);
      const bool normal = k == RandomKind::normal || k == RandomKind::fused_normal;
      if ((k == RandomKind::uniform || normal) && !is_floating(dtype)) continue;
      if (k == RandomKind::fused_normal && dtype == kFloat64) continue;
      all.push_back(random_source(k, dtype, false));
      if (dtype == kFloat32 || dtype == kInt64) all.push_back(random_source(k, dtype, true));
    }
  }
  return all;
}

}  // namespace arete::cuda
