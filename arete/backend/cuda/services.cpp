// The runtime half of the backend: copies, streams, events, graphs, counters. Handles are CUDA's
// own, seen as void*.
#include <algorithm>
#include <cstring>

#include "arete/backend/cuda/cuda_backend.h"
#include "arete/backend/cuda/runtime/allocator.h"
#include "arete/backend/cuda/runtime/copy_engine.h"
#include "arete/backend/cuda/runtime/driver.h"
#include "arete/backend/cuda/runtime/pinned_allocator.h"
#include "arete/base/error.h"
#include "arete/prim/compiled_kernels.h"

namespace arete::cuda {
namespace {

CUstream as_stream(prim::StreamHandle s) { return static_cast<CUstream>(s); }
CUevent as_event(prim::EventHandle e) { return static_cast<CUevent>(e); }
CUdeviceptr address(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }

}  // namespace

void CudaBackend::synchronize() { context_.synchronize_all(); }

// ---- copies

void CudaBackend::copy_to_host(void* dst, const void* src, size_t bytes) {
  if (bytes == 0) return;
  context_.check_not_capturing("a value was read on the host");
  context_.make_current();
  const CUstream stream = context_.stream();
  if (several_streams()) note_use(src, stream);
  cuda::copy_to_host(context_, dst, src, bytes, stream);
}

void CudaBackend::copy_from_host(void* dst, const void* src, size_t bytes) {
  if (bytes == 0 || prim::is_rehearsing()) return;
  context_.make_current();
  const CUstream stream = context_.stream();
  if (several_streams()) note_use(dst, stream);
  if (!context_.is_capturing(stream)) {
    cuda::copy_to_device(context_, dst, src, bytes, stream);
    return;
  }
  // Every replay copies what the host memory holds now.
  StoragePtr constant = Storage::create(kCPU, bytes, &PinnedAllocator::get(), true);
  std::memcpy(constant->data(), src, bytes);
  ARETE_CU(cuMemcpyHtoDAsync, address(dst), constant->data(), bytes, stream);
  captures_.keep(stream, std::move(constant));
}

void CudaBackend::copy_to_host_async(Storage& host, void* dst, const void* src, size_t bytes) {
  if (bytes == 0) return;
  context_.make_current();
  const CUstream stream = context_.stream();
  if (several_streams()) note_use(src, stream);
  const bool capturing = context_.is_capturing(stream);
  if (!capturing) host.wait_for_other_queues(stream, true);
  ARETE_CU(cuMemcpyDtoHAsync, dst, address(src), bytes, stream);
  if (capturing) {
    captures_.keep(stream, StoragePtr(&host));
    return;
  }
  const auto event = cuda::record_event(context_, stream);
  PinnedAllocator::get().note_use(dst, event);
  host.add_pending(event, true);
}

void CudaBackend::copy_from_host_async(Storage& host, void* dst, const void* src, size_t bytes) {
  if (bytes == 0) return;
  context_.make_current();
  const CUstream stream = context_.stream();
  if (several_streams()) note_use(dst, stream);
  const bool capturing = context_.is_capturing(stream);
  if (!capturing) host.wait_for_other_queues(stream, false);
  ARETE_CU(cuMemcpyHtoDAsync, address(dst), src, bytes, stream);
  if (capturing) {
    captures_.keep(stream, StoragePtr(&host));
    return;
  }
  const auto event = cuda::record_event(context_, stream);
  PinnedAllocator::get().note_use(src, event);
  host.add_pending(event, false);
}

void CudaBackend::copy_from_peer(void* dst, prim::Backend& from, const void* src, size_t bytes) {
  if (bytes == 0) return;
  auto& source = static_cast<CudaBackend&>(from);
  const CUstream here = context_.stream(), there = source.context_.stream();
  if (several_streams()) note_use(dst, here);
  if (source.several_streams()) source.note_use(src, there);
  // The copy runs on the source's stream, after what uses `dst` here now; what follows here waits
  // for it.
  const auto ready = cuda::record_event(context_, here);
  source.context_.enable_peer_access(context_);
  source.context_.make_current();
  ARETE_CU(cuStreamWaitEvent, there, ready->handle(), CU_EVENT_WAIT_DEFAULT);
  ARETE_CU(cuMemcpyPeerAsync, address(dst), context_.handle(), address(src),
           source.context_.handle(), bytes, there);
  const auto done = cuda::record_event(source.context_, there);
  context_.make_current();
  ARETE_CU(cuStreamWaitEvent, here, done->handle(), CU_EVENT_WAIT_DEFAULT);
}

Allocator& CudaBackend::pinned_allocator() { return PinnedAllocator::get(); }

// ---- streams

void CudaBackend::set_current_stream(prim::StreamHandle stream) {
  context_.set_stream(as_stream(stream));
}

prim::StreamHandle CudaBackend::create_stream(int priority) {
  const CUstream stream = context_.take_stream(priority);
  several_streams_.store(true, std::memory_order_relaxed);
  return stream;
}

void CudaBackend::destroy_stream(prim::StreamHandle stream) noexcept {
  context_.give_stream(as_stream(stream));
}

void CudaBackend::adopt_stream(prim::StreamHandle) {
  several_streams_.store(true, std::memory_order_relaxed);
}

bool CudaBackend::stream_is_done(prim::StreamHandle stream) {
  context_.make_current();
  context_.check_not_capturing(as_stream(stream), "a query of a stream");
  const CUresult result = driver().cuStreamQuery(as_stream(stream));
  if (result == CUDA_ERROR_NOT_READY) return false;
  check(result, "cuStreamQuery");
  return true;
}

void CudaBackend::synchronize_stream(prim::StreamHandle stream) {
  context_.synchronize(as_stream(stream));
}

void CudaBackend::stream_wait_event(prim::StreamHandle stream, prim::EventHandle event) {
  context_.make_current();
  ARETE_CU(cuStreamWaitEvent, as_stream(stream), as_event(event), CU_EVENT_WAIT_DEFAULT);
}

// ---- events

prim::EventHandle CudaBackend::create_event(bool timing) {
  if (!timing) return context_.take_event();
  context_.make_current();
  CUevent event = nullptr;
  ARETE_CU(cuEventCreate, &event, CU_EVENT_DEFAULT);
  return event;
}

void CudaBackend::destroy_event(prim::EventHandle event) noexcept {
  try {
    context_.make_current();
    driver().cuEventDestroy(as_event(event));
  } catch (...) {
    // The driver is gone, and the event with it.
  }
}

void CudaBackend::record_event(prim::EventHandle event, prim::StreamHandle stream) {
  context_.make_current();
  ARETE_CU(cuEventRecord, as_event(event), as_stream(stream));
}

bool CudaBackend::event_is_done(prim::EventHandle event) {
  context_.make_current();
  const CUresult result = driver().cuEventQuery(as_event(event));
  if (result == CUDA_ERROR_NOT_READY) return false;
  check(result, "cuEventQuery");
  return true;
}

void CudaBackend::synchronize_event(prim::EventHandle event) {
  context_.make_current();
  ARETE_CU(cuEventSynchronize, as_event(event));
  context_.raise_device_errors();
}

double CudaBackend::elapsed_time(prim::EventHandle begin, prim::EventHandle end) {
  context_.make_current();
  float milliseconds = 0;
  ARETE_CU(cuEventElapsedTime, &milliseconds, as_event(begin), as_event(end));
  return double(milliseconds);
}

// ---- graphs

uint64_t CudaBackend::create_pool() { return allocator_.create_pool(); }

void CudaBackend::release_pool(uint64_t pool) noexcept {
  try {
    context_.make_current();
    allocator_.release_pool(pool);
  } catch (...) {
    // The driver is gone, and the memory with it.
  }
}

void CudaBackend::begin_capture(prim::StreamHandle stream, uint64_t pool) {
  captures_.begin(as_stream(stream), pool);
}
prim::GraphHandle CudaBackend::end_capture(prim::StreamHandle stream) {
  return captures_.end(as_stream(stream)).release();
}
void CudaBackend::discard_capture(prim::StreamHandle stream) noexcept {
  captures_.discard(as_stream(stream));
}
void CudaBackend::launch_graph(prim::GraphHandle graph, prim::StreamHandle stream) {
  CapturedGraph& its = *static_cast<CapturedGraph*>(graph);
  const CUstream on = as_stream(stream);
  captures_.launch(its, on);
  // Each time: at an address may be another block than there was at the launch before. Some are no
  // allocator's: a ring of numbers is the host's memory.
  if (context_.has_captures()) [[unlikely]] {
    for (const void* p : its.used) note_use(p, on);
    return;
  }
  allocator_.note_uses(its.used, on);
  if (CachingAllocator* const shared = shared_.load(std::memory_order_acquire)) [[unlikely]]
    shared->note_uses(its.used, on);
}
void CudaBackend::destroy_graph(prim::GraphHandle graph) noexcept {
  captures_.destroy(static_cast<CapturedGraph*>(graph));
}

// ---- memory

MemoryStats CudaBackend::memory_stats() const {
  MemoryStats all = allocator_.stats();
  if (const CachingAllocator* const shared = shared_.load()) {
    const MemoryStats s = shared->stats();
    for (const auto part :
         {&MemoryStats::allocated, &MemoryStats::peak_allocated, &MemoryStats::reserved,
          &MemoryStats::peak_reserved, &MemoryStats::pending})
      all.*part += s.*part;  // peaks: at most so much at one time
    for (const auto part : {&MemoryStats::allocations, &MemoryStats::frees, &MemoryStats::segments,
                            &MemoryStats::blocks, &MemoryStats::peak_blocks, &MemoryStats::retries,
                            &MemoryStats::out_of_memory})
      all.*part += s.*part;
  }
  return all;
}
std::string CudaBackend::memory_summary() const {
  const CachingAllocator* const shared = shared_.load();
  return allocator_.summary() + (shared ? shared->summary() : "");
}
void CudaBackend::reset_peak_memory_stats() {
  allocator_.reset_peak_stats();
  if (CachingAllocator* const shared = shared_.load()) shared->reset_peak_stats();
}

MemoryInfo CudaBackend::memory_info() {
  context_.make_current();
  MemoryInfo info;
  ARETE_CU(cuMemGetInfo, &info.free, &info.total);
  return info;
}

void CudaBackend::empty_cache() {
  context_.make_current();
  allocator_.empty_cache();
  if (CachingAllocator* const shared = shared_.load()) shared->empty_cache();
  if (!context_.has_captures()) PinnedAllocator::get().empty_cache();
}

void CudaBackend::set_memory_fraction(double fraction) { allocator_.set_memory_fraction(fraction); }

}  // namespace arete::cuda
