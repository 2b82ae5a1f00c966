#include "arete/prim/loop_nest.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "arete/base/error.h"

namespace arete::prim {
namespace {

/// Byte strides of the operands along one dimension of the space, and its size.
struct Dim {
  int64_t size;
  std::array<int64_t, LoopNest::kMaxOperands> strides;
};

class Planner {
 public:
  Planner(IntList space, std::span<const View> views) : views_(views) {
    ARETE_ASSERT(space.size() <= size_t(kMaxRank));
    ARETE_ASSERT(views.size() <= size_t(LoopNest::kMaxOperands));
    for (const View& v : views) {
      ARETE_ASSERT(v.sizes.size() <= space.size());
      const size_t skip = space.size() - v.sizes.size();
      for (size_t d = 0; d < v.sizes.size(); ++d)
        ARETE_ASSERT(v.sizes[d] == space[skip + d] || v.sizes[d] == 1);
    }
  }

  /// Appends dimensions [first, last) of the space, ordered and merged, to the nest.
  /// Returns how many that made.
  int append(LoopNest& nest, IntList space, int first, int last, bool keep_order) {
    std::array<Dim, kMaxRank> dims;
    int n = 0;
    for (int d = last - 1; d >= first; --d) {
      if (space[d] == 1) continue;
      Dim& dim = dims[n];
      dim.size = space[d];
      for (size_t k = 0; k < views_.size(); ++k) dim.strides[k] = stride(views_[k], space, d);
      int at = n++;
      if (keep_order) continue;
      // Insertion sort: earlier (inner) candidates stay where they are unless this one is
      // clearly faster.
      while (at > 0) {
        const int order = compare(dims[at], dims[at - 1]);
        if (order >= 0) break;
        std::swap(dims[at], dims[at - 1]);
        --at;
      }
    }
    int made = 0;
    const int base = nest.rank;
    for (int d = 0; d < n; ++d) {
      if (made > 0 && mergeable(nest, base + made - 1, dims[d])) {
        nest.sizes[base + made - 1] *= dims[d].size;
        continue;
      }
      put(nest, base + made, dims[d]);
      ++made;
    }
    nest.rank += made;
    return made;
  }

  /// A dimension of size 1: every operand has its element size as stride.
  void append_unit(LoopNest& nest) {
    nest.sizes[nest.rank] = 1;
    for (LoopNest::Operand& o : nest.operands) o.strides[nest.rank] = int64_t(size_of(o.dtype));
    ++nest.rank;
  }

  LoopNest start() const {
    LoopNest nest;
    nest.rank = 0;
    LoopNest::Operand o{};
    for (const View& v : views_) {
      o.data = v.data;
      o.dtype = v.dtype;
      nest.operands.push_back(o);
    }
    return nest;
  }

 private:
  static int64_t stride(const View& v, IntList space, int d) {
    const int own = d - int(space.size() - v.sizes.size());
    if (own < 0 || v.sizes[own] == 1) return 0;
    return v.strides[own] * int64_t(size_of(v.dtype));
  }

  /// < 0 if `a` should be inside of `b`, > 0 if outside, 0 if no operand says.
  int compare(const Dim& a, const Dim& b) const {
    for (size_t k = 0; k < views_.size(); ++k) {
      const int64_t x = std::abs(a.strides[k]), y = std::abs(b.strides[k]);
      if (x == 0 || y == 0 || x == y) continue;
      return x < y ? -1 : 1;
    }
    return 0;
  }

  bool mergeable(const LoopNest& nest, int at, const Dim& outer) const {
    for (size_t k = 0; k < views_.size(); ++k)
      if (outer.strides[k] != nest.operands[k].strides[at] * nest.sizes[at]) return false;
    return true;
  }

  void put(LoopNest& nest, int at, const Dim& dim) const {
    nest.sizes[at] = dim.size;
    for (size_t k = 0; k < views_.size(); ++k) nest.operands[k].strides[at] = dim.strides[k];
  }

  std::span<const View> views_;
};

}  // namespace

bool LoopNest::fits_32bit() const {
  constexpr int64_t kMax = INT32_MAX;
  if (numel() > kMax) return false;
  for (const Operand& o : operands) {
    int64_t low = 0, high = 0;
    for (int d = 0; d < rank; ++d) {
      const int64_t reach = (sizes[d] - 1) * o.strides[d];
      (reach < 0 ? low : high) += sizes[d] > 0 ? reach : 0;
    }
    if (high > kMax || low < -kMax) return false;
  }
  return true;
}

LoopNest LoopNest::plan(IntList space, std::span<const View> views, bool keep_order) {
  Planner planner(space, views);
  LoopNest nest = planner.start();
  for (int64_t s : space) {
    if (s != 0) continue;
    planner.append_unit(nest);
    nest.sizes[0] = 0;
    return nest;
  }
  planner.append(nest, space, 0, int(space.size()), keep_order);
  if (nest.rank == 0) planner.append_unit(nest);
  return nest;
}

LoopNest LoopNest::plan_split(IntList space, int outer_rank, std::span<const View> views,
                              int* inner_rank) {
  Planner planner(space, views);
  LoopNest nest = planner.start();
  auto part = [&](int first, int last) {
    for (int d = first; d < last; ++d) {
      if (space[d] != 0) continue;
      planner.append_unit(nest);
      nest.sizes[nest.rank - 1] = 0;
      return 1;
    }
    return planner.append(nest, space, first, last, false);
  };
  *inner_rank = part(outer_rank, int(space.size()));
  if (*inner_rank == 0) {
    planner.append_unit(nest);
    *inner_rank = 1;
  }
  part(0, outer_rank);
  return nest;
}

ReducedLast::ReducedLast(IntList space, uint32_t reduced, std::span<const View> views) {
  const size_t rank = space.size();
  SmallVector<int, 8> order;
  for (size_t d = 0; d < rank; ++d)
    if (!(reduced >> d & 1)) order.push_back(int(d));
  kept_ = int(order.size());
  for (size_t d = 0; d < rank; ++d)
    if (reduced >> d & 1) order.push_back(int(d));
  for (int d : order) space_.push_back(space[size_t(d)]);
  lists_.reserve(2 * views.size());  // views point into it
  for (const View& v : views) {
    Shape& sizes = lists_.emplace_back();
    Shape& strides = lists_.emplace_back();
    const int skip = int(rank) - v.rank();
    for (int d : order) {
      sizes.push_back(d < skip ? 1 : v.sizes[size_t(d - skip)]);
      strides.push_back(d < skip ? 0 : v.strides[size_t(d - skip)]);
    }
    View& p = views_.emplace_back(v);
    p.sizes = sizes;
    p.strides = strides;
  }
}

LoopNest LoopNest::plan_reduced(IntList space, uint32_t reduced, std::span<const View> views,
                                int* inner_rank) {
  // Seldom is there anything to move.
  const int rank = int(space.size()), kept = std::min(rank, std::countr_zero(reduced));
  if (reduced >> kept == (uint32_t{1} << (rank - kept)) - 1)
    return plan_split(space, kept, views, inner_rank);
  const ReducedLast moved(space, reduced, views);
  return plan_split(moved.space(), moved.kept(), moved.views(), inner_rank);
}

}  // namespace arete::prim
