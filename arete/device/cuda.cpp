// In terms of whatever backend has registered for CUDA.
#include "arete/device/cuda.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "arete/base/error.h"
#include "arete/core/memory_events.h"
#include "arete/core/tracing.h"
#include "arete/prim/backend.h"
#include "arete/prim/plugin_internal.h"
#include "arete/prim/recorder.h"

namespace arete::cuda {
namespace {

using prim::Backend;

prim::DeviceProvider* provider() { return prim::find_provider(DeviceType::cuda); }

// With the checks and the texts of backend_for.
int checked(int device) {
  if (device == -1) device = current_ordinal();
  ARETE_CHECK(provider(), DeviceError("", "CUDA is not available: " + unavailable_reason()));
  prim::check_not_forked();
  const int n = device_count();
  ARETE_CHECK(device >= 0 && device < n,
              DeviceError("", "CUDA error: invalid device ordinal")
                  .got("cuda:" + std::to_string(device))
                  .expected("an ordinal below " + std::to_string(n) + ", the number of devices"));
  return device;
}

Backend& backend(int device) {
  return prim::backend_for(Device(DeviceType::cuda, checked(device)));
}

// Null if the device has not been used: then its counters are 0 and nothing is to be done.
Backend* backend_if_used(int device) {
  if (device == -1) device = current_ordinal();
  if (device < 0 || device > 127) return nullptr;
  return prim::used_backend(Device(DeviceType::cuda, device));
}

tracing::HostEvent wait_of(const char* what, const Backend& b) {
  return {tracing::HostEvent::Kind::synchronize, what, b.device(), 0, true};
}

}  // namespace

bool is_available() { return provider() != nullptr; }
std::string unavailable_reason() { return prim::unavailable_reason(DeviceType::cuda); }
bool is_initialized() {
  for (int i = 0; i < 128; ++i)
    if (backend_if_used(i)) return true;
  return false;
}
void init() { backend(-1); }
bool is_in_bad_fork() noexcept { return prim::is_forked_from_device_user(); }
int device_count() { return provider() ? provider()->count() : 0; }
int current_device() noexcept { return current_ordinal(); }
namespace {
thread_local bool chosen = false;
}  // namespace
void set_device(int device, bool chooses) {
  set_current_ordinal(checked(device));
  chosen = chosen || chooses;
}
bool has_chosen_device() noexcept { return chosen; }
DeviceGuard::~DeviceGuard() { set_current_ordinal(previous_); }

DeviceProperties get_device_properties(int device) {
  device = checked(device);
  return provider()->properties(device);
}

std::vector<std::pair<std::string, std::string>> versions() {
  if (!provider()) return {};
  return provider()->versions();
}

std::vector<std::pair<std::string, std::string>> survey(bool start) {
  std::vector<std::pair<std::string, std::string>> lines;
  if (!start) {
    lines = prim::survey_cuda_plugin();
    if (!lines.empty()) return lines;
  }
  const int count = device_count();
  if (count == 0) return {{"cuda", "not available: " + unavailable_reason()}};
  std::string text = std::to_string(count) + (count == 1 ? " device" : " devices");
  for (const auto& [name, version] : versions()) text += ", " + name + " " + version;
  lines.emplace_back("cuda", text);
  for (int i = 0; i < count; ++i)
    lines.emplace_back("cuda:" + std::to_string(i), provider()->description(i));
  return lines;
}

bool can_device_access_peer(int device, int peer) {
  device = checked(device);
  peer = checked(peer);
  return device != peer && provider()->can_access_peer(device, peer);
}

void synchronize(int device) {
  prim::make_calls_of_thread();
  checked(device);
  Backend* b = backend_if_used(device);
  if (!b) return;
  const tracing::HostScope traced(wait_of("synchronize", *b));
  b->synchronize();
}

// ---- streams

struct Stream::State {
  Backend& backend;
  prim::StreamHandle handle;
  int priority = 0;
  bool owned = false;
  ~State() {
    if (owned) backend.destroy_stream(handle);
  }
};

Stream::Stream(int priority, int device) {
  Backend& b = backend(device);
  state_ = std::make_shared<State>(State{b, b.create_stream(priority), priority, false});
  state_->owned = true;
}

Stream Stream::from_native(void* stream, int device) {
  Backend& b = backend(device);
  ARETE_CHECK(stream, ValueError("Stream", "the stream is null")
                          .hint("CUDA's own default stream is not used by Arete; make a stream"));
  b.adopt_stream(stream);
  return Stream(std::make_shared<State>(State{b, stream}));
}

int Stream::device() const noexcept { return state_->backend.device().index; }
int Stream::priority() const noexcept { return state_->priority; }
void* Stream::native_handle() const noexcept { return state_->handle; }
bool Stream::query() const {
  prim::make_calls_of_thread();
  return state_->backend.stream_is_done(state_->handle);
}
void Stream::synchronize() const {
  prim::make_calls_of_thread();
  const tracing::HostScope traced(wait_of("Stream.synchronize", state_->backend));
  state_->backend.synchronize_stream(state_->handle);
}

struct Event::State {
  State(bool timing_in, bool interprocess_in) : timing(timing_in), interprocess(interprocess_in) {}
  ~State() {
    if (handle) backend->destroy_event(handle);
  }
  void make(Backend& b);  // unless it is there
  bool timing, interprocess;
  Backend* backend = nullptr;  // of the first stream it was recorded on
  prim::EventHandle handle = nullptr;
};

void Stream::wait_event(const Event& event) const {
  prim::make_calls_of_thread();
  if (event.state_->handle) state_->backend.stream_wait_event(state_->handle, event.state_->handle);
}

void Stream::wait_stream(const Stream& other) const {
  prim::make_calls_of_thread();
  if (*this == other) return;
  wait_event(other.record_event());
}

Event Stream::record_event() const {
  prim::make_calls_of_thread();
  Event event;
  event.record(*this);
  return event;
}

bool Stream::operator==(const Stream& other) const noexcept {
  return &state_->backend == &other.state_->backend && state_->handle == other.state_->handle;
}

Stream current_stream(int device) {
  Backend& b = backend(device);
  return Stream(std::make_shared<Stream::State>(Stream::State{b, b.current_stream()}));
}
Stream default_stream(int device) {
  Backend& b = backend(device);
  return Stream(std::make_shared<Stream::State>(Stream::State{b, b.default_stream()}));
}
void set_stream(const Stream& stream) {
  prim::make_calls_of_thread();
  stream.state_->backend.set_current_stream(stream.state_->handle);
}

StreamGuard::StreamGuard(const Stream& stream)
    : device_(stream.device()), previous_(current_stream(stream.device())), stream_(stream) {
  set_stream(stream_);
}
StreamGuard::~StreamGuard() {
  try {
    set_stream(previous_);
  } catch (...) {
    // It was the current one before.
  }
}

// ---- events

namespace {
prim::DeviceMemory& event_sharing() {
  prim::DeviceMemory* const memory = prim::find_device_memory();
  ARETE_CHECK(memory, DeviceError("Event", "the devices here share no events with processes"));
  return *memory;
}
}  // namespace

void Event::State::make(Backend& b) {
  if (handle) return;
  handle =
      interprocess ? event_sharing().create_shared_event(b.device().index) : b.create_event(timing);
  backend = &b;
}

Event::Event(bool enable_timing, bool interprocess)
    : state_(std::make_shared<State>(enable_timing, interprocess)) {
  ARETE_CHECK(!(enable_timing && interprocess),
              ValueError("Event",
                         "events of several processes have no times: enable_timing and "
                         "interprocess exclude each other"));
}
Event Event::from_ipc_handle(const std::string& handle, int device) {
  Backend& b = backend(device);
  Event event(false, true);
  event.state_->handle = event_sharing().open_event(b.device().index, handle);
  event.state_->backend = &b;
  return event;
}
std::string Event::ipc_handle() const {
  ARETE_CHECK(state_->interprocess,
              ValueError("ipc_handle", "the event is one of this process alone")
                  .hint("make it with interprocess"));
  state_->make(state_->backend ? *state_->backend : backend(-1));
  return event_sharing().handle_of_event(device(), state_->handle);
}
void Event::record() { record(current_stream()); }
void Event::record(const Stream& stream) {
  prim::make_calls_of_thread();
  Backend& b = stream.state_->backend;
  state_->make(b);
  ARETE_CHECK(&b == state_->backend,
              DeviceError("record", "an event stays on the device it was first recorded on")
                  .expected(state_->backend->device().to_string())
                  .got("a stream of " + b.device().to_string()));
  b.record_event(state_->handle, stream.state_->handle);
}
bool Event::query() const {
  prim::make_calls_of_thread();
  return !state_->handle || state_->backend->event_is_done(state_->handle);
}
void Event::synchronize() const {
  prim::make_calls_of_thread();
  if (!state_->handle) return;
  const tracing::HostScope traced(wait_of("Event.synchronize", *state_->backend));
  state_->backend->synchronize_event(state_->handle);
}
double Event::elapsed_time(const Event& end) const {
  ARETE_CHECK(state_->timing && end.state_->timing,
              ValueError("elapsed_time",
                         "Both events must be created with argument "
                         "'enable_timing=True'."));
  ARETE_CHECK(
      state_->handle && end.state_->handle,
      ValueError("elapsed_time", "Both events must be recorded before calculating elapsed time."));
  ARETE_CHECK(state_->backend == end.state_->backend,
              DeviceError("elapsed_time", "the events are on different devices")
                  .got(state_->backend->device().to_string() + " and " +
                       end.state_->backend->device().to_string()));
  synchronize();
  end.synchronize();
  return state_->backend->elapsed_time(state_->handle, end.state_->handle);
}

void* Event::native_handle() const noexcept { return state_->handle; }
int Event::device() const noexcept {
  return state_->backend ? state_->backend->device().index : -1;
}

// ---- graphs

struct MemPool::State {
  Backend& backend;
  uint64_t id;
  State(Backend& b) : backend(b), id(b.create_pool()) {}
  ~State() { backend.release_pool(id); }
};

namespace {
prim::DeviceMemory& device_memory() {
  prim::DeviceMemory* const memory = prim::find_device_memory();
  ARETE_CHECK(memory, DeviceError("MemPool", "the devices here have no pools but those of graphs"));
  return *memory;
}
}  // namespace

MemPool::MemPool(int device, bool use_on_oom) : state_(std::make_shared<State>(backend(device))) {
  if (use_on_oom) device_memory().lend_pool(this->device(), id());
}
int MemPool::device() const noexcept { return state_->backend.device().index; }
uint64_t MemPool::id() const noexcept { return state_->id; }
int64_t MemPool::use_count() const noexcept { return state_.use_count(); }
std::vector<prim::PoolSegment> MemPool::snapshot() const {
  return device_memory().pool_segments(device(), id());
}

MemPoolGuard::MemPoolGuard(MemPool pool) : pool_(std::move(pool)) {
  prim::make_calls_of_thread();
  device_memory().enter_pool(pool_.device(), pool_.id());
}
MemPoolGuard::~MemPoolGuard() {
  try {
    prim::make_calls_of_thread();  // their results belong into the pool
  } catch (...) {
    // Whoever asks for them meets the error again.
  }
  device_memory().leave_pool(pool_.device(), pool_.id());
}

struct Graph::State {
  MemPool pool;  // outlives the graph that uses it
  Backend& backend;
  prim::GraphHandle handle;
  std::deque<std::function<void()>> before_replay;  // they stay where they are
  ~State() { backend.destroy_graph(handle); }
  static State& of(const std::shared_ptr<State>& state, const char* function) {
    ARETE_CHECK(state, DeviceError(function,
                                   "the graph holds nothing: no capture into it has ended "
                                   "well"));
    return *state;
  }
};

void Graph::replay() const {
  prim::make_calls_of_thread();
  State::of(state_, "replay");
  const std::shared_ptr<State> s = state_;  // functions may forget the graph, or add others
  for (size_t i = 0, n = s->before_replay.size(); i < n; ++i) s->before_replay[i]();
  s->backend.launch_graph(s->handle, s->backend.current_stream());
}

void Graph::before_replay(std::function<void()> function) {
  State::of(state_, "before_replay").before_replay.push_back(std::move(function));
}

namespace {
/// The captures that have not ended, with the threads that began them.
struct OpenCaptures {
  std::mutex mutex;
  std::vector<std::pair<std::thread::id, GraphCapture*>> all;
};
OpenCaptures& open_captures() {
  static auto* const captures = new OpenCaptures;
  return *captures;
}
void forget(const GraphCapture* capture) {
  OpenCaptures& open = open_captures();
  const std::lock_guard lock(open.mutex);
  std::erase_if(open.all, [&](const auto& c) { return c.second == capture; });
}
}  // namespace

// A stream of its own, so that no other thread's work on the current one gets into the graph.
GraphCapture::GraphCapture(Graph& graph) : GraphCapture(graph, MemPool()) {}
GraphCapture::GraphCapture(Graph& graph, MemPool pool)
    : GraphCapture(graph, pool, Stream(0, pool.device())) {}
GraphCapture::GraphCapture(Graph& graph, const Stream& stream)
    : GraphCapture(graph, MemPool(stream.device()), stream) {}
GraphCapture::GraphCapture(Graph& graph, MemPool pool, const Stream& stream)
    : graph_(graph),
      pool_(std::move(pool)),
      stream_(stream),
      exceptions_(std::uncaught_exceptions()) {
  Backend& b = pool_.state_->backend;
  ARETE_CHECK(stream_.device() == pool_.device(),
              DeviceError("GraphCapture", "the stream and the pool are on different devices")
                  .expected("a stream of " + b.device().to_string())
                  .got("one of cuda:" + std::to_string(stream_.device())));
  ARETE_CHECK(!(stream_ == default_stream(pool_.device())),
              DeviceError("GraphCapture", "CUDA graphs must be captured on a non-default stream")
                  .hint("capture on a cuda::Stream, or leave the stream out"));
  const Stream before = current_stream(pool_.device());
  guard_ = std::make_unique<StreamGuard>(before);
  ARETE_CHECK(!b.is_capturing(),
              DeviceError("GraphCapture", "the current stream is already being captured"));
  set_stream(stream_);
  ARETE_CHECK(!b.is_capturing(),
              DeviceError("GraphCapture", "the stream is already being captured"));
  stream_.wait_stream(before);
  graph_.reset();
  b.begin_capture(stream_.native_handle(), pool_.state_->id);
  OpenCaptures& open = open_captures();
  const std::lock_guard lock(open.mutex);
  open.all.emplace_back(std::this_thread::get_id(), this);
}

void GraphCapture::end() {
  ARETE_CHECK(open_, ValueError("GraphCapture", "the capture has ended already"));
  open_ = false;
  forget(this);
  Backend& b = pool_.state_->backend;
  guard_.reset();
  graph_.state_ = std::shared_ptr<Graph::State>(
      new Graph::State{pool_,
                       b,
                       b.end_capture(stream_.native_handle()),
                       {before_replay_.begin(), before_replay_.end()}});
}

void GraphCapture::before_replay(std::function<void()> function) {
  ARETE_CHECK(open_, ValueError("GraphCapture", "the capture has ended already"));
  before_replay_.push_back(std::move(function));
}

GraphCapture* GraphCapture::current(int device) noexcept {
  if (device == -1) device = current_ordinal();
  OpenCaptures& open = open_captures();
  const std::lock_guard lock(open.mutex);
  for (const auto& [thread, capture] : open.all)
    if (thread == std::this_thread::get_id() && capture->pool_.device() == device) return capture;
  return nullptr;
}

GraphCapture::~GraphCapture() {
  if (!open_) return;
  forget(this);
  if (std::uncaught_exceptions() > exceptions_) {
    guard_.reset();
    pool_.state_->backend.discard_capture(stream_.native_handle());
    return;
  }
  try {
    end();
  } catch (...) {
    // replay() says that there is no graph.
  }
}

bool is_current_stream_capturing() {
  Backend* b = backend_if_used(-1);
  return b && b->is_capturing();
}

// ---- memory

namespace {

/// The counts at the last reset_accumulated_memory_stats of a device.
struct Baseline {
  int64_t allocations = 0, frees = 0, retries = 0, out_of_memory = 0;
  int64_t allocated_bytes = 0, freed_bytes = 0, reserved_bytes = 0, released_bytes = 0;
  int64_t segments = 0, freed_segments = 0;
};
std::mutex baseline_mutex;
std::map<int, Baseline>& baselines() {
  static std::map<int, Baseline> all;
  return all;
}

/// Everything since the start.
Baseline totals(int device, const MemoryStats& s) {
  const MemoryTotals& t = memory_totals(device);
  return {s.allocations,     s.frees,
          s.retries,         s.out_of_memory,
          t.allocated_bytes, t.allocated_bytes - int64_t(s.allocated),
          t.reserved_bytes,  t.reserved_bytes - int64_t(s.reserved),
          t.segments,        t.segments - s.segments};
}

Baseline baseline(int device) {
  const std::lock_guard lock(baseline_mutex);
  const auto it = baselines().find(device);
  return it == baselines().end() ? Baseline{} : it->second;
}

int number_of(int device) { return device == -1 ? current_ordinal() : device; }

}  // namespace

MemoryStats memory_stats(int device) {
  const Backend* b = backend_if_used(device);
  if (!b) return {};
  MemoryStats s = b->memory_stats();
  const Baseline base = baseline(number_of(device));
  s.allocations -= base.allocations;
  s.frees -= base.frees;
  s.retries -= base.retries;
  s.out_of_memory -= base.out_of_memory;
  return s;
}

void reset_accumulated_memory_stats(int device) {
  const Backend* b = backend_if_used(device);
  if (!b) return;
  const Baseline now = totals(number_of(device), b->memory_stats());
  const std::lock_guard lock(baseline_mutex);
  baselines()[number_of(device)] = now;
}

std::vector<std::pair<std::string, int64_t>> memory_stats_by_name(int device) {
  const Backend* b = backend_if_used(device);
  const MemoryStats s = b ? b->memory_stats() : MemoryStats{};
  const Baseline now = b ? totals(number_of(device), s) : Baseline{};
  const Baseline base = b ? baseline(number_of(device)) : Baseline{};
  std::vector<std::pair<std::string, int64_t>> out;
  const auto add = [&](const std::string& name, int64_t current, int64_t peak, int64_t allocated,
                       int64_t freed) {
    for (const char* pool : {"all", "large_pool", "small_pool"}) {
      const int64_t has = pool[0] == 's' ? 0 : 1;
      out.emplace_back(name + "." + pool + ".current", has * current);
      out.emplace_back(name + "." + pool + ".peak", has * peak);
      out.emplace_back(name + "." + pool + ".allocated", has * allocated);
      out.emplace_back(name + "." + pool + ".freed", has * freed);
    }
  };
  const int64_t allocations = now.allocations - base.allocations, frees = now.frees - base.frees;
  const int64_t allocated = now.allocated_bytes - base.allocated_bytes,
                freed = now.freed_bytes - base.freed_bytes;
  const int64_t live = int64_t(s.allocated), active = live + int64_t(s.pending),
                peak = int64_t(s.peak_allocated), reserved = int64_t(s.reserved);
  add("allocation", s.blocks, s.peak_blocks, allocations, frees);
  add("active", s.blocks, s.peak_blocks, allocations, frees);
  add("allocated_bytes", live, peak, allocated, freed);
  add("requested_bytes", live, peak, allocated, freed);
  add("active_bytes", active, std::max(active, peak), allocated, freed);
  add("reserved_bytes", reserved, int64_t(s.peak_reserved),
      now.reserved_bytes - base.reserved_bytes, now.released_bytes - base.released_bytes);
  const int64_t segments = now.segments - base.segments,
                freed_segments = now.freed_segments - base.freed_segments;
  add("segment", s.segments, s.segments, segments, freed_segments);
  add("inactive_split", 0, 0, 0, 0);
  add("inactive_split_bytes", reserved - active, reserved - active, 0, 0);
  for (const char* name : {"oversize_allocations", "oversize_segments"})
    for (const char* part : {"current", "peak", "allocated", "freed"})
      out.emplace_back(std::string(name) + "." + part, 0);
  out.emplace_back("max_split_size", -1);
  out.emplace_back("num_alloc_retries", now.retries - base.retries);
  out.emplace_back("num_ooms", now.out_of_memory - base.out_of_memory);
  out.emplace_back("num_sync_all_streams", now.retries - base.retries);
  out.emplace_back("num_device_alloc", segments);
  out.emplace_back("num_device_free", freed_segments);
  std::sort(out.begin(), out.end());
  return out;
}

size_t memory_allocated(int device) { return memory_stats(device).allocated; }
size_t max_memory_allocated(int device) { return memory_stats(device).peak_allocated; }
size_t memory_reserved(int device) { return memory_stats(device).reserved; }
size_t max_memory_reserved(int device) { return memory_stats(device).peak_reserved; }
void reset_peak_memory_stats(int device) {
  if (Backend* b = backend_if_used(device)) b->reset_peak_memory_stats();
}

namespace {

std::string amount(int64_t value, bool bytes) {
  static constexpr const char *kBytes[] = {"B", "KiB", "MiB", "GiB", "TiB"},
                              *kCounts[] = {"", "K", "M", "G", "T"};
  const int64_t step = bytes ? 1024 : 1000;
  int unit = 0;
  for (; unit < 4 && std::abs(value) >= 1000 * step; ++unit) value /= step;
  char text[32];
  std::snprintf(text, sizeof text, "%6lld %-3s", static_cast<long long>(value),
                (bytes ? kBytes : kCounts)[unit]);
  return text;
}

std::string framed(const std::string& text, int width) {
  return "|" + text + std::string(size_t(std::max(0, width - int(text.size()))), ' ') + "|\n";
}

}  // namespace

std::string memory_summary(int device, bool abbreviated) {
  constexpr int kWidth = 75;
  const std::string thick = framed(std::string(kWidth, '='), kWidth),
                    thin = framed(std::string(kWidth, '-'), kWidth);
  std::map<std::string, int64_t> stats;
  for (auto& [name, value] : memory_stats_by_name(device)) stats[name] = value;
  std::string s = thick + framed("  CUDA memory summary, device ID " +
                                     std::to_string(device == -1 ? current_ordinal() : device),
                                 kWidth);
  s += thin + framed("  CUDA OOMs: " + std::to_string(stats["num_ooms"]) +
                         "  |  cudaMalloc retries: " + std::to_string(stats["num_alloc_retries"]),
                     kWidth);
  s += thick +
       framed(" Metric                | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed", kWidth);
  const auto row = [&](const char* label, const std::string& prefix, bool bytes) {
    char head[32];
    std::snprintf(head, sizeof head, " %-21s ", label);
    std::string line = head;
    for (const char* part : {"current", "peak", "allocated", "freed"})
      line += "| " + amount(stats[prefix + "." + part], bytes) + " ";
    s += framed(line, kWidth);
  };
  const struct {
    const char *name, *label;
    bool bytes;
  } rows[] = {{"allocated_bytes", "Allocated memory", true},
              {"active_bytes", "Active memory", true},
              {"requested_bytes", "Requested memory", true},
              {"reserved_bytes", "GPU reserved memory", true},
              {"inactive_split_bytes", "Non-releasable memory", true},
              {"allocation", "Allocations", false},
              {"active", "Active allocs", false},
              {"segment", "GPU reserved segments", false},
              {"inactive_split", "Non-releasable allocs", false}};
  for (const auto& r : rows) {
    s += thin;
    row(r.label, std::string(r.name) + ".all", r.bytes);
    if (abbreviated) continue;
    row("      from large pool", std::string(r.name) + ".large_pool", r.bytes);
    row("      from small pool", std::string(r.name) + ".small_pool", r.bytes);
  }
  s += thin;
  row("Oversize allocations", "oversize_allocations", false);
  s += thin;
  row("Oversize GPU segments", "oversize_segments", false);
  s += thick;
  const Backend* b = backend_if_used(device);
  if (b && !abbreviated) s += b->memory_summary();
  return s;
}
MemoryInfo mem_get_info(int device) { return backend(device).memory_info(); }
void empty_cache() {
  for (int i = 0; i < 128; ++i)
    if (Backend* b = backend_if_used(i)) b->empty_cache();
}
void set_per_process_memory_fraction(double fraction, int device) {
  backend(device).set_memory_fraction(fraction);
}

// ---- ranges

namespace nvtx {
void range_push(const char* name) noexcept {
  if (prim::DeviceProvider* p = provider()) p->push_range(name);
}
void range_pop() noexcept {
  if (prim::DeviceProvider* p = provider()) p->pop_range();
}

namespace {
uint64_t on_timeline(int what, const char* name, uint64_t range) noexcept {
  const prim::PluginTimeline f = provider() ? prim::plugin_timeline() : nullptr;
  return f ? f(what, name, range) : 0;
}
}  // namespace
void mark(const char* name) noexcept { on_timeline(0, name, 0); }
uint64_t range_start(const char* name) noexcept { return on_timeline(1, name, 0); }
void range_end(uint64_t range) noexcept { on_timeline(2, "", range); }
}  // namespace nvtx

}  // namespace arete::cuda
