// Where the primitive calls of an operator go.
#pragma once

#include "arete/prim/backend.h"

namespace arete::ops {
/// The recorder while the thread captures, else the backend of `device`.
prim::Primitives& target(Device device);
}  // namespace arete::ops
