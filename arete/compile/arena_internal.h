// Places for temporaries by their lifetimes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <tuple>
#include <utility>
#include <vector>

namespace arete::compile {

// Note [Arenas]
// Temporaries of known lifetimes, the largest first, each at the lowest place of the arena that no
// other has while it lives. Memory that is there anyway, and used by nobody up to some step, is
// taken first: a result's, until it is made. What temporaries and results take at any one time is
// then what they take in all, as in code that makes each where it is needed. What nobody reads,
// such as what a check of indices gives, is in nobody's place as long as it is small, so that no
// step has to wait for it (Note [Branches of a graph]). With `is_done` no place makes a step wait:
// what comes to where a temporary was is made by a step that waits for all that use it anyway.
class Arena {
 public:
  /// Of temporaries, in bytes.
  static constexpr size_t kAlignment = 256;
  static constexpr size_t kMostUnread = 16384;
  static constexpr int kOwn = -1;
  /// Whether all steps that use a temporary come before a step, in any order that they may run in.
  using IsDone = std::function<bool(size_t temporary, size_t step)>;
  struct Spot {
    int room = kOwn;  // or the arena's own memory
    size_t offset = 0;
  };

  /// Steps first to last use `bytes`; gives the number of the temporary.
  size_t add(size_t bytes, size_t first, size_t last) {
    Entry e{(bytes + kAlignment - 1) / kAlignment * kAlignment, first, last};
    e.is_alone = first == last && unread_ + e.bytes <= kMostUnread;
    if (e.is_alone) unread_ += e.bytes;
    entries_.push_back(e);
    return entries_.size() - 1;
  }
  /// `bytes` that nobody uses before step `until`; gives the number of the room.
  int add_room(size_t bytes, size_t until) {
    rooms_.push_back({bytes, until, {}});
    return int(rooms_.size()) - 1;
  }
  /// Chooses all places.
  void arrange(IsDone is_done = {}) {
    std::vector<Entry*> order;
    for (Entry& e : entries_) order.push_back(&e);
    is_done_ = std::move(is_done);
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
        if (!ends_before(*e, room.until) || lowest(*e, room) + e->bytes > room.bytes) return false;
        e->spot.room = r;
        put(*e, room);
        return true;
      };
      if (!e->is_alone && std::ranges::any_of(rooms, fits)) continue;
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
    bool is_alone = false;
    Spot spot{};
  };
  struct Room {
    size_t bytes, until;
    std::vector<Entry*> placed;  // by offset
  };
  bool ends_before(const Entry& e, size_t step) const {
    return e.last < step && (!is_done_ || is_done_(size_t(&e - entries_.data()), step));
  }
  size_t lowest(const Entry& e, const Room& room) const {
    size_t offset = 0;
    for (const Entry* o : room.placed)
      if ((o->is_alone || e.is_alone || !(ends_before(*o, e.first) || ends_before(e, o->first))) &&
          o->spot.offset < offset + e.bytes)
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
  IsDone is_done_;
  size_t unread_ = 0;  // of those that are alone
};

}  // namespace arete::compile
