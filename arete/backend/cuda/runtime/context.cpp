#include "arete/backend/cuda/runtime/context.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "arete/backend/cuda/runtime/driver.h"
#include "arete/backend/cuda/runtime/properties.h"
#include "arete/base/distributed_error.h"
#include "arete/base/error.h"

namespace arete::cuda {
namespace {

constexpr int kMaxDevices = 64;
// Streams chosen by this thread on devices other than the last one; null: the default stream.
thread_local std::array<CUstream, kMaxDevices> chosen_streams{};

}  // namespace

thread_local constinit int DeviceContext::current_ordinal_ = -1;
thread_local constinit int DeviceContext::stream_device_ = -1;
thread_local constinit CUstream DeviceContext::stream_ = nullptr;

int DeviceContext::count() {
  if (!driver_problem().empty()) return 0;
  int n = 0;
  ARETE_CU(cuDeviceGetCount, &n);
  return n < kMaxDevices ? n : kMaxDevices;
}

namespace {
std::array<std::atomic<DeviceContext*>, kMaxDevices> contexts{};
}  // namespace

DeviceContext& DeviceContext::get(int ordinal) {
  static std::mutex mutex;
  const int n = ordinal >= 0 && ordinal < kMaxDevices ? ordinal : -1;
  if (n >= 0)
    if (DeviceContext* c = contexts[size_t(n)].load(std::memory_order_acquire)) return *c;
  ARETE_CHECK(n >= 0 && n < count(), DeviceError("", "CUDA error: invalid device ordinal")
                                         .got("cuda:" + std::to_string(ordinal))
                                         .expected("less than " + std::to_string(count())));
  const std::lock_guard lock(mutex);
  DeviceContext* c = contexts[size_t(n)].load(std::memory_order_relaxed);
  if (!c) {
    c = new DeviceContext(n);  // outlives static tensors
    contexts[size_t(n)].store(c, std::memory_order_release);
  }
  return *c;
}

DeviceContext& DeviceContext::any() {
  for (const auto& c : contexts)
    if (DeviceContext* found = c.load(std::memory_order_acquire)) return *found;
  return get(0);
}

DeviceContext::DeviceContext(int ordinal)
    : ordinal_(ordinal), store_(KernelStore::default_folder()) {
  ARETE_CU(cuDeviceGet, &device_, ordinal);
  const DeviceProperties p = query_properties(ordinal);
  limits_ = {.name = p.name,
             .major = p.major,
             .minor = p.minor,
             .multiprocessors = p.multi_processor_count,
             .shared_per_block = p.shared_memory_per_block,
             .shared_per_multiprocessor = p.shared_memory_per_multiprocessor,
             .threads_per_multiprocessor = p.max_threads_per_multi_processor,
             .l2_bytes = p.l2_cache_size,
             .total_bytes = p.total_memory,
             .clock_khz = p.clock_rate,
             .memory_clock_khz = p.memory_clock_rate,
             .memory_bus_bits = p.memory_bus_width};
  ARETE_CHECK(p.major >= 8, DeviceError("", "cuda:" + std::to_string(ordinal) + " (" + p.name +
                                                ") is too old for Arete")
                                .expected("compute capability 8.0 or newer")
                                .got(std::to_string(p.major) + "." + std::to_string(p.minor)));
  ARETE_CU(cuDevicePrimaryCtxRetain, &context_, device_);
  make_current();
  ARETE_CU(cuStreamCreateWithPriority, &default_stream_, CU_STREAM_NON_BLOCKING, 0);
  void* host = nullptr;
  ARETE_CU(cuMemHostAlloc, &host, sizeof(DeviceErrorRecord),
           CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  std::memset(host, 0, sizeof(DeviceErrorRecord));
  errors_ = static_cast<DeviceErrorRecord*>(host);
  ARETE_CU(cuMemHostGetDevicePointer, &error_address_, host, 0);
}

void DeviceContext::switch_to() {
  ARETE_CU(cuCtxSetCurrent, context_);
  current_ordinal_ = ordinal_;
}

CUstream DeviceContext::other_stream() const {
  const CUstream s = chosen_streams[size_t(ordinal_)];
  return s ? s : default_stream_;
}

void DeviceContext::set_stream(CUstream stream) {
  chosen_streams[size_t(ordinal_)] = stream;
  stream_device_ = ordinal_;
  stream_ = stream ? stream : default_stream_;
}

CUstream DeviceContext::take_stream(int priority) {
  make_current();
  int least = 0, greatest = 0;
  ARETE_CU(cuCtxGetStreamPriorityRange, &least, &greatest);
  priority = std::clamp(priority, greatest, least);
  const std::lock_guard lock(pool_mutex_);
  for (PooledStream& s : streams_)
    if (!s.in_use && s.priority == priority) {
      s.in_use = true;
      return s.stream;
    }
  CUstream stream = nullptr;
  ARETE_CU(cuStreamCreateWithPriority, &stream, CU_STREAM_NON_BLOCKING, priority);
  streams_.push_back({stream, priority, true});
  return stream;
}

void DeviceContext::give_stream(CUstream stream) noexcept {
  const std::lock_guard lock(pool_mutex_);
  for (PooledStream& s : streams_)
    if (s.stream == stream) s.in_use = false;
}

CUevent DeviceContext::take_event() {
  make_current();
  {
    const std::lock_guard lock(pool_mutex_);
    if (!events_.empty()) {
      const CUevent e = events_.back();
      events_.pop_back();
      return e;
    }
  }
  CUevent e = nullptr;
  ARETE_CU(cuEventCreate, &e, CU_EVENT_DISABLE_TIMING);
  return e;
}

void DeviceContext::give_event(CUevent event) noexcept try {
  const std::lock_guard lock(pool_mutex_);
  events_.push_back(event);
} catch (...) {
  // No memory for the list: the event is lost.
}

void DeviceContext::enable_peer_access(DeviceContext& peer) {
  const uint64_t bit = uint64_t(1) << peer.ordinal_;
  if (peers_.load(std::memory_order_relaxed) & bit) return;
  int possible = 0;
  ARETE_CU(cuDeviceCanAccessPeer, &possible, device_, peer.device_);
  if (possible) {
    make_current();
    const CUresult result = driver().cuCtxEnablePeerAccess(peer.context_, 0);
    if (result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) check(result, "cuCtxEnablePeerAccess");
  }
  peers_.fetch_or(bit, std::memory_order_relaxed);
}

bool DeviceContext::stream_is_capturing(CUstream stream) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  ARETE_CU(cuStreamIsCapturing, stream, &status);
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void DeviceContext::throw_capturing(const char* what) const {
  throw DeviceError("", "CUDA error: operation not permitted when stream is capturing")
      .got(what)
      .hint(
          "while a graph is captured nothing runs, so values cannot be read or waited for; do it "
          "before the capture or after a replay");
}

void DeviceContext::synchronize(CUstream stream) {
  make_current();
  if (is_capturing(stream)) throw_capturing("synchronization of a stream");
  ARETE_CU(cuStreamSynchronize, stream);
  raise_device_errors();
}

void DeviceContext::synchronize_all() {
  wait_for_all();
  raise_device_errors();
}

void DeviceContext::wait_for_all() {
  make_current();
  check_not_capturing("synchronization of the device");
  if (!has_captures()) {
    ARETE_CU(cuCtxSynchronize);
  } else {
    // Another thread captures: a wait for the whole context would break that.
    std::vector<CUstream> streams{default_stream_, stream()};
    {
      const std::lock_guard lock(pool_mutex_);
      for (const PooledStream& s : streams_) streams.push_back(s.stream);
    }
    for (CUstream s : streams)
      if (!is_capturing(s)) ARETE_CU(cuStreamSynchronize, s);
  }
}

void DeviceContext::break_work(const std::string& why) {
  {
    const std::lock_guard lock(broken_mutex_);
    broken_ = why;
  }
  reinterpret_cast<std::atomic<uint32_t>*>(&errors_->kind)
      ->store(uint32_t(DeviceErrorKind::broken), std::memory_order_release);
}

void DeviceContext::throw_device_error() {
  // Of several threads that see the error one raises it.
  const DeviceErrorRecord e = *errors_;
  const auto field = [](uint32_t& v) { return reinterpret_cast<std::atomic<uint32_t>*>(&v); };
  if (field(errors_->kind)->exchange(0, std::memory_order_acq_rel) == 0) return;
  field(errors_->claimed)->store(0, std::memory_order_release);
  const std::string op = e.op ? reinterpret_cast<const char*>(e.op) : "";
  switch (DeviceErrorKind(e.kind)) {
    case DeviceErrorKind::index:
      throw IndexError(op, "index " + std::to_string(e.index) + " is out of bounds for dimension " +
                               std::to_string(e.dim) + " with size " + std::to_string(e.size))
          .argument("index");
    case DeviceErrorKind::nan:
      throw ValueError(op, "Function '" + op + "' returned nan values in its output");
    case DeviceErrorKind::broken: {
      const std::lock_guard lock(broken_mutex_);
      throw DistributedError(DistributedError::Failure::backend, "", broken_);
    }
    default:
      throw ValueError(op, "an assertion failed on the device");
  }
}

bool launch_blocking() {
  static const bool on = [] {
    const char* v = std::getenv("CUDA_LAUNCH_BLOCKING");
    return v && *v && std::strcmp(v, "0") != 0;
  }();
  return on;
}

}  // namespace arete::cuda
