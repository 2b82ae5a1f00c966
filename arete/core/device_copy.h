// Pending copies that a device makes.
#pragma once

#include "arete/core/device.h"
#include "arete/core/storage.h"

namespace arete {

/// A pending copy whose wait() makes the host wait for a device. Others wait for another thread of
/// the host, or have a stream wait.
class DeviceCopy : public PendingCopy {
 public:
  virtual Device device() const noexcept = 0;
};

}  // namespace arete
