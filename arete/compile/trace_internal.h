// Calls between two looks at values, as they will come again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "arete/compile/device_graph_internal.h"
#include "arete/compile/graph_internal.h"
#include "arete/compile/plan.h"
#include "arete/prim/recorder.h"

namespace arete::compile {

/// An operand of a call, by the number of its buffer in the order in which calls name them.
struct Operand {
  int buffer;      // -1: memory that no tensor has, at an address of its own
  int64_t offset;  // of the first element, in bytes
};

/// Where a call comes from.
struct Origin {
  const char* op = nullptr;  // the operator; lives as long as the process
  int place = 0;             // Program::places()
};

/// A kernel that was compiled when a step ran first.
struct StepKernel {
  size_t step;
  std::string name;
  double seconds;
};

/// What became of a plan.
struct PlanAccount {
  int64_t runs = 0;
  double planning = 0, launching = 0;  // seconds of the host
  std::vector<StepKernel> kernels;
};

/// A plan for the calls of a trace, with places for addresses and numbers.
class TracePlan {
 public:
  /// `calls` are on `memory`; what number their numbers have is their own.
  TracePlan(std::vector<std::unique_ptr<prim::RecordedCall>> calls, UsedBuffers memory,
            const std::vector<bool>& temporary, const PlanOptions& options);

  const std::vector<bool>& temporary() const { return temporary_; }
  /// Whether it has the bits of eager code.
  bool is_exact() const { return is_exact_; }
  /// Whether the results that temporaries lie in are new memory, and what is pinned where it was.
  bool fits(UsedBuffers memory) const;
  bool is_pinned() const { return !pins_.empty(); }
  /// Whether as many others as may be pinned were, when it was made.
  bool lacks_pins = false;
  int64_t last_run = 0;  // of those of its trace
  /// Whether no step uses a temporary that is in no arena.
  bool has_all_in_arena() const {
    return std::ranges::none_of(used_, [&](int b) { return temporary_[size_t(b)]; });
  }
  /// Gives a buffer that is still a promise memory; with an address only if it is free there.
  using Provide = std::function<void(int buffer, void* at)>;
  /// Runs it with the memory of each used buffer, and all numbers of the calls. `provide` is called
  /// for buffers that are still promises before they are used, and, where steps are made one by
  /// one, `release(buffer)` for those that nobody wants after the run behind the last step that
  /// uses them. Where a step fails `lost` gets the buffers that it and later ones were to write.
  void run(UsedBuffers memory, std::span<const uint64_t> numbers, const Provide& provide,
           const std::function<void(int)>& release, std::vector<int>& lost);
  const Plan& plan() const { return *plan_; }
  /// Bytes of temporaries that no result has room for.
  size_t arena() const {
    return std::accumulate(arena_bytes_.begin(), arena_bytes_.end(), size_t{});
  }
  bool is_graph() const { return graph_->is_captured(); }
  const std::string& why_no_graph() const { return graph_->why_not(); }
  PlanAccount account;

 private:
  struct Address {
    prim::View* view;
    int buffer;  // or, negative, arena ~buffer
    int64_t offset;
    prim::Access access;
    int piece = -1;  // of a temporary: the number of its placement
    int64_t in_piece = 0;
  };
  struct Number {
    void* place;
    size_t from;
  };
  void find_pieces();
  void share_results(UsedBuffers memory);
  void find_waits();
  void find_last_uses();
  std::vector<StoragePtr> make_arenas();
  void set_address(const Address& a, UsedBuffers memory, std::span<const StoragePtr> arenas,
                   bool in_pieces);
  void compile_ahead();
  void set_numbers(std::span<const uint64_t> numbers);
  bool run_graph(UsedBuffers memory, std::span<const uint64_t> numbers, const Provide& provide);
  void run_steps(UsedBuffers memory, std::span<const uint64_t> numbers, const Provide& provide,
                 const std::function<void(int)>& release, bool in_pieces, size_t& done);
  std::vector<bool> temporary_;
  bool is_exact_;
  std::vector<int> used_;
  std::unique_ptr<Plan> plan_;
  std::vector<Address> addresses_;
  std::vector<size_t> address_ends_;             // of each step
  std::vector<std::vector<int>> begins_, ends_;  // of each step: placements
  std::vector<std::vector<int>> last_uses_;      // of each step: buffers
  std::vector<size_t> arena_bytes_;
  std::vector<int> hosts_;  // results with temporaries in them
  struct Pin {
    int buffer;
    const std::byte* base;
  };
  std::vector<Pin> pins_;  // Note [Siblings]
  std::vector<Number> numbers_;
  std::vector<GraphStep> steps_;
  std::vector<size_t> last_waits_;  // behind them
  std::unique_ptr<DeviceGraph> graph_;
};

/// What has to be equal of calls that a plan may stand for, in words: Note [Traces] in queue.cpp.
class Trace {
 public:
  std::vector<uint64_t> words;
  std::vector<size_t> ends;  // of each call's words
  std::vector<std::unique_ptr<prim::RecordedCall>> calls;
  std::vector<std::vector<Operand>> operands;  // of each call, as it names them
  std::vector<size_t> number_ends;
  std::vector<Origin> origins;
  // After how many others of one call of the function it began first; kPass: it is a backward pass
  // outside of it.
  static constexpr int kPass = -1;
  int segment = 0;
  int64_t last_used = 0;
  std::mutex mutex;  // of the plans: they have one set of places

  /// Call k on other memory and with other numbers.
  std::unique_ptr<prim::RecordedCall> call_on(size_t k, UsedBuffers memory,
                                              std::span<const uint64_t> numbers) const;
  /// To be called before each run: makes room where a plan shall be pinned and others that are have
  /// not fitted for long.
  void let_pins_go(UsedBuffers memory, const std::vector<bool>& temporary);
  /// The plan for these temporaries that fits such memory; null if there is none yet.
  TracePlan* plan_of(UsedBuffers memory, const std::vector<bool>& temporary) const;
  /// The same; made if there is none yet: with the bits of eager code also where a plan without
  /// them would not be worth it.
  TracePlan& plan_for(UsedBuffers memory, const std::vector<bool>& temporary,
                      std::span<const uint64_t> numbers, const PlanOptions& options,
                      const std::function<bool(const PlanStats&)>& is_worth_it);
  const std::vector<std::unique_ptr<TracePlan>>& plans() const { return plans_; }

 private:
  bool may_pin_more() const;
  std::vector<std::unique_ptr<TracePlan>> plans_;
  int64_t runs_ = 0;
  int64_t patience_ = 64;  // runs without one of a pinned plan
};

}  // namespace arete::compile
