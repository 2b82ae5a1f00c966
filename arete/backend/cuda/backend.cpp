// The backend of one GPU: its making, its memory, and what it supports.
#include <array>
#include <mutex>
#include <string>

#include "arete/backend/cuda/cuda_backend.h"
#include "arete/backend/cuda/runtime/allocator.h"
#include "arete/backend/cuda/runtime/driver.h"
#include "arete/backend/cuda/runtime/provider.h"
#include "arete/core/modes.h"

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
      captures_(context_, allocator_) {}

void* CudaBackend::allocate(size_t bytes) {
  if (bytes == 0) return nullptr;
  context_.make_current();
  const CUstream stream = context_.stream();
  if (context_.has_captures()) [[unlikely]]
    captures_.join(stream);
  return allocator_.allocate(bytes, stream);
}

void CudaBackend::deallocate(void* p, size_t) noexcept {
  // A forked process has no part in the memory: see Note [Forked processes].
  if (p && !prim::is_forked_from_device_user()) allocator_.deallocate(p);
}

void* CudaBackend::scratch(size_t bytes) { return allocate(bytes); }
void CudaBackend::release_scratch(void* p, size_t bytes) noexcept { deallocate(p, bytes); }

void CudaBackend::note_use(const void* p, CUstream stream) {
  if (p) allocator_.note_use(p, stream);
}

std::string CudaBackend::supports(prim::Primitive p, DType dtype) const {
  using prim::Primitive;
  switch (p) {
    case Primitive::fill:
    case Primitive::copy:
    case Primitive::gather:
    case Primitive::take_rows:
    case Primitive::iota:
      return "";
    case Primitive::gemm:
      return is_integral_or_bool(dtype) || is_float8(dtype)
                 ? "matrix products of " + std::string(name_of(dtype)) + " are not supported"
                 : "";
    case Primitive::fft:
    case Primitive::linalg:
      return dtype == kFloat32 || dtype == kFloat64 ? "" : "needs float32 or float64";
    case Primitive::attention:
      return dtype == kFloat16 || dtype == kBFloat16 ? ""
                                                     : "fused attention needs float16 or bfloat16";
    case Primitive::conv:
    case Primitive::pool:
      return is_floating(dtype) && !is_float8(dtype)
                 ? ""
                 : "convolutions and pools need float16, bfloat16, float32 or float64";
    case Primitive::pointwise:
    case Primitive::multi_pointwise:
    case Primitive::reduce:
    case Primitive::fused:
      return is_complex(dtype) ? "programs work on real numbers; complex operators are composed of "
                                 "operators on their parts"
                               : "";
    default:
      return is_complex(dtype) ? "complex numbers have no order" : "";
  }
}

std::string CudaBackend::description() const { return describe_device(context_.ordinal()); }

CudaBackend& cuda_backend(int ordinal) {
  return static_cast<CudaBackend&>(prim::backend_for(Device(DeviceType::cuda, ordinal)));
}

}  // namespace arete::cuda
