#include "arete/backend/cuda/runtime/management.h"

#include <cstdio>
#include <cstdlib>

#include "arete/backend/cuda/runtime/dynamic_library.h"

namespace arete::cuda {
namespace {

// The interface of libnvidia-ml.so.1 as far as it is used here (its header comes with the driver's
// own packages). All functions return 0 for success.
struct NvmlMemory {
  unsigned long long total, free, used;
};
using NvmlDevice = void*;
struct Nvml {
  int (*nvmlInit_v2)();
  int (*nvmlShutdown)();
  int (*nvmlSystemGetCudaDriverVersion_v2)(int*);
  int (*nvmlDeviceGetCount_v2)(unsigned*);
  int (*nvmlDeviceGetHandleByIndex_v2)(unsigned, NvmlDevice*);
  int (*nvmlDeviceGetName)(NvmlDevice, char*, unsigned);
  int (*nvmlDeviceGetMemoryInfo)(NvmlDevice, NvmlMemory*);
  int (*nvmlDeviceGetCudaComputeCapability)(NvmlDevice, int*, int*);
  int (*nvmlDeviceGetMaxClockInfo)(NvmlDevice, int, unsigned*);
};
constexpr int kClockMultiprocessors = 1, kClockMemory = 2;

bool look_up(Nvml& n) {
  static const DynamicLibrary library("NVML", {"libnvidia-ml.so.1"});
  if (!library.is_open()) return false;
#define ARETE_LOOKUP(name) \
  if (!(n.name = reinterpret_cast<decltype(n.name)>(library.find(#name)))) return false;
  ARETE_LOOKUP(nvmlInit_v2)
  ARETE_LOOKUP(nvmlShutdown)
  ARETE_LOOKUP(nvmlSystemGetCudaDriverVersion_v2)
  ARETE_LOOKUP(nvmlDeviceGetCount_v2)
  ARETE_LOOKUP(nvmlDeviceGetHandleByIndex_v2)
  ARETE_LOOKUP(nvmlDeviceGetName)
  ARETE_LOOKUP(nvmlDeviceGetMemoryInfo)
  ARETE_LOOKUP(nvmlDeviceGetCudaComputeCapability)
  ARETE_LOOKUP(nvmlDeviceGetMaxClockInfo)
#undef ARETE_LOOKUP
  return true;
}

// "" if something is not known.
std::string describe(const Nvml& n, unsigned index) {
  NvmlDevice device = nullptr;
  char name[128] = "";
  NvmlMemory memory{};
  int major = 0, minor = 0;
  unsigned clock = 0, memory_clock = 0;
  if (n.nvmlDeviceGetHandleByIndex_v2(index, &device) != 0 ||
      n.nvmlDeviceGetName(device, name, sizeof name) != 0 ||
      n.nvmlDeviceGetMemoryInfo(device, &memory) != 0 ||
      n.nvmlDeviceGetCudaComputeCapability(device, &major, &minor) != 0 ||
      n.nvmlDeviceGetMaxClockInfo(device, kClockMultiprocessors, &clock) != 0 ||
      n.nvmlDeviceGetMaxClockInfo(device, kClockMemory, &memory_clock) != 0)
    return "";
  char text[256];
  std::snprintf(text, sizeof text,
                "%s, compute capability %d.%d, %.1f GiB, up to %u MHz, memory %u MHz", name, major,
                minor, double(memory.total) / (1 << 30), clock, memory_clock);
  return text;
}

}  // namespace

std::optional<ManagedDevices> managed_devices() {
  if (std::getenv("CUDA_VISIBLE_DEVICES")) return {};
  Nvml n{};
  if (!look_up(n) || n.nvmlInit_v2() != 0) return {};
  ManagedDevices found;
  int version = 0;
  unsigned count = 0;
  bool known = n.nvmlSystemGetCudaDriverVersion_v2(&version) == 0 &&
               n.nvmlDeviceGetCount_v2(&count) == 0 && count > 0;
  for (unsigned i = 0; known && i < count; ++i) {
    found.devices.push_back(describe(n, i));
    known = !found.devices[i].empty() && found.devices[i] == found.devices[0];
  }
  n.nvmlShutdown();
  if (!known) return {};
  found.cuda_version = std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  return found;
}

}  // namespace arete::cuda
