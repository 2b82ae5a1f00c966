// Calls of programs that have no record of their own.
#include "arete/core/tracing.h"
#include "arete/ops/call.h"
#include "arete/ops/program_arguments.h"
#include "arete/ops/program_node.h"
#include "arete/ops/work.h"

namespace arete::ops {

namespace {

// Operations for each element that the program runs over: of one set of operands, or of several
// (ops/multi.h).
double flops_of_program(const Call& call) {
  const expr::Program& program = *call[0].program().program;
  const std::span<const Tensor> inputs = call.tensors(1);
  double elements = 0;
  const size_t n = program.inputs().size();
  for (size_t first = 0; first < inputs.size(); first += n) {
    Shape space;
    for (const Tensor& t : inputs.subspan(first, n))
      space = broadcast_shapes(space, t.sizes(), call.name());
    elements += double(numel_of(space));
  }
  return operations_per_element(program) * elements;
}

}  // namespace

const OpRecord& AnonymousRecords::find(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto it = records_.find(name);
  if (it != records_.end()) return it->second;
  OpRecord& r = records_[std::string(name)];
  r.name = name;
  r.surface = Surface::internal;
  fill_(r);
  return r;
}

const OpRecord& program_record(std::string_view name) {
  static auto* const records = new AnonymousRecords([](OpRecord& r) {
    r.schema = r.name + "(Program program, Tensor[] inputs) -> Tensor[]";
    r.apply = [](const Call& c) {
      const AppliedProgram& p = c[0].program();
      Results outputs;
      apply({c.name(), p.program->shared_from_this(), c.tensors(1), p.params}, outputs);
      return outputs;
    };
    r.flops = flops_of_program;
  });
  return records->find(name);
}

namespace {
Results call_function(const Call&) { ARETE_BUG("a function is called by who has it"); }
}  // namespace

const OpRecord& function_record(std::string_view name) {
  static auto* const records = new AnonymousRecords([](OpRecord& r) {
    r.schema = r.name + "(Tensor[] inputs) -> Tensor[]";
    r.compose = call_function;
  });
  return records->find(name);
}

bool is_function_record(const OpRecord& op) { return op.compose == call_function; }

Results call_program(const Application& a) {
  if (tracing::is_plain()) [[likely]] {
    Results outputs;
    apply(a, outputs);
    return outputs;
  }
  const AppliedProgram program{.program = a.program.get(), .params = a.params};
  return call_all(program_record(a.name), {Arg(program), Arg(a.inputs)});
}

Results apply_program(const expr::ProgramPtr& program, std::span<const Tensor> inputs,
                      std::span<const Scalar> params, const char* name) {
  const SmallVector<expr::Literal, 4> literals =
      program_arguments(program->inputs(), program->params(), inputs, params, name);
  return call_program({name, program, inputs, {literals.data(), literals.size()}});
}

}  // namespace arete::ops
