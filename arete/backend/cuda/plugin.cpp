// The one function that libarete calls by name when it opens this library.
#include "arete/prim/plugin_internal.h"

#include <cstring>
#include <exception>
#include <string>

#include "arete/backend/cuda/runtime/driver.h"
#include "arete/backend/cuda/runtime/provider.h"

extern "C" __attribute__((visibility("default"))) const char* arete_cuda_plugin(
    const arete::prim::PluginHost* host) {
  using namespace arete;
  // The text outlives the call: it is asked for once in a process.
  static std::string reason;
  if (std::strcmp(host->version, ARETE_VERSION) != 0) {
    reason = std::string("libarete_cuda.so is of version " ARETE_VERSION ", but Arete is ") +
             host->version + "; install them together";
    return reason.c_str();
  }
  if (host->identity != prim::library_identity()) {
    reason =
        "there are two copies of Arete in this process: the CUDA backend belongs to libarete.so, "
        "but the program brings another copy, such as the archive libarete.a; link the program "
        "with libarete.so";
    return reason.c_str();
  }
  try {
    reason = cuda::driver_problem();
    if (!reason.empty()) return reason.c_str();
  } catch (const std::exception& e) {
    reason = e.what();
    return reason.c_str();
  }
  static cuda::CudaProvider* const provider = new cuda::CudaProvider;
  prim::register_provider(DeviceType::cuda, provider);
  return nullptr;
}
