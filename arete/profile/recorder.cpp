#include "arete/profile/recorder_internal.h"

#include <pthread.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <complex>
#include <exception>
#include <utility>

#include "arete/base/error.h"
#include "arete/core/history.h"
#include "arete/core/modes.h"
#include "arete/device/cuda.h"
#include "arete/ops/call.h"
#include "arete/prim/backend.h"
#include "arete/profile/cost_internal.h"

namespace arete::profile {
namespace {

int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

constexpr int kStackFrames = 64, kHostEventFrames = 16;
constexpr int kIdBits = 40;  // of an id: its number within the thread

// The stream that the calling thread's work on a GPU goes to.
void* stream_on(Device device) {
  prim::Backend* b = prim::used_backend(device);
  return b ? b->current_stream() : nullptr;
}

// What stands in place of a dtype where an argument is no tensor.
constexpr int64_t kNoValue = -1, kBoolean = -2, kInteger = -3, kReal = -4, kInts = -5;

// f(tensor or null, argument)
template <class F>
void for_each_argument(tracing::Items<ops::Arg> args, F&& f) {
  for (size_t i = 0; i < args.size; ++i) {
    const ops::Arg& a = args.data[i];
    if (a.kind() == ops::Arg::Kind::tensor) {
      f(&a.tensor(), a);
    } else if (a.kind() == ops::Arg::Kind::tensors) {
      for (const Tensor& t : a.tensors()) f(t.defined() ? &t : nullptr, a);
    } else {
      f(static_cast<const Tensor*>(nullptr), a);
    }
  }
}

Device device_of(tracing::Items<ops::Arg> args) {
  Device device;
  bool found = false;
  for_each_argument(args, [&](const Tensor* t, const ops::Arg&) {
    if (!t || (found && !device.is_cpu())) return;
    device = t->device();
    found = true;
  });
  return device;
}

std::string name_of_thread(int number) {
  char text[32] = "";
  pthread_getname_np(pthread_self(), text, sizeof text);
  return (*text ? std::string(text) : "thread") + " " + std::to_string(number);
}

}  // namespace

/// An event as its thread writes it down.
struct Recorder::Raw {
  uint64_t id = 0, parent = 0, session = 0;
  int64_t begin = 0, end = 0, sequence = -1;
  const ops::OpRecord* op = nullptr;
  std::string text;
  EventKind kind = EventKind::call;
  bool in_place = false, failed = false, composite = false, view = false;
  prim::DeviceTrace* pushed = nullptr;
  Device device;
  DType dtype = kFloat32;
  uint32_t shapes_at = 0, arguments = 0;
  uint64_t stream = 0;
  double flops = 0;
  int64_t bytes = 0;
  tracing::HostEvent host;
  std::vector<std::string> stack;
  std::unique_ptr<std::pair<cuda::Event, cuda::Event>> timing;
};

struct Recorder::ThreadLog {
  struct Change {
    int64_t time;
    Device device;
    uint64_t address;
    int64_t bytes;
    uint64_t event;
  };
  explicit ThreadLog(int n) : number(n), name(name_of_thread(n)) {}
  const int number;
  const std::string name;
  // The owner's alone.
  std::vector<Raw> stack;
  uint64_t ids = 0;
  // Under the mutex.
  std::mutex mutex;
  uint64_t session = 0;
  std::vector<Raw> done;
  std::vector<int64_t> shapes;  // per argument: dtype, rank, sizes; or what it is, its value
  std::vector<Change> memory;
};

namespace {
// A pointer and a flag, since events may still come while the thread's objects are destroyed.
thread_local constinit void* this_log = nullptr;
thread_local constinit bool log_is_gone = false;
}  // namespace

struct Recorder::ThreadEnd {
  std::shared_ptr<ThreadLog> log;
  ~ThreadEnd() {
    this_log = nullptr;
    log_is_gone = true;
  }
};

Recorder& Recorder::get() {
  static Recorder* const recorder = new Recorder;  // listeners live as long as the process
  return *recorder;
}

Recorder::ThreadLog* Recorder::log() {
  if (this_log) [[likely]]
    return static_cast<ThreadLog*>(this_log);
  if (log_is_gone) return nullptr;
  thread_local ThreadEnd end;
  const std::lock_guard lock(logs_mutex_);
  end.log = std::make_shared<ThreadLog>(++threads_seen_);
  logs_.push_back(end.log);
  this_log = end.log.get();
  return end.log.get();
}

// ---- start and stop

void Recorder::start(const Options& options) {
  const std::lock_guard control(control_);
  ARETE_CHECK(session_.load() == 0, ValueError("profile", "a profiler is running already")
                                        .hint("stop it first: there is one for all threads"));
  ARETE_CHECK(!tracing::listener(),
              ValueError("profile", "emit_nvtx is on").hint("profile outside of emit_nvtx"));
  options_ = options;
  dropped_.clear();
  prim::DeviceTrace* device_trace = nullptr;
  device_problem_.clear();
  if (options.cuda && cuda::is_available()) {
    prim::DeviceTrace* const found = prim::find_device_trace();
    device_problem_ = found ? found->problem() : "the CUDA backend brings no tracing";
    if (device_problem_.empty()) {
      try {
        found->start();
        device_trace = found;
      } catch (const Error& e) {
        device_problem_ = e.what();
      }
    }
  }
  device_trace_.store(device_trace, std::memory_order_relaxed);
  const bool time_with_events = options.cuda && !device_trace && cuda::is_available();
  flags_.store((options.record_shapes ? kShapes : 0) | (options.with_stack ? kStack : 0) |
                   (time_with_events ? kTimeWithEvents : 0),
               std::memory_order_relaxed);
  memory_before_.clear();
  if (options.profile_memory && options.cuda && cuda::is_available())
    for (int i = 0; i < cuda::device_count(); ++i)
      memory_before_.emplace_back(Device(DeviceType::cuda, i), int64_t(cuda::memory_allocated(i)));
  begin_ns_ = now_ns();
  wall_begin_us_ =
      std::chrono::system_clock::now().time_since_epoch() / std::chrono::microseconds(1);
  session_.store(++last_session_, std::memory_order_release);
  if (options.profile_memory) add_memory_observer(this);
  tracing::set_listener(this);
}

std::shared_ptr<Trace> Recorder::stop() {
  const std::lock_guard control(control_);
  auto trace = std::make_shared<Trace>();
  trace->end_ns = now_ns();
  tracing::set_listener(nullptr);
  if (options_.profile_memory) remove_memory_observer(this);
  session_.store(0, std::memory_order_release);
  trace->begin_ns = begin_ns_;
  trace->memory_before = memory_before_;
  trace->wall_begin_us = wall_begin_us_;
  trace->with_cpu = options_.cpu;
  trace->with_shapes = options_.record_shapes;
  trace->with_memory = options_.profile_memory;
  trace->with_stack = options_.with_stack;
  trace->with_flops = options_.with_flops;
  trace->device_times_problem = device_problem_;
  std::vector<std::shared_ptr<ThreadLog>> logs;
  {
    const std::lock_guard lock(logs_mutex_);
    logs = logs_;
    trace->thread_names.resize(size_t(threads_seen_) + 1);
    // Of threads that have ended only what they wrote is kept, by `logs`.
    std::erase_if(logs_, [](const auto& l) { return l.use_count() <= 2; });
  }
  for (const auto& l : logs) collect(*trace, *l);
  if (prim::DeviceTrace* const d = device_trace_.load(std::memory_order_relaxed)) {
    trace->device_times = DeviceTimes::traced;
    trace->activities = d->stop();
    if (!dropped_.empty() && dropped_.back().second == 0) dropped_.back().second = trace->end_ns;
    std::erase_if(trace->activities, [&](const prim::DeviceActivity& a) {
      const int64_t at = a.call_ns ? a.call_ns : a.begin_ns;
      return std::any_of(dropped_.begin(), dropped_.end(),
                         [&](const auto& d) { return d.first <= at && at < d.second; });
    });
  } else if (wants(kTimeWithEvents)) {
    trace->device_times = DeviceTimes::events;
  }
  trace->finish();
  return trace;
}

void Recorder::toggle(bool on, bool cpu, bool cuda) {
  const std::lock_guard control(control_);
  if (session_.load() == 0) return;
  if (cpu) tracing::set_listener(on ? this : nullptr);
  if (!cuda) return;
  const bool is_off = !dropped_.empty() && dropped_.back().second == 0;
  if (on && is_off) dropped_.back().second = now_ns();
  if (!on && !is_off) dropped_.emplace_back(now_ns(), 0);
}

void Recorder::collect(Trace& trace, ThreadLog& log) {
  std::vector<Raw> done;
  std::vector<int64_t> shapes;
  std::vector<ThreadLog::Change> memory;
  {
    const std::lock_guard lock(log.mutex);
    if (log.session != last_session_) return;
    log.session = 0;
    done.swap(log.done);
    shapes.swap(log.shapes);
    memory.swap(log.memory);
  }
  if (done.empty() && memory.empty()) return;
  trace.thread_names[size_t(log.number)] = log.name;
  for (Raw& r : done) {
    Event e;
    e.kind = r.kind;
    e.name = r.op ? r.op->name + (r.in_place ? "_" : "") : std::move(r.text);
    e.id = r.id;
    e.parent = int64_t(r.parent);  // an id until finish() makes it an index
    e.thread = log.number;
    e.begin_ns = r.begin;
    e.end_ns = r.end;
    e.sequence = r.sequence;
    const int64_t* at = shapes.data() + r.shapes_at;
    for (uint32_t i = 0; i < r.arguments; ++i) {
      const int64_t what = *at++, value = *at++;
      e.dtypes.emplace_back(what < 0 ? std::string() : std::string(name_of(DType(what))));
      e.shapes.emplace_back(at, at + (what < 0 ? 0 : value));
      Value& v = e.values.emplace_back();
      if (what == kBoolean) v = value != 0;
      if (what == kInteger) v = value;
      if (what == kReal) v = std::bit_cast<double>(value);
      if (what == kInts) v = std::vector<int64_t>(at, at + value);
      at += what >= 0 || what == kInts ? value : 0;
    }
    e.device = r.device;
    e.dtype = r.dtype;
    e.stream = r.stream;
    e.flops = r.flops;
    e.bytes = r.bytes;
    e.view = r.view;
    e.composite = r.composite;
    e.failed = r.failed;
    e.stack = std::move(r.stack);
    e.host = r.host;
    if (r.timing) {
      try {
        e.self_device_ns = int64_t(r.timing->first.elapsed_time(r.timing->second) * 1e6);
      } catch (const Error&) {
        // A failed device has no times; its own error shows where it is next used.
      }
    }
    trace.events.push_back(std::move(e));
  }
  for (const ThreadLog::Change& c : memory)
    trace.memory.push_back({c.time, log.number, c.device, c.address, c.bytes, 0, int64_t(c.event)});
}

// ---- what threads write

Recorder::Raw& Recorder::push(ThreadLog& log, EventKind kind) {
  Raw& raw = log.stack.emplace_back();
  raw.kind = kind;
  raw.id = uint64_t(log.number) << kIdBits | ++log.ids;
  raw.session = session_.load(std::memory_order_acquire);
  if (log.stack.size() > 1) {
    const Raw& outer = log.stack[log.stack.size() - 2];
    if (outer.session == raw.session) raw.parent = outer.id;
  }
  return raw;
}

uint64_t Recorder::begun(ThreadLog&, Raw& raw) {
  if (raw.session) {
    raw.pushed = device_trace_.load(std::memory_order_relaxed);
    if (raw.pushed) raw.pushed->push_range(raw.id);
  }
  raw.begin = now_ns();
  return raw.id;
}

template <class F>
void Recorder::end(uint64_t id, F&& fill) {
  const int64_t at = now_ns();
  ThreadLog* const l = log();
  // Not of this thread: a range that was moved to another one, which then has no end.
  if (!l || id >> kIdBits != uint64_t(l->number)) return;
  while (!l->stack.empty() && l->stack.back().id >= id) {
    Raw& raw = l->stack.back();
    const bool found = raw.id == id;
    if (raw.pushed) raw.pushed->pop_range();
    if (raw.session && raw.session == session_.load(std::memory_order_acquire)) {
      raw.end = at;
      if (found) fill(*l, raw);
      file(*l, std::move(raw));
    }
    l->stack.pop_back();
  }
}

void Recorder::file(ThreadLog& log, Raw&& raw) {
  const std::lock_guard lock(log.mutex);
  const uint64_t session = session_.load(std::memory_order_acquire);
  if (raw.session != session) return;
  adopt(log, session);
  log.done.push_back(std::move(raw));
}

void Recorder::adopt(ThreadLog& log, uint64_t session) {
  if (log.session == session) return;
  log.session = session;
  log.done.clear();
  log.memory.clear();
  log.shapes.clear();
}

uint64_t Recorder::begin_call(const ops::OpRecord& op, tracing::Items<ops::Arg> args,
                              bool in_place) noexcept {
  ThreadLog* const l = log();
  if (!l) return 0;
  Raw& raw = push(*l, EventKind::call);
  raw.op = &op;
  raw.in_place = in_place;
  if (wants(kStack)) raw.stack = capture_stack(kStackFrames);
  if (wants(kTimeWithEvents) && !op.compose && !op.view && !op.views) {
    const Device device = device_of(args);
    if (device.is_cuda()) {
      prim::Backend* const b = prim::used_backend(device);
      if (b && !b->is_capturing()) try {
          raw.timing = std::make_unique<std::pair<cuda::Event, cuda::Event>>(true, true);
          raw.timing->first.record(cuda::current_stream(device.index));
        } catch (const Error&) {
          raw.timing.reset();
        }
    }
  }
  return begun(*l, raw);
}

void Recorder::end_call(uint64_t id, const ops::OpRecord& op, tracing::Items<ops::Arg> args,
                        tracing::Items<Tensor> results) noexcept {
  end(id, [&](ThreadLog& l, Raw& raw) {
    raw.failed = results.size == 0 && !op.views;
    raw.view = op.view || op.views;
    raw.composite = op.compose != nullptr;
    raw.device = device_of(args);
    if (results.size > 0 && results.data[0].defined()) {
      const Tensor& first = results.data[0];
      raw.dtype = first.dtype();
      if (raw.device.is_cpu()) raw.device = first.device();
      // The number of the node that this call has made, if it has made one.
      const AutogradMeta* const meta = first.impl()->autograd.get();
      if (!raw.composite && meta && meta->grad_fn.node && modes().grad_enabled)
        raw.sequence = int64_t(meta->grad_fn.node->sequence);
    }
    if (raw.device.is_cuda()) {
      raw.stream = reinterpret_cast<uint64_t>(stream_on(raw.device));
      if (raw.timing) try {
          raw.timing->second.record(cuda::current_stream(raw.device.index));
        } catch (const Error&) {
          raw.timing.reset();
        }
    }
    if (!raw.failed && !raw.view && !raw.composite) {
      const Cost cost =
          cost_of(op, {args.data, args.size}, {results.data, results.size}, raw.in_place);
      raw.flops = cost.flops;
      raw.bytes = cost.bytes;
    }
    if (!wants(kShapes)) return;
    const std::lock_guard lock(l.mutex);
    adopt(l, raw.session);
    raw.shapes_at = uint32_t(l.shapes.size());
    for_each_argument(args, [&](const Tensor* t, const ops::Arg& a) {
      ++raw.arguments;
      const auto note = [&](int64_t what, int64_t value, IntList list = {}) {
        l.shapes.push_back(what);
        l.shapes.push_back(value);
        l.shapes.insert(l.shapes.end(), list.begin(), list.end());
      };
      if (t) return note(int64_t(t->dtype()), t->dim(), t->sizes());
      using Kind = ops::Arg::Kind;
      const Scalar s = a.kind() == Kind::boolean || a.kind() == Kind::integer ||
                               a.kind() == Kind::real || a.kind() == Kind::scalar
                           ? a.scalar()
                           : Scalar(std::complex<double>());
      if (a.kind() == Kind::ints) return note(kInts, int64_t(a.ints().size()), a.ints());
      if (s.is_complex()) return note(kNoValue, 0);
      if (s.is_boolean()) return note(kBoolean, s.to_bool());
      if (s.is_integral()) return note(kInteger, s.to_int64());
      note(kReal, std::bit_cast<int64_t>(s.to_double()));
    });
  });
}

uint64_t Recorder::begin_range(tracing::RangeKind kind, std::string_view name,
                               int64_t sequence) noexcept {
  ThreadLog* const l = log();
  if (!l) return 0;
  using tracing::RangeKind;
  Raw& raw = push(*l, kind == RangeKind::user       ? EventKind::user
                      : kind == RangeKind::backward ? EventKind::backward
                                                    : EventKind::optimizer);
  raw.text = name;
  raw.sequence = sequence;
  if (wants(kStack)) raw.stack = capture_stack(kStackFrames);
  return begun(*l, raw);
}

void Recorder::end_range(uint64_t id) noexcept {
  end(id, [](ThreadLog&, Raw&) {});
}

uint64_t Recorder::begin_host_event(const tracing::HostEvent& event) noexcept {
  ThreadLog* const l = log();
  if (!l) return 0;
  Raw& raw = push(*l, EventKind::host);
  raw.host = event;
  raw.device = event.device;
  using Kind = tracing::HostEvent::Kind;
  raw.text = event.kind == Kind::synchronize ? "Synchronize"
             : event.kind == Kind::to_host   ? "Copy to host"
             : event.kind == Kind::from_host ? "Copy from host"
                                             : "Copy between devices";
  raw.stack = capture_stack(wants(kStack) ? kStackFrames : kHostEventFrames);
  return begun(*l, raw);
}

void Recorder::end_host_event(uint64_t id) noexcept {
  end(id, [](ThreadLog&, Raw&) {});
}

void Recorder::on_memory(const MemoryEvent& e) noexcept {
  const bool taken = e.action == MemoryEvent::Action::alloc;
  if ((!taken && e.action != MemoryEvent::Action::free) || e.bytes == 0) return;
  ThreadLog* const l = log();
  if (!l) return;
  const int64_t at = now_ns();
  const std::lock_guard lock(l->mutex);
  const uint64_t session = session_.load(std::memory_order_acquire);
  if (!session) return;
  adopt(*l, session);
  const bool inside = !l->stack.empty() && l->stack.back().session == session;
  const auto bytes = int64_t(e.bytes);
  l->memory.push_back(
      {at, e.device, e.address, taken ? bytes : -bytes, inside ? l->stack.back().id : 0});
}

}  // namespace arete::profile
