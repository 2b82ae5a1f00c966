// The Python object of a compiled function's plans.
#pragma once

#include <memory>

#include "arete/compile/compile.h"

namespace arete::python {

struct ProgramObject {
  std::shared_ptr<compile::Program> program;
};

}  // namespace arete::python
