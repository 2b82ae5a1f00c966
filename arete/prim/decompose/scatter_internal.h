// scatter to places that a program computes, for backends without a kernel for it.
#pragma once

#include "arete/prim/backend.h"

namespace arete::prim {

/// The call with the places stored between: piece by piece, so that they take little memory.
void scatter_to_stored_places(Primitives& on, const ScatterArgs& args);

}  // namespace arete::prim
