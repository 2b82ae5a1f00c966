#include "arete/profile/memory_tracker.h"

#include <atomic>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "arete/core/memory_events.h"
#include "arete/device/cuda.h"

namespace arete {

namespace {

std::string text_of(int64_t bytes, bool sign) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = double(bytes);
  int unit = 0;
  while (std::abs(value) >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  return fmt::format(fmt::runtime(sign ? "{:+.{}f} {}" : "{:.{}f} {}"), value, unit ? 2 : 0,
                     kUnits[unit]);
}

}  // namespace

struct GPUMemoryTracker::Impl final : MemoryObserver {
  explicit Impl(Device d) : device(d.resolved()) {}

  void on_memory(const MemoryEvent& e) noexcept override {
    if (!(e.device == device)) return;
    if (e.action == MemoryEvent::Action::alloc) {
      const int64_t bytes = int64_t(e.bytes), now = delta.fetch_add(bytes) + bytes;
      allocated += bytes;
      ++allocations;
      int64_t most = peak.load();
      while (now > most && !peak.compare_exchange_weak(most, now)) {
      }
    } else if (e.action == MemoryEvent::Action::free) {
      delta -= int64_t(e.bytes);
    }
  }

  const Device device;
  int64_t before = 0;
  bool running = false;
  std::atomic<int64_t> delta{0}, peak{0}, allocated{0}, allocations{0};
};

GPUMemoryTracker::GPUMemoryTracker(Device device) : impl_(std::make_unique<Impl>(device)) {
  if (device.is_cuda()) impl_->before = int64_t(cuda::memory_allocated(device.index));
  add_memory_observer(impl_.get());
  impl_->running = true;
}
GPUMemoryTracker::~GPUMemoryTracker() { stop(); }

void GPUMemoryTracker::stop() {
  if (std::exchange(impl_->running, false)) remove_memory_observer(impl_.get());
}
Device GPUMemoryTracker::device() const noexcept { return impl_->device; }
int64_t GPUMemoryTracker::before() const noexcept { return impl_->before; }
int64_t GPUMemoryTracker::delta() const noexcept { return impl_->delta; }
int64_t GPUMemoryTracker::peak() const noexcept { return impl_->peak; }
int64_t GPUMemoryTracker::allocated() const noexcept { return impl_->allocated; }
int64_t GPUMemoryTracker::allocations() const noexcept { return impl_->allocations; }

std::string GPUMemoryTracker::report() const {
  return fmt::format("peak {}, now {}, {} allocations of {} on {}", text_of(peak(), true),
                     text_of(delta(), true), allocations(), text_of(allocated(), false),
                     impl_->device.to_string());
}

}  // namespace arete
