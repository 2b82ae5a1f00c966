#include "arete/prim/recurrence.h"

#include <memory>
#include <vector>

#include "arete/base/error.h"
#include "arete/base/keyed_cache.h"
#include "arete/expr/value.h"

namespace arete::prim {
namespace {

using expr::Instruction;
using expr::Op;
using expr::Program;
using expr::ProgramPtr;
using expr::Value;

bool loads_state(const Program& program, const Instruction& in) {
  return in.op == Op::load && program.code()[size_t(in.operand[0])].index == 0;
}

std::vector<DType> output_dtypes(const Program& program) {
  std::vector<DType> dtypes;
  for (const Program::Output& o : program.outputs()) dtypes.push_back(o.dtype);
  return dtypes;
}

ProgramPtr make_program_of_rows(const Program& program, bool lengths) {
  expr::Builder b;
  const std::vector<Value> inputs = b.inputs_of(program), params = b.params_of(program);
  const Value first = b.input(kInt64), length = lengths ? b.input(kInt64) : Value();
  std::vector<Value> loads(program.code().size());
  for (size_t i = 0; i < loads.size(); ++i) {
    const Instruction& in = program.code()[i];
    if (!loads_state(program, in)) continue;
    // Loads before this one are replaced already; what is left over is dropped at the end.
    const std::vector<Value> values = b.inline_code(program, inputs, params, {}, loads);
    loads[i] = expr::load(inputs[0], first + values[size_t(in.operand[1])]);
  }
  const std::vector<Value> values = b.inline_code(program, inputs, params, {}, loads);
  std::vector<Value> results;
  for (const Program::Output& o : program.outputs()) {
    Value v = b.cast(values[size_t(o.value)], expr::compute_type(o.dtype));
    if (lengths) {
      const Value stays =
          results.empty() ? expr::load(inputs[0], first + inputs[1]) : b.constant(v.type(), 0);
      v = expr::where(inputs[2] < length, v, stays);
    }
    results.push_back(v);
  }
  return b.build(results, output_dtypes(program));
}

}  // namespace

std::array<int64_t, 3> strides_of(const RecurrenceArgs& args, const View& operand) {
  const int64_t space[3] = {args.steps, args.rows, args.states};
  std::array<int64_t, 3> strides{};
  const int rank = operand.rank();
  ARETE_ASSERT(rank <= 3);
  for (int d = 0; d < rank; ++d) {
    if (operand.sizes[d] == 1) continue;
    ARETE_ASSERT(operand.sizes[d] == space[3 - rank + d]);
    strides[size_t(3 - rank + d)] = operand.strides[d] * int64_t(size_of(operand.dtype));
  }
  return strides;
}

const Program& program_of_rows(const Program& program, bool lengths) {
  struct Entry {
    ProgramPtr original, made;  // the first one so that its address stays its own
  };
  static auto& caches = *new std::array<KeyedCache<Entry, const Program*>, 2>;
  return *caches[lengths]
              .get(&program,
                   [&] {
                     return std::make_unique<Entry>(program.shared_from_this(),
                                                    make_program_of_rows(program, lengths));
                   })
              .made;
}

SplitProgram split_by_state(const Program& program) {
  const auto code = program.code();
  std::vector<char> depends(code.size()), wanted(code.size());
  const auto is_leaf = [&](const Instruction& in) {
    return in.op == Op::constant || in.op == Op::param ||
           (in.op == Op::input && (in.index < 4 || program.is_table(size_t(in.index))));
  };
  for (size_t i = 0; i < code.size(); ++i) {
    depends[i] = loads_state(program, code[i]);
    for (const int32_t o : code[i].operand)
      if (o >= 0) depends[i] |= depends[size_t(o)];
  }
  const auto want = [&](int32_t i) {
    if (!depends[size_t(i)] && !is_leaf(code[size_t(i)])) wanted[size_t(i)] = true;
  };
  for (size_t i = 0; i < code.size(); ++i)
    if (depends[i])
      for (const int32_t o : code[i].operand)
        if (o >= 0) want(o);
  for (const Program::Output& o : program.outputs()) want(o.value);

  expr::Builder ahead;
  const std::vector<Value> values =
      ahead.inline_code(program, ahead.inputs_of(program), ahead.params_of(program));
  std::vector<Value> results;
  std::vector<DType> dtypes;
  expr::Builder rest;
  std::vector<Value> inputs;
  for (size_t k = 0; k < program.inputs().size(); ++k) {
    const DType dtype = program.inputs()[k];
    // Elements are not there: any value stands for what nothing below reads.
    inputs.push_back(program.is_table(k) ? rest.table(dtype)
                     : k < 4             ? rest.input(dtype)
                                         : inputs[1]);
  }
  std::vector<Value> known(code.size());
  std::vector<char> live(code.size());
  for (size_t i = 0; i < code.size(); ++i) {
    live[i] = depends[i] || wanted[i] || is_leaf(code[i]);
    if (!wanted[i]) continue;
    results.push_back(values[i]);
    dtypes.push_back(expr::storage_type(code[i].type));
    known[i] = rest.input(dtypes.back());
  }
  const std::vector<Value> computed =
      rest.inline_code(program, inputs, rest.params_of(program), live, known);
  std::vector<Value> outputs;
  for (const Program::Output& o : program.outputs()) outputs.push_back(computed[size_t(o.value)]);
  return {ahead.build(results, dtypes), rest.build(outputs, output_dtypes(program))};
}

}  // namespace arete::prim
