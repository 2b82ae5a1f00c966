// What a profiler has seen, and how it is shown: averages by operator, tables, files.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "arete/core/device.h"
#include "arete/core/dtype.h"
#include "arete/core/tracing.h"
#include "arete/prim/device_trace.h"

namespace arete::profile {

/// Kinds of event: calls of operators, and of programs that users or layers apply to tensors;
/// functions of the backward pass; steps of optimizers; ranges that users name; waits and copies.
enum class EventKind : uint8_t { call, backward, optimizer, user, host };
/// "cpu_op", "user_annotation", ... as trace files name them.
const char* category_of(EventKind kind);

/// An argument that is no tensor, as a recording with shapes keeps it.
using Value = std::variant<std::monostate, bool, int64_t, double, std::vector<int64_t>>;

/// Something that began and ended on one thread of the host. Times are nanoseconds of the steady
/// clock.
struct Event {
  EventKind kind = EventKind::call;
  std::string name;
  uint64_t id = 0;      ///< unique in the process, in the order of beginning within a thread
  int64_t parent = -1;  ///< index of the event around it; -1: none
  int thread = 0;       ///< numbered from 1 in the order in which threads were first seen
  int64_t begin_ns = 0, end_ns = 0;
  int64_t sequence = -1;  ///< a forward call and its backward function have the same
  std::vector<std::vector<int64_t>> shapes;  ///< with record_shapes: one per argument, [] if none
  std::vector<std::string> dtypes;           ///< beside the shapes; "" where no tensor is
  std::vector<Value> values;                 ///< beside the shapes: numbers, lists of integers
  Device device;                             ///< of the first tensor
  DType dtype = kFloat32;                    ///< of the first result
  uint64_t stream = 0;     ///< the stream's address on a GPU; 0: the host computes
  double flops = 0;        ///< by the operator's record; 0 for views and for what others do for it
  int64_t bytes = 0;       ///< read and written by the operator, if each tensor moves once
  bool view = false;       ///< moves nothing
  bool composite = false;  ///< runs other operators
  bool failed = false;     ///< left by an exception
  std::vector<std::string> stack;                       ///< with with_stack: innermost frame first
  int64_t cpu_memory = 0, device_memory = 0;            ///< bytes taken less given back within
  int64_t self_cpu_memory = 0, self_device_memory = 0;  ///< the same without inner events
  int64_t child_ns = 0;                                 ///< time in inner events
  int64_t device_ns = 0, self_device_ns = 0;            ///< time of the GPU's work for it
  // Of kind host:
  tracing::HostEvent host;

  int64_t duration_ns() const { return end_ns - begin_ns; }
  int64_t self_ns() const { return duration_ns() - child_ns; }
  /// The name under which tables add it up: the steps of a profiler are all "ProfilerStep*".
  std::string key() const;
};

/// Memory of a tensor taken or given back.
struct MemoryChange {
  int64_t time_ns = 0;
  int thread = 0;
  Device device;
  uint64_t address = 0;
  int64_t bytes = 0;   ///< < 0: given back
  int64_t total = 0;   ///< on the device after it (on the CPU: since the profiler started)
  int64_t event = -1;  ///< index of the event in which it happened
};

/// Where the times of GPU work come from.
enum class DeviceTimes : uint8_t {
  none,    ///< no GPU was used, or CUDA was not asked for
  traced,  ///< CUPTI: each kernel, copy and fill
  events,  ///< CUDA events around each operator, since CUPTI is not to be had
};

/// Events with the same key added up.
struct Average {
  std::string key;
  bool on_device = false;  ///< a kernel or copy of the GPU itself
  EventKind kind = EventKind::call;
  bool user = false;  ///< a range that a user named
  int64_t count = 0;
  double cpu_time_total = 0, self_cpu_time_total = 0;        ///< microseconds
  double device_time_total = 0, self_device_time_total = 0;  ///< microseconds
  int64_t cpu_memory_usage = 0, self_cpu_memory_usage = 0;
  int64_t device_memory_usage = 0, self_device_memory_usage = 0;
  double flops = 0;
  int64_t bytes = 0;
  std::vector<std::vector<int64_t>> shapes;
  std::vector<std::string> stack;
  /// The same of those events that no other one encloses; null: there are none.
  std::shared_ptr<const Average> outermost;

  double cpu_time() const { return count ? cpu_time_total / double(count) : 0; }
  double device_time() const { return count ? device_time_total / double(count) : 0; }
};

/// How a table of averages looks.
struct TableOptions {
  /// "cpu_time_total", "self_cpu_time_total", "cuda_time_total", "self_cuda_time_total",
  /// "cpu_time", "cuda_time", "cpu_memory_usage", "self_cpu_memory_usage", "cuda_memory_usage",
  /// "self_cuda_memory_usage", "count", "flops", "bytes"; "device" may stand for "cuda". Empty: in
  /// the order of first appearance.
  std::string sort_by;
  int64_t row_limit = 100;  ///< -1: all
  int max_src_column_width = 75;
  int max_name_column_width = 55;
  int max_shapes_column_width = 80;
  std::string header;
  bool top_level_events_only = false;  ///< leaves out what runs within other events
};

/// A host synchronization or a transfer, as the list of them shows it.
struct Synchronization {
  std::string what;      ///< "item", "to", "synchronize", ...
  std::string kind;      ///< "to host", "from host", "peer", "wait"
  std::string device;    ///< "cuda:0"
  size_t bytes = 0;      ///< 0: a wait without a copy
  bool blocking = true;  ///< the host waited
  int64_t begin_ns = 0;
  double host_time = 0;       ///< microseconds that the host spent
  std::string operator_name;  ///< around it; "" if none
  std::string source;         ///< "train.py(12): step", where the program did it
};

/// One recording.
class Trace {
 public:
  std::vector<Event> events;  ///< of all threads, by begin; outer ones before inner ones
  std::vector<prim::DeviceActivity> activities;
  std::vector<int64_t> activity_events;  ///< per activity: index of the event behind it, or -1
  std::vector<MemoryChange> memory;
  /// What tensors held on GPUs when the recording began.
  std::vector<std::pair<Device, int64_t>> memory_before;
  int64_t begin_ns = 0, end_ns = 0;
  int64_t wall_begin_us = 0;  ///< begin_ns as microseconds since 1970
  DeviceTimes device_times = DeviceTimes::none;
  std::string device_times_problem;  ///< why CUPTI was not used
  bool with_shapes = false, with_memory = false, with_stack = false, with_flops = false;
  bool with_cpu = true;
  std::vector<std::string> thread_names;        ///< by number; [0] is not used
  std::map<std::string, std::string> metadata;  ///< for trace files, by name; values are JSON
  std::string trace_id;                         ///< for trace files

  /// Events of the host are not to be shown: only GPUs' work was asked for, and it is known.
  bool hides_host() const { return !with_cpu && device_times == DeviceTimes::traced; }
  /// One event as a row of a table.
  Average row_of(const Event& event) const;
  /// A piece of GPU work as one, and as an event with no time on the host.
  Average row_of(const prim::DeviceActivity& activity) const;
  static Event event_of(const prim::DeviceActivity& activity);

  /// Averages by name, or by name and shapes, or by the innermost `stack` frames too.
  std::vector<Average> key_averages(bool by_shape = false, int stack = 0) const;
  /// Everything in one line of a table.
  Average total_average() const;
  /// The averages as PyTorch shows them.
  std::string table(const std::vector<Average>& averages, const TableOptions& options = {}) const;

  /// Trace events in JSON, as Perfetto and chrome://tracing read them; packed where `path` ends in
  /// ".gz". IoError if that is not possible.
  void export_chrome_trace(const std::string& path) const;
  std::string chrome_trace() const;
  /// Folded stacks for flame graphs, one line each: frames from the outermost on, ";" between them,
  /// and the microseconds. `metric`: "self_cpu_time_total" or "self_cuda_time_total".
  void export_stacks(const std::string& path, const std::string& metric) const;

  /// Every transfer and every wait of the host, in order.
  std::vector<Synchronization> synchronizations() const;
  std::string synchronization_table() const;

  /// Joins events into trees and adds up what inner ones took; once, after the lists are filled.
  void finish();
};

/// "12.345us", "1.234ms", "1.234s"; "960 B", "1.09 KB", ...
std::string format_time(double microseconds);
std::string format_memory(int64_t bytes);

}  // namespace arete::profile
