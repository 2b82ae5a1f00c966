#include "arete/backend/cuda/codegen/random.h"

#include <array>

#include "arete/backend/cuda/codegen/emit.h"
#include "arete/backend/cuda/codegen/pointwise.h"
#include "arete/expr/value.h"

namespace arete::cuda {

namespace {

constexpr const char* kStructs[] = {"Uniform",   "Normal",       "Integers",
                                    "Bernoulli", "WideIntegers", "FusedNormal"};
constexpr const char* kNames[] = {"uniform",   "normal",        "integers",
                                  "bernoulli", "wide_integers", "fused_normal"};

}  // namespace

KernelSource random_source(RandomKind kind, const expr::Program& program, bool moved) {
  const ElementCode code = element_code(program);
  const auto number = [](int k) { return std::to_string(k); };
  const int n_inputs = code.operands() - code.n_outputs - 1;  // in memory
  const std::string out = code.storage[0];
  const std::string name =
      std::string(moved ? "moved_" : "random_") + kNames[int(kind)] + "_" + code.name;
  std::string text =
      "#include \"random.cuh\"\n" + code.function + "struct Args {\n  RandomArgs random;\n";
  if (n_inputs > 0) text += "  const void* inputs[" + number(n_inputs) + "];\n";
  if (code.n_params > 0) text += "  ParamSlot params[" + number(code.n_params) + "];\n";
  text += "};\nextern \"C\" __global__ void __launch_bounds__(256) " + name +
          "(const __grid_constant__ Args a) {\n  typedef " + kStructs[int(kind)] + "<" +
          code.storage[1] + "> Drawn;\n  const int kPer = Drawn::kPer;\n  const LaunchStream<" +
          (moved ? "true" : "false") + "> stream(a.random);\n  " + out +
          "* const y = static_cast<" + out + "*>(a.random.out);\n" + R"(
  const u32 threads = gridDim.x * blockDim.x;
  for (u32 g = blockIdx.x * blockDim.x + threadIdx.x; g < a.random.groups; g += threads) {
    const u32 n = g == a.random.groups - 1 ? a.random.elements_in_last : u32(kPer);
    const bool whole = g < a.random.whole;
    const i64 first = i64(g) * kPer;
    Drawn::T drawn[kPer];
    Drawn::make(a.random, stream.block(g), drawn);
)";
  std::string arguments;
  for (int k = 0; k < code.n_params; ++k) arguments += "a.params[" + number(k) + "], ";
  arguments += "r.v[e], drawn[e]";
  for (int k = 0; k < n_inputs; ++k) {
    const std::string& type = code.storage[size_t(k + 2)];
    text += "    const Pack<" + type + ", kPer> s" + number(k) + " = load_some<" + type +
            ", kPer>(static_cast<const " + type + "*>(a.inputs[" + number(k) +
            "]) + first, whole, n);\n";
    arguments += ", element_of(s" + number(k) + ", e)";
  }
  text += "    Pack<" + out +
          ", kPer> r;\n#pragma unroll\n    for (int e = 0; e < kPer; ++e) element(" + arguments +
          ");\n    store_some<" + out + ", kPer>(y + first, r, whole, n);\n  }\n}\n";
  return {name, std::move(text)};
}

KernelSource random_source(RandomKind kind, DType dtype, bool moved) {
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
  // Programs of numbers, alone and with an input and a parameter.
  for (const DType drawn : {kFloat32, kFloat64})
    for (const DType out : {kFloat32, kBFloat16, kInt64, kFloat64}) {
      const DType dtypes[] = {drawn, out};
      const expr::ProgramPtr program = expr::trace(
          [&](std::span<const expr::Value> v) {
            const expr::Value x = cast(v[1], v[0].type());
            return std::vector{cast(floor(v[0] * v[2] + x), expr::compute_type(out))};
          },
          dtypes, std::array{expr::compute_type(drawn)}, {{out}});
      all.push_back(random_source(RandomKind::normal, *program, drawn == out));
    }
  const expr::ProgramPtr alone =
      expr::trace([](std::span<const expr::Value> v) { return std::vector{exp(v[0])}; },
                  {{kFloat32}}, {}, {{kFloat16}});
  all.push_back(random_source(RandomKind::fused_normal, *alone, false));
  return all;
}

}  // namespace arete::cuda
