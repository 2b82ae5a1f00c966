// One instruction on one element: shared by evaluate() and constant folding.
#pragma once

#include "arete/expr/program.h"

namespace arete::expr {

/// The value of `op` (no leaf) with result type `result` for operands of type `operand` (of select:
/// the type of the branches). `index` as in Instruction.
Literal apply(Op op, Type operand, Type result, int32_t index, Literal a, Literal b, Literal c);

/// The element of a storage type that is no complex one, as a Literal of its compute type.
Literal read_element(DType storage, const std::byte* at);

/// `v` as a value of type `to`, from type `from`.
Literal convert(Literal v, Type from, Type to);

/// `v` (of compute_type(storage)) rounded or wrapped to `storage`.
Literal round_literal(Literal v, DType storage);

}  // namespace arete::expr
