// Address ranges, physical memory and events from the driver, for the caching allocator.

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "arete/backend/cuda/runtime/allocator.h"
#include "arete/backend/cuda/runtime/driver.h"
#include "arete/base/error.h"
#include "arete/core/memory_events.h"

namespace arete::cuda {
namespace {

constexpr size_t kSmallestChunk = size_t(2) << 20;

/// Makes a context current while it lives, whatever the thread's context was. Destructors of
/// tensors come here too, on threads that never chose a device.
class CurrentContext {
 public:
  explicit CurrentContext(CUcontext context) {
    ARETE_CU(cuCtxGetCurrent, &previous_);
    changed_ = previous_ != context;
    if (changed_) ARETE_CU(cuCtxSetCurrent, context);
  }
  ~CurrentContext() {
    if (changed_) driver().cuCtxSetCurrent(previous_);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  CUcontext previous_ = nullptr;
  bool changed_ = false;
};

/// Runs `f`, whose errors do not matter: they only come from a broken context or a driver that has
/// shut down, where there is nothing left to give back.
template <class F>
void without_errors(F f) noexcept {
  try {
    f();
  } catch (...) {
  }
}

/// False if memory is exhausted; other errors throw.
bool has_memory(CUresult result, const char* what) {
  if (result == CUDA_ERROR_OUT_OF_MEMORY) return false;
  check(result, what);
  return true;
}

class DriverMemorySource final : public MemorySource {
 public:
  DriverMemorySource(CUdevice device, CUcontext context, bool plain)
      : context_(context), device_(DeviceType::cuda, device) {
    const char* choice = std::getenv("ARETE_CUDA_ALLOCATOR");
    if (plain) return;
    if (choice && std::strcmp(choice, "plain") == 0) return;
    if (!attribute(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) return;
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    // So that network adapters can read and write it.
    if (attribute(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED))
      properties_.allocFlags.gpuDirectRDMACapable = 1;
    access_.location = properties_.location;
    access_.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (works()) return;
    // Attributes promise more than some containers and virtual machines let through.
    properties_.allocFlags.gpuDirectRDMACapable = 0;
    if (!works()) granularity_ = 0;
  }
  ~DriverMemorySource() override {
    without_errors([&] {
      const CurrentContext current(context_);
      for (CUevent e : events_) driver().cuEventDestroy(e);
    });
  }

  size_t granularity() override { return granularity_; }

  void* reserve(size_t bytes) override {
    CUdeviceptr p = 0;
    const CUresult result = driver().cuMemAddressReserve(&p, bytes, granularity_, 0, 0);
    if (!has_memory(result, "cuMemAddressReserve")) return nullptr;
    ++memory_totals(device_.index).segments;
    return pointer(p);
  }
  void unreserve(void* p, size_t bytes) noexcept override {
    without_errors([&] { driver().cuMemAddressFree(address(p), bytes); });
  }

  // Every chunk is an allocation of its own, since only whole ones can be unmapped.
  bool map(void* p, size_t bytes) override {
    const CurrentContext current(context_);
    const CUdeviceptr begin = address(p);
    size_t mapped = 0;
    try {
      for (; mapped < bytes; mapped += granularity_) {
        CUmemGenericAllocationHandle handle = 0;
        if (!has_memory(driver().cuMemCreate(&handle, granularity_, &properties_, 0),
                        "cuMemCreate"))
          break;
        const CUresult result = driver().cuMemMap(begin + mapped, granularity_, 0, handle, 0);
        if (result != CUDA_SUCCESS) driver().cuMemRelease(handle);
        if (!has_memory(result, "cuMemMap")) break;
        handles_.emplace(begin + mapped, handle);
      }
      if (mapped == bytes && allow_access(begin, bytes)) {
        memory_totals(device_.index).reserved_bytes += int64_t(bytes);
        tell(MemoryEvent::Action::segment_map, p, bytes);
        return true;
      }
    } catch (...) {
      unmap_pieces(p, mapped);
      throw;
    }
    unmap_pieces(p, mapped);
    return false;
  }

  bool alias(void* from, void* to, size_t bytes) override {
    const CurrentContext current(context_);
    const CUdeviceptr source = address(from), target = address(to);
    const Driver& d = driver();
    size_t mapped = 0;
    while (mapped < bytes && d.cuMemMap(target + mapped, granularity_, 0,
                                        handles_.at(source + mapped), 0) == CUDA_SUCCESS)
      mapped += granularity_;
    if (mapped < bytes || d.cuMemSetAccess(target, bytes, &access_, 1) != CUDA_SUCCESS) {
      for (size_t i = 0; i < mapped; i += granularity_) d.cuMemUnmap(target + i, granularity_);
      return false;
    }
    tell(MemoryEvent::Action::segment_map, to, bytes);
    return true;
  }

  void unmap(void* p, size_t bytes) noexcept override {
    tell(MemoryEvent::Action::segment_unmap, p, bytes);
    unmap_pieces(p, bytes);
  }

  void unmap_pieces(void* p, size_t bytes) noexcept {
    without_errors([&] {
      const CurrentContext current(context_);
      for (size_t i = 0; i < bytes; i += granularity_) {
        driver().cuMemUnmap(address(p) + i, granularity_);
        // The handle belongs to the first address.
        const auto it = handles_.find(address(p) + i);
        if (it == handles_.end()) continue;
        driver().cuMemRelease(it->second);
        handles_.erase(it);
      }
    });
  }

  void* allocate(size_t bytes) override {
    const CurrentContext current(context_);
    CUdeviceptr p = 0;
    if (!has_memory(driver().cuMemAlloc(&p, bytes), "cuMemAlloc")) return nullptr;
    ++memory_totals(device_.index).segments;
    memory_totals(device_.index).reserved_bytes += int64_t(bytes);
    tell(MemoryEvent::Action::segment_alloc, pointer(p), bytes);
    return pointer(p);
  }
  void release(void* p) noexcept override {
    tell(MemoryEvent::Action::segment_free, p, 0);
    without_errors([&] {
      const CurrentContext current(context_);
      driver().cuMemFree(address(p));
    });
  }
  void memory_info(size_t* free, size_t* total) override {
    const CurrentContext current(context_);
    ARETE_CU(cuMemGetInfo, free, total);
  }

  CUevent record(CUstream stream) override {
    const CurrentContext current(context_);
    if (events_.empty()) {
      CUevent e = nullptr;
      ARETE_CU(cuEventCreate, &e, CU_EVENT_DISABLE_TIMING);
      events_.push_back(e);
    }
    ARETE_CU(cuEventRecord, events_.back(), stream);
    const CUevent e = events_.back();
    events_.pop_back();
    return e;
  }
  bool is_done(CUevent event) override {
    const CurrentContext current(context_);
    const CUresult result = driver().cuEventQuery(event);
    if (result == CUDA_ERROR_NOT_READY) return false;
    check(result, "cuEventQuery");
    return true;
  }
  void discard(CUevent event) noexcept override {
    without_errors([&] { events_.push_back(event); });
  }
  void synchronize() override {
    const CurrentContext current(context_);
    ARETE_CU(cuCtxSynchronize);
  }
  void synchronize(CUstream stream) override {
    const CurrentContext current(context_);
    ARETE_CU(cuStreamSynchronize, stream);
  }

 private:
  static CUdeviceptr address(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }
  static void* pointer(CUdeviceptr p) { return reinterpret_cast<void*>(p); }
  static int attribute(CUdevice device, CUdevice_attribute a) {
    int v = 0;
    ARETE_CU(cuDeviceGetAttribute, &v, a, device);
    return v;
  }
  /// Whether memory can really be mapped here.
  bool works() {
    const CurrentContext current(context_);
    try {
      size_t smallest = 0;
      ARETE_CU(cuMemGetAllocationGranularity, &smallest, &properties_,
               CU_MEM_ALLOC_GRANULARITY_MINIMUM);
      granularity_ = (kSmallestChunk + smallest - 1) / smallest * smallest;
      void* const p = reserve(granularity_);
      if (p && map(p, granularity_)) unmap(p, granularity_);
      if (p) unreserve(p, granularity_);
      return true;  // or the device is full
    } catch (const DeviceError&) {
      return false;
    }
  }
  void tell(MemoryEvent::Action action, void* p, size_t bytes) const noexcept {
    notify_memory({action, device_, false, uintptr_t(p), bytes, bytes});
  }
  bool allow_access(CUdeviceptr p, size_t bytes) {
    return has_memory(driver().cuMemSetAccess(p, bytes, &access_, 1), "cuMemSetAccess");
  }

  CUcontext context_;
  const Device device_;
  size_t granularity_ = 0;
  CUmemAllocationProp properties_{};
  CUmemAccessDesc access_{};
  // The allocator's lock guards these.
  std::unordered_map<CUdeviceptr, CUmemGenericAllocationHandle> handles_;  // by first address
  std::vector<CUevent> events_;                                            // to be used again
};

}  // namespace

std::unique_ptr<MemorySource> make_driver_memory_source(CUdevice device, CUcontext context,
                                                        bool plain) {
  return std::make_unique<DriverMemorySource>(device, context, plain);
}

}  // namespace arete::cuda
