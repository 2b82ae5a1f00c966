#include "arete/backend/cuda/lib/peer_exchange.h"

#include <algorithm>

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

template <class F>
void PeerExchange::in_rounds(size_t all, size_t most, PeerSteps& steps, F f) const {
  size_t set = 0;
  for (size_t offset = 0; offset < all; offset += most, set = (set + 1) % rooms_.size()) {
    steps.begin_round(int(set));
    f(offset,
      [&, set](int room, int from) { return rooms_[set][size_t(room)] + size_t(from) * place_; });
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
  const size_t all = bytes_of(call.in[0]), n = size_t(size());
  const size_t element = size_of(call.in[0].dtype);
  in_rounds(all, n * place_, steps, [&](size_t offset, auto place) {
    const size_t here = std::min(all - offset, n * place_);
    const size_t each = ((here + n - 1) / n + kAlignment - 1) / kAlignment * kAlignment;
    const auto begin = [&](int r) { return offset + std::min(size_t(r) * each, here); };
    const auto length = [&](int r) { return begin(r + 1) - begin(r); };
    for_others([&](int r) { steps.copy(place(r, rank_), in + begin(r), length(r)); });
    steps.meet();
    PeerSum sum = sum_of(call, in + begin(rank_), place);
    sum.out = out + begin(rank_);
    sum.shared = place(rank_, rank_);
    sum.count = int64_t(length(rank_) / element);
    steps.add(sum);
    steps.meet();
    for_others([&](int r) { steps.copy(out + begin(r), place(r, r), length(r)); });
  });
}

void PeerExchange::reduce_scatter(const CollectiveArgs& call, PeerSteps& steps) const {
  const size_t all = longest(call.in), element = size_of(call.in[0].dtype);
  in_rounds(all, place_, steps, [&](size_t offset, auto place) {
    const auto length = [&](int r) { return bytes_from(call.in[size_t(r)], offset, place_); };
    for_others(
        [&](int r) { steps.copy(place(r, rank_), call.in[size_t(r)].data + offset, length(r)); });
    steps.meet();
    PeerSum sum = sum_of(call, call.in[size_t(rank_)].data + offset, place);
    sum.out = call.out[0].data + offset;
    sum.count = int64_t(length(rank_) / element);
    steps.add(sum);
    steps.meet();
  });
}

void PeerExchange::all_gather(const CollectiveArgs& call, PeerSteps& steps) const {
  const View& in = call.in[0];
  const View& own = call.out[size_t(rank_)];
  if (own.data != in.data) steps.copy(own.data, in.data, bytes_of(in));
  const size_t all = longest(call.out);
  in_rounds(all, place_, steps, [&](size_t offset, auto place) {
    const auto length = [&](int r) { return bytes_from(call.out[size_t(r)], offset, place_); };
    steps.meet();
    steps.copy(place(rank_, rank_), in.data + offset, length(rank_));
    steps.meet();
    for_others(
        [&](int r) { steps.copy(call.out[size_t(r)].data + offset, place(r, r), length(r)); });
  });
}

}  // namespace arete::cuda
