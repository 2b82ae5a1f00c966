#include "arete/prim/slots.h"

#include "arete/base/error.h"
#include "arete/expr/value.h"

namespace arete::prim {

expr::ProgramPtr with_params_in_memory(const expr::Program& program, std::span<const Slot> slots) {
  uint64_t moved = 0;
  for (const Slot& slot : slots) {
    const size_t k = size_t(slot.number);
    if (k >= program.params().size()) continue;
    ARETE_ASSERT(k < 64);
    ARETE_ASSERT(slot.value.dtype == (expr::is_float(program.params()[k]) ? kFloat64 : kInt64));
    moved |= uint64_t{1} << k;
  }
  if (moved == 0) return program.shared_from_this();
  expr::Builder b;
  const std::vector<expr::Value> inputs = b.inputs_of(program);
  std::vector<DType> dtypes;
  for (const auto& output : program.outputs()) dtypes.push_back(output.dtype);
  return b.build(b.inline_program(program, inputs, b.params_of(program, moved)), dtypes);
}

}  // namespace arete::prim
