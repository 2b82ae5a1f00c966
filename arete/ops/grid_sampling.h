// Kernels that look at the elements of images around positions; the records are in grid_sample.cpp,
// Note [Sampling and its gradients].
#pragma once

#include <algorithm>

#include "arete/ops/fused_builder.h"

namespace arete::ops {

enum class GridMode : uint8_t { bilinear, nearest, bicubic };
enum class GridOutside : uint8_t { zeros, border, reflection };

struct GridSampling {
  GridMode mode;
  GridOutside outside;
  bool align;
  Shape orders;

  int64_t taps_per_dim() const {
    return mode == GridMode::bicubic ? 4 : mode == GridMode::bilinear ? 2 : 1;
  }
  bool is_zero() const {
    const int64_t degree = mode == GridMode::bicubic ? 3 : mode == GridMode::bilinear ? 1 : 0;
    return std::any_of(orders.begin(), orders.end(), [&](int64_t o) { return o > degree; });
  }
  /// Once more along what component k of positions says: the last belongs to the first dimension.
  GridSampling along(size_t k) const {
    GridSampling more = *this;
    ++more.orders[orders.size() - 1 - k];
    return more;
  }
  uint64_t key(DType dtype) const {
    int all = 0;
    for (int64_t o : orders) all = 8 * all + int(o);
    return pack_key(
        {int(dtype), int(orders.size()), int(mode), int(outside), align, all / 32, all % 32});
  }
};

/// Sums over taps of elements of an image times weights. Inputs of both specs: the image (a table),
/// the numbers of images and of channels, the positions in each spatial dimension. Parameters: of
/// each dimension its size, then the elements from one to the next, then those from image to image
/// and from channel to channel. Places are counted in `positions`.
const prim::FusedSpec& sampling_spec(DType dtype, DType positions, const GridSampling& s);
/// One more input, what slopes are multiplied with; outputs: a sum over channels for each spatial
/// dimension that has slopes.
const prim::FusedSpec& slopes_spec(DType dtype, DType positions, const GridSampling& s);
/// What places in images of so many elements are counted in: 32 bits are faster where they do.
DType positions_of_image(int64_t elements);
/// Taps that one call of a program of taps has at most.
inline constexpr int64_t kMostTaps = 8;
/// For scatter: of each tap beside a point its place in its plane and its weight, 0 where there is
/// none. Inputs: a position in each spatial dimension. Parameters: sizes and steps as above; then,
/// where the mode has more than kMostTaps taps, the number along the first dimension of those that
/// a call has.
const expr::Program& taps_program(DType dtype, DType positions, const GridSampling& s);

}  // namespace arete::ops
