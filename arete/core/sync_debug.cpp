#include "arete/core/sync_debug.h"

#include <atomic>
#include <string>

#include "arete/base/error.h"
#include "arete/base/warn.h"

namespace arete {

namespace {
std::atomic<cuda::SyncDebugMode> sync_debug_mode{cuda::SyncDebugMode::off};
}

namespace cuda {
void set_sync_debug_mode(SyncDebugMode mode) noexcept {
  sync_debug_mode.store(mode, std::memory_order_relaxed);
}
SyncDebugMode get_sync_debug_mode() noexcept {
  return sync_debug_mode.load(std::memory_order_relaxed);
}
}  // namespace cuda

void note_host_wait(const char* what, Device device) {
  const cuda::SyncDebugMode mode = sync_debug_mode.load(std::memory_order_relaxed);
  if (mode == cuda::SyncDebugMode::off || !device.is_cuda()) [[likely]]
    return;
  const std::string text = "called a synchronizing CUDA operation: " + std::string(what) +
                           " waits for " + device.to_string();
  if (mode == cuda::SyncDebugMode::error)
    throw DeviceError(what, text).hint("cuda.set_sync_debug_mode(\"default\") lets it wait");
  warn(text);
}

}  // namespace arete
