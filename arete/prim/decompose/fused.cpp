// fused: every stage over the whole tensor, row values in scratch memory.
#include <memory>
#include <vector>

#include "arete/base/error.h"
#include "arete/expr/value.h"
#include "arete/prim/backend.h"
#include "arete/prim/fused_forms.h"
#include "arete/prim/slots.h"

namespace arete::prim {
namespace {

// The program that computes output k of `program` alone.
expr::ProgramPtr single_output(const expr::ProgramPtr& program, size_t k) {
  if (program->outputs().size() == 1) return program;
  expr::Builder b;
  const std::vector<expr::Value> inputs = b.inputs_of(*program);
  const std::vector<expr::Value> outputs =
      b.inline_program(*program, inputs, b.params_of(*program));
  const DType dtype = program->outputs()[k].dtype;
  return b.build({&outputs[k], 1}, {&dtype, 1});
}

}  // namespace

// Note [Fused kernels] in args.h says what the stages mean.
void Primitives::fused(const FusedArgs& a) {
  if (!a.slots.empty()) return fused(Addressed(a).args());
  Shape row_sizes(a.space);
  const uint32_t outer = (1u << a.outer_rank) - 1;
  uint32_t inner = 0;
  for (int d = a.outer_rank; d < int(a.space.size()); ++d) {
    row_sizes[d] = 1;
    inner |= 1u << d;
  }
  std::vector<std::unique_ptr<ScratchView>> rows;
  for (const FusedStage& stage : a.spec->stages) {
    const expr::Program& program = *stage.program;
    std::vector<View> inputs;
    for (int i : stage.inputs) inputs.push_back(i >= 0 ? a.inputs[i] : rows[~i]->view());
    const auto params = a.params.first(program.params().size());

    const size_t first_row = rows.size(), n_outputs = program.outputs().size();
    std::vector<View> outputs;
    const bool makes_rows =
        stage.kind == FusedStage::Kind::reduce || stage.kind == FusedStage::Kind::row;
    for (size_t k = 0; k < n_outputs; ++k) {
      if (makes_rows)
        rows.push_back(std::make_unique<ScratchView>(*this, program.outputs()[k].dtype, row_sizes));
      outputs.push_back(makes_rows ? rows[first_row + k]->view()
                                   : a.outputs[size_t(stage.first_output) + k]);
    }
    const bool columns = stage.kind == FusedStage::Kind::reduce_columns;
    if (stage.kind != FusedStage::Kind::reduce && !columns) {
      pointwise({.program = &program, .inputs = inputs, .outputs = outputs, .params = params});
      continue;
    }
    for (size_t k = 0; k < n_outputs; ++k) {
      const expr::ProgramPtr prologue = single_output(stage.program, k);
      reduce({.monoid = stage.monoid,
              .space = a.space,
              .reduced = columns ? outer : inner,
              .inputs = inputs,
              .out = outputs[k],
              .prologue = is_identity(*prologue) ? nullptr : prologue.get(),
              .params = params});
    }
  }
}

}  // namespace arete::prim
