// Where the primitive calls of an operator go.
#pragma once

#include "arete/prim/backend.h"

namespace arete::ops {
/// What captures the thread's calls, if anything does (Modes::capture), else the backend of
/// `device`.
prim::Primitives& target(Device device);
/// Whether a graph of the device takes what is called now.
inline bool is_capturing(Device device) {
  return device.is_cuda() && prim::backend_for(device).is_capturing();
}
}  // namespace arete::ops
