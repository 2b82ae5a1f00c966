// Reading and writing elements at computed positions.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "arete/core/tensor.h"

namespace arete {

// Everywhere: index tensors are of an integer dtype; indices count from the end if negative; one
// out of range is an IndexError "index 5 is out of bounds for dimension 0 with size 3".

/// out[i][j][k] = self[index[i][j][k]][j][k] for dim 0, and so on. `index` has self's rank and is
/// no larger than self in the other dimensions.
Tensor gather(const Tensor& self, int64_t dim, const Tensor& index);
/// gather with broadcasting of self and index; without dim over the flattened self.
Tensor take_along_dim(const Tensor& self, const Tensor& index, std::optional<int64_t> dim = {});
/// The elements at positions in the flattened self, in the shape of index.
Tensor take(const Tensor& self, const Tensor& index);
/// A copy of self with those elements replaced by the ones of source (as many as indices, in
/// order), or with accumulate added to.
Tensor put(const Tensor& self, const Tensor& index, const Tensor& source, bool accumulate = false);

/// A copy of self with self[index[i][j][k]][j][k] = src[i][j][k] (dim 0); index is no larger than
/// src anywhere. Where indices repeat, the last value stays.
Tensor scatter(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src);
Tensor scatter(const Tensor& self, int64_t dim, const Tensor& index, Scalar value);
/// The same with += instead of =.
Tensor scatter_add(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src);
/// The same with a reduction: "sum", "prod", "mean", "amin" or "amax" of the values that meet,
/// and of self's own where include_self.
Tensor scatter_reduce(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src,
                      std::string_view reduce, bool include_self = true);

/// The slices of self along `dim` that `index` (1-d, or 0-d for one) names.
Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index);
/// A copy of self with alpha times slice i of src added to slice index[i].
Tensor index_add(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src,
                 Scalar alpha = 1);
/// A copy of self with slice index[i] replaced by slice i of src, or filled with a number.
Tensor index_copy(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src);
Tensor index_fill(const Tensor& self, int64_t dim, const Tensor& index, Scalar value);
/// The same with the value of a 0-d tensor, which has a gradient.
Tensor index_fill(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& value);
/// A copy of self in which slice index[i] is reduced with slice i of source: "prod", "mean", "amax"
/// or "amin" of all that meet, and of self's own where include_self.
Tensor index_reduce(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                    std::string_view reduce, bool include_self = true);

/// A copy of self with `value` where mask (bool, broadcast with self) holds.
Tensor masked_fill(const Tensor& self, const Tensor& mask, Scalar value);
/// The same with the value of a 0-d tensor, which has a gradient.
Tensor masked_fill(const Tensor& self, const Tensor& mask, const Tensor& value);
/// The elements where mask holds, in row-major order: 1-d. Reads the data: not for meta tensors.
Tensor masked_select(const Tensor& self, const Tensor& mask);
/// A copy of self whose elements where mask holds are the first ones of `source`, in order.
Tensor masked_scatter(const Tensor& self, const Tensor& mask, const Tensor& source);
/// The positions of the elements that are not zero: int64 (n, rank), in row-major order. Reads the
/// data: not for meta tensors.
Tensor nonzero(const Tensor& self);
/// The same, one 1-d tensor for each dimension: an index expression for those elements.
std::vector<Tensor> nonzero_tuple(const Tensor& self);

/// nonzero with exactly `size` rows: further positions are dropped, missing ones are fill_value.
Tensor nonzero_static(const Tensor& self, int64_t size, int64_t fill_value = -1);
/// self's shape filled with the value of a 0-d tensor.
Tensor fill(const Tensor& self, const Tensor& value);

/// self[indices] as NumPy has it: numbers, slices, kNewAxis and kEllipsis make a view; masks and
/// index tensors, which broadcast together, a copy. Dimensions of several index tensors stand
/// where the first was if all were neighbours, else in front.
/// Errors: too many indices, an index out of range, a mask of another shape than the dimensions it
/// stands for, index tensors that do not broadcast or are not integers (IndexError).
Tensor index(const Tensor& self, const std::vector<Index>& indices);
/// A copy of self with self[indices] = values (broadcast), or += if accumulate.
Tensor index_put(const Tensor& self, const std::vector<Index>& indices, const Tensor& values,
                 bool accumulate = false);

namespace ops {
/// Flat row-major positions (int64, 1-d) of the elements that are not zero. Reads the data: a
/// DeviceError for meta tensors.
Tensor flat_nonzero(const Tensor& self);
}  // namespace ops

}  // namespace arete
