// Plans as graphs of a device.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "arete/prim/recorder.h"

namespace arete::compile {

class UnderWay;

// Note [Graphs of plans]
// Where a device takes less time for the steps of a plan than the host needs to launch them, they
// are captured once, after a few runs, and launched as one graph. It works on the memory that they
// had then. What has moved between runs (batches, results) has a place of its own, which is copied
// to or from; the other addresses are compared before each launch. Results are made where they
// were, whatever else is free, unless somebody keeps the last ones. Numbers that have changed are
// read from a page of memory, and so is what random calls begin with. What is not as the graph has
// it is run step by step, and captured again, a few times. A graph is one step after the other.
//   The page is written by a step of the graph: the host puts the numbers of
// each launch into the next place of a ring, in memory that the device reads by itself, and that
// step knows which one is next. So a launch is one launch. Half a ring is written again when the
// launches that read it are done.
//   What processes do together is no part of a graph: NCCL wants a call captured by all of them or
// by none, and what is captured here depends on what moves in the memory of one. There the graph is
// cut, and so it is where something waits for such a call; between launches both are as ever.

/// What a buffer of a trace is in one run: addresses in it count from `origin`, the place where it
/// was used first, so that other slices of one tensor are the same trace.
struct UsedBuffer {
  const Storage* storage;
  int64_t origin = 0;
  bool is_new = false;   // nothing has been written there
  bool is_last = false;  // nobody wants it after the run
  std::byte* base() const { return storage->data() + origin; }
};
using UsedBuffers = std::span<const UsedBuffer>;

/// A step, with where its operands and numbers come from.
struct GraphStep {
  const prim::RecordedCall* call;
  std::vector<int> buffers;     // of each operand; -1: as it is; below: an arena
  std::vector<size_t> numbers;  // of each number
  std::vector<size_t> waits{};  // for effects of these steps, which are under way
  bool is_awaited = false;      // an effect: the next step waits for it
};

/// The graph of one plan; it does nothing where a graph would not help, or cannot be.
class DeviceGraph {
 public:
  /// `bytes`: that the steps move.
  DeviceGraph(std::span<const GraphStep> steps, size_t bytes);
  ~DeviceGraph();
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;

  /// Where a result was in the last run, and the steps shall have it again; null: anywhere.
  std::byte* place_of(int buffer) const {
    const size_t b = size_t(buffer);
    return may_ && b < uses_.size() && !uses_[b].moves ? uses_[b].at : nullptr;
  }
  /// To be called before each run, with the memory of all buffers. True: the graph has run.
  bool run(UsedBuffers memory, std::span<const uint64_t> numbers);
  /// Whether it may run one day.
  bool may_run() const { return may_; }
  bool is_captured() const { return !parts_.empty(); }
  /// Why it is not, for people.
  const std::string& why_not() const { return why_not_; }
  /// Whether the steps, on the memory of that call, shall be captured now: capture() then.
  bool is_due() const { return is_due_; }
  /// The memory of the last capture, for steps and captures that come after it on its stream:
  /// around other memory results lie elsewhere. None where there is none; elsewhere it is given up.
  std::vector<StoragePtr> arenas();
  /// The steps have the addresses and numbers of this run; `arenas` are the graph's from now on.
  void capture(std::span<const GraphStep> steps, UsedBuffers memory,
               std::span<const uint64_t> numbers, std::vector<StoragePtr> arenas);

 private:
  struct Use {
    bool is_used = false, is_written = false, has_moved = false, moves = false;
    std::byte* at = nullptr;  // in the last run
    // Of one that moves: where it is for the graph, and which bytes of it are used.
    StoragePtr place;
    int64_t first = INT64_MAX, last = INT64_MIN;
  };
  struct Word {  // of the page
    size_t number;
    bool is_seed, is_offset;
  };
  void drop() noexcept;
  void make_page();
  void write_numbers(std::span<const uint64_t> numbers);
  void count_launch();
  void make_effect(size_t step, UsedBuffers memory, std::span<const uint64_t> numbers,
                   UnderWay& under_way);
  void capture_part(std::span<prim::RecordedCall* const> calls);
  void give_up(std::string why) noexcept;

  size_t bytes_;  // that the steps move
  prim::Backend* backend_ = nullptr;
  bool may_ = false;  // a graph would help, and nothing is against it
  std::string why_not_;
  std::vector<Use> uses_;       // of buffers
  std::vector<uint64_t> last_;  // numbers
  std::vector<bool> varies_;
  // Runs before the first capture: libraries choose their kernels, and it is seen what changes.
  static constexpr int kRunsBefore = 4;
  int64_t runs_ = 0, due_ = kRunsBefore;  // all runs; the number of them at which it is captured
  int captures_ = 0;
  bool is_due_ = false;
  // Of the graph:
  struct Part {
    prim::GraphHandle graph = nullptr;  // null: an effect
    size_t step = 0;                    // the effect's
    std::vector<size_t> waits{};        // before it
  };
  std::vector<Part> parts_;
  prim::StreamHandle stream_ = nullptr;  // captures
  prim::StreamHandle launched_on_ = nullptr;
  uint64_t pool_ = 0;
  std::vector<StoragePtr> arenas_;
  std::vector<GraphStep> steps_;
  std::vector<std::unique_ptr<prim::RecordedCall>> calls_;  // of steps_, where the graph has them
  std::vector<Word> words_;
  std::vector<uint64_t> captured_;              // numbers
  StoragePtr page_;                             // the words, and the place of each in the ring
  std::unique_ptr<prim::RecordedCall> paging_;  // writes it; null: there are no words
  StoragePtr ring_;
  size_t launches_ = 0;
  std::array<prim::EventHandle, 2> half_is_read_{};
};

}  // namespace arete::compile
