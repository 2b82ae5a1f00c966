// The types that the block code of a program computes integers in: Note [Narrow integers] in
// interpreter.h.
#pragma once

#include "arete/backend/cpu/interpreter.h"

namespace arete::cpu {

/// The type to compute the program's integers of type i32 in.
kernels::KType type_of_integers(const expr::Program& program, const CodeKey& key);

}  // namespace arete::cpu
