// The one listener behind all profilers.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "arete/core/memory_events.h"
#include "arete/core/tracing.h"
#include "arete/profile/profiler.h"

namespace arete::profile {

// Note [Recording]
// Each thread writes into a log of its own. What has begun lies on the log's stack, which only its
// thread touches; what has ended moves to the lists, which stop() takes away under the log's mutex
// (never contended but then). A recording has a number: what began in another recording, or in
// none, is dropped when it ends. So start() and stop() may come at any moment on any thread.

class Recorder final : public tracing::Listener, public MemoryObserver {
 public:
  static Recorder& get();

  /// ValueError if something records already.
  void start(const Options& options);
  std::shared_ptr<Trace> stop();
  /// While it records: events of the host, or GPUs' work, are left out from now on, or taken again.
  void toggle(bool on, bool cpu, bool cuda);

  uint64_t begin_call(const ops::OpRecord& op, tracing::Items<ops::Arg> args,
                      bool in_place) noexcept override;
  void end_call(uint64_t id, const ops::OpRecord& op, tracing::Items<ops::Arg> args,
                tracing::Items<Tensor> results) noexcept override;
  uint64_t begin_range(tracing::RangeKind kind, std::string_view name,
                       int64_t sequence) noexcept override;
  void end_range(uint64_t id) noexcept override;
  uint64_t begin_host_event(const tracing::HostEvent& event) noexcept override;
  void end_host_event(uint64_t id) noexcept override;
  void on_memory(const MemoryEvent& event) noexcept override;

 private:
  struct Raw;
  struct ThreadLog;
  struct ThreadEnd;
  Recorder() = default;
  ThreadLog* log();
  Raw& push(ThreadLog& log, EventKind kind);
  uint64_t begun(ThreadLog& log, Raw& raw);
  /// Takes the event off the stack and calls fill(raw) before it is filed, if it belongs to the
  /// recording.
  template <class F>
  void end(uint64_t id, F&& fill);
  void file(ThreadLog& log, Raw&& raw);
  /// Empties a log that still holds another recording. Under its mutex.
  static void adopt(ThreadLog& log, uint64_t session);
  bool wants(uint32_t flag) const { return flags_.load(std::memory_order_relaxed) & flag; }
  void collect(Trace& trace, ThreadLog& log);

  // What threads ask for, as bits.
  static constexpr uint32_t kShapes = 1, kStack = 2, kTimeWithEvents = 4;
  std::atomic<uint32_t> flags_{0};
  std::atomic<prim::DeviceTrace*> device_trace_{nullptr};
  // Of start() and stop() alone.
  Options options_;
  std::string device_problem_;
  std::vector<std::pair<Device, int64_t>> memory_before_;
  int64_t begin_ns_ = 0, wall_begin_us_ = 0;
  std::vector<std::pair<int64_t, int64_t>> dropped_;  // GPUs' work started between these; 0: open

  std::atomic<uint64_t> session_{0};  // 0: nothing records
  uint64_t last_session_ = 0;
  std::mutex control_;  // start() and stop()
  std::mutex logs_mutex_;
  std::vector<std::shared_ptr<ThreadLog>> logs_;
  int threads_seen_ = 0;
};

/// Frames of the calling thread, innermost first: those of the language binding's program, else
/// those of the C++ program.
std::vector<std::string> capture_stack(int limit);

}  // namespace arete::profile
