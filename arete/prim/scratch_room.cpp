#include "arete/prim/scratch_room.h"

#include <algorithm>

namespace arete::prim {

static constinit thread_local ScratchRoom* innermost_room = nullptr;

ScratchRoom::ScratchRoom(Device device, std::byte* room, size_t bytes)
    : device_(device), room_(room), bytes_(room ? bytes : 0), outer_(innermost_room) {
  innermost_room = this;
}
ScratchRoom::~ScratchRoom() { innermost_room = outer_; }

static size_t rounded(size_t bytes) {
  constexpr size_t kAlignment = 256;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

ScratchRoom* ScratchRoom::of(Device device) noexcept {
  return innermost_room && innermost_room->device_ == device ? innermost_room : nullptr;
}

void* ScratchRoom::take(Device device, size_t bytes) noexcept {
  ScratchRoom* const room = of(device);
  if (!room) return nullptr;
  bytes = rounded(bytes);
  room->held_ += bytes;
  room->most_ = std::max(room->most_, room->held_);
  const size_t begin = room->taken_.empty() ? 0 : room->taken_.back().end;
  const size_t end = begin + bytes;
  if (end <= room->bytes_) {
    room->taken_.push_back({begin, end});
    return room->room_ + begin;
  }
  room->beside_ += bytes;
  room->most_beside_ = std::max(room->most_beside_, room->beside_);
  return nullptr;
}

bool ScratchRoom::give_back(Device device, void* p, size_t bytes) noexcept {
  ScratchRoom* const room = of(device);
  if (!room) return false;
  bytes = rounded(bytes);
  room->held_ -= std::min(room->held_, bytes);
  const auto* const at = static_cast<const std::byte*>(p);
  if (at < room->room_ || at >= room->room_ + room->bytes_) {
    room->beside_ -= std::min(room->beside_, bytes);
    return false;
  }
  const auto is_its = [&](const Taken& t) { return room->room_ + t.begin == at; };
  room->taken_.erase(std::ranges::find_if(room->taken_, is_its));
  return true;
}

}  // namespace arete::prim
