#include "arete/backend/cuda/codegen/multi_reduce.h"

#include "arete/backend/cuda/codegen/emit.h"
#include "arete/expr/value.h"

namespace arete::cuda {
namespace {

std::string common(int tensors) {
  return "#include \"math.cuh\"\n#include \"monoid.cuh\"\n#include \"block.cuh\"\n"
         "union Slot { f64 f; i64 i; };\n"
         "struct Slots { Slot s[" +
         std::to_string(kMultiReduceParams) +
         "]; };\n"
         "struct MultiReduceTable {\n"
         "  const void* data[" +
         std::to_string(tensors) +
         "];\n"
         "  i64 numel[" +
         std::to_string(tensors) +
         "];\n"
         "  u32 first[" +
         std::to_string(tensors + 1) +
         "];  // chunk of each tensor\n"
         "  u32 tensors;\n"
         "};\n"
         "static constexpr int kThreads = " +
         std::to_string(kMultiReduceThreads) +
         ";\n"
         "static constexpr i64 kChunk = " +
         std::to_string(kMultiReduceChunk) + ";\n";
}

}  // namespace

KernelSource multi_reduce_chunks(prim::Monoid monoid, const expr::Program& prologue,
                                 bool vectorized, int tensors) {
  const DType in = prologue.inputs()[0], out = prologue.outputs()[0].dtype;
  const expr::Type work = expr::compute_type(out);
  const std::string element = storage_name(in);
  const int width = vectorized ? int(16 / size_of(in)) : 1;
  const std::vector<std::string> params = param_expressions(prologue, "p.s");
  const std::string input = "x";
  std::string body;
  const std::vector<std::string> value =
      emit_values(body, prologue, {&input, 1}, params, "v", "  ", true);

  std::string t = common(tensors);
  t += "typedef " + monoid_name(monoid, work) + " M;\n";
  t += "DEVICE auto term(compute_of<" + element + "> x, const Slots& p) {\n" + body + "  return " +
       value[0] + ";\n}\n";
  t += "static constexpr int kWidth = " + std::to_string(width) + ";\n";
  t += "extern \"C\" __global__ void __launch_bounds__(kThreads)\n"
       "multi_reduce_chunks(const __grid_constant__ MultiReduceTable table,\n"
       "                    const __grid_constant__ Slots p, " +
       std::string(storage_name(out)) +
       "* partials) {\n"
       "  typedef Vec<" +
       element +
       ", kWidth> V;\n"
       "  __shared__ M::type shared[kThreads / 32];\n"
       "  u32 low = 0, high = table.tensors;\n"
       "  while (high - low > 1) {\n"
       "    const u32 middle = (low + high) / 2;\n"
       "    if (table.first[middle] <= blockIdx.x) low = middle; else high = middle;\n"
       "  }\n"
       "  const i64 begin = i64(blockIdx.x - table.first[low]) * kChunk;\n"
       "  const i64 left = table.numel[low] - begin;\n"
       "  const int n = int(left < kChunk ? left : kChunk), vectors = n / kWidth;\n"
       "  const " +
       element + "* data = static_cast<const " + element +
       "*>(table.data[low]) + begin;\n"
       "  const V* wide = reinterpret_cast<const V*>(data);\n"
       "  M::type sums[4];\n"
       "  for (int k = 0; k < 4; ++k) sums[k] = M::identity();\n"
       "  int i = threadIdx.x;\n"
       "  for (; i + 3 * kThreads < vectors; i += 4 * kThreads) {\n"
       "    V v[4];\n"
       "#pragma unroll\n"
       "    for (int k = 0; k < 4; ++k) v[k] = wide[i + k * kThreads];\n"
       "#pragma unroll\n"
       "    for (int k = 0; k < 4; ++k)\n"
       "#pragma unroll\n"
       "      for (int e = 0; e < kWidth; ++e) sums[k] = M::combine(sums[k], term(element_of(v[k], "
       "e), p));\n"
       "  }\n"
       "  for (; i < vectors; i += kThreads) {\n"
       "    const V v = wide[i];\n"
       "#pragma unroll\n"
       "    for (int e = 0; e < kWidth; ++e) sums[0] = M::combine(sums[0], term(element_of(v, e), "
       "p));\n"
       "  }\n"
       "  for (int j = vectors * kWidth + threadIdx.x; j < n; j += kThreads)\n"
       "    sums[1] = M::combine(sums[1], term(to_compute(data[j]), p));\n"
       "  M::type r = M::combine(M::combine(sums[0], sums[1]), M::combine(sums[2], sums[3]));\n"
       "  r = block_reduce<M, kThreads>(r, shared, int(threadIdx.x));\n"
       "  if (threadIdx.x == 0) partials[blockIdx.x] = from_compute<" +
       std::string(storage_name(out)) +
       ">(r);\n"
       "}\n";
  return {"multi_reduce_chunks", t};
}

KernelSource multi_reduce_finish(prim::Monoid monoid, expr::Type type, DType out, int tensors) {
  std::string t = common(tensors);
  t += "typedef " + monoid_name(monoid, type) + " M;\n";
  t += "extern \"C\" __global__ void __launch_bounds__(kThreads)\n"
       "multi_reduce_finish(const __grid_constant__ MultiReduceTable table, const " +
       std::string(storage_name(out)) + "* partials, " + storage_name(out) +
       "* out) {\n"
       "  __shared__ M::type shared[kThreads / 32];\n"
       "  M::type r = combine_loads<M, 8>(\n"
       "      M::identity(), table.first[blockIdx.x] + threadIdx.x, table.first[blockIdx.x + 1],\n"
       "      kThreads, [&](i64 i) { return to_compute(partials[i]); });\n"
       "  r = block_reduce<M, kThreads>(r, shared, int(threadIdx.x));\n"
       "  if (threadIdx.x == 0) out[blockIdx.x] = from_compute<" +
       std::string(storage_name(out)) +
       ">(r);\n"
       "}\n";
  return {"multi_reduce_finish", t};
}

std::vector<KernelSource> multi_reduce_samples() {
  using expr::Value;
  std::vector<KernelSource> sources;
  for (DType in : {kFloat64, kFloat32, kBFloat16, kFloat16}) {
    const DType out = in == kFloat64 ? kFloat64 : kFloat32;
    const expr::Type type = expr::compute_type(out);
    const DType inputs[] = {in}, outputs[] = {out};
    const expr::Type params[] = {type};
    const expr::ProgramPtr square = expr::trace(
        [](std::span<const Value> v) { return std::vector{v[0] * v[0]}; }, inputs, params, outputs);
    const expr::ProgramPtr power = expr::trace(
        [](std::span<const Value> v) { return std::vector{expr::pow(expr::abs(v[0]), v[1])}; },
        inputs, params, outputs);
    for (int tensors : {kMultiReduceTensors, kMultiReduceLong}) {
      for (bool vectorized : {false, true}) {
        sources.push_back(multi_reduce_chunks(prim::Monoid::sum, *square, vectorized, tensors));
        sources.push_back(multi_reduce_chunks(prim::Monoid::max, *power, vectorized, tensors));
      }
      if (in == kFloat64 || in == kFloat32)
        for (prim::Monoid m : {prim::Monoid::sum, prim::Monoid::max, prim::Monoid::min})
          sources.push_back(multi_reduce_finish(m, type, out, tensors));
    }
  }
  return sources;
}

}  // namespace arete::cuda
