// Programs from their parts.
#pragma once

#include <vector>

#include "arete/expr/program.h"

namespace arete::expr {

/// A program from its parts, which may come from anywhere: ValueError and TypeError where they are
/// none. Those of a program give that program. Tables cannot be had so, nor numbers in memory.
ProgramPtr assemble(const std::vector<DType>& inputs, const std::vector<Type>& params,
                    const std::vector<Instruction>& code,
                    const std::vector<Program::Output>& outputs);

}  // namespace arete::expr
