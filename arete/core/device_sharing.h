// How memory of GPUs is moved to where processes share it: brought by arete/device.
#pragma once

#include <cstddef>

#include "arete/core/storage.h"

namespace arete {

/// What Storage::share() asks. Null until something is shared (device/shared_memory.h).
class DeviceSharing {
 public:
  virtual ~DeviceSharing() = default;
  /// Memory that can be shared, with the bytes at `from`; an error that says why there is none.
  virtual void* copy(Device device, const void* from, size_t bytes) = 0;
  /// What frees it.
  virtual Allocator& allocator(Device device) = 0;
};
/// For the rest of the process.
void set_device_sharing(DeviceSharing* sharing) noexcept;

}  // namespace arete
