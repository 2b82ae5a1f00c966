// What the driver's management library (NVML) tells of GPUs without starting CUDA, which alone
// takes longer (0.18 s on an H200, NVML 0.02 s) than everything else in `arete info`.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace arete::cuda {

struct ManagedDevices {
  std::string cuda_version;          // the newest that the driver supports: "13.0"
  std::vector<std::string> devices;  // one line each, in CUDA's order
};

/// Nothing where it cannot be told which devices CUDA would show, and in which order: without NVML,
/// with CUDA_VISIBLE_DEVICES, or with different GPUs.
std::optional<ManagedDevices> managed_devices();

}  // namespace arete::cuda
