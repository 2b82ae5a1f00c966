#include "arete/prim/device_trace.h"

#include <atomic>

namespace arete::prim {
namespace {
std::atomic<DeviceTrace*> registered{nullptr};
}

DeviceTrace* find_device_trace() noexcept { return registered.load(std::memory_order_acquire); }
void register_device_trace(DeviceTrace* trace) noexcept {
  registered.store(trace, std::memory_order_release);
}

}  // namespace arete::prim
