#include "arete/backend/cuda/codegen/reduce.h"

#include <cstring>

#include "arete/backend/cuda/codegen/emit.h"
#include "arete/base/error.h"
#include "arete/expr/value.h"

namespace arete::cuda {

using expr::Type;
using prim::Monoid;

Accumulation accumulation_of(Monoid monoid, Type value, bool narrow) {
  switch (monoid) {
    case Monoid::all:
    case Monoid::any:
      return {Type::boolean, Type::boolean};
    case Monoid::min:
    case Monoid::max:
      return {value, value};
    case Monoid::sum:
      if (value == Type::f32) return {Type::f32, Type::f64};
      if (value == Type::f64) return {Type::f64, Type::f64};
      if (value == Type::u64) return {value, value};
      return {narrow ? Type::i32 : Type::i64, Type::i64};
    case Monoid::prod:
      break;
  }
  if (value == Type::u64) return {value, value};
  // Partial products may leave the range of f32 though the product does not.
  return expr::is_float(value) ? Accumulation{Type::f64, Type::f64}
                               : Accumulation{Type::i64, Type::i64};
}

Type ReduceKernel::value_type() const {
  if (prologue) return expr::compute_type(prologue->outputs()[0].dtype);
  return expr::compute_type(inputs[0]);
}

Accumulation ReduceKernel::accumulation() const {
  const Type value = value_type();
  if (combine) return {value, value};
  const bool narrow = !prologue && is_integral_or_bool(inputs[0]) && size_of(inputs[0]) <= 2;
  return accumulation_of(monoid, value, narrow);
}

std::string loaded_element(const ReducePlan& plan, size_t k) {
  const bool uniform = plan.uniform >> (size_t(plan.n_outputs) + k) & 1;
  return "l.x" + std::to_string(k) + (uniform ? "" : ".v[v]");
}
std::string computed_element(const ReducePlan& plan, size_t k) {
  const bool uniform = plan.uniform >> (size_t(plan.n_outputs) + k) & 1;
  const std::string name = "l.x" + std::to_string(k);
  return uniform ? "to_compute(" + name + ")" : "element_of(" + name + ", v)";
}

std::string reduce_struct_head(const ReducePlan& plan, const std::vector<std::string>& inputs,
                               size_t n_params, uint32_t tables) {
  const auto number = [](auto n) { return std::to_string(n); };
  const size_t outputs = size_t(plan.n_outputs), operands = outputs + inputs.size();
  const size_t main = size_t(plan.main) >= outputs ? size_t(plan.main) : outputs;
  std::string t;
  t += "  static const int kVector = " + number(plan.vector) + ", kOutputs = " + number(outputs) +
       ", kOperands = " + number(operands) + ", kRank = " + number(plan.nest.rank) +
       ", kReducedRank = " + number(plan.reduced_rank) + ";\n";
  t += "  static const int kMain = " + number(main) + ", kMainSize = int(sizeof(" +
       inputs[main - outputs] + "));\n";
  t += std::string("  static const bool kShifted = ") + (plan.shifted ? "true" : "false") + ";\n";
  t += std::string("  typedef ") + (plan.wide_index ? "i64" : "i32") + " Index;\n";
  t += "  typedef ReduceArguments<kOperands, kRank, " + number(n_params) + "> Arguments;\n";
  std::string members, loads;
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (tables >> k & 1) continue;
    const bool uniform = plan.uniform >> (outputs + k) & 1;
    const std::string type = uniform ? inputs[k] : "Vec<" + inputs[k] + ", V>";
    members += "    " + type + " x" + number(k) + ";\n";
    loads += "    l.x" + number(k) + " = *reinterpret_cast<const " + type + "*>(p[" +
             number(outputs + k) + "]);\n";
  }
  t += "  template <int V> struct Loaded {\n" + members + "  };\n";
  t += "  template <int V> DEVICE void load(Loaded<V>& l, const char* const* p) {\n" + loads +
       "  }\n";
  return t;
}

std::string reduce_entry(const ReducePlan& plan, const std::string& name) {
  std::string t = "extern \"C\" __global__ void ";
  const auto bounds = [](int threads, const char* blocks) {
    return "__launch_bounds__(" + std::to_string(threads) + ", " + blocks + ") ";
  };
  t += plan.tiles     ? bounds(ReducePlan::kTileThreads, "2")
       : plan.columns ? bounds(ReducePlan::kColumnThreads, "2")
                      : bounds(ReducePlan::kRowThreads, "2");
  t += name + "(const __grid_constant__ Reduction::Arguments a) {\n";
  if (plan.tiles)
    t += "  reduce_tiles<Reduction, " + std::to_string(ReducePlan::kTile) + ">(a);\n";
  else if (plan.columns)
    t += "  reduce_columns<Reduction, " + std::to_string(ReducePlan::kColumnThreads) + ">(a);\n";
  else
    t += "  reduce_rows<Reduction>(a);\n";
  return t + "}\n";
}

KernelSource reduce_source(const ReduceKernel& kernel, const ReducePlan& plan) {
  const Type value = kernel.value_type();
  const Accumulation acc = kernel.accumulation();
  const size_t before = kernel.prologue ? kernel.prologue->params().size() : 0;
  const size_t after = kernel.epilogue ? kernel.epilogue->params().size() : 0;
  std::vector<std::string> stored;
  for (DType t : kernel.inputs) stored.push_back(storage_name(t));

  std::string t = "#include \"reduce.cuh\"\n";
  if (kernel.prologue || kernel.epilogue) t += "#include \"math.cuh\"\n";
  t += "struct Reduction {\n";
  t += reduce_struct_head(plan, stored, before + after,
                          kernel.prologue ? kernel.prologue->tables() : 0);
  t += "  typedef MonoidFold<" + monoid_name(kernel.monoid, acc.fast) + ", " +
       monoid_name(kernel.monoid, acc.wide) + "> Fold;\n";
  t += std::string("  static const int kFlush = ") + (acc.fast == acc.wide ? "0" : "16") + ";\n";

  if (plan.tiles) {
    for (size_t k = 0; k < stored.size(); ++k)
      t += "  typedef " + stored[k] + (k == 0 ? " Left;\n" : " Right;\n");
    t += "  DEVICE auto value(compute_of<Left> x0, compute_of<Right> x1, const Arguments& a) {\n";
  } else {
    t += "  template <int V> DEVICE auto value(const Loaded<V>& l, int v, const Arguments& a) {\n";
  }
  std::vector<std::string> elements;
  for (size_t k = 0; k < stored.size(); ++k)
    elements.push_back(kernel.prologue && kernel.prologue->is_table(k)
                           ? "reinterpret_cast<const " + stored[k] + "*>(a.data[" +
                                 std::to_string(size_t(plan.n_outputs) + k) + "])"
                       : plan.tiles ? "x" + std::to_string(k)
                                    : computed_element(plan, k));
  std::string result = elements[0];
  if (kernel.prologue) {
    result = emit_values(t, *kernel.prologue, elements,
                         param_expressions(*kernel.prologue, "a.params"), "t", "    ", true)[0];
    const auto& output = kernel.prologue->outputs()[0];
    if (kernel.prologue->code()[size_t(output.value)].type != value)
      result = std::string("op_cast<") + compute_name(value) + ">(" + result + ")";
  }
  t += "    return " + result + ";\n  }\n";

  const std::string out = storage_name(kernel.out);
  t += "  DEVICE void store(Fold::Partial r, char* const* p, const Arguments& a) {\n";
  if (kernel.epilogue) {
    const std::string between = storage_name(kernel.epilogue->inputs()[0]);
    const std::vector<std::string> in{"to_compute(from_compute<" + between + ">(compute_of<" +
                                      between + ">(r)))"};
    ARETE_ASSERT(kernel.epilogue->outputs()[0].dtype == kernel.out);
    result = emit_program(t, *kernel.epilogue, in,
                          param_expressions(*kernel.epilogue, "a.params", before), "e", "    ")[0];
  } else {
    result = "from_compute<" + out + ">(compute_of<" + out + ">(r))";
  }
  t += "    *reinterpret_cast<" + out + "*>(p[0]) = " + result + ";\n  }\n};\n";

  static constexpr const char* kNames[] = {"sum", "prod", "min", "max", "all", "any"};
  const std::string name = std::string(kernel.combine ? "combine" : "reduce") +
                           (plan.tiles     ? "_tiles_"
                            : plan.columns ? "_columns_"
                                           : "_rows_") +
                           kNames[int(kernel.monoid)] + "_" + std::string(compute_name(value));
  t += reduce_entry(plan, name);
  return {name, std::move(t)};
}

std::vector<std::byte> reduce_arguments(const ReducePlan& plan,
                                        std::span<const expr::Literal> params,
                                        std::span<const expr::Literal> more_params) {
  const size_t operands = plan.nest.operands.size(), rank = size_t(plan.nest.rank);
  std::vector<std::byte> bytes(sizeof(ReduceHeader) +
                               8 * (operands + rank + operands * rank +
                                    std::max<size_t>(1, params.size() + more_params.size())));
  std::byte* at = bytes.data();
  const auto put = [&](const void* from, size_t n) {
    if (n) std::memcpy(at, from, n);
    at += n;
  };
  put(&plan.header, sizeof(ReduceHeader));
  for (const auto& o : plan.nest.operands) put(&o.data, 8);
  put(plan.nest.sizes.data(), 8 * rank);
  for (const auto& o : plan.nest.operands) put(o.strides.data(), 8 * rank);
  put(params.data(), 8 * params.size());
  put(more_params.data(), 8 * more_params.size());
  return bytes;
}

uint64_t plan_key(const ReducePlan& plan) {
  const int main = plan.vector > 1 && (!plan.columns || plan.shifted) ? plan.main : 0;
  return uint64_t(plan.shifted) << 62 | uint64_t(plan.uniform) << 32 | uint64_t(main) << 24 |
         uint64_t(plan.vector) << 16 | uint64_t(plan.tiles) << 63 |
         uint64_t(plan.reduced_rank) << 8 | uint64_t(plan.nest.rank) << 2 |
         uint64_t(plan.wide_index) << 1 | uint64_t(plan.columns);
}

namespace {

// A plan for a dense tensor of one dtype and its reduced dimensions.
ReducePlan sample_plan(Shape space, uint32_t reduced, std::span<const DType> inputs, DType out,
                       uint32_t broadcast = 0) {
  Shape out_sizes = space, strides = space, out_strides = space, zeros = space;
  int64_t step = 1, out_step = 1;
  for (size_t d = space.size(); d-- > 0;) {
    strides[d] = step;
    step *= space[d];
    if (reduced >> d & 1) out_sizes[d] = 1;
    out_strides[d] = out_step;
    out_step *= out_sizes[d];
    zeros[d] = 0;
  }
  std::byte* const data = reinterpret_cast<std::byte*>(uintptr_t(4096));
  std::vector<prim::View> views{{data, out, out_sizes, out_strides, nullptr}};
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (broadcast >> k & 1)  // one number for each position of the first dimension
      zeros[0] = 1;
    views.push_back({data, inputs[k], space, broadcast >> k & 1 ? zeros : strides, nullptr});
  }
  return plan_reduce(space, reduced, views, 1, {132, 16});
}

}  // namespace

std::vector<KernelSource> reduce_samples() {
  std::vector<KernelSource> sources;
  const auto add = [&](ReduceKernel kernel, const Shape& space, uint32_t reduced,
                       uint32_t broadcast = 0) {
    const ReducePlan plan = sample_plan(space, reduced, kernel.inputs, kernel.out, broadcast);
    sources.push_back(reduce_source(kernel, plan));
    if (plan.n_partials() == 0) return;
    const DType acc = expr::storage_type(kernel.accumulation().wide);
    const ReducePlan second = plan_combine(plan, reinterpret_cast<std::byte*>(uintptr_t(4096)),
                                           int64_t(size_of(acc)), {132, 16});
    kernel.inputs = {acc};
    kernel.prologue = nullptr;
    kernel.combine = true;
    sources.push_back(reduce_source(kernel, second));
  };
  for (int k = 0; k < kNumDTypes; ++k) {
    const DType t = DType(k);
    if (is_complex(t)) continue;
    const DType sum = is_integral_or_bool(t) ? kInt64 : is_float8(t) ? kFloat32 : t;
    add({Monoid::sum, {t}, sum}, Shape{1 << 24}, 1);
    add({Monoid::sum, {t}, sum}, Shape{4096, 4096}, 1);
    add({Monoid::prod, {t}, sum}, Shape{4096, 1000}, 2);
    add({Monoid::max, {t}, t}, Shape{4096, 1001}, 2);
    add({Monoid::sum, {t}, sum}, Shape{4096, 1001}, 1);
    add({Monoid::min, {t}, t}, Shape{1001, 1001}, 1);
    add({Monoid::all, {t}, kBool}, Shape{64, 63, 7}, 5);
  }
  add({Monoid::any, {kBool}, kBool}, Shape{4096, 16, 16, 63}, 10);
  add({Monoid::sum, {kFloat32}, kFloat32}, Shape{70000, 40000}, 1);
  add({Monoid::sum, {kBFloat16}, kBFloat16}, Shape{300, 64, 56, 56}, 13);
  add({Monoid::sum, {kFloat32}, kFloat32}, Shape{70000, 40000}, 2);

  const std::vector<DType> pair{kBFloat16, kFloat32};
  const auto prologue = expr::trace(
      [](std::span<const expr::Value> v) {
        const expr::Value d = expr::to_float(v[0]) - v[1] * v[2];
        return std::vector<expr::Value>{d * d};
      },
      pair, std::vector<Type>{Type::f32}, std::vector<DType>{kFloat32});
  const auto epilogue = expr::trace(
      [](std::span<const expr::Value> v) {
        return std::vector<expr::Value>{expr::sqrt(v[0]) + v[1]};
      },
      std::vector<DType>{kFloat32}, std::vector<Type>{Type::f32}, std::vector<DType>{kFloat16});
  // Positions, and a table that they look into.
  const auto lookup = expr::trace(
      [](std::span<const expr::Value> v) {
        return std::vector<expr::Value>{expr::load(v[1], v[0])};
      },
      std::vector<DType>{kInt64, kBFloat16}, {}, std::vector<DType>{kFloat32}, 2);
  for (uint32_t reduced : {1u, 2u})
    add({Monoid::sum, {kInt64, kBFloat16}, kFloat32, lookup.get()}, Shape{512, 4096}, reduced, 2);
  for (const Shape& space : {Shape{512, 4096}, Shape{8, 1 << 20}, Shape{512, 4095}})
    for (uint32_t reduced : {1u, 2u, 3u})
      for (uint32_t broadcast : {0u, 2u})
        add({Monoid::sum, pair, kFloat16, prologue.get(), epilogue.get()}, space, reduced,
            broadcast);

  // Rows of one matrix with all of another, of several pairs of matrices.
  const auto tiles = [&](Monoid monoid, DType left, DType right, const expr::Definition& of_pair) {
    const DType inputs[] = {left, right};
    const auto program = expr::trace(of_pair, inputs, {}, std::vector<DType>{right});
    std::byte* const data = reinterpret_cast<std::byte*>(uintptr_t(4096));
    const Layout out(IntList{3, 200, 300, 1}), in(IntList{3, 200, 1, 64}),
        of(IntList{3, 1, 300, 64});
    const prim::View views[] = {{data, right, out.sizes, out.strides, nullptr},
                                {data, left, in.sizes, in.strides, nullptr},
                                {data, right, of.sizes, of.strides, nullptr}};
    const ReducePlan plan = plan_reduce(Shape{3, 200, 300, 64}, 8, views, 1, {132, 16, true});
    ARETE_ASSERT(plan.tiles);
    sources.push_back(reduce_source({monoid, {left, right}, right, program.get()}, plan));
  };
  for (DType t : {kFloat32, kFloat64, kBFloat16})
    tiles(Monoid::sum, t, t, [](auto v) { return std::vector{abs(v[0] - v[1])}; });
  tiles(Monoid::max, kBFloat16, kFloat32, [](auto v) { return std::vector{v[0] * v[1]}; });
  tiles(Monoid::any, kInt64, kBool,
        [](auto v) { return std::vector{v[0] == cast(v[1], Type::i64)}; });
  return sources;
}

}  // namespace arete::cuda
