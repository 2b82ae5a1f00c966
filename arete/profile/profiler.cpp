#include "arete/profile/profiler.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <utility>

#include "arete/base/error.h"
#include "arete/base/file.h"
#include "arete/base/text.h"
#include "arete/core/memory_events.h"
#include "arete/device/cuda.h"
#include "arete/ops/record.h"
#include "arete/profile/recorder_internal.h"

namespace arete::profile {

// ---- schedule

Action Schedule::operator()(int64_t step) const {
  if (step < skip_first) return Action::none;
  step -= skip_first;
  const int64_t cycle = wait + warmup + active;
  // Without the first wait everything comes that much earlier.
  if (skip_first_wait) step += wait;
  if (repeat > 0 && step / cycle >= repeat) return Action::none;
  const int64_t at = step % cycle;
  if (at < wait) return Action::none;
  if (at < wait + warmup) return Action::warmup;
  return at + 1 < cycle ? Action::record : Action::record_and_save;
}

Schedule schedule(int64_t wait, int64_t warmup, int64_t active, int64_t repeat, int64_t skip_first,
                  bool skip_first_wait) {
  ARETE_CHECK(wait >= 0 && warmup >= 0 && repeat >= 0 && skip_first >= 0 && active > 0,
              ValueError("schedule", "Invalid profiler schedule arguments")
                  .expected("wait, warmup, repeat and skip_first of 0 or more, active of 1 or more")
                  .got("wait=" + std::to_string(wait) + ", warmup=" + std::to_string(warmup) +
                       ", active=" + std::to_string(active) + ", repeat=" + std::to_string(repeat) +
                       ", skip_first=" + std::to_string(skip_first)));
  return {wait, warmup, active, repeat, skip_first, skip_first_wait};
}

// ---- profiler

Profiler::Profiler(Options options, std::function<Action(int64_t)> schedule, Handler on_trace_ready)
    : options_(options),
      schedule_(std::move(schedule)),
      on_trace_ready_(std::move(on_trace_ready)) {}

Profiler::~Profiler() {
  if (!running_) return;
  try {
    if (step_range_) Recorder::get().end_range(step_range_);
    end_recording(false);
  } catch (...) {
    // A destructor has nobody to tell.
  }
}

namespace {

// 32 hexadecimal digits.
std::string random_name() {
  std::random_device source;
  std::string name;
  for (int i = 0; i < 4; ++i) {
    char part[16];
    std::snprintf(part, sizeof part, "%08X", unsigned(source()));
    name += part;
  }
  return name;
}

}  // namespace

void Profiler::begin_recording() {
  if (recording_) return;
  trace_id_ = trace_namer_ ? trace_namer_() : "";
  if (trace_id_.empty()) trace_id_ = random_name();
  Recorder::get().start(options_);
  recording_ = true;
}

void Profiler::end_recording(bool keep) {
  if (!recording_) return;
  recording_ = false;
  auto trace = Recorder::get().stop();
  if (!keep) return;
  trace->metadata = metadata_;
  trace->trace_id = trace_id_;
  trace_ = std::move(trace);
}

void Profiler::save() {
  end_recording(true);
  if (on_trace_ready_) on_trace_ready_(*this);
}

void Profiler::start() {
  ARETE_CHECK(!running_, ValueError("profile", "the profiler has been started already"));
  step_ = 0;
  action_ = Action::none;
  ARETE_CHECK(options_.cpu || (options_.cuda && cuda::is_available()),
              ValueError("profile", "No activities specified for the profiler")
                  .got(options_.cuda ? "CUDA only, and there is no GPU" : "none")
                  .hint("record the CPU, or what supported_activities() names"));
  const Action first = schedule_ ? schedule_(0) : Action::record;
  running_ = true;
  try {
    change(first, false);
  } catch (...) {
    running_ = false;
    throw;
  }
  if (schedule_ && recording_)
    step_range_ = Recorder::get().begin_range(tracing::RangeKind::user, "ProfilerStep#0", -1);
}

// Note [Warm-up steps]
// They are recorded like active ones, so that what happens once (loading CUPTI, growing buffers)
// is over, and forgotten when the active ones begin.
void Profiler::change(Action to, bool end) {
  const Action from = action_;
  action_ = to;
  const bool was_active = from == Action::record || from == Action::record_and_save;
  const bool is_active = !end && (to == Action::record || to == Action::record_and_save);
  if (was_active && (end || from == Action::record_and_save || !is_active)) {
    save();
  } else if (recording_ && !was_active && (end || to != Action::warmup)) {
    end_recording(false);
  }
  if (!end && to != Action::none) begin_recording();
}

void Profiler::step() {
  ARETE_CHECK(running_, ValueError("step", "the profiler is not running")
                            .hint("call step() between start() and stop()"));
  if (step_range_) Recorder::get().end_range(std::exchange(step_range_, 0));
  ++step_;
  change(schedule_ ? schedule_(step_) : Action::record, false);
  if (schedule_ && recording_)
    step_range_ = Recorder::get().begin_range(tracing::RangeKind::user,
                                              "ProfilerStep#" + std::to_string(step_), -1);
}

void Profiler::stop() {
  if (!running_) return;
  if (step_range_) Recorder::get().end_range(std::exchange(step_range_, 0));
  running_ = false;
  change(Action::none, true);
}

void Profiler::prepare_trace() {
  ARETE_CHECK(!running_, ValueError("prepare_trace", "the profiler has been started already"));
  begin_recording();
  running_ = true;
  action_ = Action::warmup;
}

void Profiler::start_trace() {
  ARETE_CHECK(!running_ || action_ == Action::warmup,
              ValueError("start_trace", "the profiler has been started already"));
  end_recording(false);
  begin_recording();
  running_ = true;
  action_ = Action::record;
}

void Profiler::stop_trace() {
  ARETE_CHECK(
      recording_,
      ValueError("stop_trace", "nothing is being recorded").hint("call start_trace() first"));
  if (step_range_) Recorder::get().end_range(std::exchange(step_range_, 0));
  running_ = false;
  action_ = Action::none;
  end_recording(true);
}

void Profiler::toggle(bool on, bool cpu, bool cuda) {
  if (recording_) Recorder::get().toggle(on, cpu, cuda);
}

void Profiler::add_metadata_json(const std::string& key, const std::string& value) {
  ARETE_CHECK(nlohmann::json::accept(value),
              ValueError("add_metadata_json", "the value is no JSON").argument(key).got(value));
  static const std::set<std::string> taken{
      "schemaVersion", "displayTimeUnit", "baseTimeNanoseconds", "cpu", "deviceProperties",
      "deviceTimes",   "trace_id",        "traceEvents"};
  ARETE_CHECK(!taken.contains(key),
              ValueError("add_metadata_json", "the trace file has an entry of this name").got(key));
  metadata_[key] = value;
  // Nothing is being recorded: it is for the file of what has been.
  if (trace_ && !recording_) trace_->metadata[key] = value;
}

void Profiler::add_metadata(const std::string& key, const std::string& text) {
  add_metadata_json(key, io::json_string(text));
}

const Trace& Profiler::trace() const { return *shared_trace(); }

std::shared_ptr<const Trace> Profiler::shared_trace() const {
  ARETE_CHECK(trace_, ValueError("profile", "nothing has been recorded yet")
                          .hint(running_ ? "stop the profiler first, or let its schedule reach the "
                                           "end of a cycle"
                                         : "start it, or check its schedule: no cycle was "
                                           "completed"));
  return trace_;
}

// ---- ranges

void RecordFunction::begin(std::string_view name) {
  if (names_memory_) push_name_scope(name);
  if (listener_) id_ = listener_->begin_range(tracing::RangeKind::user, name, -1);
}

void RecordFunction::finish() {
  if (auto* const l = std::exchange(listener_, nullptr)) l->end_range(id_);
  if (std::exchange(names_memory_, false)) pop_name_scope();
}

namespace {

/// Every call and range as a range of NVTX. Ranges nest on each thread, as NVTX's do.
class NvtxListener final : public tracing::Listener {
 public:
  explicit NvtxListener(bool shapes) : shapes_(shapes) {}
  uint64_t begin_call(const ops::OpRecord& op, tracing::Items<ops::Arg> args,
                      bool in_place) noexcept override {
    std::string name = op.name + (in_place ? "_" : "");
    if (shapes_) {
      std::string sizes;
      for (size_t i = 0; i < args.size; ++i)
        if (args.data[i].kind() == ops::Arg::Kind::tensor)
          sizes += (sizes.empty() ? "" : ", ") + to_string(args.data[i].tensor().sizes());
      name += ", sizes = [" + sizes + "]";
    }
    cuda::nvtx::range_push(name.c_str());
    return 1;
  }
  void end_call(uint64_t, const ops::OpRecord&, tracing::Items<ops::Arg>,
                tracing::Items<Tensor>) noexcept override {
    cuda::nvtx::range_pop();
  }
  uint64_t begin_range(tracing::RangeKind, std::string_view name,
                       int64_t sequence) noexcept override {
    std::string text(name);
    if (sequence >= 0) text += ", seq = " + std::to_string(sequence);
    cuda::nvtx::range_push(text.c_str());
    return 1;
  }
  void end_range(uint64_t) noexcept override { cuda::nvtx::range_pop(); }
  uint64_t begin_host_event(const tracing::HostEvent& event) noexcept override {
    cuda::nvtx::range_push(event.what);
    return 1;
  }
  void end_host_event(uint64_t) noexcept override { cuda::nvtx::range_pop(); }

 private:
  const bool shapes_;
};

}  // namespace

EmitNvtx::EmitNvtx(bool record_shapes) {
  ARETE_CHECK(!tracing::listener(),
              ValueError("emit_nvtx", "a profiler, or another emit_nvtx, is running already"));
  // Calls that are under way on other threads end after this object does.
  static NvtxListener plain(false), with_shapes(true);
  tracing::set_listener(record_shapes ? &with_shapes : &plain);
}
EmitNvtx::~EmitNvtx() { tracing::set_listener(nullptr); }

// ---- files

Profiler::Handler tensorboard_trace_handler(std::string folder, std::string worker, bool use_gzip) {
  if (worker.empty()) {
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    worker = std::string(host) + "_" + std::to_string(getpid());
  }
  return [folder = std::move(folder), worker = std::move(worker), use_gzip](Profiler& p) {
    io::make_directories(folder);
    const int64_t now =
        std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
    p.trace().export_chrome_trace(folder + "/" + worker + "." + std::to_string(now) +
                                  ".pt.trace.json" + (use_gzip ? ".gz" : ""));
  };
}

}  // namespace arete::profile
