// Kernels, copies and fills of the GPU with their times, from CUPTI's activity interface.
#pragma once

#include "arete/prim/device_trace.h"

namespace arete::cuda {

/// The one object; nothing is loaded before problem() or start() is called.
prim::DeviceTrace& cupti_trace();

}  // namespace arete::cuda
