// What the driver tells about devices without a context being made.
#pragma once

#include "arete/core/device_info.h"

namespace arete::cuda {

DeviceProperties query_properties(int ordinal);

}  // namespace arete::cuda
