// Mean and variance as stages of fused kernels.
#pragma once

#include "arete/ops/fused_builder.h"

namespace arete::ops {

// Note [Statistics in one pass]
// Rows that stay at hand give their mean first and then their variance from the differences to it.
// Long rows would be read twice for that, so both come from the differences to a pivot p:
//   mean = p + E[x - p],  variance = E[(x - p)^2] - E[x - p]^2.
// The error of the difference is that of the sums times 1 + (mean - p)^2 / variance. As p is the
// middle one of three elements far from each other, that factor is small unless two of them are
// among the same few that lie far from all others; and elements that are not few raise the variance
// themselves.

/// From so many elements of a row on, statistics are found in one pass.
inline constexpr int64_t kOnePass = 8192;

/// Row values: the mean, and the mean of the squared differences to it.
struct Moments {
  int mean, variance;
};
/// Stages that find those of tensor input 0. The first parameter is 1 / (elements of a row);
/// `pivots`: the number of the first of three inputs made by append_pivots, or -1: two passes.
Moments add_moments(FusedBuilder& builder, int pivots);

/// Appends three elements of each row of the first input, the pivot's candidates. The sizes of one
/// element of a row are put in `one_of_row`, which must live as long as the views.
void append_pivots(SmallVector<prim::View, 9>& inputs, int outer_rank, Shape& one_of_row);

}  // namespace arete::ops
