// Pools for scopes of programs, and memory that other processes open: prim::DeviceMemory of GPUs.
#pragma once

#include "arete/prim/device_memory.h"

namespace arete::cuda {

/// Lives for the rest of the process.
prim::DeviceMemory& device_memory();

}  // namespace arete::cuda
