// What a device tells of a kernel that a user wrote for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace arete::prim {

/// Facts of a compiled kernel; the last two can be set.
enum class KernelFact {
  max_threads_per_block,
  shared_size_bytes,  // of static shared memory
  const_size_bytes,
  local_size_bytes,  // of a thread
  num_regs,
  ptx_version,
  binary_version,
  cache_mode_ca,
  max_dynamic_shared_size_bytes,
  preferred_shared_memory_carveout,
};

/// Memory of a device that a variable of a kernel's source is.
struct KernelVariable {
  void* data = nullptr;
  size_t bytes = 0;
};

/// What DeviceRuntime::find_user_kernel gives; lives as long as the process.
class UserKernel {
 public:
  virtual ~UserKernel() = default;
  virtual int64_t fact(KernelFact which) const = 0;
  /// ValueError if the device does not take the value.
  virtual void set(KernelFact which, int value) const = 0;
  /// How many blocks of so many threads, with so many bytes of dynamic shared memory, a
  /// multiprocessor holds at once.
  virtual int resident_blocks(int threads, size_t shared_bytes) const = 0;
  /// A `__device__` or `__constant__` variable of the source; ValueError if it has none of the
  /// name.
  virtual KernelVariable variable(const std::string& name) const = 0;
  /// What the device's own library calls it.
  virtual void* native_handle() const = 0;
};

}  // namespace arete::prim
