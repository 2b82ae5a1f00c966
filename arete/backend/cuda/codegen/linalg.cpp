#include "arete/backend/cuda/codegen/linalg.h"

namespace arete::cuda {
namespace linear {
namespace {

KernelSource kernel(const std::string& function, const std::string& args, bool is_double,
                    int most_threads = kMostThreads) {
  const std::string type = is_double ? "f64" : "f32", name = function + "_" + type;
  return {name, "#include \"linalg.cuh\"\nextern \"C\" __global__ void __launch_bounds__(" +
                    std::to_string(most_threads) + ") " + name + "(const __grid_constant__ " +
                    args + " a) {\n  " + function + "<" + type + ">(a);\n}\n"};
}

}  // namespace

KernelSource lu_panel_source(bool is_double) {
  return kernel("lu_panel", "LuPanelArgs", is_double);
}
KernelSource exchange_rows_source(bool is_double) {
  return kernel("exchange_rows", "ExchangeArgs", is_double);
}
KernelSource reflect_source(bool is_double) { return kernel("reflect", "ReflectArgs", is_double); }
KernelSource svd_source(bool is_double) {
  return kernel("svd", "SvdArgs", is_double, kMostRotatingThreads);
}

}  // namespace linear

std::vector<KernelSource> linalg_samples() {
  std::vector<KernelSource> all;
  for (const bool is_double : {false, true})
    for (const auto& make : {linear::lu_panel_source, linear::exchange_rows_source,
                             linear::reflect_source, linear::svd_source})
      all.push_back(make(is_double));
  return all;
}

}  // namespace arete::cuda
