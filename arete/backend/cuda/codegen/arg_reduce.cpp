#include "arete/backend/cuda/codegen/arg_reduce.h"

#include "arete/backend/cuda/codegen/emit.h"
#include "arete/backend/cuda/codegen/reduce.h"

namespace arete::cuda {

int64_t ArgReduceKernel::partial_size() const {
  return 16;  // Extremum<V> of device/arg_reduce.cuh for every V
}

KernelSource arg_reduce_source(const ArgReduceKernel& kernel, const ReducePlan& plan) {
  const std::string value = compute_name(expr::compute_type(kernel.in));
  const std::string stored = storage_name(kernel.in);
  const std::string partial = "Extremum<" + value + ">";
  const std::string fold =
      "ExtremumFold<" + value + ", Index, " + (kernel.largest ? "true" : "false") + ">";

  std::string t = "#include \"arg_reduce.cuh\"\nstruct Reduction {\n";
  t += reduce_struct_head(plan, {kernel.combine ? partial : stored}, 0);
  t += "  typedef " + (kernel.combine ? "CombineFold<" + fold + ">" : fold) + " Fold;\n";
  t += "  static const int kFlush = 0;\n";
  t += "  template <int V> DEVICE " + (kernel.combine ? partial : value) +
       " value(const Loaded<V>& l, int v, const Arguments&) {\n    return " +
       (kernel.combine ? loaded_element(plan, 0) : computed_element(plan, 0)) + ";\n  }\n";
  t += "  DEVICE void store(Fold::Partial r, char* const* p, const Arguments&) {\n";
  t += "    *reinterpret_cast<i64*>(p[0]) = r.position;\n";
  if (kernel.values)
    t += "    *reinterpret_cast<" + stored + "*>(p[1]) = from_compute<" + stored + ">(r.value);\n";
  t += "  }\n};\n";
  const std::string name = std::string(kernel.combine ? "combine" : "arg_reduce") +
                           (plan.columns ? "_columns_" : "_rows_") +
                           (kernel.largest ? "argmax_" : "argmin_") + stored;
  t += reduce_entry(plan, name);
  return {name, std::move(t)};
}

std::vector<KernelSource> arg_reduce_samples() {
  std::vector<KernelSource> sources;
  std::byte* const data = reinterpret_cast<std::byte*>(uintptr_t(4096));
  const ReduceLimits limits{132, kMaxArgVector};
  const auto add = [&](DType in, bool largest, bool values, int64_t n, int64_t m, int dim) {
    const Shape space{n, m}, strides{m, 1};
    const Shape out_sizes = dim == 0 ? Shape{1, m} : Shape{n, 1}, out_strides{1, 1};
    std::vector<prim::View> views{{data, kInt64, out_sizes, out_strides, nullptr}};
    if (values) views.push_back({data, in, out_sizes, out_strides, nullptr});
    views.push_back({data, in, space, strides, nullptr});
    ArgReduceKernel kernel{in, largest, values};
    const ReducePlan plan = plan_reduce(space, 1u << dim, views, values ? 2 : 1, limits);
    sources.push_back(arg_reduce_source(kernel, plan));
    if (plan.n_partials() == 0) return;
    kernel.combine = true;
    sources.push_back(
        arg_reduce_source(kernel, plan_combine(plan, data, kernel.partial_size(), limits)));
  };
  for (int k = 0; k < kNumDTypes; ++k) {
    const DType t = DType(k);
    if (is_complex(t)) continue;
    add(t, true, false, 1, 100'000'000, 1);
    add(t, false, true, 10000, 513, 1);
    add(t, true, true, 100000, 64, 0);
    add(t, false, false, 4096, 1001, 0);
  }
  add(kFloat32, true, true, 1, 3'000'000'000, 1);
  add(kInt64, false, false, 3'000'000'000, 1, 0);
  add(kFloat16, false, true, 70000, 33333, 0);
  return sources;
}

}  // namespace arete::cuda
