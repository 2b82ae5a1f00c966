// Where the primitive calls of an operator go.
#pragma once

#include "arete/prim/backend.h"

namespace arete::ops {
/// What captures the thread's calls, if anything does (Modes::capture), else the backend of
/// `device`.
prim::Primitives& target(Device device);
}  // namespace arete::ops
