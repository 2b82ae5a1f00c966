// Finding where the host waits for a GPU.
#pragma once

#include <cstdint>

#include "arete/core/device.h"

namespace arete {

namespace cuda {

/// What happens where a call makes the host wait for a GPU without saying so: item() and all else
/// that reads a value, operators whose results have as many elements as the data say (nonzero,
/// masked_select, unique), copies to and from memory that is not pinned, and the first look at what
/// a non_blocking copy brings. Functions that wait by their names (synchronize()) are not meant.
enum class SyncDebugMode : uint8_t {
  off,
  warn,   ///< a warning, which in Python names the line
  error,  ///< DeviceError, before the wait
};
/// For the process. It may be set before a GPU is used.
void set_sync_debug_mode(SyncDebugMode mode) noexcept;
SyncDebugMode get_sync_debug_mode() noexcept;

}  // namespace cuda

/// Called before the host waits for a device; `what` is the operator or function that does.
void note_host_wait(const char* what, Device device);

}  // namespace arete
