// The operators that products apply on their way out, as programs.
#pragma once

#include "arete/expr/program.h"
#include "arete/prim/args_library.h"

namespace arete::ops {

/// What a call of the activation's operator applies to each element of that floating dtype; not of
/// Activation::none.
const expr::Program& activation_program(prim::Activation activation, DType dtype);

}  // namespace arete::ops
