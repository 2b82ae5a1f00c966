#include "arete/backend/cuda/runtime/graph.h"

#include <algorithm>

#include "arete/backend/cuda/runtime/allocator.h"
#include "arete/backend/cuda/runtime/context.h"
#include "arete/backend/cuda/runtime/driver.h"
#include "arete/base/error.h"
#include "arete/base/hash.h"
#include "arete/core/generator.h"

namespace arete::cuda {
namespace {

// The capture that a stream takes part in; 0: none. The function's arguments depend on the version
// of the headers, the first three do not.
cuuint64_t capture_id(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
#if CUDA_VERSION >= 13000
  ARETE_CU(cuStreamGetCaptureInfo, stream, &status, &id, nullptr, nullptr, nullptr, nullptr);
#else
  ARETE_CU(cuStreamGetCaptureInfo, stream, &status, &id, nullptr, nullptr, nullptr);
#endif
  return status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? id : 0;
}

}  // namespace

void GraphCaptures::begin(CUstream stream, uint64_t pool) {
  device_.make_current();
  allocator_.begin_pool(pool, stream);
  try {
    // Relaxed: kernels may be compiled and loaded, and memory mapped, while work is recorded. What
    // would wait is refused by our own checks.
    ARETE_CU(cuStreamBeginCapture, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    const cuuint64_t id = capture_id(stream);
    const std::lock_guard lock(mutex_);
    captures_.push_back({stream, id, pool, {stream}, {}});
  } catch (...) {
    allocator_.end_pool(stream);
    throw;
  }
  device_.add_capture(1);
}

GraphCaptures::Capture* GraphCaptures::find(CUstream stream) {
  const cuuint64_t id = capture_id(stream);
  if (id != 0)
    for (Capture& c : captures_)
      if (c.id == id) return &c;
  return nullptr;
}

void GraphCaptures::join(CUstream stream) {
  const std::lock_guard lock(mutex_);
  Capture* c = find(stream);
  if (!c || std::find(c->streams.begin(), c->streams.end(), stream) != c->streams.end()) return;
  allocator_.begin_pool(c->pool, stream);
  c->streams.push_back(stream);
}

void GraphCaptures::keep(CUstream stream, StoragePtr memory) {
  const std::lock_guard lock(mutex_);
  if (Capture* c = find(stream)) c->kept.push_back(std::move(memory));
}

const uint64_t* GraphCaptures::random_stream(CUstream stream) {
  if (!device_.has_captures() || !device_.is_capturing(stream)) [[likely]]
    return nullptr;
  const std::lock_guard lock(mutex_);
  Capture* const c = find(stream);
  if (!c) return nullptr;  // a capture by other code
  // From the driver: memory of the capture's pool is used again within the graph.
  if (!c->random_stream) ARETE_CU(cuMemAlloc, &c->random_stream, sizeof(uint64_t));
  return reinterpret_cast<const uint64_t*>(c->random_stream);
}

// Takes the capture out of the list.
GraphCaptures::Capture GraphCaptures::take(CUstream stream) {
  const std::lock_guard lock(mutex_);
  const auto c = std::find_if(captures_.begin(), captures_.end(),
                              [&](const Capture& x) { return x.origin == stream; });
  ARETE_ASSERT(c != captures_.end());
  Capture taken = std::move(*c);
  captures_.erase(c);
  return taken;
}

std::unique_ptr<CapturedGraph> GraphCaptures::end(CUstream stream) {
  device_.make_current();
  Capture c = take(stream);
  CUgraph graph = nullptr;
  const CUresult result = driver().cuStreamEndCapture(stream, &graph);
  device_.add_capture(-1);
  for (CUstream s : c.streams) allocator_.end_pool(s);
  if (result != CUDA_SUCCESS) {
    if (graph) driver().cuGraphDestroy(graph);
    if (c.random_stream) driver().cuMemFree(c.random_stream);
    throw_cuda_error(result,
                     "the capture of a graph failed; every stream that joined it must be waited "
                     "for before it ends");
  }
  auto captured = std::make_unique<CapturedGraph>();
  captured->kept = std::move(c.kept);
  captured->random_stream = c.random_stream;
  const CUresult made = driver().cuGraphInstantiate(&captured->executable, graph, 0);
  driver().cuGraphDestroy(graph);
  if (made != CUDA_SUCCESS && c.random_stream) driver().cuMemFree(c.random_stream);
  check(made, "cuGraphInstantiate");
  // A wish: otherwise the first launch takes longer.
  driver().cuGraphUpload(captured->executable, stream);
  return captured;
}

void GraphCaptures::discard(CUstream stream) noexcept try {
  device_.make_current();
  const Capture c = take(stream);
  CUgraph graph = nullptr;
  driver().cuStreamEndCapture(stream, &graph);
  if (graph) driver().cuGraphDestroy(graph);
  if (c.random_stream) driver().cuMemFree(c.random_stream);
  device_.add_capture(-1);
  for (CUstream s : c.streams) allocator_.end_pool(s);
} catch (...) {
}

void GraphCaptures::launch(CapturedGraph& graph, CUstream stream) {
  device_.make_current();
  if (graph.random_stream) {
    const Generator::State s = default_generator().reserve(1);
    const uint64_t key[2] = {s.seed, s.offset};
    const uint64_t drawn_by = hash_bytes(key, sizeof key).low | 1;  // never 0
    ARETE_CU(cuMemsetD32Async, graph.random_stream, uint32_t(drawn_by), 1, stream);
    ARETE_CU(cuMemsetD32Async, graph.random_stream + 4, uint32_t(drawn_by >> 32), 1, stream);
  }
  ARETE_CU(cuGraphLaunch, graph.executable, stream);
  const std::lock_guard lock(graph.mutex);
  auto& streams = graph.launched_on;
  if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
}

void GraphCaptures::destroy(CapturedGraph* graph) noexcept {
  if (!graph) return;
  try {
    device_.make_current();
    for (CUstream s : graph->launched_on)
      if (!device_.is_capturing(s)) driver().cuStreamSynchronize(s);
    driver().cuGraphExecDestroy(graph->executable);
    if (graph->random_stream) driver().cuMemFree(graph->random_stream);
  } catch (...) {
    // The driver is gone, and the graph with it.
  }
  delete graph;
}

}  // namespace arete::cuda
