// Places for temporaries by their lifetimes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <tuple>
#include <vector>

namespace arete::compile {

// Note [Arenas]
// Temporaries of known lifetimes, the largest first, each at the lowest place of the arena that no
// other has while it lives. Memory that is there anyway, and used by nobody up to some step, is
// taken first: a result's, until it is made. What temporaries and results take at any one time is
// then what they take in all, as in code that makes each where it is needed.
class Arena {
 public:
  /// Of temporaries, in bytes.
  static constexpr size_t kAlignment = 256;
  static constexpr int kOwn = -1;
  struct Spot {
    int room = kOwn;  // or the arena's own memory
    size_t offset = 0;
  };

  /// Steps first to last use `bytes`; gives the number of the temporary.
  size_t add(size_t bytes, size_t first, size_t last) {
    entries_.push_back({(bytes + kAlignment - 1) / kAlignment * kAlignment, first, last});
    return entries_.size() - 1;
  }
  /// `bytes` that nobody uses before step `until`; gives the number of the room.
  int add_room(size_t bytes, size_t until) {
    rooms_.push_back({bytes, until, {}});
    return int(rooms_.size()) - 1;
  }
  /// Chooses all places.
  void arrange() {
    std::vector<Entry*> order;
    for (Entry& e : entries_) order.push_back(&e);
    std::ranges::sort(order, [](const Entry* a, const Entry* b) {
      return std::tie(b->bytes, a->first) < std::tie(a->bytes, b->first);
    });
    // What is used longest is kept for those that come late.
    std::vector<int> rooms;
    for (int r = 0; r < int(rooms_.size()); ++r) rooms.push_back(r);
    std::ranges::stable_sort(rooms, {}, [&](int r) { return rooms_[size_t(r)].until; });
    for (Entry* e : order) {
      const auto fits = [&](int r) {
        Room& room = rooms_[size_t(r)];
        if (e->last >= room.until || lowest(*e, room) + e->bytes > room.bytes) return false;
        e->spot.room = r;
        put(*e, room);
        return true;
      };
      if (std::ranges::any_of(rooms, fits)) continue;
      put(*e, own_);
      own_.bytes = std::max(own_.bytes, e->spot.offset + e->bytes);
    }
  }
  Spot spot(size_t number) const { return entries_[number].spot; }
  /// Of the arena's own memory.
  size_t bytes() const { return own_.bytes; }

 private:
  struct Entry {
    size_t bytes, first, last;
    Spot spot{};
  };
  struct Room {
    size_t bytes, until;
    std::vector<Entry*> placed;  // by offset
  };
  size_t lowest(const Entry& e, const Room& room) const {
    size_t offset = 0;
    for (const Entry* o : room.placed)
      if (o->last >= e.first && e.last >= o->first && o->spot.offset < offset + e.bytes)
        offset = std::max(offset, o->spot.offset + o->bytes);
    return offset;
  }
  void put(Entry& e, Room& room) const {
    e.spot.offset = lowest(e, room);
    const auto by_offset = [](const Entry* o) { return o->spot.offset; };
    room.placed.insert(std::ranges::upper_bound(room.placed, e.spot.offset, {}, by_offset), &e);
  }
  std::vector<Entry> entries_;
  std::vector<Room> rooms_;
  Room own_{0, SIZE_MAX, {}};
};

}  // namespace arete::compile
