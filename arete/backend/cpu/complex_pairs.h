// Products and conjugates of complex numbers where they lie.
#pragma once

#include "arete/prim/args.h"

namespace arete::cpu {

/// Runs a program that multiplies complex numbers, squares or conjugates them, given as their
/// parts, if they lie side by side in one run of memory (or are one number); else does nothing and
/// returns false. The bits are those of the program.
bool run_on_pairs(const prim::PointwiseArgs& args);

}  // namespace arete::cpu
