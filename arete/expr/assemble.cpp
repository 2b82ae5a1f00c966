#include "arete/expr/assemble.h"

#include <algorithm>
#include <iterator>

#include "arete/base/error.h"
#include "arete/expr/orthogonal.h"
#include "arete/expr/value.h"

namespace arete::expr {

namespace {

// The instruction alone, as a program of its operands. Inlined, it stays as it is, while a builder
// takes a product and a sum together: Note [Contraction].
ProgramPtr alone(const Instruction& in, const std::vector<Value>& operands) {
  Builder b;
  std::vector<Value> v;
  for (const Value& o : operands) v.push_back(b.input(storage_type(o.type())));
  Value result;
  switch (in.op) {
    case Op::cast:
      result = b.cast(v[0], in.type);
      break;
    case Op::round_to:
      result = b.stored(v[0], DType(in.index));
      break;
    case Op::polynomial:
      result = b.polynomial(v[0], v[1], family_of(in.index), order_of(in.index));
      break;
    default:
      result = v.size() == 1   ? b.emit(in.op, v[0])
               : v.size() == 2 ? b.emit(in.op, v[0], v[1])
                               : b.emit(in.op, v[0], v[1], v[2]);
  }
  const DType stored = storage_type(result.type());
  return b.build({&result, 1}, {&stored, 1});
}

}  // namespace

ProgramPtr assemble(const std::vector<DType>& inputs, const std::vector<Type>& params,
                    const std::vector<Instruction>& code,
                    const std::vector<Program::Output>& outputs) {
  const auto is_below = [](int32_t i, size_t n) { return i >= 0 && size_t(i) < n; };
  ARETE_CHECK(!inputs.empty() && !outputs.empty(),
              ValueError("program", "a program has an input and an output at least"));
  Builder builder;
  std::vector<Value> given, numbers, values, results;
  for (const DType t : inputs) given.push_back(builder.input(t));
  for (const Type t : params) numbers.push_back(builder.param(t));
  for (size_t i = 0; i < code.size(); ++i) {
    const Instruction& in = code[i];
    const auto check = [i](bool holds, const char* what) {
      ARETE_CHECK(holds, ValueError("program", "instruction " + std::to_string(i) + " " + what));
    };
    check(in.op != Op::load, "loads from a table");
    std::vector<Value> operands;
    for (int k = 0; k < 3; ++k) {
      const int32_t o = in.operand[size_t(k)];
      check(k < arity_of(in.op) ? is_below(o, i) : o == -1, "has operands that are none");
      if (o >= 0) operands.push_back(values[size_t(o)]);
    }
    switch (in.op) {
      case Op::input:
        check(is_below(in.index, inputs.size()), "reads an unknown input");
        values.push_back(builder.cast(given[size_t(in.index)], in.type));
        continue;
      case Op::param:
        check(is_below(in.index, params.size()), "reads an unknown number");
        values.push_back(builder.cast(numbers[size_t(in.index)], in.type));
        continue;
      case Op::constant:
        check(in.type != Type::boolean || in.value.i == 0 || in.value.i == 1, "is no boolean");
        values.push_back(is_float(in.type) ? builder.constant(in.type, in.value.f)
                                           : builder.constant(in.type, in.value.i));
        continue;
      case Op::round_to:
        check(is_below(in.index, kNumDTypes), "has an unknown dtype");
        break;
      case Op::polynomial:
        check(is_below(in.index, std::size(kOrthogonal) * kOrthogonalOrders),
              "has an unknown polynomial");
        break;
      default:
        break;
    }
    const ProgramPtr p = alone(in, operands);
    values.push_back(builder.inline_code(*p, operands, {})[size_t(p->outputs()[0].value)]);
  }
  std::vector<DType> dtypes;
  for (const Program::Output& o : outputs) {
    ARETE_CHECK(is_below(o.value, values.size()), ValueError("program", "an output is no value"));
    results.push_back(values[size_t(o.value)]);
    dtypes.push_back(o.dtype);
  }
  return builder.build(results, dtypes);
}

}  // namespace arete::expr
