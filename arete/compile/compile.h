// Functions whose calls are put off and then made as plans: fewer kernels, less memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "arete/compile/plan.h"

namespace arete::compile {

struct CompileOptions {
  /// The bits of eager code: PlanOptions::exact.
  bool exact = false;
  /// An error (ValueError) instead of a break, wherever a value is looked at on the way.
  bool fullgraph = false;
  /// PlanOptions::band, in bytes.
  size_t band = PlanOptions().band;
  /// PlanOptions::memory_budget.
  double memory_budget = 1;
  /// For explanations.
  std::string name{};
};

/// What became of the calls of a compiled function, so far.
struct CompileStats {
  int64_t calls = 0;     ///< of the function
  int64_t skipped = 0;   ///< of these: its calls were put off again without running it
  int64_t at_once = 0;   ///< of these: its calls were not put off: Note [Where plans do not pay]
  int64_t breaks = 0;    ///< where a value was looked at before a call had ended
  int64_t traces = 0;    ///< different lists of primitive calls that were seen
  int64_t plans = 0;     ///< made for them
  int64_t runs = 0;      ///< of plans
  double planning = 0;   ///< seconds of the host that making plans took
  double launching = 0;  ///< seconds of the host that running them took (on a CPU: all of it)
  // Of all runs together:
  int64_t primitive_calls = 0;  ///< that plans were made of
  int64_t steps = 0;            ///< kernels and calls of libraries
  int64_t bytes_recorded = 0;   ///< that the calls would have read and written
  int64_t bytes_moved = 0;      ///< that the steps did
};

/// A place where a value was looked at.
struct Break {
  std::string where;  ///< a line of the program, if known
  std::string what;   ///< the operator whose result that was
  int64_t count = 0;
  double making = 0;   ///< seconds of the host that it took to make the calls that were put off
  double waiting = 0;  ///< seconds that the host then waited for a GPU
};

// Note [Compiled functions]
// A compiled function is an eager function whose calls are promises. Everything of it runs each
// time, with branches, hooks, schedules and exceptions; but the primitive calls that its operators
// make are put off, and memory for their results is not there yet. They are made where somebody
// looks at a value, and when the function ends, all at once: as a Plan, which is made when a list
// of calls is seen for the first time and found again later. Numbers (learning rates, seeds,
// scalars) belong to the calls and not to the plan. So there is nothing to guard and nothing to
// invalidate: what the function does is what is run. An address that the function asked for
// (data_ptr, data) is right until its next call: it has to ask again.

// Where gradients of what it computed are asked for outside of it, the pass is run in the same way.

// Note [Where plans do not pay]
// On a CPU putting a call off costs some tenths of a microsecond, which is more than what is saved
// where tensors are small and little can be put together. After some calls of the function the
// numbers of its plans say so: the calls, kernels and bytes that were left out, against what the
// calls cost that were put off, and those that had to be written down since they were new. The
// function's calls are then made at once, as if it was not compiled, but for one in 65, which looks
// whether that is so still. Clocks have no part in it: a program does the same each time. Equal
// calls shall have equal bits, made at once or not: so a plan for calls that it does not pay to put
// off is an exact one, `exact` or not, and where a plan of the function has other bits than eager
// code all calls go on being put off. (With an exception on GPUs: whether products are one batch
// depends on where parameters are, and which were used lately, Notes [Siblings] and [Pinned plans];
// not with `exact`, nor where the calls are to be deterministic.) With `fullgraph`, with less
// memory than plans want, and on other devices they are put off, too.

/// Plans for a function's calls, and what is known about them. Thread-safe.
class Program;

/// While the outermost one of a thread lives, its primitive calls are put off.
class PutOff {
 public:
  explicit PutOff(Program& program);
  /// Makes the calls; errors of theirs are lost, memory that they owe is an error to look at.
  ~PutOff();
  PutOff(const PutOff&) = delete;
  PutOff& operator=(const PutOff&) = delete;
  /// Makes the calls. To be called at the end.
  void finish();

 private:
  friend class Program;
  struct State;
  PutOff(Program& program, bool may_break, int segment);
  std::unique_ptr<State> state_;  // none inside another one
};

/// While it lives the thread's calls are made at once, whatever is put off around it, and compiled
/// functions inside that put nothing off.
class MadeAtOnce {
 public:
  MadeAtOnce();
  ~MadeAtOnce();
  MadeAtOnce(const MadeAtOnce&) = delete;
  MadeAtOnce& operator=(const MadeAtOnce&) = delete;

 private:
  const bool was_put_off_;
};

// Note [Calls put off again]
// A language that can show that a function would make the same calls as before
// (python/src/skip.cpp) may put them off without running it: the trace of those calls, on the
// memory of this time, and from there on all is as if the function had made them. Other calls may
// follow, as that of an optimizer does.

class Trace;

/// The first calls of a function, as they were put off.
struct PutOffCalls {
  struct Memory {
    const Storage* storage;
    int64_t origin;  // of the first use, in bytes; 0 for new memory
    size_t bytes;
    Device device;
    bool is_new;      // promised meanwhile
    bool is_written;  // by these calls
    bool is_wanted;   // by somebody else than the calls, now
  };
  std::shared_ptr<Trace> trace;
  size_t calls = 0;
  std::vector<Memory> memory{};  // in the order in which the calls name it
  std::vector<uint64_t> numbers{};
  bool draws = false;  // random numbers
  bool looks = false;  // an operator looked at values on the host
};
/// Those of the thread; none if some were made already, or have not been seen before.
std::optional<PutOffCalls> calls_put_off();
/// How many there are.
size_t count_put_off();
/// Puts the calls off, as the first ones, with `memory` in the place of theirs, used from `origins`
/// on: what was new must be a promise of new_promise(), or null where no other call uses it and
/// nobody wants its values. Their numbers are the same. `calls` lives as long as they are put off.
void put_off_again(const PutOffCalls& calls, std::span<const StoragePtr> memory,
                   std::span<const int64_t> origins);
/// Memory for the results of calls that are put off.
StoragePtr new_promise(size_t bytes, Device device);

/// Shared by the copies of a compiled function.
std::shared_ptr<Program> make_program(const CompileOptions& options);
/// Makes the calls that the thread has put off, and counts that as a look at a value; an error with
/// `fullgraph`. Nothing outside of compiled functions.
void graph_break();
/// Counts a call of the function.
void note_call(Program& program);
/// Counts a call that was skipped, too.
void note_skipped(Program& program);
/// For explanations: whether calls are skipped, and why not.
void note_skipping(Program& program, std::string text);
CompileStats stats_of(const Program& program);
/// For people: breaks, lists of calls and why there are several, plans with their steps, and what
/// stayed apart. explain.h has all of it as data, JSON and a page.
std::string explain(const Program& program);
std::vector<Break> breaks_of(const Program& program);
/// Forgets all plans, and what was counted.
void reset(Program& program);

/// Says where the thread is in a program of another language ("file:line in function"), for breaks.
void set_place_source(std::string (*source)()) noexcept;
/// What it says now; "" without one.
std::string current_place();

/// A function with its Program.
template <class F>
class Compiled {
 public:
  Compiled(F f, const CompileOptions& options)
      : f_(std::move(f)), program_(make_program(options)) {}

  template <class... Args>
  auto operator()(Args&&... args) {
    note_call(*program_);
    PutOff put_off(*program_);
    if constexpr (std::is_void_v<std::invoke_result_t<F&, Args...>>) {
      f_(std::forward<Args>(args)...);
      put_off.finish();
    } else {
      auto result = f_(std::forward<Args>(args)...);
      put_off.finish();
      return result;
    }
  }
  CompileStats stats() const { return stats_of(*program_); }
  std::string explain() const { return compile::explain(*program_); }
  const Program& program() const { return *program_; }

 private:
  F f_;
  std::shared_ptr<Program> program_;
};

/// `f` as a function whose calls run as plans: Note [Compiled functions]. Whatever `f` may do it
/// may do then; results and changes are those of `f` (with `exact`, their bits).
template <class F>
Compiled<F> compile(F f, const CompileOptions& options = {}) {
  return Compiled<F>(std::move(f), options);
}

}  // namespace arete::compile
