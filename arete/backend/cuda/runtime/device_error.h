// Errors that kernels record and the host raises at the next synchronization.
#pragma once

#include <cstdint>

namespace arete::cuda {

/// In pinned memory that the device writes; mirrors device/device_error.cuh.
struct DeviceErrorRecord {
  uint32_t claimed, kind;
  uint64_t op;  // const char* with static lifetime
  int64_t index, size;
  int64_t dim;
};
/// `broken`: said by the host (DeviceContext::break_work), not by kernels.
enum class DeviceErrorKind : uint32_t { none, index, assertion, nan, broken };

}  // namespace arete::cuda
