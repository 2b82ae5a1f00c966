#include "arete/backend/cuda/runtime/properties.h"

#include "arete/backend/cuda/runtime/driver.h"

namespace arete::cuda {

DeviceProperties query_properties(int ordinal) {
  CUdevice device = 0;
  ARETE_CU(cuDeviceGet, &device, ordinal);
  DeviceProperties p;
  char text[256] = "";
  ARETE_CU(cuDeviceGetName, text, int(sizeof text), device);
  p.name = text;
  ARETE_CU(cuDeviceGetPCIBusId, text, int(sizeof text), device);
  p.pci_bus_id = text;
  ARETE_CU(cuDeviceTotalMem, &p.total_memory, device);
  const auto get = [&](CUdevice_attribute a) {
    int v = 0;
    ARETE_CU(cuDeviceGetAttribute, &v, a, device);
    return v;
  };
  p.major = get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  p.minor = get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  p.multi_processor_count = get(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  p.clock_rate = get(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  p.memory_clock_rate = get(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
  p.memory_bus_width = get(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
  p.l2_cache_size = get(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  p.shared_memory_per_block = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  p.shared_memory_per_multiprocessor =
      get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  p.max_threads_per_multi_processor = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  p.regs_per_multiprocessor = get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  p.warp_size = get(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  return p;
}

}  // namespace arete::cuda
