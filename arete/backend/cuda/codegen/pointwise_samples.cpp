// Programs and shapes that stand for everything codegen/pointwise.cpp can be asked for.
#include <array>

#include "arete/backend/cuda/codegen/iota.h"
#include "arete/backend/cuda/codegen/pointwise.h"
#include "arete/expr/orthogonal.h"
#include "arete/expr/value.h"

namespace arete::cuda {

using expr::Op;
using expr::Type;
using expr::Value;
using Kind = PointwiseShape::Kind;

namespace {

void add(std::vector<KernelSource>& all, const ElementCode& code, PointwiseShape shape) {
  if (shape.vector == 0) shape.vector = code.vector();
  shape.unroll = unroll_for(code, shape);
  all.push_back(pointwise_source(code, shape));
}

// Every operation that a type has, in one program of many outputs.
expr::ProgramPtr every_operation(Type type, Op first, Op last) {
  const DType storage = expr::storage_type(type);
  expr::Builder b;
  const Value x = b.input(storage), y = b.input(storage);
  std::vector<Value> results;
  std::vector<DType> dtypes;
  for (int k = int(first); k <= int(last); ++k) {
    const Op op = Op(k);
    const bool bits = op == Op::bit_not || (op >= Op::bit_and && op <= Op::shr);
    const bool floating_only = (op >= Op::floor && op <= Op::is_inf) || op == Op::atan2 ||
                               op == Op::copysign || op == Op::nextafter;
    if (expr::is_float(type) ? bits : floating_only) continue;
    const Value r = expr::arity_of(op) == 1 ? b.emit(op, x) : b.emit(op, x, y);
    results.push_back(r);
    dtypes.push_back(expr::storage_type(r.type()));
  }
  results.push_back(b.emit(Op::select, b.emit(Op::lt, x, y), x, y));
  dtypes.push_back(storage);
  if (expr::is_float(type))
    for (const Op op : {Op::mul_add, Op::mul_sub, Op::sub_mul}) {
      results.push_back(b.emit(op, x, y, x));
      dtypes.push_back(storage);
    }
  for (const Type to : {Type::boolean, Type::i32, Type::i64, Type::f32, Type::f64}) {
    results.push_back(b.cast(x, to));
    dtypes.push_back(expr::storage_type(to));
  }
  return b.build(results, dtypes);
}

expr::ProgramPtr two_results(std::span<const DType> inputs, std::span<const DType> outputs) {
  return expr::trace(
      [](std::span<const Value> v) {
        const Value a = expr::to_float(v[0]), b = expr::to_float(v[1]);
        return std::vector<Value>{expr::where(a > b, a * v[2], b), a * (1.0 + erf(b))};
      },
      inputs, std::array{Type::f32}, outputs);
}

}  // namespace

std::vector<KernelSource> pointwise_samples() {
  std::vector<KernelSource> all;
  // Operations.
  for (const Type type : {Type::i32, Type::i64, Type::f32, Type::f64}) {
    add(all, element_code(*every_operation(type, Op::neg, Op::round)), {.vector = 1});
    add(all, element_code(*every_operation(type, Op::sqrt, Op::atanh)), {.vector = 1});
    add(all, element_code(*every_operation(type, Op::erf, Op::is_inf)), {.vector = 1});
    add(all, element_code(*every_operation(type, Op::add, Op::ge)), {.vector = 1});
  }
  const auto logic = expr::trace(
      [](std::span<const Value> v) {
        return std::vector<Value>{v[0] & v[1], v[0] | v[1], v[0] ^ v[1], !v[0],
                                  expr::where(v[0], v[1], v[2])};
      },
      std::array{kBool, kBool}, std::array{Type::boolean}, {});
  add(all, element_code(*logic), {.vector = 0});
  // Arms that cost enough to become branches, one in another, with a value that both need.
  const auto branches = expr::trace(
      [](std::span<const Value> v) {
        const Value shared = exp(v[0]);
        const Value inner =
            expr::where(v[0] > 2.0, expr::lgamma(v[0]) + shared, expr::digamma(shared));
        return std::vector<Value>{
            expr::where(v[0] > 1.0, expr::lgamma(shared) * inner, expr::lgamma(v[0] + 3.0))};
      },
      std::array{kFloat32}, {}, std::array{kFloat32});
  add(all, element_code(*branches), {.vector = 1});
  for (const DType t : {kFloat32, kFloat64})
    add(all,
        element_code(*expr::trace(
            [](std::span<const Value> v) {
              return std::vector<Value>{
                  v[0].builder()->polynomial(v[0], v[1], expr::Orthogonal::legendre_p),
                  v[0].builder()->polynomial(v[0], v[1], expr::Orthogonal::shifted_chebyshev_w, 3)};
            },
            std::array{t, t}, {}, std::array{t, t})),
        {.vector = 1});
  // Shapes of kernels and lengths of vectors.
  for (const DType t : {kFloat32, kBFloat16, kFloat64}) {
    const ElementCode code =
        element_code(*two_results(std::array{t, kFloat32}, std::array{t, kFloat32}));
    const ElementCode pairs = element_code(*two_results(std::array{t, t}, std::array{t, t}));
    for (int vector = 1; vector <= code.vector(); vector *= 2) {
      add(all, pairs, {.kind = Kind::strided, .vector = vector, .rank = 2, .paired = true});
      add(all, code, {.vector = vector});
      for (const uint32_t uniform : {0, 1, 2})
        add(all, code, {.kind = Kind::strided, .vector = vector, .rank = 3, .uniform = uniform});
    }
    add(all, code, {.vector = 0, .uniform = 2});
    for (const bool long_table : {false, true})
      for (const uint32_t uniform : {0, 2})
        add(all, code,
            {.kind = Kind::multi, .vector = 0, .uniform = uniform, .long_table = long_table});
  }
  const ElementCode small =
      element_code(*two_results(std::array{kInt8, kUInt8}, std::array{kFloat16, kBFloat16}));
  for (int rank = 1; rank <= 6; ++rank)
    add(all, small, {.kind = Kind::strided, .vector = 1, .rank = rank});
  // Storage types.
  for (int t = 0; t < kNumDTypes; ++t) {
    const DType type = DType(t);
    all.push_back(iota_source(type));
    if (is_complex(type)) continue;
    add(all, element_code(*expr::conversion(type, kFloat32)), {.vector = 0});
    add(all, element_code(*expr::conversion(kFloat64, type)), {.vector = 0});
    add(all, element_code(*expr::conversion(type, kInt64)), {.vector = 0});
  }
  // Loads from tables.
  expr::Builder loads;
  const Value table = loads.table(kBFloat16), at = loads.input(kInt64);
  const Value loaded = expr::load(table, at + expr::load(loads.table(kInt32), at));
  const ElementCode load_code = element_code(*loads.build({&loaded, 1}, std::array{kBFloat16}));
  add(all, load_code, {.vector = 0});
  for (const int vector : {1, 2})
    add(all, load_code, {.kind = Kind::strided, .vector = vector, .rank = 2});
  // Places that are counted: by a table, of two inputs, and of one that is the same for all.
  for (const DType t : {kFloat32, kInt8, kFloat64}) {
    const ElementCode places = element_code(*expr::trace(
        [](std::span<const Value> v) {
          const Value k = expr::cast(expr::to_float(v[0]) * v[2], Type::i64);
          return std::vector<Value>{expr::where(expr::load(v[1], k) > 0.0, k, k + 1)};
        },
        std::array{t, kFloat32}, std::array{Type::f32}, std::array{kInt64}, 0b10));
    add(all, places, {.kind = Kind::counts, .vector = int(16 / size_of(t))});
    add(all, places, {.kind = Kind::counts, .vector = 1, .uniform = 1});
  }
  // Taps: of inputs of one type, with factors of the other.
  for (const DType t : {kFloat32, kFloat64, kBFloat16})
    for (const Kind kind : {Kind::taps, Kind::tap_lists}) {
      const DType factor = t == kFloat64 ? t : kFloat32;
      add(all,
          element_code(*expr::trace(
              [](std::span<const Value> v) {
                const Value x = expr::to_float(v[0]), at = floor(x), k = expr::cast(at, Type::i64);
                const Value rest = (x - at) * expr::to_float(v[1]);
                return std::vector<Value>{k, 1.0 - rest, k + v[2], rest};
              },
              std::array{t, t}, std::array{Type::i64}, std::array{kInt64, factor, kInt64, factor})),
          {.kind = kind, .vector = 1});
    }
  // Only parameters: numbers that go to memory.
  expr::Builder numbers;
  std::vector<Value> params;
  for (int k = 0; k < 16; ++k) params.push_back(numbers.param(Type::i64));
  add(all, element_code(*numbers.build(params, std::vector(params.size(), kInt64))), {.vector = 0});
  // Neither inputs nor parameters.
  expr::Builder constant;
  const Value one = constant.constant(Type::f32, 1.5);
  const DType half = kFloat16;
  add(all, element_code(*constant.build({&one, 1}, {&half, 1})), {.vector = 0});
  return all;
}

}  // namespace arete::cuda
