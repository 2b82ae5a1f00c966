#include "arete/prim/positions.h"

#include <array>
#include <atomic>
#include <mutex>
#include <numeric>
#include <vector>

#include "arete/prim/compiled_kernels.h"

namespace arete::prim {
namespace {

// 768 KiB in both dtypes: what most programs count.
constexpr int64_t kKeptNumbers = int64_t{1} << 16;
constexpr size_t kMostDevices = 64;  // of a type

struct Numbers {
  std::mutex making;
  // Of each device, those of 32 bits and those of 64.
  std::array<std::atomic<std::byte*>, size_t(kNumDeviceTypes) * kMostDevices * 2> address{};
};
Numbers& numbers_of_devices() {
  static Numbers* const k = new Numbers;  // used until the process ends
  return *k;
}

template <class T>
std::byte* make(Backend& backend) {
  std::vector<T> numbers(static_cast<size_t>(kKeptNumbers));
  std::iota(numbers.begin(), numbers.end(), T(0));
  const size_t bytes = numbers.size() * sizeof(T);
  auto* const address = static_cast<std::byte*>(backend.allocate(bytes));
  backend.copy_from_host(address, numbers.data(), bytes);
  backend.synchronize_stream(backend.current_stream());  // other streams read them, too
  return address;
}

}  // namespace

std::byte* kept_numbers(Device device, DType dtype, int64_t count) {
  ARETE_ASSERT(dtype == kInt32 || dtype == kInt64);
  if (count > kKeptNumbers || device.index < 0 || size_t(device.index) >= kMostDevices)
    return nullptr;
  const size_t of_type = size_t(device.type) * kMostDevices + size_t(device.index);
  std::atomic<std::byte*>& its = numbers_of_devices().address[2 * of_type + (dtype == kInt64)];
  if (std::byte* const address = its.load(std::memory_order_acquire)) return address;
  const std::lock_guard lock(numbers_of_devices().making);
  if (!its.load(std::memory_order_relaxed)) {
    Backend& backend = backend_for(device);
    // A rehearsal copies nothing: what it made would stay without numbers.
    if (backend.is_capturing() || is_rehearsing()) return nullptr;
    its.store(dtype == kInt64 ? make<int64_t>(backend) : make<int32_t>(backend),
              std::memory_order_release);
  }
  return its.load(std::memory_order_relaxed);
}

bool are_kept_numbers(const std::byte* address) noexcept {
  const auto& all = numbers_of_devices().address;
  for (size_t k = 0; k < all.size(); ++k) {
    const std::byte* const first = all[k].load(std::memory_order_relaxed);
    const size_t bytes = size_t(kKeptNumbers) * (k % 2 ? sizeof(int64_t) : sizeof(int32_t));
    if (first && first <= address && address < first + bytes) return true;
  }
  return false;
}

}  // namespace arete::prim
