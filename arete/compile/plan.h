// Recorded calls as a plan: fewer kernels, less memory, the same bits.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "arete/core/layout.h"
#include "arete/core/storage.h"

namespace arete::prim {
class RecordedCall;
class Recorder;
}  // namespace arete::prim

namespace arete::compile {

struct PlanOptions {
  /// The bits of eager code. Without it floats are not rounded between calls that are put together,
  /// and sums of them take in the calls that make what they sum: less memory is read and written,
  /// and results differ by the rounding of a few operations, mostly to the better.
  bool exact = true;
  /// Unless `exact`: temporaries of so many bytes and more, which calls make and use row by row,
  /// are made in bands of rows of about this size.
  size_t band = size_t(256) << 20;
  /// From 0 to 1: of the most memory that temporaries take at one time, the part that they may
  /// take. What is wanted again is then computed again where that is cheap, as far as needed.
  double memory_budget = 1;
  /// Unless `exact`: the plan may count on where memory is that is not its own (Plan::pinned()),
  /// as far as calls are not to be deterministic.
  bool may_pin = true;
};

/// What became of the calls that a plan was made of.
struct PlanStats {
  int recorded = 0;           ///< calls
  int steps = 0;              ///< kernels and calls of libraries that a run makes
  size_t bytes_moved = 0;     ///< that steps read and write, each operand counted once a step
  size_t bytes_recorded = 0;  ///< the same of the calls as they were recorded
  size_t arena = 0;           ///< memory for temporaries of all steps, in bytes
  int recomputed = 0;         ///< steps that run again to save memory
  size_t temporaries = 0;     ///< what the temporaries took while recording
};

// Note [Plans]
// A plan runs recorded calls again as Recorder::replay() does, and leaves the same bits in all
// memory that somebody else than the recorder holds when the plan is made. What nobody holds is a
// temporary: its values are not there after a run, nor need they be during one.
//  - Calls that work element by element on one space become one program (fuse.cpp). It rounds
//    where they rounded, unless PlanOptions says otherwise, so nothing shows but the time.
//  - Calls whose results nobody reads are left out, unless they may refuse their input.
//  - Rows that are added up and then added to something else are added there (sums.cpp).
//  - A temporary that is copied, and used no more, lies where the copy would go (copies.cpp).
//  - Products are converted and activated on their way out (products.cpp).
//  - Products of one matrix with several are a batch (siblings.cpp).
//  - Pictures lie in the order in which convolutions are quick (orders.cpp).
//  - What is only converted to a wider type is read as it was, by all who read it (casts.cpp).
//  - Large temporaries are made and used some rows at a time (bands.cpp).
//  - Of two steps the one goes first after which less memory is in use (peak.cpp).
//  - What lies idle at the fullest step is computed again, if asked for (recompute.cpp).
//  - Temporaries that are left share one arena: two that are not needed at the same time may have
//    the same place in it, and so may one that a kernel makes of another, element by element.
// Calls of several streams of one device are left as they are, since what orders them (events) is
// not among the calls.

class Buffers;
struct PlanNotes;
struct UsedMemory;

/// Calls in an order, ready to run many times. Not thread-safe.
class Plan {
 public:
  /// Takes the calls and the memory of a recorder, which has none after. Numbers that shall be
  /// read from memory (Recorder::put_in_memory) have been put there.
  explicit Plan(prim::Recorder& recorder, const PlanOptions& options = {});
  /// Of calls and all memory that they use. `zeros`: which fill memory with zeros each time. The
  /// arenas are promises: who runs the steps provides the memory.
  Plan(std::vector<std::unique_ptr<prim::RecordedCall>> calls, std::vector<UsedMemory> memory,
       const PlanOptions& options, const std::vector<bool>& zeros);
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  /// What memory the calls read may hold other values by now. Versions of what is written go up.
  void run() const;
  const PlanStats& stats() const { return stats_; }
  /// The steps, a line each: "pointwise(float32[2, 3] -> float32[2, 3])", and of how many calls.
  std::string to_string() const;
  const std::vector<StoragePtr>& arenas() const { return arenas_; }
  /// Of a temporary in an arena: its steps are first to last.
  struct Placement {
    size_t arena, offset, bytes, first, last;
  };
  const std::vector<Placement>& placements() const { return placements_; }
  /// What has to be where it was when the plan was made.
  const std::vector<const Storage*>& pinned() const { return pinned_; }
  /// Calls f(call) for each step.
  void for_each_step(const std::function<void(prim::RecordedCall&)>& f) const {
    for (const Step& step : steps_) f(*step.call);
  }
  /// How it came to be, for people.
  const PlanNotes& notes() const { return *notes_; }

 private:
  struct Step {
    std::unique_ptr<prim::RecordedCall> call;
    int calls = 1;             // recorded ones
    std::vector<int> numbers;  // of these, as far as they are known
    int group = -1;            // of those that calls were put together in
  };
  using Calls = std::vector<std::unique_ptr<prim::RecordedCall>>;
  void make(Calls calls, Buffers buffers, const PlanOptions& options,
            const std::vector<bool>& zeros, bool promise_arenas);
  void add_up_in_place(Buffers& buffers, const std::vector<bool>& zeros);
  void leave_out_copies(Buffers& buffers, const PlanOptions& options);
  void end_products(Buffers& buffers);
  void join_siblings(Buffers& buffers);
  void choose_orders(Buffers& buffers);
  void divide_into_bands(Buffers& buffers, size_t band);
  void lower_peak(Buffers& buffers);
  void recompute(Buffers& buffers, double budget);
  void note_repetition();
  void note_steps(Buffers& buffers);
  void place_temporaries(Buffers& buffers, bool keep_places, bool promise_arenas);

  std::vector<Step> steps_;
  std::vector<StoragePtr> memory_, arenas_;
  std::vector<Placement> placements_;
  std::vector<const Storage*> pinned_;
  std::vector<std::unique_ptr<Shape>> strides_;  // of operands that lie elsewhere than recorded
  PlanStats stats_;
  std::unique_ptr<PlanNotes> notes_;
};

/// Runs `f` once, and gives what repeats it: its primitive calls, on the memory of its tensors.
/// Inputs are changed by writing into them (copy_), results are where the tensors are that `f` left
/// behind. The host's part of `f` is not repeated, so nothing there may depend on values; reading
/// one is a ValueError. Random numbers are the same in each run.
std::unique_ptr<Plan> plan(const std::function<void()>& f, const PlanOptions& options = {});

}  // namespace arete::compile
