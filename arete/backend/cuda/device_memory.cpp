#include "arete/backend/cuda/device_memory.h"

#include <cstring>

#include "arete/backend/cuda/cuda_backend.h"
#include "arete/backend/cuda/runtime/allocator.h"
#include "arete/backend/cuda/runtime/driver.h"
#include "arete/base/error.h"

namespace arete::cuda {
namespace {

CUdeviceptr address(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }

/// A handle of the driver's in the bytes that a program has of it.
template <class Handle>
Handle handle_in(const std::string& bytes, const char* of_what) {
  Handle h;
  ARETE_CHECK(bytes.size() == sizeof h.reserved,
              ValueError("", std::string("this is no handle of ") + of_what + " of a GPU")
                  .expected(std::to_string(sizeof h.reserved) + " bytes")
                  .got(std::to_string(bytes.size())));
  std::memcpy(h.reserved, bytes.data(), sizeof h.reserved);
  return h;
}

/// Memory for other processes comes from an allocator of its own, over plain segments: the driver
/// has handles for these, and a handle is that of a whole segment. Memory of virtual addresses
/// would take a file descriptor for every 2 MB.
class CudaMemory final : public prim::DeviceMemory {
 public:
  void enter_pool(int device, uint64_t pool) override {
    cuda_backend(device).allocator().enter_pool(pool);
  }
  void leave_pool(int device, uint64_t pool) noexcept override {
    cuda_backend(device).allocator().leave_pool(pool);
  }
  void lend_pool(int device, uint64_t pool) override {
    cuda_backend(device).allocator().lend_pool(pool);
  }
  std::vector<prim::PoolSegment> pool_segments(int device, uint64_t pool) override {
    return cuda_backend(device).allocator().segments(pool);
  }
  void* allocate_at(int device, void* p, size_t bytes) override {
    CudaBackend& b = cuda_backend(device);
    if (b.context().has_captures()) return nullptr;  // which have pools of their own
    return b.allocator().allocate_at(p, bytes, b.enter());
  }

  prim::SharedBlock copy_to_shared(int device, const void* from, size_t bytes) override {
    CudaBackend& b = cuda_backend(device);
    ARETE_CHECK(!b.has_recorded_graphs(),
                DeviceError("", "graphs were recorded, which may use the memory where it is"));
    b.context().wait_for_all();  // whichever stream wrote it
    CachingAllocator& shared = b.shared_allocator();
    const CUstream stream = b.enter();
    if (b.several_streams()) b.note_use(from, stream);
    prim::SharedBlock block;
    try {
      block.data = shared.allocate(bytes, stream);
    } catch (const OutOfMemoryError&) {
      b.allocator().empty_cache();
      block.data = shared.allocate(bytes, stream);
    }
    try {
      CUdeviceptr begin = 0;
      size_t whole = 0;
      ARETE_CU(cuMemGetAddressRange, &begin, &whole, address(block.data));
      CUipcMemHandle handle;
      ARETE_CU(cuIpcGetMemHandle, &handle, begin);
      block.handle.assign(handle.reserved, sizeof handle.reserved);
      block.offset = address(block.data) - begin;
      ARETE_CU(cuMemcpyDtoDAsync, address(block.data), address(from), bytes, stream);
      // The tensor has the new address from here on, on streams that only know of the old one, too.
      b.context().wait_for_all();
    } catch (...) {
      shared.deallocate(block.data);
      throw;
    }
    return block;
  }

  void free_shared(int device, void* data) noexcept override {
    cuda_backend(device).shared_allocator().deallocate(data);
  }

  void wait(int device) override { cuda_backend(device).context().wait_for_all(); }

  void* open_shared(int device, const std::string& handle) override {
    const auto h = handle_in<CUipcMemHandle>(handle, "shared memory");
    cuda_backend(device).enter();
    CUdeviceptr begin = 0;
    ARETE_CU(cuIpcOpenMemHandle, &begin, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    return reinterpret_cast<void*>(begin);
  }

  void close_shared(int device, void* begin) noexcept override {
    try {
      cuda_backend(device).enter();
      driver().cuIpcCloseMemHandle(address(begin));
    } catch (...) {
      // The driver is gone.
    }
  }

  void* create_shared_event(int device) override {
    cuda_backend(device).enter();
    CUevent event = nullptr;
    ARETE_CU(cuEventCreate, &event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING);
    return event;
  }

  std::string handle_of_event(int device, void* event) override {
    cuda_backend(device).enter();
    CUipcEventHandle handle;
    ARETE_CU(cuIpcGetEventHandle, &handle, static_cast<CUevent>(event));
    return {handle.reserved, sizeof handle.reserved};
  }

  void* open_event(int device, const std::string& handle) override {
    const auto h = handle_in<CUipcEventHandle>(handle, "an event");
    cuda_backend(device).enter();
    CUevent event = nullptr;
    ARETE_CU(cuIpcOpenEventHandle, &event, h);
    return event;
  }
};

}  // namespace

prim::DeviceMemory& device_memory() {
  static auto* const memory = new CudaMemory;
  return *memory;
}

}  // namespace arete::cuda
