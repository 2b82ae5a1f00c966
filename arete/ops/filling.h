// Numbers as values of a dtype.
#pragma once

#include "arete/core/scalar.h"
#include "arete/prim/args.h"

namespace arete::ops {

/// ValueError "value cannot be converted to type ... without overflow" for a number beyond an
/// integer dtype's range, and for a complex one where the dtype is real. Fractions are cut off, and
/// unsigned integers take minus what they can hold, too, as two's complements.
void check_holds(DType dtype, const Scalar& value, const char* op);

/// How to fill `out` with a number that it holds (check_holds); of booleans: whether it is zero.
prim::FillArgs filling(const prim::View& out, const Scalar& value, const char* op);

}  // namespace arete::ops
