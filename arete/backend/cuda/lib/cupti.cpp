#include "arete/backend/cuda/lib/cupti.h"

#include <cuda.h>
#include <cxxabi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "arete/backend/cuda/lib/cupti_records.h"
#include "arete/backend/cuda/runtime/context.h"
#include "arete/backend/cuda/runtime/driver.h"
#include "arete/backend/cuda/runtime/dynamic_library.h"
#include "arete/backend/cuda/runtime/kernel.h"
#include "arete/base/error.h"
#include "arete/prim/backend.h"

namespace arete::cuda {
namespace {

using namespace cupti;

extern "C" {
using BufferRequested = void (*)(uint8_t** buffer, size_t* size, size_t* max_records);
using BufferCompleted = void (*)(CUcontext, uint32_t stream, uint8_t* buffer, size_t size,
                                 size_t valid);
using Callback = void (*)(void* own, int32_t domain, uint32_t call, const void* data);
}

struct Functions {
  Result (*get_version)(uint32_t*) = nullptr;
  Result (*get_timestamp)(uint64_t*) = nullptr;
  Result (*get_result_string)(Result, const char**) = nullptr;
  Result (*register_callbacks)(BufferRequested, BufferCompleted) = nullptr;
  Result (*enable)(Kind) = nullptr;
  Result (*disable)(Kind) = nullptr;
  Result (*flush_all)(uint32_t) = nullptr;
  Result (*next_record)(uint8_t*, size_t, void**) = nullptr;
  Result (*push_id)(int32_t, uint64_t) = nullptr;
  Result (*pop_id)(int32_t, uint64_t*) = nullptr;
  Result (*subscribe)(void** subscriber, Callback, void* own) = nullptr;
  Result (*unsubscribe)(void* subscriber) = nullptr;
  Result (*enable_callback)(uint32_t on, void* subscriber, int32_t domain, uint32_t call) = nullptr;
  Result (*get_callback_name)(int32_t domain, uint32_t call, const char** name) = nullptr;
  Result (*finalize)() = nullptr;  // null where detaching is not safe
  std::string problem;
};

// The oldest interface whose records have the places declared in cupti_records.h: CUDA 11's.
constexpr uint32_t kOldestVersion = 14;
// From CUDA 12.6 on CUDA graphs made while CUPTI is attached outlive it.
constexpr uint32_t kDetachVersion = 24;

const Functions& functions() {
  static const Functions* const all = [] {
    auto* const f = new Functions;  // kept for the process
    std::vector<std::string> names{"libcupti.so." + std::to_string(CUDA_VERSION / 1000),
                                   "libcupti.so.13", "libcupti.so.12", "libcupti.so"};
    // Toolkits keep it in a folder of its own.
    if (const char* home = std::getenv("CUDA_HOME"); home && *home)
      names.push_back(std::string(home) + "/extras/CUPTI/lib64/libcupti.so");
    names.push_back("/usr/local/cuda/extras/CUPTI/lib64/libcupti.so");
    static const DynamicLibrary library("CUPTI, CUDA's library for profilers", std::move(names));
    if (!library.is_open()) {
      f->problem = library.problem();
      return f;
    }
    library.look_up(f->get_version, "cuptiGetVersion", f->problem);
    library.look_up(f->get_timestamp, "cuptiGetTimestamp", f->problem);
    library.look_up(f->get_result_string, "cuptiGetResultString", f->problem);
    library.look_up(f->register_callbacks, "cuptiActivityRegisterCallbacks", f->problem);
    library.look_up(f->enable, "cuptiActivityEnable", f->problem);
    library.look_up(f->disable, "cuptiActivityDisable", f->problem);
    library.look_up(f->flush_all, "cuptiActivityFlushAll", f->problem);
    library.look_up(f->next_record, "cuptiActivityGetNextRecord", f->problem);
    library.look_up(f->push_id, "cuptiActivityPushExternalCorrelationId", f->problem);
    library.look_up(f->pop_id, "cuptiActivityPopExternalCorrelationId", f->problem);
    library.look_up(f->subscribe, "cuptiSubscribe", f->problem);
    library.look_up(f->unsubscribe, "cuptiUnsubscribe", f->problem);
    library.look_up(f->enable_callback, "cuptiEnableCallback", f->problem);
    library.look_up(f->get_callback_name, "cuptiGetCallbackName", f->problem);
    if (!f->problem.empty()) return f;
    uint32_t version = 0;
    if (f->get_version(&version) != 0 || version < kOldestVersion)
      f->problem = library.path() + " is too old: version " + std::to_string(version) +
                   ", needed is " + std::to_string(kOldestVersion);
    std::string ignored;
    if (version >= kDetachVersion) library.look_up(f->finalize, "cuptiFinalize", ignored);
    return f;
  }();
  return *all;
}

void check(Result r, const char* what) {
  if (r == 0) return;
  const char* said = nullptr;
  functions().get_result_string(r, &said);
  throw DeviceError("profile", std::string("CUPTI: ") + what +
                                   " failed: " + (said ? said : std::to_string(r).c_str()))
      .hint(
          "another profiler may be at work, or the driver may allow profiling to the "
          "administrator only");
}

std::string demangled(const char* name) {
  if (!name) return "kernel";
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = status == 0 && text ? text : name;
  std::free(text);
  return result;
}

std::string name_of_copy(const MemcpyRecord& r) {
  static constexpr const char* kKinds[] = {"",     "HtoD", "DtoH", "HtoA", "AtoH", "AtoA",
                                           "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"};
  static constexpr const char* kMemory[] = {"Unknown", "Pageable", "Pinned", "Device",
                                            "Array",   "Managed",  "Device", "Managed"};
  const auto pick = [](const auto& names, size_t i) {
    return std::string(i < std::size(names) ? names[i] : "Unknown");
  };
  return "Memcpy " + pick(kKinds, r.copy_kind) + " (" + pick(kMemory, r.source_kind) + " -> " +
         pick(kMemory, r.target_kind) + ")";
}

int64_t steady_now() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

/// What is known of a call that gave work to a device; 0 stands for nothing.
struct DriverCall {
  uint32_t correlation = 0;
  uint64_t range = 0;
  int64_t begin = 0;
};

/// What one of CUPTI's buffers held.
struct Records {
  std::vector<prim::DeviceActivity> activities;
  std::vector<DriverCall> calls;
};

/// CUPTI's threads, and those that make calls, write; stop() takes. Every launch waits for the
/// mutex: nobody reads a buffer while holding it.
struct Delivered {
  std::mutex mutex;
  std::vector<Records> buffers;
  std::vector<DriverCall> calls;  // of callbacks
};
Delivered& delivered() {
  static Delivered* const d = new Delivered;  // CUPTI's threads may outlive static objects
  return *d;
}

prim::DeviceActivity activity(prim::DeviceActivity::Kind kind, const auto& r) {
  prim::DeviceActivity a;
  a.kind = kind;
  a.begin_ns = int64_t(r.start);
  a.end_ns = int64_t(r.end);
  a.device = Device(DeviceType::cuda, int(r.device));
  a.context = r.context;
  a.stream = r.stream;
  a.correlation = r.correlation;
  return a;
}

void take(const void* record, Records& to) {
  using prim::DeviceActivity;
  switch (*static_cast<const Kind*>(record)) {
    case kKernel:
    case kConcurrentKernel: {
      const auto& r = *static_cast<const KernelRecord*>(record);
      DeviceActivity a = activity(DeviceActivity::Kind::kernel, r);
      a.name = demangled(r.name);
      std::copy(std::begin(r.grid), std::end(r.grid), a.grid.begin());
      std::copy(std::begin(r.block), std::end(r.block), a.block.begin());
      a.registers = r.registers_per_thread;
      a.shared_bytes = r.static_shared + r.dynamic_shared;
      to.activities.push_back(std::move(a));
      break;
    }
    case kMemcpy: {
      const auto& r = *static_cast<const MemcpyRecord*>(record);
      DeviceActivity a = activity(DeviceActivity::Kind::copy, r);
      a.name = name_of_copy(r);
      a.bytes = r.bytes;
      to.activities.push_back(std::move(a));
      break;
    }
    case kMemset: {
      const auto& r = *static_cast<const MemsetRecord*>(record);
      DeviceActivity a = activity(DeviceActivity::Kind::set, r);
      a.name = "Memset (Device)";
      a.bytes = r.bytes;
      to.activities.push_back(std::move(a));
      break;
    }
    case kExternalCorrelation: {
      const auto& r = *static_cast<const ExternalRecord*>(record);
      if (r.external_kind == kCustomIds) to.calls.push_back({r.correlation, r.id, 0});
      break;
    }
    case kDriver:
    case kRuntime: {
      const auto& r = *static_cast<const ApiRecord*>(record);
      to.calls.push_back({r.correlation, 0, int64_t(r.start)});
      break;
    }
    default:
      break;
  }
}

constexpr size_t kBufferBytes = 2 << 20;

extern "C" void arete_cupti_buffer_requested(uint8_t** buffer, size_t* size, size_t* max_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *size = *buffer ? kBufferBytes : 0;
  *max_records = 0;  // as many as fit
}

extern "C" void arete_cupti_buffer_completed(CUcontext, uint32_t, uint8_t* buffer, size_t,
                                             size_t valid) {
  try {
    Records records;
    void* record = nullptr;
    while (valid > 0 && functions().next_record(buffer, valid, &record) == 0) take(record, records);
    Delivered& d = delivered();
    const std::lock_guard lock(d.mutex);
    d.buffers.push_back(std::move(records));
  } catch (...) {
    // Out of memory: what is left of this buffer is lost; CUPTI cannot be told.
  }
  std::free(buffer);
}

// Note [Which operator a kernel belongs to]
// A callback at the beginning of each call that gives work to a device notes the call's number,
// which the work's record has as well, beside the range that the thread is in. CUPTI's own way,
// external numbers, comes with records of all calls, of which CUDA's libraries make many for each
// kernel. A process has one subscriber to callbacks: beside another tool's it is CUPTI's own way.
constexpr Kind kWork[] = {kConcurrentKernel, kMemcpy, kMemset};
constexpr Kind kCalls[] = {kExternalCorrelation, kRuntime, kDriver};  // without callbacks

std::vector<uint64_t>& thread_ranges() {
  thread_local std::vector<uint64_t> ranges;  // that this thread is in
  return ranges;
}

extern "C" void arete_cupti_call(void*, int32_t, uint32_t, const void* data) {
  const auto& call = *static_cast<const CallbackData*>(data);
  const std::vector<uint64_t>& ranges = thread_ranges();
  if (call.site != kCallBegins || ranges.empty()) return;
  try {
    Delivered& d = delivered();
    const std::lock_guard lock(d.mutex);
    d.calls.push_back({call.correlation, ranges.back(), steady_now()});
  } catch (...) {
    // Out of memory: the work belongs to nothing.
  }
}

/// The numbers of the driver's calls that give work to a device. They are asked for by name: each
/// version of CUDA adds some.
const std::vector<uint32_t>& work_calls() {
  static const std::vector<uint32_t> numbers = [] {
    constexpr uint32_t kLast = 4095;  // CUDA 13 has 806
    std::vector<uint32_t> found;
    for (uint32_t i = 1; i <= kLast; ++i) {
      const char* name = nullptr;
      if (functions().get_callback_name(kDriverCalls, i, &name) != 0 || !name) continue;
      const std::string_view n = name;
      for (const char* begin : {"cuLaunchKernel", "cuLaunchCooperative", "cuLaunchGrid",
                                "cuGraphLaunch", "cuMemcpy", "cuMemset"})
        if (n.starts_with(begin)) found.push_back(i);
    }
    return found;
  }();
  return numbers;
}

/// What to add to CUPTI's clock for the steady one, at one moment of CUPTI's clock.
struct ClockPoint {
  int64_t at = 0, difference = 0;
};

ClockPoint compare_clocks() {
  ClockPoint best;
  int64_t least = INT64_MAX;
  for (int i = 0; i < 8; ++i) {
    uint64_t there = 0;
    const int64_t before = steady_now();
    check(functions().get_timestamp(&there), "cuptiGetTimestamp");
    const int64_t after = steady_now();
    if (after - before >= least) continue;
    least = after - before;
    best = {int64_t(there), before + (after - before) / 2 - int64_t(there)};
  }
  return best;
}

class CuptiTrace final : public prim::DeviceTrace {
 public:
  std::string problem() override { return functions().problem; }

  void start() override {
    const Functions& f = functions();
    ARETE_CHECK(f.problem.empty(), DeviceError("profile", f.problem));
    // Each time: another profiler of the process may have put its own in their place.
    check(f.register_callbacks(arete_cupti_buffer_requested, arete_cupti_buffer_completed),
          "cuptiActivityRegisterCallbacks");
    emptied();  // of what an earlier recording left
    allow_early_starts(false);
    try {
      for (const Kind k : kWork) check(f.enable(k), "cuptiActivityEnable");
      if (!subscribe())
        for (const Kind k : kCalls) check(f.enable(k), "cuptiActivityEnable");
      begin_ = compare_clocks();
    } catch (...) {
      disable();
      allow_early_starts(true);
      throw;
    }
  }

  std::vector<prim::DeviceActivity> stop() override {
    const Functions& f = functions();
    wait_for_devices();
    f.flush_all(kFlushForced);
    const bool by_callbacks = subscriber_ != nullptr;
    disable();
    allow_early_starts(true);
    f.flush_all(kFlushForced);
    const ClockPoint end = compare_clocks();
    // Attached, CUPTI slows every launch down, recording or not: a small training step by up to a
    // fifth.
    if (f.finalize) f.finalize();
    std::vector<prim::DeviceActivity> all = taken(by_callbacks, end);
    std::sort(all.begin(), all.end(),
              [](const auto& a, const auto& b) { return a.begin_ns < b.begin_ns; });
    return all;
  }

  void push_range(uint64_t id) noexcept override {
    thread_ranges().push_back(id);
    if (!subscriber_) functions().push_id(kCustomIds, id);
  }
  void pop_range() noexcept override {
    thread_ranges().pop_back();
    uint64_t last = 0;
    if (!subscriber_) functions().pop_id(kCustomIds, &last);
  }

 private:
  /// Has callbacks called. False if another tool of the process has them.
  bool subscribe() {
    const Functions& f = functions();
    void* subscriber = nullptr;
    if (f.subscribe(&subscriber, arete_cupti_call, nullptr) != 0) return false;
    subscriber_ = subscriber;
    for (const uint32_t call : work_calls())
      check(f.enable_callback(1, subscriber, kDriverCalls, call), "cuptiEnableCallback");
    return true;
  }
  void disable() {
    const Functions& f = functions();
    for (const Kind k : kWork) f.disable(k);
    if (void* const subscriber = subscriber_.exchange(nullptr))
      return void(f.unsubscribe(subscriber));
    for (const Kind k : kCalls) f.disable(k);
  }
  static Records emptied() {
    Delivered& d = delivered();
    std::vector<Records> buffers;
    Records all;
    {
      const std::lock_guard lock(d.mutex);
      buffers.swap(d.buffers);
      all.calls.swap(d.calls);
    }
    for (Records& r : buffers) {
      std::move(r.activities.begin(), r.activities.end(), std::back_inserter(all.activities));
      all.calls.insert(all.calls.end(), r.calls.begin(), r.calls.end());
    }
    return all;
  }
  /// What has been delivered, in times of the steady clock and with the calls it came from.
  std::vector<prim::DeviceActivity> taken(bool by_callbacks, const ClockPoint& end) const {
    Records all = emptied();
    std::unordered_map<uint32_t, DriverCall> calls;  // by correlation
    for (const DriverCall& c : all.calls) {
      DriverCall& known = calls[c.correlation];
      if (!known.range) known.range = c.range;
      if (!known.begin) known.begin = c.begin;
    }
    for (prim::DeviceActivity& a : all.activities) {
      if (const auto c = calls.find(a.correlation); c != calls.end()) {
        a.range = c->second.range;
        const int64_t begin = c->second.begin;
        a.call_ns = by_callbacks || !begin ? begin : steady(begin, end);
      }
      a.begin_ns = steady(a.begin_ns, end);
      a.end_ns = steady(a.end_ns, end);
    }
    return std::move(all.activities);
  }
  // What kernels recorded stays for the program's own synchronizations to raise.
  static void wait_for_devices() {
    for (int i = 0; i < DeviceContext::count(); ++i) {
      if (!prim::used_backend(Device(DeviceType::cuda, i))) continue;
      DeviceContext& context = DeviceContext::get(i);
      if (context.has_captures()) continue;  // waiting would end the capture
      context.make_current();
      driver().cuCtxSynchronize();
    }
  }
  // The clocks drift apart by microseconds in a second.
  int64_t steady(int64_t t, const ClockPoint& end) const {
    const double span = double(end.at - begin_.at);
    const double part = span > 0 ? double(t - begin_.at) / span : 0;
    return t + begin_.difference + int64_t(part * double(end.difference - begin_.difference));
  }

  ClockPoint begin_;
  std::atomic<void*> subscriber_ = nullptr;  // of callbacks; null without them
};

}  // namespace

prim::DeviceTrace& cupti_trace() {
  static CuptiTrace* const trace = new CuptiTrace;  // kept for the process
  return *trace;
}

}  // namespace arete::cuda
