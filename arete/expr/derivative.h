// Reverse-mode differentiation of programs; users call Program::derivative, which caches.
#pragma once

#include "arete/expr/program.h"

namespace arete::expr {

/// Computes what Program::derivative promises. NotImplementedError where an operation on the way
/// from a wanted input to an output has no derivative.
Derivative differentiate(const Program& program, uint32_t wanted);
/// What is left of it with the outputs of which a bit is set.
Derivative with_outputs(const Derivative& derivative, uint32_t outputs);

}  // namespace arete::expr
