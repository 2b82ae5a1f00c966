#include "arete/backend/cuda/codegen/sort.h"

#include "arete/backend/cuda/codegen/emit.h"

namespace arete::cuda {
namespace sorting {
namespace {

KernelSource kernel(const char* header, int threads, std::string name, const std::string& args,
                    const std::string& call) {
  std::string text = std::string("#include \"") + header +
                     "\"\nextern \"C\" __global__ void __launch_bounds__(" +
                     std::to_string(threads) + ") " + name + "(const __grid_constant__ " + args +
                     " a) {\n  " + call + "(a);\n}\n";
  return {std::move(name), std::move(text)};
}
const char* integer(bool wide) { return wide ? "u64" : "u32"; }
std::string suffix(bool wide) { return wide ? "_wide" : ""; }

}  // namespace

const char* Element::storage() const {
  return kind == kDtype ? storage_name(dtype) : kind == kKey32 ? "u32" : "u64";
}

KernelSource sort_histogram_source(Element element, bool wide) {
  return kernel("radix_sort.cuh", kHistogramThreads,
                std::string("sort_histogram_") + element.storage() + suffix(wide),
                "SortHistogramArgs",
                std::string("sort_histogram<") + element.storage() + ", " + integer(wide) + ">");
}

KernelSource sort_bases_source(bool wide) {
  const std::string name = "sort_bases" + suffix(wide), type = integer(wide);
  return {name,
          "#include \"radix_sort.cuh\"\nextern \"C\" __global__ void __launch_bounds__(256) " +
              name + "(" + type + "* counts) {\n  sort_bases<" + type + ">(counts);\n}\n"};
}

KernelSource sort_pass_source(Element element, bool wide) {
  return kernel("radix_sort.cuh", kSortThreads,
                std::string("sort_pass_") + element.storage() + suffix(wide), "SortPassArgs",
                std::string("sort_pass<") + element.storage() + ", " + integer(wide) + ">");
}

KernelSource row_sort_source(Element element, bool candidates) {
  return kernel("row_sort.cuh", 1024,
                std::string(candidates ? "topk_sort_" : "row_sort_") + element.storage(),
                "RowSortArgs",
                std::string("row_sort<") + element.storage() + ", " +
                    (element.kind == Element::kKey32 ? "u32" : "i64") + ", " +
                    (candidates ? "true" : "false") + ">");
}

KernelSource topk_count_source(DType dtype) {
  return kernel("topk.cuh", kTopkThreads, std::string("topk_count_") + storage_name(dtype),
                "TopkArgs", std::string("topk_count<") + storage_name(dtype) + ">");
}

KernelSource topk_collect_source(DType dtype) {
  return kernel("topk.cuh", kTopkThreads, std::string("topk_collect_") + storage_name(dtype),
                "TopkArgs", std::string("topk_collect<") + storage_name(dtype) + ">");
}

KernelSource topk_bound_source(DType dtype) {
  return kernel("topk.cuh", kTopkThreads, std::string("topk_bound_") + storage_name(dtype),
                "TopkArgs", std::string("topk_bound<") + storage_name(dtype) + ">");
}

KernelSource topk_filter_source(DType dtype) {
  return kernel("topk.cuh", kTopkThreads, std::string("topk_filter_") + storage_name(dtype),
                "TopkArgs", std::string("topk_filter<") + storage_name(dtype) + ">");
}

}  // namespace sorting

std::vector<KernelSource> sort_samples() {
  using namespace sorting;
  std::vector<KernelSource> out;
  for (bool wide : {false, true}) {
    out.push_back(sort_bases_source(wide));
    const Element key = wide ? Element::key64() : Element::key32();
    out.push_back(sort_histogram_source(key, wide));
    out.push_back(sort_pass_source(key, wide));
  }
  out.push_back(row_sort_source(Element::key32(), false));
  for (int t = 0; t < kNumDTypes; ++t) {
    const DType dtype = DType(t);
    if (is_complex(dtype)) continue;
    for (bool wide : {false, true}) {
      out.push_back(sort_histogram_source(Element::of(dtype), wide));
      out.push_back(sort_pass_source(Element::of(dtype), wide));
    }
    for (bool candidates : {false, true})
      out.push_back(row_sort_source(Element::of(dtype), candidates));
    out.push_back(topk_count_source(dtype));
    out.push_back(topk_collect_source(dtype));
    out.push_back(topk_bound_source(dtype));
    out.push_back(topk_filter_source(dtype));
  }
  return out;
}

}  // namespace arete::cuda
