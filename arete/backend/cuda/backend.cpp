// The backend of one GPU: its making, its memory, and what it supports.
#include <array>
#include <mutex>
#include <string>

#include "arete/backend/cuda/cuda_backend.h"
#include "arete/backend/cuda/runtime/allocator.h"
#include "arete/backend/cuda/runtime/driver.h"
#include "arete/backend/cuda/runtime/provider.h"
#include "arete/core/modes.h"
#include "arete/prim/compiled_kernels.h"

namespace arete::cuda {
namespace {

// Lives for the rest of the process, as static tensors may.
CachingAllocator& make_allocator(DeviceContext& context) {
  context.make_current();
  set_operator_source([]() -> const char* { return modes().current_op; });
  return *new CachingAllocator(make_driver_memory_source(context.device(), context.handle()),
                               "cuda:" + std::to_string(context.ordinal()), context.ordinal());
}

}  // namespace

CudaBackend::CudaBackend(int ordinal)
    : context_(DeviceContext::get(ordinal)),
      allocator_(make_allocator(context_)),
      captures_(context_, allocator_) {
  prim::heed_rehearsals(DeviceType::cuda);
}

CachingAllocator& CudaBackend::shared_allocator() {
  const std::lock_guard lock(shared_mutex_);
  if (!shared_) {
    context_.make_current();
    const bool plain = true;  // the driver's handles are of such memory
    shared_ =
        new CachingAllocator(make_driver_memory_source(context_.device(), context_.handle(), plain),
                             "cuda:" + std::to_string(context_.ordinal()) + ", shared memory",
                             context_.ordinal(), &allocator_);
  }
  return *shared_;
}

void* CudaBackend::allocate(size_t bytes) {
  if (bytes == 0) return nullptr;
  context_.make_current();
  const CUstream stream = context_.stream();
  if (context_.has_captures()) [[unlikely]]
    captures_.join(stream);
  try {
    return allocator_.allocate(bytes, stream);
  } catch (const OutOfMemoryError&) {
    // What shared memory has free is not the allocator's to give back. A capture waits for nothing.
    CachingAllocator* const shared = shared_.load(std::memory_order_acquire);
    if (!shared || context_.has_captures()) throw;
    shared->empty_cache();
    return allocator_.allocate(bytes, stream);
  }
}

void CudaBackend::deallocate(void* p, size_t) noexcept {
  // A forked process has no part in the memory: see Note [Forked processes].
  if (p && !prim::is_forked_from_device_user()) allocator_.deallocate(p);
}

// While kernels are made ready nobody uses it, and many threads would take much.
void* CudaBackend::scratch(size_t bytes) {
  static char nowhere alignas(256)[256];
  return prim::is_rehearsing() ? nowhere : allocate(bytes);
}
void CudaBackend::release_scratch(void* p, size_t bytes) noexcept {
  if (!prim::is_rehearsing()) deallocate(p, bytes);
}

void CudaBackend::note_use(const void* p, CUstream stream) {
  if (!p || prim::is_rehearsing()) return;
  captures_.note_use(p, stream);
  if (allocator_.note_use(p, stream)) return;
  if (CachingAllocator* const shared = shared_.load(std::memory_order_acquire)) [[unlikely]]
    shared->note_use(p, stream);
}

bool CudaBackend::has_own(prim::Primitive p, DType dtype) const {
  if (p == prim::Primitive::select) return !is_complex(dtype);
  return p == prim::Primitive::attention &&
         (dtype == kFloat16 || dtype == kBFloat16 || (dtype == kFloat32 && limits().major >= 8));
}

std::string CudaBackend::description() const { return describe_device(context_.ordinal()); }

CudaBackend& cuda_backend(int ordinal) {
  return static_cast<CudaBackend&>(prim::backend_for(Device(DeviceType::cuda, ordinal)));
}

}  // namespace arete::cuda
