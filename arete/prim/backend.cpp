#include "arete/prim/backend.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>

#include "arete/base/error.h"

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
  std::mutex mutex;  // of the reasons
  std::array<std::string, kNumDeviceTypes> reasons{
      "", "the CUDA backend (libarete_cuda.so) is not loaded",
      "meta tensors have shapes and dtypes but no data"};
};

Registry& registry() {
  static Registry* const r = new Registry;  // outlives every static object that may hold tensors
  return *r;
}

Backend* registered(Device device) noexcept {
  if (device.index < 0) return nullptr;
  return registry().backends[int(device.type)][device.index].load(std::memory_order_acquire);
}

}  // namespace

Backend* find_backend(Device device) noexcept {
  if (Backend* b = registered(device)) [[likely]]
    return b;
  if (device != kCPU) return nullptr;
  static std::once_flag once;
  std::call_once(once, cpu::register_cpu_backend);
  return registered(device);
}

Backend& backend_for(Device device) {
  Backend* b = find_backend(device);
  if (b) [[likely]]
    return *b;
  std::string reason = unavailable_reason(device.type);
  if (reason.empty()) reason = "there is no device of that index";
  throw DeviceError("", device.to_string() + " is not available: " + reason);
}

void register_backend(Device device, Backend* backend) {
  ARETE_ASSERT(device.index >= 0);
  registry().backends[int(device.type)][device.index].store(backend, std::memory_order_release);
}

std::string unavailable_reason(DeviceType type) {
  if (find_backend(Device(type))) return "";
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  return r.reasons[int(type)];
}

void set_unavailable_reason(DeviceType type, std::string reason) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  r.reasons[int(type)] = std::move(reason);
}

ScratchView::ScratchView(Primitives& p, DType dtype, IntList sizes)
    : primitives_(p),
      layout_(sizes),
      // Never nothing: a null pointer in a view means that the operand is absent.
      bytes_(std::max<size_t>(size_t(layout_.numel()) * size_of(dtype), 64)),
      data_(p.scratch(bytes_)) {
  view_.data = static_cast<std::byte*>(data_);
  view_.dtype = dtype;
  view_.sizes = layout_.sizes;
  view_.strides = layout_.strides;
}

const char* name_of(Primitive p) {
  static constexpr const char* kNames[kNumPrimitives] = {
      "fill",      "copy",     "iota",    "pointwise", "reduce",          "arg_reduce", "scan",
      "sort",      "gather",   "scatter", "compact",   "random",          "gemm",       "topk",
      "take_rows", "add_rows", "conv",    "pool",      "multi_pointwise", "fused"};
  return kNames[int(p)];
}

}  // namespace arete::prim
