// Searching in sorted values, counting, and running extrema.
#pragma once

#include <optional>
#include <tuple>

#include "arete/core/tensor.h"

namespace arete {

/// For each of `values` the position (int64) in `sorted` (ascending along its last dimension)
/// before which it would be inserted: of equal elements the first, with `right` behind the last.
/// `sorted` is 1-d, or has the sizes of values but for the last dimension.
Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right = false);
/// searchsorted with 1-d boundaries.
Tensor bucketize(const Tensor& values, const Tensor& boundaries, bool right = false);
/// Whether each element is among the test elements (bool).
Tensor isin(const Tensor& elements, const Tensor& test_elements, bool invert = false);
/// How often each of 0, 1, ... occurs among `self` (1-d, integers, not negative), or the sum of its
/// weights: 1-d of at least `minlength` elements; int64, float32 for such weights, else float64.
/// Reads the data: not for meta tensors.
Tensor bincount(const Tensor& self, const Tensor& weights = {}, int64_t minlength = 0);

namespace ops {

/// How many elements of `sorted` (1-d, ascending) are at most each of the numbers 0 to count - 1:
/// int64, without the numbers in memory.
Tensor places_of_numbers(const Tensor& sorted, int64_t count);

/// Elements of rows of different lengths, one row after the other: which row each belongs to, and
/// its place within (int64). counts: the lengths (1-d, int64, not negative), which `total` is the
/// sum of. On a GPU nothing is read back.
struct RaggedRows {
  Tensor row, within;
  RaggedRows(const Tensor& counts, int64_t total);
};

}  // namespace ops
}  // namespace arete
