#include "arete/prim/backend.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>

#include "arete/base/error.h"
#include "arete/prim/plugin_internal.h"

namespace arete::cpu {
// Defined in backend/cpu, which prim may not include: registers the CPU backend. Naming it here
// is what makes a static link keep it.
void register_cpu_backend();
}  // namespace arete::cpu

namespace arete::prim {
namespace {

constexpr int kMaxDevices = 128;  // Device::index is an int8

struct Registry {
  std::array<std::array<std::atomic<Backend*>, kMaxDevices>, kNumDeviceTypes> backends{};
  std::array<std::atomic<DeviceProvider*>, kNumDeviceTypes> providers{};
  std::mutex making;  // of backends
  std::mutex mutex;   // of the reasons
  std::array<std::string, kNumDeviceTypes> reasons{
      "", "the CUDA backend (libarete_cuda.so) is not loaded",
      "meta tensors have shapes and dtypes but no data"};
};

Registry& registry() {
  static Registry* const r = new Registry;  // outlives every static object that may hold tensors
  return *r;
}

// Note [Forked processes]
// A driver that has been started does not work in a child of fork(), whose threads, streams and
// mapped memory are gone. So once there is a provider (its library has started the driver), a child
// forgets the backends and refuses to make any: whatever uses a device there says what is wrong,
// and not what the driver says of it. Memory that the child inherits is left alone.
constinit std::atomic<bool> forked{false};

void in_child() noexcept {
  forked.store(true, std::memory_order_relaxed);
  for (size_t type = 0; type < kNumDeviceTypes; ++type)
    if (DeviceType(type) != DeviceType::cpu)
      for (auto& backend : registry().backends[type])
        backend.store(nullptr, std::memory_order_relaxed);
}

Backend* registered(Device device) noexcept {
  if (device.index < 0) return nullptr;
  return registry().backends[int(device.type)][device.index].load(std::memory_order_acquire);
}

// A provider stands for at least one device.
DeviceError no_such_ordinal(Device device, int count) {
  return DeviceError("", "CUDA error: invalid device ordinal")
      .got(device.to_string())
      .expected(
          "an ordinal below " + std::to_string(count) + ": " +
          (count == 1 ? std::string("one device is") : std::to_string(count) + " devices are") +
          " visible");
}

Backend* make_backend(Device device) {
  device = device.resolved();
  if (Backend* b = registered(device)) return b;  // under its ordinal
  if (device == kCPU) {
    static std::once_flag once;
    std::call_once(once, cpu::register_cpu_backend);
    return registered(device);
  }
  DeviceProvider* const provider = find_provider(device.type);
  if (!provider) return nullptr;
  check_not_forked();
  const int count = provider->count();
  ARETE_CHECK(device.index >= 0 && device.index < count, no_such_ordinal(device, count));
  const std::lock_guard lock(registry().making);
  if (Backend* b = registered(device)) return b;
  Backend* const b = provider->make_backend(device.index);
  register_backend(device, b);
  return b;
}

}  // namespace

Backend* find_backend(Device device) noexcept {
  if (Backend* b = registered(device)) [[likely]]
    return b;
  try {
    return make_backend(device);
  } catch (...) {
    return nullptr;
  }
}

Backend* used_backend(Device device) noexcept { return registered(device.resolved()); }

bool is_forked_from_device_user() noexcept { return forked.load(std::memory_order_relaxed); }

void check_not_forked() {
  ARETE_CHECK(!is_forked_from_device_user(),
              DeviceError("",
                          "Cannot re-initialize CUDA in forked subprocess. To use CUDA with "
                          "multiprocessing, you must use the 'spawn' start method")
                  .got("a process forked from one that had started CUDA already")
                  .hint("start processes with multiprocessing.get_context('spawn'), or call "
                        "nothing of CUDA (is_available() included) before the fork"));
}

Backend& backend_for(Device device) {
  if (Backend* b = registered(device)) [[likely]]
    return *b;
  if (Backend* b = make_backend(device)) return *b;
  throw DeviceError(
      "", device.resolved().to_string() + " is not available: " + unavailable_reason(device.type));
}

void register_backend(Device device, Backend* backend) {
  ARETE_ASSERT(device.index >= 0);
  registry().backends[int(device.type)][device.index].store(backend, std::memory_order_release);
}

DeviceProvider* find_provider(DeviceType type) noexcept {
  if (type == DeviceType::cuda) load_cuda_plugin();
  return registry().providers[int(type)].load(std::memory_order_acquire);
}

void register_provider(DeviceType type, DeviceProvider* provider) {
  static const int watches = pthread_atfork(nullptr, nullptr, in_child);
  ARETE_ASSERT(watches == 0);
  registry().providers[int(type)].store(provider, std::memory_order_release);
}

std::string unavailable_reason(DeviceType type) {
  if (type == DeviceType::cpu || find_provider(type)) return "";
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  return r.reasons[int(type)];
}

void set_unavailable_reason(DeviceType type, std::string reason) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  r.reasons[int(type)] = std::move(reason);
}

void DeviceRuntime::copy_to_host_async(Storage&, void* dst, const void* src, size_t bytes) {
  copy_to_host(dst, src, bytes);
}
void DeviceRuntime::copy_from_host_async(Storage&, void* dst, const void* src, size_t bytes) {
  copy_from_host(dst, src, bytes);
}
void DeviceRuntime::copy_from_peer(void*, Backend&, const void*, size_t) {
  ARETE_BUG("there is only one device of this kind");
}

double DeviceRuntime::elapsed_time(EventHandle, EventHandle) {
  throw DeviceError("", "events of this device measure no time");
}

namespace {
DeviceError no_graphs() { return DeviceError("", "this device has no graphs"); }
}  // namespace

uint64_t DeviceRuntime::create_pool() { throw no_graphs(); }
void DeviceRuntime::begin_capture(StreamHandle, uint64_t) { throw no_graphs(); }
GraphHandle DeviceRuntime::end_capture(StreamHandle) { throw no_graphs(); }
void DeviceRuntime::launch_graph(GraphHandle, StreamHandle) { throw no_graphs(); }

const void* DeviceRuntime::find_user_kernel(const std::string&, const std::string& name,
                                            const std::vector<std::string>&) {
  throw DeviceError(name, "this device does not compile kernels");
}
void DeviceRuntime::launch_user_kernel(const void*, const UserLaunch&) {
  throw DeviceError("", "this device does not compile kernels");
}

ScratchView::ScratchView(Primitives& p, DType dtype, IntList sizes)
    : primitives_(p),
      layout_(sizes),
      bytes_(size_t(layout_.numel()) * size_of(dtype)),
      data_(bytes_ ? p.scratch(bytes_) : nullptr),
      view_(static_cast<std::byte*>(data_), dtype, layout_.sizes, layout_.strides) {}
ScratchView::~ScratchView() {
  if (data_) primitives_.release_scratch(data_, bytes_);
}

const char* name_of(Primitive p) {
  static constexpr const char* kNames[kNumPrimitives] = {
#define ARETE_NAME_PRIMITIVE(name, Args) #name,
      ARETE_PRIMITIVES(ARETE_NAME_PRIMITIVE)
#undef ARETE_NAME_PRIMITIVE
  };
  return kNames[int(p)];
}

}  // namespace arete::prim
