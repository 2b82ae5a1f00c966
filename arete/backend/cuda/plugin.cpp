// The functions that libarete calls by name when it opens this library.
#include "arete/prim/plugin_internal.h"

#include <nvtx3/nvToolsExt.h>

#include <cstring>
#include <exception>
#include <string>

#include "arete/backend/cuda/device_memory.h"
#include "arete/backend/cuda/lib/cupti.h"
#include "arete/backend/cuda/lib/nccl.h"
#include "arete/backend/cuda/runtime/driver.h"
#include "arete/backend/cuda/runtime/management.h"
#include "arete/backend/cuda/runtime/provider.h"

extern "C" __attribute__((visibility("default"))) const char* arete_cuda_plugin(
    const arete::prim::PluginHost* host) {
  using namespace arete;
  // The text outlives the call: it is asked for once in a process.
  static std::string reason;
  reason = prim::plugin_mismatch(*host, ARETE_VERSION, "libarete_cuda.so");
  if (!reason.empty()) return reason.c_str();
  try {
    reason = cuda::driver_problem();
    if (!reason.empty()) return reason.c_str();
  } catch (const std::exception& e) {
    reason = e.what();
    return reason.c_str();
  }
  static cuda::CudaProvider* const provider = new cuda::CudaProvider;
  prim::register_provider(DeviceType::cuda, provider);
  prim::register_device_trace(&cuda::cupti_trace());
  prim::register_device_memory(&cuda::device_memory());
  prim::register_nccl(cuda::nccl_library());
  return nullptr;
}

extern "C" __attribute__((visibility("default"))) void arete_cuda_survey(
    const arete::prim::PluginHost* host, void (*add)(void* to, const char* name, const char* text),
    void* to) try {
  using namespace arete;
  if (std::strcmp(host->version, ARETE_VERSION) != 0) return;
  const auto found = cuda::managed_devices();
  if (!found) return;
  std::string text =
      std::to_string(found->devices.size()) + (found->devices.size() == 1 ? " device" : " devices");
  for (const auto& [name, version] : cuda::known_versions(found->cuda_version))
    text += ", " + name + " " + version;
  add(to, "cuda", text.c_str());
  for (size_t i = 0; i < found->devices.size(); ++i)
    add(to, ("cuda:" + std::to_string(i)).c_str(), found->devices[i].c_str());
} catch (...) {
  // Then CUDA itself is asked.
}

extern "C" __attribute__((visibility("default"))) uint64_t arete_cuda_timeline(int what,
                                                                               const char* name,
                                                                               uint64_t range) {
  switch (what) {
    case 0:
      nvtxMarkA(name);
      return 0;
    case 1:
      return nvtxRangeStartA(name);
    default:
      nvtxRangeEnd(range);
      return 0;
  }
}
