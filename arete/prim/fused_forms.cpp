#include "arete/prim/fused_forms.h"

#include <algorithm>

#include "arete/base/error.h"
#include "arete/expr/value.h"
#include "arete/prim/tables.h"

namespace arete::prim {
namespace {

using expr::Builder;
using expr::Type;
using expr::Value;
using Kind = FusedStage::Kind;

// What a stage over elements reads. Before the first reduction there are no row values.
SmallVector<View, 8> inputs_of(const FusedStage& stage, const FusedArgs& a) {
  SmallVector<View, 8> views;
  for (const int i : stage.inputs) views.push_back(a.inputs[size_t(i)]);
  return views;
}

// The type of a row value that is as exact as what a reduction accumulates.
Type row_type(Monoid monoid, Type value) {
  if (monoid == Monoid::all || monoid == Monoid::any) return Type::boolean;
  if (expr::is_float(value)) return value;
  const bool counts = monoid == Monoid::sum || monoid == Monoid::prod;
  return (value == Type::boolean && !counts) || value == Type::u64 ? value : Type::i64;
}

// What is reduced: the prologue's value before its rounding.
expr::ProgramPtr reduced_program(const ReduceArgs& a) {
  Builder b;
  const auto build = [&](const Value& v) {
    const Type type = row_type(a.monoid, v.type());
    const Value result = b.cast(v, type);
    const DType dtype = expr::storage_type(type);
    return b.build({&result, 1}, {&dtype, 1});
  };
  if (!a.prologue) return build(b.input(a.inputs[0].dtype));
  const std::vector<Value> inputs = b.inputs_of(*a.prologue);
  const std::vector<Value> code = b.inline_code(*a.prologue, inputs, b.params_of(*a.prologue));
  return build(code[size_t(a.prologue->outputs()[0].value)]);
}

// What is stored of a row's value, after the parameters of the prologue.
expr::ProgramPtr stored_program(const ReduceArgs& a, DType row) {
  Builder b;
  if (a.prologue) b.params_of(*a.prologue);
  Value v = b.input(row);
  if (a.epilogue) {
    const DType between = a.epilogue->inputs()[0];
    v = b.round_to(b.cast(v, expr::compute_type(between)), between);
    v = b.inline_code(*a.epilogue, {&v, 1},
                      b.params_of(*a.epilogue))[size_t(a.epilogue->outputs()[0].value)];
  }
  return b.build({&v, 1}, {&a.out.dtype, 1});
}

}  // namespace

bool run_one_stage(Primitives& on, const FusedArgs& a) {
  ARETE_ASSERT(a.slots.empty());
  const std::vector<FusedStage>& stages = a.spec->stages;
  const auto params = [&](const FusedStage& s) {
    return a.params.first(s.program->params().size());
  };
  const FusedStage& first = stages[0];
  if (stages.size() == 1 && first.kind == Kind::store) {
    const SmallVector<View, 8> inputs = inputs_of(first, a);
    on.pointwise({.program = first.program.get(),
                  .inputs = {inputs.data(), inputs.size()},
                  .outputs = a.outputs,
                  .params = params(first)});
    return true;
  }
  if (stages.size() != 2 || first.kind != Kind::reduce || stages[1].kind != Kind::store_row ||
      first.program->outputs().size() != 1 || a.outputs.size() != 1 ||
      stages[1].inputs != std::vector{~0})
    return false;
  const expr::Program& stored = *stages[1].program;
  const bool as_it_is = is_identity(stored) && stored.inputs()[0] == a.outputs[0].dtype;
  const SmallVector<View, 8> inputs = inputs_of(first, a);
  on.reduce({.monoid = first.monoid,
             .space = a.space,
             .reduced = ((1u << a.space.size()) - 1) & ~((1u << a.outer_rank) - 1),
             .inputs = {inputs.data(), inputs.size()},
             .out = a.outputs[0],
             .prologue = is_identity(*first.program) ? nullptr : first.program.get(),
             .params = params(first),
             .epilogue = as_it_is ? nullptr : &stored,
             .epilogue_params = params(stages[1])});
  return true;
}

AsFused::AsFused(const PointwiseArgs& a)
    : spec_{{}, int(a.inputs.size()), int(a.outputs.size())},
      args_{.spec = &spec_,
            .space = a.outputs[0].sizes,
            .outer_rank = std::max(0, a.outputs[0].rank() - 1),
            .inputs = a.inputs,
            .outputs = a.outputs,
            .params = a.params,
            .slots = a.slots,
            .context = a.context} {
  FusedStage stage{Kind::store, a.program->shared_from_this(), {}};
  for (int i = 0; i < spec_.n_inputs; ++i) stage.inputs.push_back(i);
  spec_.stages.push_back(std::move(stage));
}

AsFused::AsFused(const ReduceArgs& a) : spec_{{}, int(a.inputs.size()), 1}, args_{} {
  const uint32_t tables = a.prologue ? a.prologue->tables() : 0;
  SmallVector<View, 8> views{a.out};
  for (const View& v : heads_of_tables(a.inputs, tables)) views.push_back(v);
  order_.emplace(a.space, a.reduced, std::span<const View>(views.data(), views.size()));
  for (size_t i = 0; i < a.inputs.size(); ++i)
    inputs_.push_back(tables >> i & 1 ? a.inputs[i] : order_->views()[i + 1]);

  FusedStage reduce{Kind::reduce, reduced_program(a), {}, a.monoid};
  for (int i = 0; i < spec_.n_inputs; ++i) reduce.inputs.push_back(i);
  const DType row = reduce.program->outputs()[0].dtype;
  spec_.stages.push_back(std::move(reduce));
  spec_.stages.push_back({Kind::store_row, stored_program(a, row), {~0}});

  params_.append(a.params.begin(), a.params.end());
  params_.append(a.epilogue_params.begin(), a.epilogue_params.end());
  slots_.assign(a.slots.begin(), a.slots.end());
  for (const Slot& s : a.epilogue_slots)
    slots_.push_back({s.number + int(a.params.size()), s.value});
  args_ = {.spec = &spec_,
           .space = order_->space(),
           .outer_rank = order_->kept(),
           .inputs = {inputs_.data(), inputs_.size()},
           .outputs = order_->views().first(1),
           .params = {params_.data(), params_.size()},
           .slots = slots_,
           .context = a.context};
}

}  // namespace arete::prim
