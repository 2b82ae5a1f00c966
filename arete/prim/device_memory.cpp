#include "arete/prim/device_memory.h"

#include <atomic>

namespace arete::prim {
namespace {
std::atomic<DeviceMemory*> registered_memory{nullptr};
}

DeviceMemory* find_device_memory() noexcept {
  return registered_memory.load(std::memory_order_acquire);
}
void register_device_memory(DeviceMemory* memory) noexcept {
  registered_memory.store(memory, std::memory_order_release);
}

}  // namespace arete::prim
