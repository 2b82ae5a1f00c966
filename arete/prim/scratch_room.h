// Memory that is lent to calls for their scratch memory.
#pragma once

#include <cstddef>
#include <vector>

#include "arete/core/device.h"

namespace arete::prim {

// Note [Rooms for scratch memory]
// Libraries want memory of their own while a call runs (a product that is split over its inner
// dimension, an attention's sums). Who makes calls in an arena, where most of the memory is free at
// most steps, would hold both at once, and eager code does not: so some of the arena is lent.

/// While it lives, scratch memory that calls of this thread on the device ask for is taken from
/// `bytes` at `room` (256-byte aligned), as far as it fits. The calls use it in stream order with
/// what else is there, before and after. The innermost one counts.
class ScratchRoom {
 public:
  ScratchRoom(Device device, std::byte* room, size_t bytes);
  ~ScratchRoom();
  ScratchRoom(const ScratchRoom&) = delete;
  ScratchRoom& operator=(const ScratchRoom&) = delete;

  /// The most bytes at one time that calls had, and that there was no room for; both as they take
  /// in a room.
  size_t most() const { return most_; }
  size_t most_beside() const { return most_beside_; }

  /// For backends: `bytes` of the thread's room; null where there is none, or not enough.
  static void* take(Device device, size_t bytes) noexcept;
  /// Whether the memory was a room's, which has it back now.
  static bool give_back(Device device, void* p, size_t bytes) noexcept;

 private:
  static ScratchRoom* of(Device device) noexcept;
  struct Taken {
    size_t begin, end;
  };
  const Device device_;
  std::byte* const room_;
  const size_t bytes_;
  std::vector<Taken> taken_;  // by place: calls give back last what they took first
  size_t held_ = 0, most_ = 0, beside_ = 0, most_beside_ = 0;
  ScratchRoom* const outer_;
};

}  // namespace arete::prim
