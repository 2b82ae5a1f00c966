// From programs to block code: Note [Block code] in interpreter.h.
#pragma once

#include "arete/backend/cpu/interpreter.h"

namespace arete::cpu {

/// The code of `program` for `key`.
Code compile_block(const expr::Program& program, const CodeKey& key);

}  // namespace arete::cpu
