// Collectives of GPUs that reach each other's memory, by copies: what each rank does in which
// order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "arete/prim/communicator.h"

namespace arete::cuda {

constexpr int kMostPeers = 8;  // of which a kernel adds parts

/// Sums of as many parts as there are ranks, in their order, so that whoever adds gets the same.
struct PeerSum {
  std::array<const std::byte*, kMostPeers> parts{};
  std::byte* out = nullptr;
  std::byte* shared = nullptr;  // a second place for the result; null: none
  int64_t count = 0;
  DType dtype = kFloat32;
  double scale = 1;  // what the parts are multiplied with
};

/// What streams do, one after the other.
class PeerSteps {
 public:
  virtual ~PeerSteps() = default;
  /// What follows is in a set of rooms of its own (its number is `set`), and in no order with what
  /// others are in.
  virtual void begin_round(int set) = 0;
  virtual void copy(std::byte* to, const std::byte* from, size_t bytes) = 0;
  /// What all ranks did before they came here can be seen after it by all.
  virtual void meet() = 0;
  virtual void add(const PeerSum& sum) = 0;
};

// Note [Exchange by copies]
// Each rank has a room of `ranks` places of `place` bytes, which the others reach. In place s of
// rank r stands what rank s gave r; in r's own place of its room what r has for all. A reduction
// sends each rank its part of the elements, all meet, each adds its own part up, all meet, and each
// fetches the sums of the others:
//   - Who sends writes to rooms that were read before the last meeting: the sum reads them, and
//     after it all meet.
//   - Who writes its own place does so after a meeting that the others came to when they had
//     fetched what was there.
// So each call meets twice for each round of what fits into a room, and leaves rooms as the next
// one may find them, whichever it is. Rounds take sets of rooms by turns: with two of them one is
// added up while the other is on its way. What a round fetches is given to the streams behind what
// the next one sends: an engine makes copies in the order in which they are given, whichever
// streams they are of, and would wait for the sums. Copies are made by engines of their own:
// products beside them keep all multiprocessors.
class PeerExchange {
 public:
  /// `rooms`: sets of those of all ranks, as this one reaches them.
  PeerExchange(int rank, std::vector<std::vector<std::byte*>> rooms, size_t place);
  int rank() const { return rank_; }
  int size() const { return int(rooms_[0].size()); }
  /// all_reduce and reduce_scatter of sums and averages of floating numbers, and all_gather, from
  /// `least` bytes of the whole on; all ranks say the same.
  static bool takes(const prim::CollectiveArgs& call, int ranks, size_t least);
  /// A call that it takes.
  void run(const prim::CollectiveArgs& call, PeerSteps& steps) const;

 private:
  void all_reduce(const prim::CollectiveArgs& call, PeerSteps& steps) const;
  void reduce_scatter(const prim::CollectiveArgs& call, PeerSteps& steps) const;
  void all_gather(const prim::CollectiveArgs& call, PeerSteps& steps) const;
  template <class F>
  void for_others(F f) const;
  /// Rounds of at most that many bytes each: send(offset, place) and fetch(offset, place), where
  /// place(room, from) is that of a rank in a rank's room.
  template <class Send, class Fetch>
  void in_rounds(size_t all, size_t most, PeerSteps& steps, Send send, Fetch fetch) const;
  template <class Place>
  PeerSum sum_of(const prim::CollectiveArgs& call, const std::byte* own, Place place) const;

  const int rank_;
  const std::vector<std::vector<std::byte*>> rooms_;
  const size_t place_;
};

}  // namespace arete::cuda
