#include <sleef.h>

#include <cstring>
#include <string>

#include "arete/backend/cpu/blas.h"
#include "arete/backend/cpu/cpu_backend.h"
#include "arete/backend/cpu/kernels/kernel_table.h"
#include "arete/backend/cpu/memory.h"
#include "arete/backend/cpu/onednn.h"
#include "arete/base/thread_pool.h"

namespace arete::cpu {

void* CpuBackend::allocate(size_t bytes) { return allocate_cached(bytes); }
void CpuBackend::deallocate(void* p, size_t bytes) noexcept { release_cached(p, bytes); }
void* CpuBackend::scratch(size_t bytes) { return allocate_cached(bytes); }
void CpuBackend::release_scratch(void* p, size_t bytes) noexcept { release_cached(p, bytes); }

void CpuBackend::copy_to_host(void* dst, const void* src, size_t bytes) {
  if (bytes) std::memcpy(dst, src, bytes);
}
void CpuBackend::copy_from_host(void* dst, const void* src, size_t bytes) {
  if (bytes) std::memcpy(dst, src, bytes);
}

std::string CpuBackend::description() const {
  const std::string isa = kernels::table().name;
  const int n = num_threads();
  return "cpu: " + (isa == "base" ? std::string("baseline") : isa) + " kernels, " +
         std::to_string(n) + (n == 1 ? " thread" : " threads") + ", " + onednn::version() + ", " +
         blas_version() + ", SLEEF " + std::to_string(SLEEF_VERSION_MAJOR) + "." +
         std::to_string(SLEEF_VERSION_MINOR) + "." + std::to_string(SLEEF_VERSION_PATCHLEVEL);
}

CpuBackend& cpu_backend() {
  static CpuBackend* const b = new CpuBackend;  // outlives static tensors
  return *b;
}

/// Called by prim's registry at the first look-up of the CPU.
void register_cpu_backend() { prim::register_backend(kCPU, &cpu_backend()); }

}  // namespace arete::cpu
