#include "arete/backend/cuda/lib/peer_exchange.h"

#include <algorithm>
#include <utility>

#include "arete/base/error.h"

namespace arete::cuda {
namespace {

using prim::CollectiveArgs;
using prim::CollectiveKind;
using prim::ReduceKind;
using prim::View;

// Parts begin at addresses that kernels move 16 bytes at a time from, if the whole does.
constexpr size_t kAlignment = 128;

size_t bytes_of(const View& v) { return size_t(v.numel()) * size_of(v.dtype); }

/// The bytes of a view from an offset on, `most` at the most.
size_t bytes_from(const View& v, size_t offset, size_t most) {
  const size_t all = bytes_of(v);
  return all > offset ? std::min(all - offset, most) : 0;
}

size_t longest(std::span<const View> views) {
  size_t most = 0;
  for (const View& v : views) most = std::max(most, bytes_of(v));
  return most;
}

}  // namespace

PeerExchange::PeerExchange(int rank, std::vector<std::vector<std::byte*>> rooms, size_t place)
    : rank_(rank), rooms_(std::move(rooms)), place_(place) {
  ARETE_ASSERT(place_ % kAlignment == 0 && size() <= kMostPeers && rank_ < size());
}

bool PeerExchange::takes(const CollectiveArgs& call, int ranks, size_t least) {
  const bool gathers = call.kind == CollectiveKind::all_gather;
  if (!gathers && call.kind != CollectiveKind::all_reduce &&
      call.kind != CollectiveKind::reduce_scatter)
    return false;
  size_t bytes = 0;
  for (const View& v : gathers ? call.out : call.in) bytes += bytes_of(v);
  if (bytes < least || ranks > kMostPeers) return false;
  if (gathers) return true;
  const DType dtype = call.in[0].dtype;
  return (call.reduce == ReduceKind::sum || call.reduce == ReduceKind::avg ||
          call.reduce == ReduceKind::premul_sum) &&
         (dtype == kFloat16 || dtype == kBFloat16 || dtype == kFloat32 || dtype == kFloat64);
}

// From the next rank on, so that not all send to the same one at a time.
template <class F>
void PeerExchange::for_others(F f) const {
  for (int step = 1; step < size(); ++step) f((rank_ + step) % size());
}

template <class Send, class Fetch>
void PeerExchange::in_rounds(size_t all, size_t most, PeerSteps& steps, Send send,
                             Fetch fetch) const {
  const size_t sets = rooms_.size();
  const auto begin = [&](size_t round) {
    steps.begin_round(int(round % sets));
    return [&rooms = rooms_[round % sets], this](int room, int from) {
      return rooms[size_t(room)] + size_t(from) * place_;
    };
  };
  const size_t rounds = (all + most - 1) / most;
  for (size_t k = 0; k < rounds + sets - 1; ++k) {
    if (k < rounds) send(k * most, begin(k));
    if (k + 1 >= sets) fetch((k + 1 - sets) * most, begin(k + 1 - sets));
  }
}

template <class Place>
PeerSum PeerExchange::sum_of(const CollectiveArgs& call, const std::byte* own, Place place) const {
  PeerSum sum;
  for (int r = 0; r < size(); ++r) sum.parts[size_t(r)] = r == rank_ ? own : place(rank_, r);
  sum.dtype = call.in[0].dtype;
  if (call.reduce == ReduceKind::avg) sum.scale = 1.0 / size();
  if (call.reduce == ReduceKind::premul_sum) sum.scale = call.factor;
  return sum;
}

void PeerExchange::run(const CollectiveArgs& call, PeerSteps& steps) const {
  if (call.kind == CollectiveKind::all_reduce)
    all_reduce(call, steps);
  else if (call.kind == CollectiveKind::reduce_scatter)
    reduce_scatter(call, steps);
  else
    all_gather(call, steps);
}

void PeerExchange::all_reduce(const CollectiveArgs& call, PeerSteps& steps) const {
  const std::byte* const in = call.in[0].data;
  std::byte* const out = call.out[0].data;
  const size_t all = bytes_of(call.in[0]), n = size_t(size()), most = n * place_;
  const size_t element = size_of(call.in[0].dtype);
  // Where the part of a rank begins, and its bytes, in a round.
  const auto part = [&](size_t offset, int r) {
    const size_t here = std::min(all - offset, most);
    const size_t each = ((here + n - 1) / n + kAlignment - 1) / kAlignment * kAlignment;
    const size_t begin = std::min(size_t(r) * each, here);
    return std::pair(offset + begin, std::min(each, here - begin));
  };
  const auto send = [&](size_t offset, auto place) {
    for_others([&](int r) {
      const auto [begin, bytes] = part(offset, r);
      steps.copy(place(r, rank_), in + begin, bytes);
    });
    steps.meet();
    const auto [begin, bytes] = part(offset, rank_);
    PeerSum sum = sum_of(call, in + begin, place);
    sum.out = out + begin;
    sum.shared = place(rank_, rank_);
    sum.count = int64_t(bytes / element);
    steps.add(sum);
    steps.meet();
  };
  const auto fetch = [&](size_t offset, auto place) {
    for_others([&](int r) {
      const auto [begin, bytes] = part(offset, r);
      steps.copy(out + begin, place(r, r), bytes);
    });
  };
  in_rounds(all, most, steps, send, fetch);
}

void PeerExchange::reduce_scatter(const CollectiveArgs& call, PeerSteps& steps) const {
  const size_t element = size_of(call.in[0].dtype);
  const auto length = [&](size_t offset, int r) {
    return bytes_from(call.in[size_t(r)], offset, place_);
  };
  const auto send = [&](size_t offset, auto place) {
    for_others([&](int r) {
      steps.copy(place(r, rank_), call.in[size_t(r)].data + offset, length(offset, r));
    });
    steps.meet();
    PeerSum sum = sum_of(call, call.in[size_t(rank_)].data + offset, place);
    sum.out = call.out[0].data + offset;
    sum.count = int64_t(length(offset, rank_) / element);
    steps.add(sum);
    steps.meet();
  };
  in_rounds(longest(call.in), place_, steps, send, [](size_t, auto) {});
}

void PeerExchange::all_gather(const CollectiveArgs& call, PeerSteps& steps) const {
  const View& in = call.in[0];
  const View& own = call.out[size_t(rank_)];
  const auto length = [&](size_t offset, int r) {
    return bytes_from(call.out[size_t(r)], offset, place_);
  };
  const auto send = [&](size_t offset, auto place) {
    steps.meet();
    steps.copy(place(rank_, rank_), in.data + offset, length(offset, rank_));
    steps.meet();
  };
  const auto fetch = [&](size_t offset, auto place) {
    for_others([&](int r) {
      steps.copy(call.out[size_t(r)].data + offset, place(r, r), length(offset, r));
    });
  };
  in_rounds(longest(call.out), place_, steps, send, fetch);
  if (own.data != in.data) steps.copy(own.data, in.data, bytes_of(in));
}

}  // namespace arete::cuda
