// Calls as stages over a space: Note [Stages of a group].
#include "arete/compile/fuse_internal.h"
#include "arete/compile/stand_in_internal.h"
#include "arete/expr/value.h"
#include "arete/prim/recorder.h"

namespace arete::compile {
namespace {

using expr::Builder;
using expr::ProgramPtr;
using expr::Value;
using prim::Access;
using prim::Primitive;
using prim::View;

/// `from` as an operand of `sizes`, to which it broadcasts.
Place place_of(const View& from, IntList sizes, Access access, Buffers& buffers) {
  Place place{from.data, from.dtype, Layout(from.sizes, from.strides), from.storage, {}};
  if (!sizes.empty() || !from.sizes.empty()) place.layout = expand(place.layout, sizes);
  std::vector<Use> uses;
  buffers.add_use(uses, from, access);
  place.use = uses.empty() ? Use{-1, 0, 0, access} : uses[0];
  return place;
}

std::vector<Place> inputs_of(std::span<const View> views, uint32_t tables, IntList space,
                             Buffers& buffers) {
  std::vector<Place> places;
  for (size_t i = 0; i < views.size(); ++i) {
    const bool is_table = tables >> i & 1;
    places.push_back(place_of(views[i], is_table ? views[i].sizes : space, Access::read, buffers));
    places.back().is_table = is_table;
  }
  return places;
}

/// A value for each row that no memory has.
Place row_value(DType dtype, IntList space, uint32_t reduced) {
  Layout layout{Shape(space)};
  for (int d = 0; d < layout.rank(); ++d)
    if (reduced >> d & 1) layout.strides[size_t(d)] = 0;
  return {stand_in(1), dtype, std::move(layout), nullptr, {-1, 0, 0, Access::write}};
}

int64_t rows_of(IntList space, uint32_t reduced) {
  int64_t rows = 1;
  for (size_t d = 0; d < space.size(); ++d)
    if (!(reduced >> d & 1)) rows *= space[d];
  return rows;
}

std::optional<StagedCall> staged(const prim::PointwiseArgs& a, Buffers& buffers) {
  if (a.outputs[0].numel() == 0) return std::nullopt;
  StagedCall s{.space = Shape(a.outputs[0].sizes), .context = a.context};
  Stage stage{.kind = Stage::Kind::elements,
              .program = a.program->shared_from_this(),
              .inputs = inputs_of(a.inputs, a.program->tables(), s.space, buffers),
              .params = a.params,
              .slots = {a.slots.begin(), a.slots.end()}};
  for (const View& v : a.outputs)
    stage.outputs.push_back(place_of(v, s.space, Access::write, buffers));
  s.stages.push_back(std::move(stage));
  return s;
}

std::optional<StagedCall> staged(const prim::CopyArgs& a, Buffers& buffers) {
  if (a.out.numel() == 0 || is_complex(a.in.dtype) || is_complex(a.out.dtype)) return std::nullopt;
  StagedCall s{.space = Shape(a.out.sizes), .context = a.context};
  s.stages.push_back({.kind = Stage::Kind::elements,
                      .program = expr::conversion(a.in.dtype, a.out.dtype),
                      .inputs = {place_of(a.in, s.space, Access::read, buffers)},
                      .outputs = {place_of(a.out, s.space, Access::write, buffers)}});
  return s;
}

std::optional<StagedCall> staged(const prim::FillArgs& a, Buffers& buffers) {
  // Only numbers that a program has in the same form. It takes them as a parameter: a constant
  // would be worked with here already, and not by the functions that work with elements.
  const bool same = a.value_is_integer ? a.out.dtype == kInt64
                                       : a.out.dtype == kFloat32 || a.out.dtype == kFloat64;
  if (a.out.numel() == 0 || !same) return std::nullopt;
  Builder b;
  const Value value = b.param(expr::compute_type(a.out.dtype));
  StagedCall s{.space = Shape(a.out.sizes), .context = a.context};
  s.stages.push_back({.kind = Stage::Kind::elements,
                      .program = b.build({&value, 1}, {&a.out.dtype, 1}),
                      .outputs = {place_of(a.out, s.space, Access::write, buffers)},
                      .params = {&a.value, 1}});
  return s;
}

// A small product of short sums, which a kernel computes as quickly for each element by itself.
std::optional<StagedCall> staged(const prim::GemmArgs& g, Buffers& buffers) {
  constexpr int64_t kShortSum = 10;  // of twice as many operands
  constexpr int64_t kSmall = 65536;
  const int64_t terms = g.a.sizes.back(), count = g.out.numel();
  if (terms < 1 || terms > kShortSum || count < 1 || count > kSmall || !is_bare(g) ||
      g.alpha != 1 || g.bias || g.a.dtype != g.out.dtype || !is_floating(g.out.dtype) ||
      is_float8(g.out.dtype))
    return std::nullopt;
  StagedCall s{.space = Shape(g.out.sizes), .context = g.context};
  Stage stage{.kind = Stage::Kind::elements,
              .outputs = {place_of(g.out, s.space, Access::write, buffers)}};
  const size_t row = size_t(g.out.rank()) - 2;
  Shape of_a(g.a.sizes), of_b(g.b.sizes);
  of_a[row + 1] = of_b[row] = 1;
  Builder b;
  std::optional<Value> sum;
  for (int64_t k = 0; k < terms; ++k) {
    View x = g.a, y = g.b;
    x.data += k * x.strides[row + 1] * int64_t(size_of(x.dtype));
    y.data += k * y.strides[row] * int64_t(size_of(y.dtype));
    x.sizes = of_a, y.sizes = of_b;
    for (const View& v : {x, y})
      stage.inputs.push_back(place_of(v, s.space, Access::read, buffers));
    const Value left = b.input(x.dtype), right = b.input(y.dtype);
    sum = sum ? left * right + *sum : left * right;
  }
  stage.program = b.build({&*sum, 1}, {&g.out.dtype, 1});
  s.stages.push_back(std::move(stage));
  return s;
}

// The dtype of a row value that is as exact as what a reduction accumulates.
DType row_dtype(prim::Monoid monoid, expr::Type value) {
  if (monoid == prim::Monoid::all || monoid == prim::Monoid::any) return kBool;
  if (expr::is_float(value)) return expr::storage_type(value);
  const bool counts = monoid == prim::Monoid::sum || monoid == prim::Monoid::prod;
  if (value == expr::Type::u64) return kUInt64;
  return value == expr::Type::boolean && !counts ? kBool : kInt64;
}

std::optional<StagedCall> staged(const prim::ReduceArgs& a, Buffers& buffers) {
  StagedCall s{.space = Shape(a.space), .context = a.context, .reduce = &a};
  if (numel_of(s.space) == 0 || is_complex(a.inputs[0].dtype)) return std::nullopt;
  for (size_t d = 0; d < a.space.size(); ++d)
    if (a.space[d] != 1 && (a.reduced >> d & 1)) s.reduced |= 1u << d;
  if (s.reduced == 0) return std::nullopt;
  const ProgramPtr program = a.prologue ? a.prologue->shared_from_this()
                                        : expr::conversion(a.inputs[0].dtype, a.inputs[0].dtype);
  const expr::Program::Output& out = program->outputs()[0];
  const Place row =
      row_value(row_dtype(a.monoid, program->code()[size_t(out.value)].type), a.space, s.reduced);
  s.stages.push_back({.kind = Stage::Kind::reduce,
                      .program = program,
                      .inputs = inputs_of(a.inputs, program->tables(), s.space, buffers),
                      .outputs = {row},
                      .params = a.params,
                      .slots = {a.slots.begin(), a.slots.end()},
                      .monoid = a.monoid});
  s.stages.push_back({.kind = Stage::Kind::rows,
                      .program = a.epilogue ? a.epilogue->shared_from_this()
                                            : expr::conversion(row.dtype, a.out.dtype),
                      .inputs = {row},
                      .outputs = {place_of(a.out, s.space, Access::write, buffers)},
                      .params = a.epilogue_params,
                      .slots = {a.epilogue_slots.begin(), a.epilogue_slots.end()}});
  return s;
}

std::optional<StagedCall> staged(const prim::FusedArgs& a, Buffers& buffers) {
  using Kind = prim::FusedStage::Kind;
  StagedCall s{.space = Shape(a.space), .context = a.context};
  if (numel_of(s.space) == 0) return std::nullopt;
  for (size_t d = size_t(a.outer_rank); d < a.space.size(); ++d)
    if (a.space[d] != 1) s.reduced |= 1u << d;
  std::vector<Place> rows;
  for (const prim::FusedStage& from : a.spec->stages) {
    const expr::Program& program = *from.program;
    Stage stage{.kind = from.kind == Kind::reduce           ? Stage::Kind::reduce
                        : from.kind == Kind::store          ? Stage::Kind::elements
                        : from.kind == Kind::reduce_columns ? Stage::Kind::columns
                                                            : Stage::Kind::rows,
                .program = from.program,
                .params = a.params.first(program.params().size()),
                .monoid = from.monoid};
    for (size_t i = 0; i < from.inputs.size(); ++i) {
      const int in = from.inputs[i];
      if (in < 0)
        stage.inputs.push_back(rows[size_t(~in)]);  // which collides with nothing
      else
        stage.inputs.push_back(
            inputs_of(a.inputs.subspan(size_t(in), 1), program.is_table(i), s.space, buffers)[0]);
    }
    for (size_t k = 0; k < program.outputs().size(); ++k) {
      if (from.kind == Kind::reduce || from.kind == Kind::row) {
        rows.push_back(row_value(program.outputs()[k].dtype, a.space, s.reduced));
        stage.outputs.push_back(rows.back());
      } else {
        stage.outputs.push_back(
            place_of(a.outputs[size_t(from.first_output) + k], s.space, Access::write, buffers));
      }
    }
    // Each program has a prefix of the parameters.
    for (const prim::Slot& slot : a.slots)
      if (size_t(slot.number) < stage.params.size()) stage.slots.push_back(slot);
    s.stages.push_back(std::move(stage));
  }
  return s;
}

}  // namespace

std::optional<StagedCall> stages_of(const prim::RecordedCall& call, Buffers& buffers,
                                    const PlanOptions& options) {
  std::optional<StagedCall> s;
  switch (call.primitive()) {
    case Primitive::pointwise:
      s = staged(*static_cast<const prim::PointwiseArgs*>(call.args()), buffers);
      break;
    case Primitive::fill:
      s = staged(*static_cast<const prim::FillArgs*>(call.args()), buffers);
      break;
    case Primitive::copy:
      s = staged(*static_cast<const prim::CopyArgs*>(call.args()), buffers);
      break;
    case Primitive::reduce:
      s = staged(*static_cast<const prim::ReduceArgs*>(call.args()), buffers);
      break;
    case Primitive::gemm:  // CPUs have no launches to save
      if (!options.exact && !call.device().is_cpu())
        s = staged(*static_cast<const prim::GemmArgs*>(call.args()), buffers);
      break;
    case Primitive::fused: {
      // What is in a kernel decides in which order it reduces. Few rows are divided otherwise, but
      // for a short one, which nothing divides. Longer ones are often of all rows of a loss, whose
      // gradient would wait for all of it with what joins them, and could not be in bands.
      constexpr int64_t kFewRows = 8, kShortRow = 64;
      const auto& a = *static_cast<const prim::FusedArgs*>(call.args());
      const int64_t rows = rows_of(a.space, ~0u << a.outer_rank);
      const int64_t count = numel_of(a.space);
      if (!options.exact && (rows >= kFewRows || (rows == 1 && count <= kShortRow)) && count > rows)
        s = staged(a, buffers);
      break;
    }
    default:
      break;
  }
  if (!s) return s;
  for (const Stage& stage : s->stages)
    for (const prim::Slot& slot : stage.slots)
      buffers.add_use(s->numbers, slot.value, Access::read);
  return s;
}

}  // namespace arete::compile
