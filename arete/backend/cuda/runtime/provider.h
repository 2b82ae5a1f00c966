// What libarete_cuda.so tells about devices before any of them is used.
#pragma once

#include <string>

#include "arete/prim/device_runtime.h"

namespace arete::cuda {

/// "NVIDIA H200, compute capability 9.0, 139.8 GiB, 132 multiprocessors, ..."
std::string describe_device(int ordinal);

/// Driver and libraries, of which the driver supports `cuda_version`; loads nothing.
std::vector<std::pair<std::string, std::string>> known_versions(const std::string& cuda_version);

class CudaProvider final : public prim::DeviceProvider {
 public:
  int count() const override;
  DeviceProperties properties(int ordinal) const override;
  std::string description(int ordinal) const override { return describe_device(ordinal); }
  std::vector<std::pair<std::string, std::string>> versions() const override;
  bool can_access_peer(int from, int to) const override;
  prim::Backend* make_backend(int ordinal) override;
  void push_range(const char* name) noexcept override;
  void pop_range() noexcept override;
};

}  // namespace arete::cuda
