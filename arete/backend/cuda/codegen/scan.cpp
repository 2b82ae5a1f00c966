#include "arete/backend/cuda/codegen/scan.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "arete/backend/cuda/codegen/emit.h"
#include "arete/backend/cuda/codegen/reduce_plan.h"
#include "arete/base/error.h"
#include "arete/core/layout.h"

namespace arete::cuda {

using prim::LoopNest;
using prim::Monoid;
using prim::ScanArgs;
using prim::View;

namespace {

constexpr int64_t kMaxGrid = INT32_MAX;
constexpr int kWarps = int(ScanPlan::kThreads) / 32;

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// One element's place along the scanned dimension, in bytes.
int64_t stride_of(const View& v, int dim) {
  return v.rank() == 0 ? int64_t(size_of(v.dtype)) : v.strides[dim] * int64_t(size_of(v.dtype));
}

class Planner {
 public:
  Planner(const ScanArgs& args, int multiprocessors)
      : args_(args),
        multiprocessors_(multiprocessors),
        in_size_(int64_t(size_of(args.in.dtype))),
        out_size_(int64_t(size_of(args.out.dtype))),
        types_(scan_types(args)) {}

  ScanPlan make() {
    plan_.reverse = args_.reverse;
    const bool scalar = args_.in.rank() == 0;
    ScanHeader& h = plan_.header;
    h.in = args_.in.data;
    h.out = args_.out.data;
    h.n = scalar ? 1 : args_.in.sizes[args_.dim];
    h.in_stride = stride_of(args_.in, args_.dim);
    h.out_stride = stride_of(args_.out, args_.dim);
    if (args_.indices) {
      h.indices = args_.indices.data;
      h.index_stride = stride_of(args_.indices, args_.dim);
    }
    if (args_.factors)
      h.factors = int64_t(reinterpret_cast<uintptr_t>(args_.factors.data)) -
                  int64_t(reinterpret_cast<uintptr_t>(args_.in.data));
    plan_lanes();
    h.lanes = plan_.lanes.numel();
    const int64_t across = std::abs(in_stride(0));
    const bool dense = h.in_stride == in_size_ && h.out_stride == out_size_;
    if (!dense && h.lanes >= 32 && plan_.lanes.sizes[0] > 1 &&
        (across < std::abs(h.in_stride) || h.n == 1))
      shape_columns();
    else
      shape_rows(dense);
    return std::move(plan_);
  }

 private:
  int64_t out_stride(int d) const { return plan_.lanes.operands[0].strides[size_t(d)]; }
  int64_t in_stride(int d) const { return plan_.lanes.operands[1].strides[size_t(d)]; }

  void plan_lanes() {
    View views[3] = {args_.out, args_.in, args_.indices};
    const size_t n = args_.indices ? 3 : 2;
    Shape sizes, strides[3];
    for (int d = 0; d < args_.in.rank(); ++d) {
      if (d == args_.dim) continue;
      sizes.push_back(args_.in.sizes[d]);
      for (size_t k = 0; k < n; ++k) strides[k].push_back(views[k].strides[d]);
    }
    for (size_t k = 0; k < n; ++k) {
      views[k].sizes = sizes;
      views[k].strides = strides[k];
    }
    plan_.lanes = LoopNest::plan(sizes, {views, n});
  }

  /// Elements of vectors of at most 16 bytes, of which a thread holds `bytes` at most where what
  /// is accumulated is larger than a number.
  int64_t widest(int bytes) const {
    if (plan_.header.factors % 16 != 0) return 1;
    // Positions that are stored together are two, the widest of all.
    const int64_t largest = std::max({in_size_, out_size_, int64_t(args_.indices ? 8 : 1)});
    const int64_t most = std::max<int64_t>(1, 16 / largest);
    return types_.local_bytes <= 8 || (is_complex(args_.out.dtype) && !args_.factors)
               ? most
               : std::clamp<int64_t>(int64_t(std::bit_floor(unsigned(bytes / types_.local_bytes))),
                                     1, most);
  }

  /// Whether `vector` elements lie alike in memory at both ends of every lane.
  bool lanes_alike(int64_t vector) const {
    const auto alike = [&](const View& to, int64_t size, size_t operand) {
      const auto misplaced = [&](int64_t in_bytes, int64_t out_bytes) {
        return (in_bytes / in_size_ - out_bytes / size) % vector != 0;
      };
      if (misplaced(int64_t(reinterpret_cast<uintptr_t>(args_.in.data)),
                    int64_t(reinterpret_cast<uintptr_t>(to.data))))
        return false;
      for (int d = 0; d < plan_.lanes.rank; ++d)
        if (plan_.lanes.sizes[size_t(d)] > 1 &&
            misplaced(in_stride(d), plan_.lanes.operands[operand].strides[size_t(d)]))
          return false;
      return true;
    };
    return alike(args_.out, out_size_, 0) &&
           (!args_.indices || (plan_.header.index_stride == 8 && alike(args_.indices, 8, 2)));
  }

  /// Whether every lane begins with a whole vector.
  bool lanes_aligned(int64_t vector) const {
    if (reinterpret_cast<uintptr_t>(args_.in.data) % uintptr_t(vector * in_size_)) return false;
    for (int d = 0; d < plan_.lanes.rank; ++d)
      if (plan_.lanes.sizes[size_t(d)] > 1 && in_stride(d) % (vector * in_size_)) return false;
    return true;
  }

  void shape_rows(bool dense) {
    ScanHeader& h = plan_.header;
    int64_t vector = dense ? widest(64) : 1;
    if (vector > 1 && (h.n < vector || !lanes_alike(vector))) vector = 1;
    plan_.vector = int(vector);
    // What a thread holds stays within about 32 registers.
    const int64_t held = 128 / (vector * std::max(4, types_.local_bytes));  // vectors
    const int64_t most = std::clamp<int64_t>(held, 1, 4);
    plan_.rounds = int(most);
    const int64_t vectors = divide_up(h.n + (lanes_aligned(vector) ? 0 : vector - 1), vector);
    // Positions take most of the time: a warp for a lane stores them without waiting for others. Of
    // sums with factors few blocks fit, and half of each would have no elements.
    const bool in_warp = args_.factors && types_.local_bytes <= 24;
    // One round more than usual costs less than half of a block without elements: rows of 511. Of
    // 16-bit elements, and sums of two numbers, it would not fit the registers.
    const int64_t usual = held > most ? most + 1 : most;
    const int64_t rounds = args_.indices ? 6 : in_warp ? std::max<int64_t>(most, 4) : usual;
    if (vectors <= 32 * rounds) {
      plan_.form = ScanPlan::Form::rows;
      plan_.rounds = int(divide_up(vectors, 32));
      h.log_group = vectors <= 32 ? log2_ceil(vectors) : 5;
      plan_.grid = unsigned(
          std::min(kMaxGrid, divide_up(h.lanes, int64_t(ScanPlan::kThreads) >> h.log_group)));
      return;
    }
    h.parts = divide_up(vectors, kWarps * 32 * most);
    // As many rounds as give all warps work.
    plan_.rounds = int(divide_up(vectors, kWarps * 32 * h.parts));
    plan_.form = ScanPlan::Form::tiles;
    h.chunk = h.parts;
    const int64_t blocks = 4 * int64_t(multiprocessors_);
    if (h.parts > 4 && h.lanes < blocks) h.chunk = divide_up(h.parts, divide_up(blocks, h.lanes));
    const int64_t chunks = h.lanes * divide_up(h.parts, h.chunk);
    if (h.chunk < h.parts) plan_.carries_bytes = chunks * types_.wide_bytes;
    plan_.grid = unsigned(std::min(kMaxGrid, chunks));
  }

  void shape_columns() {
    ScanHeader& h = plan_.header;
    plan_.form = ScanPlan::Form::columns;
    const int64_t vector = widest(32);
    if (vector > 1 && whole_vectors(vector)) plan_.vector = int(vector);
    int64_t groups = h.lanes / plan_.vector;
    const int64_t wanted = 1024 * int64_t(multiprocessors_);
    // The shortest chunk that is worth launches of its own, and one that is worth a barrier.
    constexpr int64_t kChunk = 64, kShort = 4;
    h.chunk = h.n;
    if (groups < wanted / 2) {
      if (h.n >= kWarps * kShort && (h.n <= kWarps * kChunk || h.lanes * kWarps >= wanted / 4)) {
        plan_.form = ScanPlan::Form::teams;
        while (plan_.vector > 1 && groups * kWarps < wanted / 2) {
          plan_.vector /= 2;
          groups *= 2;
        }
        h.chunk = divide_up(h.n, kWarps);
        plan_.grid = unsigned(std::min(kMaxGrid, divide_up(groups, 32)));
        return;
      }
      h.chunk = std::max(kChunk, divide_up(h.n, divide_up(wanted, groups)));
    }
    h.parts = divide_up(h.n, h.chunk);
    if (h.parts > 1) plan_.carries_bytes = h.lanes * h.parts * types_.wide_bytes;
    plan_.grid =
        unsigned(std::min(kMaxGrid, divide_up(groups * h.parts, int64_t(ScanPlan::kThreads))));
  }

  /// Whether neighbouring lanes can be taken `vector` at a time.
  bool whole_vectors(int64_t vector) const {
    if (in_stride(0) != in_size_ || out_stride(0) != out_size_ ||
        plan_.lanes.sizes[0] % vector != 0)
      return false;
    const auto fits = [&](int64_t in_bytes, int64_t out_bytes) {
      return in_bytes % (vector * in_size_) == 0 && out_bytes % (vector * out_size_) == 0;
    };
    if (!fits(int64_t(reinterpret_cast<uintptr_t>(args_.in.data)),
              int64_t(reinterpret_cast<uintptr_t>(args_.out.data))) ||
        (plan_.header.n > 1 && !fits(plan_.header.in_stride, plan_.header.out_stride)))
      return false;
    for (int d = 1; d < plan_.lanes.rank; ++d)
      if (plan_.lanes.sizes[size_t(d)] > 1 && !fits(in_stride(d), out_stride(d))) return false;
    if (!args_.indices) return true;
    const auto& strides = plan_.lanes.operands[2].strides;
    int64_t bits = int64_t(reinterpret_cast<uintptr_t>(args_.indices.data));
    if (plan_.header.n > 1) bits |= plan_.header.index_stride;
    for (int d = 1; d < plan_.lanes.rank; ++d)
      if (plan_.lanes.sizes[size_t(d)] > 1) bits |= strides[size_t(d)];
    return strides[0] == 8 && bits % (vector * 8) == 0;
  }

  const ScanArgs& args_;
  const int multiprocessors_;
  const int64_t in_size_, out_size_;
  const ScanTypes types_;
  ScanPlan plan_;
};

// The monoid as it works on values of dtype `out`.
Monoid effective(Monoid monoid, DType out) {
  if (out != kBool) return monoid;
  return monoid == Monoid::sum || monoid == Monoid::max    ? Monoid::any
         : monoid == Monoid::prod || monoid == Monoid::min ? Monoid::all
                                                           : monoid;
}

}  // namespace

ScanTypes scan_types(const ScanArgs& args) {
  static constexpr const char* kMonoids[] = {"Sum", "Prod", "Min", "Max", "All", "Any"};
  const DType out = args.out.dtype;
  const Monoid monoid = args.indices ? args.monoid : effective(args.monoid, out);
  const auto same = [](const std::string& name, int bytes) {
    return ScanTypes{name, name, bytes, bytes};
  };
  const auto of = [&](const char* type) {
    return std::string(kMonoids[int(monoid)]) + "<" + type + ">";
  };
  if (args.factors) return is_complex(out) ? same("Linear<c128>", 48) : same("Linear<f64>", 24);
  if (is_complex(out)) return same(of("c128"), 16);
  const expr::Type type = expr::compute_type(out);
  const char* const name = compute_name(type);
  if (args.logarithmic) {
    const std::string top = std::string("LogSum<") + name + ", ";
    if (type == expr::Type::f32) return {top + "f32>", top + "f64>", 8, 16};
    return same(top + "f64>", 16);
  }
  if (args.indices)
    return same(
        std::string("ArgExtreme<") + name + (monoid == Monoid::max ? ", true>" : ", false>"), 16);
  if (type == expr::Type::f32 && monoid == Monoid::sum) return {of("f32"), of("f64"), 4, 8};
  // Partial products may leave the range of f32 though the product does not.
  if (expr::is_float(type) && monoid == Monoid::prod) return same(of("f64"), 8);
  return same(of(name), int(size_of(expr::storage_type(type))));
}

ScanPlan plan_scan(const ScanArgs& args, int multiprocessors) {
  return Planner(args, multiprocessors).make();
}

KernelSource scan_source(const ScanArgs& args, const ScanPlan& plan) {
  static constexpr const char* kNames[] = {"sum", "prod", "min", "max", "all", "any"};
  static constexpr const char* kForms[] = {"rows", "tiles", "columns", "teams"};
  const std::string in = storage_name(args.in.dtype), out = storage_name(args.out.dtype);
  const ScanTypes types = scan_types(args);
  const bool converts = args.in.dtype != args.out.dtype;
  const auto number = [](int n) { return std::to_string(n); };

  std::string t = "#include \"scan.cuh\"\n";
  if (converts) t += "#include \"math.cuh\"\n";
  t += "struct Scan {\n  typedef " + in + " In;\n  typedef " + out + " Out;\n";
  t += "  typedef " + types.local + " Local;\n  typedef " + types.wide + " Wide;\n";
  t += "  static const int kVector = " + number(plan.vector) +
       ", kRounds = " + number(plan.rounds) + ", kRank = " + number(plan.lanes.rank) + ";\n";
  const auto flag = [&](const char* name, bool value) {
    t += std::string("  static const bool ") + name + " = " + (value ? "true" : "false") + ";\n";
  };
  flag("kReverse", plan.reverse);
  flag("kFactors", bool(args.factors));
  flag("kIndices", bool(args.indices));
  flag("kCommutes", !args.factors);
  t += "  typedef ScanArguments<kRank> Arguments;\n";
  const bool complex = is_complex(args.out.dtype);
  const std::string widen = complex
                                ? "  DEVICE c128 wide(In v) { return {f64(v.re), f64(v.im)}; }\n"
                                : "  DEVICE f64 wide(In v) { return to_compute(v); }\n",
                    part = args.out.dtype == kComplex64 ? "f32" : "f64",
                    rounded = complex ? "{" + part + "(y.re), " + part + "(y.im)}"
                                      : std::string("from_compute<Out>(compute_of<Out>(y))");
  if (args.factors) {
    t += widen +
         "  DEVICE Local::type load(In v, In f, i64) {\n"
         "    return {Local::Mul::identity(), wide(v), wide(f)};\n  }\n";
    t += "  DEVICE Out store(Local::type v) {\n    const auto y = v.value;\n    return " + rounded +
         ";\n  }\n";
  } else if (complex) {
    t += widen + "  DEVICE c128 load(In v, In, i64) { return wide(v); }\n";
    t += "  DEVICE Out store(c128 y) { return " + rounded + "; }\n";
  } else if (args.logarithmic) {
    t += "  DEVICE Local::type load(In v, In, i64) { return {to_compute(v), 1}; }\n";
    t += std::string("  DEVICE Out store(Local::type v) {\n") +
         "    return from_compute<Out>(compute_of<Out>(v.top + " +
         (args.out.dtype == kFloat64 ? "log(v.sum)" : "logf(f32(v.sum))") + "));\n  }\n";
  } else if (args.indices) {
    t += "  DEVICE Local::type load(In v, In, i64 at) { return {to_compute(v), at}; }\n";
    t += "  DEVICE Out store(Local::type v) { return from_compute<Out>(v.value); }\n";
  } else {
    t += "  DEVICE Local::type load(In v, In, i64) { return Local::type(" +
         std::string(converts
                         ? "to_compute(from_compute<Out>(op_cast<compute_of<Out>>(to_compute(v))))"
                         : "to_compute(v)") +
         "); }\n";
    t += "  DEVICE Out store(Local::type v) { return from_compute<Out>(compute_of<Out>(v)); }\n";
  }
  t += "};\n";
  const std::string name = std::string("scan_") + kForms[int(plan.form)] + "_" +
                           (args.factors       ? "linear"
                            : args.logarithmic ? "logsum"
                                               : kNames[int(args.monoid)]) +
                           (args.indices ? "_at_" : "_") + out;
  static constexpr const char* kCalls[] = {"scan_rows<Scan, Scan::kRounds>", "scan_tiles<Scan>",
                                           "scan_columns<Scan>", "scan_teams<Scan>"};
  // Blocks on a multiprocessor: as many as the registers of a thread's elements leave room for.
  const bool few = plan.vector * plan.rounds * std::max(1, types.local_bytes / 4) <= 16;
  const bool large = types.local_bytes > (complex ? 16 : 8);
  const bool columns = plan.form >= ScanPlan::Form::columns;
  // Single lanes have registers enough for all threads of usual sizes to run at once.
  const bool light = columns && plan.vector == 1 && (!large || args.indices);
  // Complex elements, and logarithms beside their sums, need more than theirs.
  const int more = complex || (args.logarithmic && columns && !large);
  const int blocks = (light ? 5 : large ? 2 : columns ? 3 : few ? 5 : 4) - more;
  t += "extern \"C\" __global__ void __launch_bounds__(" + number(int(ScanPlan::kThreads)) + ", " +
       number(blocks) + ") " + name + "(const __grid_constant__ Scan::Arguments a) {\n  " +
       kCalls[int(plan.form)] + "(a);\n}\n";
  return {name, std::move(t)};
}

std::vector<std::byte> scan_arguments(const ScanPlan& plan) {
  const size_t rank = size_t(plan.lanes.rank);
  std::vector<std::byte> bytes(sizeof(ScanHeader) + 32 * rank);
  std::byte* at = bytes.data();
  const auto put = [&](const void* from, size_t n) {
    std::memcpy(at, from, n);
    at += n;
  };
  put(&plan.header, sizeof(ScanHeader));
  put(plan.lanes.sizes.data(), 8 * rank);
  put(plan.lanes.operands[1].strides.data(), 8 * rank);
  put(plan.lanes.operands[0].strides.data(), 8 * rank);
  if (plan.header.indices) put(plan.lanes.operands[2].strides.data(), 8 * rank);
  return bytes;
}

std::vector<KernelSource> scan_samples() {
  std::vector<KernelSource> sources;
  std::byte* const data = reinterpret_cast<std::byte*>(uintptr_t(4096));
  const auto add = [&](Monoid monoid, DType in, DType out, const Shape& sizes, int dim,
                       bool reverse = false, int64_t step = 1) {
    Shape strides = sizes;
    for (size_t d = sizes.size(); d-- > 0;) {
      strides[d] = step;
      step *= sizes[d];
    }
    const ScanArgs args{.monoid = monoid,
                        .in = {data, in, sizes, strides, nullptr},
                        .out = {data, out, sizes, strides, nullptr},
                        .dim = dim,
                        .reverse = reverse};
    sources.push_back(scan_source(args, plan_scan(args, 132)));
    const bool numbers = in == out && !is_complex(out);
    ScanArgs more = args;
    if (monoid == Monoid::sum && in == out && is_complex(out)) {
      more.factors = args.in;
      sources.push_back(scan_source(more, plan_scan(more, 132)));
    }
    if (numbers && (monoid == Monoid::min || monoid == Monoid::max)) {
      more.indices = {data, kInt64, sizes, strides, nullptr};
      sources.push_back(scan_source(more, plan_scan(more, 132)));
    } else if (numbers && monoid == Monoid::sum && is_floating(in) && !is_float8(in)) {
      more.factors = args.in;
      sources.push_back(scan_source(more, plan_scan(more, 132)));
      more.factors = {};
      more.logarithmic = true;
      sources.push_back(scan_source(more, plan_scan(more, 132)));
      more.out.dtype = kFloat64;
      sources.push_back(scan_source(more, plan_scan(more, 132)));
    }
  };
  for (int k = 0; k < kNumDTypes; ++k) {
    const DType t = DType(k);
    add(Monoid::sum, t, t, Shape{50'000'000}, 0, k % 2);
    add(Monoid::sum, t, t, Shape{4096, 1000}, 0);
    add(Monoid::prod, t, t, Shape{125, 15625}, 0, true);
    if (!is_complex(t)) add(Monoid::max, t, t, Shape{8, 125, 8192}, 1);
    add(Monoid::prod, t, t, Shape{1000, 10000}, 1);
    if (!is_complex(t)) add(Monoid::max, t, t, Shape{1000, 500}, 1, true);
    if (!is_complex(t)) add(Monoid::min, t, t, Shape{1000, 10}, 1);
    if (!is_complex(t)) add(Monoid::sum, t, kInt64, Shape{1000, 10000}, 1);
  }
  for (Monoid m : {Monoid::all, Monoid::any})
    for (int64_t n : {100, 10000, 1'000'000, 10'000'000})
      add(m, kBool, kBool, Shape{8, n}, 1, m == Monoid::any);
  for (DType t : {kFloat32, kBFloat16})
    for (bool reverse : {false, true})
      for (int64_t step : {1, 2}) {
        add(Monoid::sum, t, t, Shape{100000, 20}, 1, reverse, step);
        add(Monoid::sum, t, t, Shape{100000, 255}, 1, reverse, step);
        add(Monoid::sum, t, t, Shape{100000, 511}, 1, reverse, step);
        add(Monoid::sum, t, t, Shape{100000, 512}, 1, reverse, step);
        add(Monoid::sum, t, t, Shape{100000, 1000}, 1, reverse, step);
        add(Monoid::sum, t, t, Shape{125, 15625}, 0, reverse, step);
        add(Monoid::sum, t, t, Shape{16384, 16384}, 1, reverse, step);
        add(Monoid::sum, t, t, Shape{8, 33, 10'000'000}, 2, reverse, step);
        add(Monoid::sum, t, t, Shape{8, 1000, 1024}, 1, reverse, step);
      }
  add(Monoid::sum, kFloat32, kFloat16, Shape{3, 1'000'000}, 1);
  add(Monoid::sum, kInt32, kFloat32, Shape{3, 1'000'000}, 1);
  return sources;
}

}  // namespace arete::cuda
