// CUDA graphs: captures under way on a device, and what they end as.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "arete/core/storage.h"

namespace arete::cuda {

class CachingAllocator;
class DeviceContext;

/// A graph that can be launched, and the host memory that its copies read.
struct CapturedGraph {
  CUgraphExec executable = nullptr;
  std::vector<StoragePtr> kept;
  std::mutex mutex;
  std::vector<CUstream> launched_on;  // since they were last waited for
};

/// The captures of one device. Work on streams that join a capture (by waiting for an event of it)
/// takes its memory from the same pool.
class GraphCaptures {
 public:
  GraphCaptures(DeviceContext& device, CachingAllocator& allocator)
      : device_(device), allocator_(allocator) {}
  void begin(CUstream stream, uint64_t pool);
  /// DeviceError if what was recorded makes no graph.
  std::unique_ptr<CapturedGraph> end(CUstream stream);
  void discard(CUstream stream) noexcept;
  /// `stream` is about to allocate; if it takes part in a capture, so does its memory.
  void join(CUstream stream);
  /// Keeps host memory alive with the graph that `stream` is captured into.
  void keep(CUstream stream, StoragePtr memory);

  void launch(CapturedGraph& graph, CUstream stream);
  /// Waits for launches that still run.
  void destroy(CapturedGraph* graph) noexcept;

 private:
  struct Capture {
    CUstream origin;
    cuuint64_t id;
    uint64_t pool;
    std::vector<CUstream> streams;
    std::vector<StoragePtr> kept;
  };
  Capture* find(CUstream stream);
  Capture take(CUstream stream);

  DeviceContext& device_;
  CachingAllocator& allocator_;
  std::mutex mutex_;
  std::vector<Capture> captures_;
};

}  // namespace arete::cuda
