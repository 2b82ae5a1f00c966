// Addresses of memory that is not there yet.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace arete::compile {

// No processor has memory there (an access is a fault), and differences of them are right.
inline constexpr uintptr_t kFirstStandIn = uintptr_t{1} << 61;

/// Addresses that nothing else has, nor will have: as well aligned as any allocator's.
inline std::byte* stand_in(size_t bytes) {
  constexpr uintptr_t kAlignment = 512;
  static std::atomic<uintptr_t> next{kFirstStandIn};
  const uintptr_t room = (uintptr_t(bytes) + 2 * kAlignment - 1) / kAlignment * kAlignment;
  return reinterpret_cast<std::byte*>(next.fetch_add(room, std::memory_order_relaxed));
}
inline bool is_stand_in(const void* address) {
  return reinterpret_cast<uintptr_t>(address) >= kFirstStandIn;
}

}  // namespace arete::compile
