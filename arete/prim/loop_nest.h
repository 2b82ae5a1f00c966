// One plan for walking several strided operands together: broadcasting, coalescing, ordering.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "arete/base/small_vector.h"
#include "arete/prim/view.h"

namespace arete::prim {

/// The loops over an iteration space shared by operands. After planning, dimension 0 is the
/// innermost (fastest) one; dimensions of size 1 are gone and adjacent ones that every operand
/// walks in one stride are merged, so contiguous operands give rank 1 (rank 0 never occurs).
struct LoopNest {
  static constexpr int kMaxOperands = 24;

  struct Operand {
    std::byte* data;
    DType dtype;
    std::array<int64_t, kMaxRank> strides;  // bytes, per planned dimension; 0 where broadcast
  };

  int rank = 1;
  std::array<int64_t, kMaxRank> sizes{};  // innermost first
  SmallVector<Operand, 6> operands;

  int64_t numel() const {
    int64_t n = 1;
    for (int d = 0; d < rank; ++d) n *= sizes[d];
    return n;
  }
  /// All operands are walked in one run: rank 1 and every stride is its element size or 0.
  bool is_linear() const {
    if (rank != 1) return false;
    for (const Operand& o : operands)
      if (o.strides[0] != 0 && o.strides[0] != int64_t(size_of(o.dtype))) return false;
    return true;
  }
  /// Every byte offset fits in 32 bits (index arithmetic of GPU kernels).
  bool fits_32bit() const;

  /// Plans the walk over `space`; each view's sizes must broadcast to it (checked: ARETE_ASSERT).
  /// Dimensions are ordered by the strides of the first view (the output), then of the others.
  /// `keep_order`: never reorder (scans, random numbers: positions matter).
  static LoopNest plan(IntList space, std::span<const View> views, bool keep_order = false);

  /// As plan(), for a space split in outer dimensions (the first `outer_rank`) and inner ones:
  /// each part is coalesced and ordered on its own. inner_rank tells how many of the planned
  /// dimensions (the first ones, innermost first) are inner; at least 1.
  static LoopNest plan_split(IntList space, int outer_rank, std::span<const View> views,
                             int* inner_rank);

  /// The same where the inner dimensions are those of `reduced` (bit d: dimension d of the space),
  /// wherever they stand.
  static LoopNest plan_reduced(IntList space, uint32_t reduced, std::span<const View> views,
                               int* inner_rank);
};

/// A space, and views that broadcast to it, with the dimensions of `reduced` (bit d: dimension d)
/// behind the others.
class ReducedLast {
 public:
  ReducedLast(IntList space, uint32_t reduced, std::span<const View> views);
  ReducedLast(const ReducedLast&) = delete;
  ReducedLast& operator=(const ReducedLast&) = delete;

  IntList space() const { return space_; }
  /// The number of dimensions that are not reduced.
  int kept() const { return kept_; }
  std::span<const View> views() const { return {views_.data(), views_.size()}; }

 private:
  Shape space_;
  int kept_ = 0;
  SmallVector<Shape, 4> lists_;
  SmallVector<View, 4> views_;
};

}  // namespace arete::prim
