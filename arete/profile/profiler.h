// A profiler of everything the library does: which operator ran when, for how long, on what, and
// which kernels it started. It sees all threads of the process. While none records, operators pay
// the test of one pointer.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arete/core/memory_events.h"
#include "arete/core/tracing.h"
#include "arete/profile/trace.h"

namespace arete::profile {

/// What a profiler does in a step.
enum class Action : uint8_t { none, warmup, record, record_and_save };

/// Which steps are recorded: `skip_first` are left out once; then, again and again (or `repeat`
/// times), `wait` are left out, `warmup` are recorded and forgotten, `active` are recorded and
/// handed over.
struct Schedule {
  int64_t wait = 0, warmup = 0, active = 1, repeat = 0, skip_first = 0;
  /// Leaves `wait` out of the first cycle.
  bool skip_first_wait = false;
  Action operator()(int64_t step) const;
};
/// The same; ValueError if a number is negative or `active` is 0.
Schedule schedule(int64_t wait, int64_t warmup, int64_t active, int64_t repeat = 0,
                  int64_t skip_first = 0, bool skip_first_wait = false);

/// What is recorded.
struct Options {
  bool cpu = true;              ///< events of the host
  bool cuda = true;             ///< work of GPUs, where there is one
  bool record_shapes = false;   ///< shapes and dtypes of arguments
  bool profile_memory = false;  ///< memory taken and given back, see MemoryEvent
  bool with_stack = false;      ///< the program's frames at each event
  bool with_flops = false;      ///< FLOPs in tables (they are known in any case)
};

/// Records while it runs: between start() and stop(), or, with a schedule, in the steps that it
/// names, which step() tells apart. One at a time in a process; ValueError otherwise.
class Profiler {
 public:
  using Handler = std::function<void(Profiler&)>;
  explicit Profiler(Options options = {}, std::function<Action(int64_t)> schedule = {},
                    Handler on_trace_ready = {});
  /// Stops it, without the handler.
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  void start();
  void stop();
  /// The next step begins.
  void step();
  int64_t step_num() const { return step_; }
  /// What it does in the present step.
  Action action() const { return action_; }

  /// A recording without a schedule or handler, in three steps: from the first on what happens is
  /// recorded to be forgotten, from the second on to be kept.
  void prepare_trace();
  void start_trace();
  void stop_trace();
  /// While it records: leaves events of the host, or GPUs' work, out from now on; or takes them
  /// again.
  void toggle(bool on, bool cpu, bool cuda);

  /// For the trace file of the present recording, or the next one: a value in JSON (ValueError if
  /// it is none), or text.
  void add_metadata_json(const std::string& key, const std::string& value);
  void add_metadata(const std::string& key, const std::string& text);
  /// Names each recording when it begins; without it, or where it gives "", a random number does.
  void set_trace_id(std::function<std::string()> name) { trace_namer_ = std::move(name); }
  /// Of the last recording that has begun; "" if there is none.
  const std::string& trace_id() const { return trace_id_; }
  /// True between start() and stop().
  bool is_running() const { return running_; }

  /// The last recording that has ended; ValueError if there is none.
  const Trace& trace() const;
  bool has_trace() const { return trace_ != nullptr; }
  /// The same, kept by the caller.
  std::shared_ptr<const Trace> shared_trace() const;

 private:
  void change(Action to, bool end);
  void begin_recording();
  void end_recording(bool keep);
  void save();
  const Options options_;
  const std::function<Action(int64_t)> schedule_;
  const Handler on_trace_ready_;
  int64_t step_ = 0;
  Action action_ = Action::none;
  bool running_ = false, recording_ = false;
  uint64_t step_range_ = 0;
  std::shared_ptr<Trace> trace_;
  std::map<std::string, std::string> metadata_;  // JSON by name
  std::function<std::string()> trace_namer_;
  std::string trace_id_;
};

/// While it lives, what its thread does belongs to a range of this name. With nvtx ranges on
/// (emit_nvtx), it shows in the vendor's tools too; in histories of memory that are being recorded
/// when it begins it is a scope. With none of these on it costs two tests.
class RecordFunction {
 public:
  explicit RecordFunction(std::string_view name)
      : listener_(tracing::listener()), names_memory_(has_memory_observers()) {
    if (listener_ || names_memory_) [[unlikely]]
      begin(name);
  }
  ~RecordFunction() { end(); }
  RecordFunction(const RecordFunction&) = delete;
  RecordFunction& operator=(const RecordFunction&) = delete;
  /// Ends it early.
  void end() {
    if (listener_ || names_memory_) [[unlikely]]
      finish();
  }

 private:
  void begin(std::string_view name);
  void finish();

  tracing::Listener* listener_;  // null after the end
  bool names_memory_;            // false after the end
  uint64_t id_ = 0;
};

/// While it lives, operators, backward functions and ranges of all threads are NVTX ranges, which
/// Nsight Systems shows. Not while a Profiler records: ValueError.
class EmitNvtx {
 public:
  explicit EmitNvtx(bool record_shapes = false);
  ~EmitNvtx();
  EmitNvtx(const EmitNvtx&) = delete;
  EmitNvtx& operator=(const EmitNvtx&) = delete;
};

/// A handler that writes each recording into a folder, under the name that TensorBoard's profiler
/// plug-in looks for: <worker>.<time>.pt.trace.json, or .json.gz. `worker`: host and process by
/// default.
Profiler::Handler tensorboard_trace_handler(std::string folder, std::string worker = "",
                                            bool use_gzip = false);

/// Where the program is: frames of the calling thread, innermost first, as "file.py(12): function".
/// A language binding installs one; `limit`: how many are wanted. Called on any thread.
using StackSource = std::vector<std::string> (*)(int limit);
void set_stack_source(StackSource source) noexcept;

}  // namespace arete::profile
