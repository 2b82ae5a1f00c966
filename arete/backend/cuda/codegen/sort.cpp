#include "arete/backend/cuda/codegen/sort.h"

#include <algorithm>
#include <bit>

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

KernelSource sort_kernel(const std::string& name, int threads, const std::string& args,
                         const SortForm& f) {
  return kernel("radix_sort.cuh", threads,
                name + "_" + f.element.storage() + suffix(f.wide) + (f.pairs ? "" : "_keys"), args,
                name + "<" + f.element.storage() + ", " + integer(f.wide) +
                    (f.pairs ? ", true>" : ", false>"));
}

}  // namespace

const char* Element::storage() const {
  return kind == kDtype ? storage_name(dtype) : kind == kKey32 ? "u32" : "u64";
}

KernelSource sort_histogram_source(const SortForm& form) {
  return sort_kernel("sort_histogram", kHistogramThreads, "SortHistogramArgs", form);
}

KernelSource sort_bases_source(bool wide) {
  const std::string name = "sort_bases" + suffix(wide), type = integer(wide);
  return {name,
          "#include \"radix_sort.cuh\"\nextern \"C\" __global__ void __launch_bounds__(256) " +
              name + "(const __grid_constant__ SortBasesArgs a) {\n  sort_bases<" + type +
              ">(a);\n}\n"};
}

KernelSource sort_pass_source(const SortForm& form) {
  return sort_kernel("sort_pass", kSortThreads, "SortPassArgs", form);
}

KernelSource row_sort_source(Element element, bool candidates) {
  return kernel("row_sort.cuh", kRowSortLength / 8,
                std::string(candidates ? "topk_sort_" : "row_sort_") + element.storage(),
                "RowSortArgs",
                std::string("row_sort<") + element.storage() + ", " +
                    (element.kind == Element::kKey32 ? "u32" : "i64") + ", " +
                    (candidates ? "true" : "false") + ">");
}

KernelSource topk_count_source(DType dtype, bool selects) {
  return kernel(
      "topk.cuh", kTopkThreads,
      std::string(selects ? "select_count_" : "topk_count_") + storage_name(dtype), "TopkArgs",
      std::string("topk_count<") + storage_name(dtype) + (selects ? ", true>" : ", false>"));
}

KernelSource topk_collect_source(DType dtype, bool selects) {
  return kernel(
      "topk.cuh", kTopkThreads,
      std::string(selects ? "select_collect_" : "topk_collect_") + storage_name(dtype), "TopkArgs",
      std::string("topk_collect<") + storage_name(dtype) + (selects ? ", true>" : ", false>"));
}

KernelSource topk_bound_source(DType dtype) {
  return kernel("topk.cuh", kTopkThreads, std::string("topk_bound_") + storage_name(dtype),
                "TopkArgs", std::string("topk_bound<") + storage_name(dtype) + ">");
}

KernelSource topk_filter_source(DType dtype) {
  return kernel("topk.cuh", kTopkThreads, std::string("topk_filter_") + storage_name(dtype),
                "TopkArgs", std::string("topk_filter<") + storage_name(dtype) + ">");
}

SelectShape select_shape(int64_t length, bool apart) {
  const int slots = int(std::bit_ceil(uint64_t(length)));
  if (slots <= (apart ? 32 : 8)) return {1, slots};
  if (slots <= kSelectInWarp) {
    const int items = apart ? slots / 32 : 8;
    return slots / items <= 32 ? SelectShape{slots / items, items} : SelectShape{32, slots / 32};
  }
  const int group = std::clamp(slots / 16, 256, 1024);
  return {group, slots / group};
}

KernelSource select_source(DType dtype, SelectShape shape, bool candidates) {
  const std::string numbers =
      std::to_string(shape.group) + (candidates ? "c" : "x") + std::to_string(shape.items);
  return kernel("select.cuh", shape.threads(),
                std::string("select_") + storage_name(dtype) + "_" + numbers, "SelectArgs",
                std::string("select_rows<") + storage_name(dtype) + ", " +
                    std::to_string(shape.group) + ", " + std::to_string(shape.items) + ", " +
                    (candidates ? "true" : "false") + ">");
}

KernelSource topk_rows_source(DType dtype, SelectShape shape) {
  const std::string group = std::to_string(shape.group), items = std::to_string(shape.items),
                    type = storage_name(dtype);
  return kernel("topk_rows.cuh", shape.threads(), "topk_rows_" + type + "_" + group + "x" + items,
                "RowSortArgs", "topk_rows<" + type + ", " + group + ", " + items + ">");
}

}  // namespace sorting

std::vector<KernelSource> sort_samples() {
  using namespace sorting;
  std::vector<KernelSource> out;
  for (bool wide : {false, true}) {
    out.push_back(sort_bases_source(wide));
    const Element key = wide ? Element::key64() : Element::key32();
    out.push_back(sort_histogram_source({key, wide}));
    out.push_back(sort_pass_source({key, wide}));
  }
  out.push_back(row_sort_source(Element::key32(), false));
  for (int t = 0; t < kNumDTypes; ++t) {
    const DType dtype = DType(t);
    if (is_complex(dtype)) continue;
    for (bool wide : {false, true})
      for (bool pairs : {false, true}) {
        out.push_back(sort_histogram_source({Element::of(dtype), wide, pairs}));
        out.push_back(sort_pass_source({Element::of(dtype), wide, pairs}));
      }
    for (bool candidates : {false, true})
      out.push_back(row_sort_source(Element::of(dtype), candidates));
    for (bool selects : {false, true}) {
      out.push_back(topk_count_source(dtype, selects));
      out.push_back(topk_collect_source(dtype, selects));
    }
    out.push_back(topk_bound_source(dtype));
    out.push_back(topk_filter_source(dtype));
    // They take long to compile, and differ in numbers only: some shapes, of one dtype more.
    const bool some = dtype == kFloat32;
    for (int64_t length = 1; length <= longest_select(size_of(dtype)); length *= some ? 16 : 8192)
      out.push_back(select_source(dtype, select_shape(length, length % 3 == 1), false));
    if (some || dtype == kInt64)
      out.push_back(select_source(dtype, select_shape(kRowSortLength, false), true));
    if (some || dtype == kFloat64 || dtype == kUInt8)
      out.push_back(topk_rows_source(dtype, select_shape(longest_select(size_of(dtype)), false)));
  }
  return out;
}

}  // namespace arete::cuda
