// CUDA graphs: captures under way on a device, and what they end as.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "arete/backend/cuda/runtime/event.h"
#include "arete/core/generator.h"
#include "arete/core/storage.h"

namespace arete::cuda {

class CachingAllocator;
class DeviceContext;

// Note [Random numbers in graphs]
// A kernel in a graph has its seed and counter fixed when it is captured; replays would draw the
// same numbers again. The random kernels of a graph therefore have a state in memory (RandomArgs),
// and each launch writes it first: by how much the default generator has moved on since the graph
// was captured. The launch takes as many numbers from it as the capture did. So a replay draws what
// the same calls outside of a graph would draw at its place, and the same again after manual_seed.
// What is drawn again (the mask of dropout, in a backward pass) lies before the numbers of its own
// graph where the forward pass is another graph: then it is moved by the state of that one.

/// How far the numbers of a graph's launch are from those of its capture: two words on the device.
class RandomState {
 public:
  RandomState(DeviceContext& device, Generator::State begin);
  RandomState(const RandomState&) = delete;
  RandomState& operator=(const RandomState&) = delete;
  ~RandomState();

  /// Whether a call drew, or draws again, numbers of the capture.
  bool has(uint64_t seed, uint64_t offset) const {
    return seed == begin_.seed && offset >= begin_.offset && offset < end_;
  }
  const uint64_t* words() const { return reinterpret_cast<const uint64_t*>(words_); }
  /// The capture has ended where the default generator is at `end`.
  void close(Generator::State end) {
    end_ = end.seed == begin_.seed ? std::max(begin_.offset, end.offset) : begin_.offset;
  }
  /// Takes numbers from the default generator and writes the words, on the stream.
  void move_on(CUstream stream);
  /// Writes that they are where they were, if nothing was written yet.
  void begin(CUstream stream);

 private:
  void write(std::array<uint64_t, 2> words, CUstream stream);

  DeviceContext& device_;
  Generator::State begin_;
  uint64_t end_ = UINT64_MAX;
  CUdeviceptr words_ = 0;
  std::mutex mutex_;
  std::optional<std::array<uint64_t, 2>> written_;
};

/// Work that goes through the same memory and must not overlap, some of it in graphs: what a thread
/// puts into a stream between begin() and end(), a launch of such a graph with it, comes after what
/// was before, whichever streams they are of. Other threads wait meanwhile.
class TakenInTurn {
 public:
  explicit TakenInTurn(DeviceContext& device) : device_(device) {}
  TakenInTurn(const TakenInTurn&) = delete;
  TakenInTurn& operator=(const TakenInTurn&) = delete;
  ~TakenInTurn();
  [[nodiscard]] std::unique_lock<std::mutex> begin(CUstream stream);
  void end(std::unique_lock<std::mutex> turn, CUstream stream);

 private:
  DeviceContext& device_;
  std::mutex mutex_;
  CUstream stream_ = nullptr;  // of the last one, and its end
  CUevent event_ = nullptr;
};

/// A graph that can be launched, and the host memory that its copies read.
struct CapturedGraph {
  CUgraphExec executable = nullptr;
  std::vector<StoragePtr> kept;
  std::shared_ptr<RandomState> random;               // null: it draws no numbers
  std::vector<std::shared_ptr<RandomState>> others;  // of the graphs whose numbers it draws again
  std::vector<const void*> used;                     // memory that the capture was told of
  std::set<std::shared_ptr<TakenInTurn>> in_turn;  // in one order for all launches, which lock them
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
  /// Whether anything was ever recorded, so that a graph may use what lies at some address.
  bool were_any() const { return any_.load(std::memory_order_relaxed); }
  /// DeviceError if what was recorded makes no graph.
  std::unique_ptr<CapturedGraph> end(CUstream stream);
  void discard(CUstream stream) noexcept;
  /// `stream` is about to allocate; if it takes part in a capture, so does its memory.
  void join(CUstream stream);
  /// Keeps host memory alive with the graph that `stream` is captured into.
  void keep(CUstream stream, StoragePtr memory);

  /// Work on `stream`, if it takes part in a capture, uses memory at `p`: so does each launch of
  /// the graph, of which the caller tells the allocators.
  void note_use(const void* p, CUstream stream);

  /// Launches of the graph that `stream` is captured into are among what is taken in turn, and what
  /// follows comes after all that was taken in turn in this capture before: branches of a graph may
  /// be put one after the other, in another order by each process, and would wait for each other.
  /// False if other code captures it.
  bool begin_turn(CUstream stream, const std::shared_ptr<TakenInTurn>& turns);
  void end_turn(CUstream stream);

  /// Where a random call on `stream` finds its state; null: it is not captured.
  const uint64_t* random_state(CUstream stream, uint64_t seed, uint64_t offset);

  /// DeviceError for a graph that is taken in turn, where `stream` is captured into another one.
  void launch(CapturedGraph& graph, CUstream stream);
  /// Waits for launches that still run.
  void destroy(CapturedGraph* graph) noexcept;

 private:
  struct Capture {
    CUstream origin;
    cuuint64_t id;
    uint64_t pool;
    std::vector<CUstream> streams;
    Generator::State random_begin;
    std::vector<StoragePtr> kept{};
    std::set<const void*> used{};
    std::set<std::shared_ptr<TakenInTurn>> in_turn{};
    std::shared_ptr<RecordedEvent> turn_end{};  // of the last one
    std::shared_ptr<RandomState> random{};
    std::vector<std::shared_ptr<RandomState>> others{};
  };
  Capture* find(CUstream stream);
  void add(Capture& capture, CUstream stream);
  Capture take(CUstream stream);

  DeviceContext& device_;
  CachingAllocator& allocator_;
  std::atomic<bool> any_{false};
  std::mutex mutex_;
  std::vector<Capture> captures_;
  std::vector<std::weak_ptr<RandomState>> random_states_;  // of graphs
};

}  // namespace arete::cuda
