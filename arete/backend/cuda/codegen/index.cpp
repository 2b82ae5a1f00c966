#include "arete/backend/cuda/codegen/index.h"

#include <algorithm>
#include <bit>

#include "arete/backend/cuda/codegen/emit.h"
#include "arete/base/error.h"

namespace arete::cuda {
namespace indexing {
namespace {

using prim::ScatterMode;

// One kernel that calls a template of a header with its one argument.
KernelSource kernel(const char* header, std::string name, const char* args, const std::string& call,
                    const char* bounds = "256") {
  std::string text = std::string("#include \"") + header + "\"\nextern \"C\" __global__ void " +
                     "__launch_bounds__(" + bounds + ") " + name + "(const __grid_constant__ " +
                     args + " a) {\n  " + call + "(a);\n}\n";
  return {std::move(name), std::move(text)};
}

const char* word(size_t bytes) {
  switch (bytes) {
    case 1:
      return "u8";
    case 2:
      return "u16";
    case 4:
      return "u32";
    case 8:
      return "u64";
    case 16:
      return "Word16";
  }
  ARETE_BUG("no elements of this size");
}
const char* integer(bool wide) { return wide ? "u64" : "u32"; }
std::string suffix(bool wide) { return wide ? "_wide" : ""; }

const char* functor(ScatterMode mode) {
  static constexpr const char* kNames[] = {"OpSet", "OpAdd", "OpMul", "OpMin", "OpMax"};
  return kNames[int(mode)];
}
const char* name_of_mode(ScatterMode mode) {
  static constexpr const char* kNames[] = {"set", "add", "mul", "min", "max"};
  return kNames[int(mode)];
}

}  // namespace

Divisor make_divisor(int64_t value) {
  // With s = ceil(log2 value), (n * (2^32 + magic)) >> (32 + s) is n / value for n < 2^31.
  const uint32_t v = uint32_t(value);
  const uint32_t shift = uint32_t(std::bit_width(v - 1));
  const uint64_t magic = ((uint64_t(1) << 32) * ((uint64_t(1) << shift) - v)) / v + 1;
  return {v, uint32_t(magic), shift, 0};
}

Walk make_walk(const prim::LoopNest& nest) {
  Walk w{};
  w.count = nest.numel();
  w.rank = nest.rank;
  for (int d = 0; d < nest.rank; ++d) {
    w.dims[d].size = nest.sizes[size_t(d)];
    for (size_t k = 0; k < nest.operands.size(); ++k)
      w.dims[d].strides[k] = nest.operands[k].strides[size_t(d)];
    if (nest.sizes[size_t(d)] > 0 && nest.sizes[size_t(d)] <= INT32_MAX)
      w.dims[d].divisor = make_divisor(nest.sizes[size_t(d)]);
  }
  return w;
}

int64_t strip_width(const prim::LoopNest& nest, int64_t size, int64_t l2_bytes) {
  constexpr int64_t kFewRows = 32, kWarp = 32, kSector = 32;
  const auto &indices = nest.operands[1], &indexed = nest.operands[2];
  const int64_t element = int64_t(size_of(indexed.dtype)), columns = nest.sizes[0];
  const bool lies_so = nest.rank > 1 && nest.rank < kMaxRank && nest.sizes[1] >= kFewRows &&
                       indices.strides[0] != 0 && indexed.strides[0] == element &&
                       indexed.strides[1] == 0;
  if (!lies_so || size * columns * element <= l2_bytes / 2) return 0;
  const int64_t width = std::max(l2_bytes / 6 / (size * element) / kWarp * kWarp, kWarp);
  const auto fits = [&](int64_t n) { return size * n * element <= l2_bytes / 2; };
  if (!fits(width) || columns < 2 * width) return 0;
  // Equal ones of whole sectors, if a quarter more makes them so: what is left over is a launch.
  // Else that is not much less than a strip.
  for (int64_t n = columns / width; 4 * columns <= 5 * n * width; --n)
    if (columns % n == 0 && columns / n * element % kSector == 0 && fits(columns / n))
      return columns / n;
  const int64_t even = columns / (columns / width + 1);
  return (even + kWarp - 1) / kWarp * kWarp;
}

SmallVector<prim::LoopNest, 2> strips_of(const prim::LoopNest& nest, int64_t width) {
  SmallVector<prim::LoopNest, 2> walks{nest};
  const int64_t columns = nest.sizes[0];
  int64_t strips = columns / width, rest = columns - strips * width;
  if (rest > 0 && 4 * rest <= width && strips > 1) --strips, rest += width;
  const auto split = [&](auto& of_dims, int64_t inner, int64_t outer) {
    for (size_t d = size_t(nest.rank); d > 2; --d) of_dims[d] = of_dims[d - 1];
    of_dims[0] = inner, of_dims[2] = outer;
  };
  split(walks[0].sizes, width, strips);
  for (auto& o : walks[0].operands) split(o.strides, o.strides[0], o.strides[0] * width);
  ++walks[0].rank;
  if (rest > 0) {
    walks.push_back(nest);
    walks[1].sizes[0] = rest;
    for (auto& o : walks[1].operands) o.data += (columns - rest) * o.strides[0];
  }
  return walks;
}

int64_t tap_lists_bytes(int64_t elements, int64_t taps, DType dtype) {
  return ((elements + 32) * 4 + 15) / 16 * 16 + taps * 2 * int64_t(size_of(dtype));
}

KernelSource gather_source(size_t bytes, bool wide) {
  return kernel("index.cuh", "gather_" + std::to_string(bytes) + suffix(wide), "GatherArgs",
                std::string("gather<") + word(bytes) + ", " + integer(wide) + ">");
}

KernelSource take_rows_source(size_t bytes, bool wide) {
  return kernel("index.cuh", "take_rows_" + std::to_string(bytes) + suffix(wide), "TakeRowsArgs",
                std::string("take_rows<") + word(bytes) + ", " + integer(wide) + ">");
}

KernelSource scatter_source(ScatterMode mode, DType dtype, bool wide, bool factors) {
  return kernel("scatter.cuh",
                std::string("scatter_") + name_of_mode(mode) + "_" + storage_name(dtype) +
                    (factors ? "_products" : "") + suffix(wide),
                "ScatterArgs",
                std::string("scatter<") + storage_name(dtype) + ", " + functor(mode) + ", " +
                    integer(wide) + (factors ? ", true>" : ", false>"));
}

KernelSource scatter_set_source(size_t bytes, bool wide) {
  return kernel("scatter.cuh", "scatter_set_" + std::to_string(bytes) + suffix(wide), "ScatterArgs",
                std::string("scatter<") + word(bytes) + ", OpSet, " + integer(wide) + ", false>");
}

KernelSource scatter_few_source(DType dtype, bool wide, bool equal) {
  const std::string type = storage_name(dtype), sum = equal ? "i32" : type;
  return kernel(
      "scatter.cuh", "scatter_few_" + type + (equal ? "_equal" : "") + suffix(wide), "ScatterArgs",
      "scatter_few<" + type + ", " + sum + ", " + integer(wide) + (equal ? ", true>" : ", false>"));
}

bool has_few(DType dtype, int64_t size) {
  const bool known = dtype == kInt32 || dtype == kInt64 || dtype == kFloat32 || dtype == kFloat64;
  return known && size > 0 && size * int64_t(size_of(dtype)) <= kFewBytes;
}

bool has_atomic(ScatterMode mode, DType dtype) {
  return !is_complex(dtype) || mode == ScatterMode::set || mode == ScatterMode::add;
}

KernelSource scatter_keys_source(bool wide) {
  return kernel("scatter.cuh", "scatter_keys" + suffix(wide), "ScatterKeysArgs",
                std::string("scatter_keys<") + integer(wide) + ">");
}

KernelSource scatter_sorted_source(ScatterMode mode, DType dtype, bool wide, bool factors) {
  return kernel("scatter.cuh",
                std::string("scatter_sorted_") + name_of_mode(mode) + "_" + storage_name(dtype) +
                    (factors ? "_products" : "") + suffix(wide),
                "ScatterSortedArgs",
                std::string("scatter_sorted<") + storage_name(dtype) + ", " + functor(mode) + ", " +
                    integer(wide) + ", " + integer(wide) + (factors ? ", true>" : ", false>"));
}

KernelSource scatter_sorted_set_source(size_t bytes, bool wide) {
  return kernel("scatter.cuh", "scatter_sorted_set_" + std::to_string(bytes) + suffix(wide),
                "ScatterSortedArgs",
                std::string("scatter_sorted_set<") + word(bytes) + ", " + integer(wide) + ", " +
                    integer(wide) + ">");
}

KernelSource add_rows_keys_source(bool wide) {
  return kernel("add_rows.cuh", "add_rows_keys" + suffix(wide), "AddRowsKeysArgs",
                std::string("add_rows_keys<") + integer(wide) + ">");
}

namespace {
// The first parameters of a kernel that adds rows, in its name and as a template's arguments.
std::string columns_name(DType dtype, bool spread) {
  return std::string(storage_name(dtype)) + (spread ? "_spread" : "");
}
std::string columns_arguments(DType dtype, bool spread) {
  return std::string(storage_name(dtype)) + ", " + std::to_string(add_rows_columns(dtype, spread)) +
         (spread ? ", true" : ", false");
}
bool has_few_columns(DType dtype, bool spread) { return add_rows_columns(dtype, spread) <= 4; }
}  // namespace

KernelSource add_rows_source(DType dtype, bool spread, bool wide, bool routed) {
  return kernel(
      "add_rows.cuh",
      "add_rows_" + columns_name(dtype, spread) + (routed ? "_routed" : "") + suffix(wide),
      "AddRowsArgs",
      "add_rows<" + columns_arguments(dtype, spread) + ", " + integer(wide) + ", " + integer(wide) +
          (routed ? ", true>" : ", false>"),
      has_few_columns(dtype, spread) ? (routed ? "256, 4" : "256, 5") : "256, 3");
}

KernelSource add_row_pieces_source(DType dtype, bool spread, bool wide) {
  return kernel("add_rows.cuh", "add_row_pieces_" + columns_name(dtype, spread) + suffix(wide),
                "AddRowsArgs",
                "add_row_pieces<" + columns_arguments(dtype, spread) + ", " + integer(wide) + ">");
}

KernelSource add_runs_source(DType dtype, bool spread, bool maxima) {
  return kernel("add_rows.cuh", (maxima ? "max_runs_" : "add_runs_") + columns_name(dtype, spread),
                "AddRowsArgs",
                "add_runs<" + std::string(maxima ? "RunMax" : "RunSum") + "<Columns<" +
                    columns_arguments(dtype, spread) + ">>>",
                has_few_columns(dtype, spread) ? "256, 4"
                : maxima                       ? "256, 2"
                                               : "256, 3");
}
KernelSource add_run_pieces_source(DType dtype, bool spread, bool maxima) {
  return kernel("add_rows.cuh",
                (maxima ? "max_run_pieces_" : "add_run_pieces_") + columns_name(dtype, spread),
                "AddRowsArgs",
                "add_run_pieces<" + std::string(maxima ? "RunMax" : "RunSum") + "<Columns<" +
                    columns_arguments(dtype, spread) + ">>>");
}

size_t sum_bytes(DType dtype) {
  switch (dtype) {
    case kInt64:
    case kFloat64:
    case kComplex64:
      return 8;
    case kComplex128:
      return 16;
    default:
      return 4;
  }
}

}  // namespace indexing

// Where variants differ in an integer type or a comparison only, one dtype stands for all.
std::vector<KernelSource> index_samples() {
  using namespace indexing;
  using prim::ScatterMode;
  std::vector<KernelSource> out;
  for (bool wide : {false, true}) {
    for (size_t bytes : {1, 2, 4, 8, 16}) {
      out.push_back(gather_source(bytes, wide));
      out.push_back(take_rows_source(bytes, wide));
      out.push_back(scatter_set_source(bytes, wide));
      out.push_back(scatter_sorted_set_source(bytes, wide));
    }
    out.push_back(scatter_keys_source(wide));
    out.push_back(add_rows_keys_source(wide));
    for (int t = 0; t < kNumDTypes; ++t) {
      const DType dtype = DType(t);
      if (wide && dtype != kFloat32) continue;
      for (ScatterMode mode :
           {ScatterMode::add, ScatterMode::mul, ScatterMode::min, ScatterMode::max}) {
        const bool ordered = mode == ScatterMode::min || mode == ScatterMode::max;
        if (mode == ScatterMode::max && !(dtype == kFloat32 || dtype == kInt32 || dtype == kInt64))
          continue;
        if (has_atomic(mode, dtype)) out.push_back(scatter_source(mode, dtype, wide));
        if (is_differentiable(dtype) && !(ordered && is_complex(dtype)))
          out.push_back(scatter_sorted_source(mode, dtype, wide));
      }
      if (dtype == kFloat32 || dtype == kFloat64) {
        out.push_back(scatter_source(ScatterMode::add, dtype, wide, true));
        out.push_back(scatter_sorted_source(ScatterMode::add, dtype, wide, true));
      }
      if (has_few(dtype, 1)) out.push_back(scatter_few_source(dtype, wide, false));
      if (has_few(dtype, 1) && is_integer(dtype))
        out.push_back(scatter_few_source(dtype, wide, true));
      for (const bool spread : {false, true}) {
        out.push_back(add_rows_source(dtype, spread, wide));
        if (dtype == kFloat32 || !spread) {
          if (is_differentiable(dtype)) out.push_back(add_rows_source(dtype, spread, wide, true));
          out.push_back(add_row_pieces_source(dtype, spread, wide));
        }
        if (!wide && is_differentiable(dtype)) {
          for (const bool maxima : {false, true}) {
            if (maxima && is_complex(dtype)) continue;
            out.push_back(add_runs_source(dtype, spread, maxima));
            out.push_back(add_run_pieces_source(dtype, spread, maxima));
          }
        }
      }
    }
  }
  return out;
}

}  // namespace arete::cuda
