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

// Note [Random numbers in graphs]
// A kernel in a graph has its seed and counter fixed when it is captured; replays would draw the
// same numbers again. The kernels of a graph therefore read 8 bytes on the device, which stand in
// the half of Philox's counter that is 0 otherwise, and each launch writes them first: a hash of
// seed and counter of the default generator, which it advances by 1. So replays draw different
// numbers, and the same ones again after manual_seed. Kernels of one launch share the 8 bytes:
// what a backward pass draws again (dropout's mask) agrees with the forward pass.

/// A graph that can be launched, and the host memory that its copies read.
struct CapturedGraph {
  CUgraphExec executable = nullptr;
  std::vector<StoragePtr> kept;
  CUdeviceptr random_stream = 0;  // 0: it draws no numbers
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

  /// Where kernels on `stream` find what their replay draws numbers by; null: it is not captured.
  const uint64_t* random_stream(CUstream stream);

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
    CUdeviceptr random_stream = 0;
  };
  Capture* find(CUstream stream);
  Capture take(CUstream stream);

  DeviceContext& device_;
  CachingAllocator& allocator_;
  std::mutex mutex_;
  std::vector<Capture> captures_;
};

}  // namespace arete::cuda
