#pragma once

#include "arete/expr/program.h"

namespace arete::cuda {

/// x * factor for a floating dtype; the factor is the parameter.
const expr::Program& scale_program(DType dtype);

}  // namespace arete::cuda
