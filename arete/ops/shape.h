// Shapes: views of a tensor, and operators that rearrange, join or repeat values.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "arete/core/tensor.h"

namespace arete {

// ---- views: the result shares self's memory. Dimensions may be negative (counted from the end);
// out of range they are an IndexError.

/// Other sizes for the same elements, one of which may be -1. ValueError if the strides do not
/// allow it; reshape() copies then.
Tensor view(const Tensor& self, IntList sizes);
Tensor view_as(const Tensor& self, const Tensor& other);
/// The same memory read as another type, without history. Where its elements have another size the
/// last dimension, whose stride must be 1, counts them. ValueError where they do not fit.
Tensor view_dtype(const Tensor& self, DType dtype);
/// A view if possible, else a copy.
Tensor reshape(const Tensor& self, IntList sizes);
Tensor reshape_as(const Tensor& self, const Tensor& other);
/// Dimension d of the result is dims[d] of self.
Tensor permute(const Tensor& self, IntList dims);
/// Swaps two dimensions.
Tensor transpose(const Tensor& self, int64_t dim0, int64_t dim1);
inline Tensor swapaxes(const Tensor& self, int64_t a, int64_t b) { return transpose(self, a, b); }
/// The transpose of a matrix; vectors and 0-d tensors as they are. ValueError for higher ranks.
Tensor t(const Tensor& self);
/// Swaps the last two dimensions; at least 2 are needed.
Tensor mT(const Tensor& self);
/// Moves dimensions to other places; the others keep their order.
Tensor movedim(const Tensor& self, int64_t source, int64_t destination);
Tensor movedim(const Tensor& self, IntList source, IntList destination);
/// Without all dimensions of size 1, or those named that have size 1.
Tensor squeeze(const Tensor& self);
Tensor squeeze(const Tensor& self, int64_t dim);
Tensor squeeze(const Tensor& self, IntList dims);
/// A new dimension of size 1 at `dim`.
Tensor unsqueeze(const Tensor& self, int64_t dim);
/// Repeats dimensions of size 1 and adds leading ones without copying; -1 keeps a size. Elements
/// are shared: clone() before writing.
Tensor expand(const Tensor& self, IntList sizes);
Tensor expand_as(const Tensor& self, const Tensor& other);
Tensor broadcast_to(const Tensor& self, IntList sizes);
/// All expanded to their common broadcast shape.
std::vector<Tensor> broadcast_tensors(const std::vector<Tensor>& tensors);
/// Joins dimensions start_dim to end_dim (inclusive); a copy only where a view is not possible.
Tensor flatten(const Tensor& self, int64_t start_dim = 0, int64_t end_dim = -1);
/// Splits a dimension into `sizes` (one may be -1).
Tensor unflatten(const Tensor& self, int64_t dim, IntList sizes);
/// One dimension, row-major.
Tensor ravel(const Tensor& self);
/// All dimensions in reverse order.
Tensor numpy_T(const Tensor& self);
/// The coordinates in `shape` of flat row-major positions, one tensor for each dimension.
std::vector<Tensor> unravel_index(const Tensor& indices, IntList shape);
/// Elements start to start + length of a dimension.
Tensor narrow(const Tensor& self, int64_t dim, int64_t start, int64_t length);
/// One index of a dimension, which goes away.
Tensor select(const Tensor& self, int64_t dim, int64_t index);
/// Python's self[start:stop:step] along `dim`, step >= 1.
Tensor slice(const Tensor& self, int64_t dim, std::optional<int64_t> start = {},
             std::optional<int64_t> stop = {}, int64_t step = 1);
/// Any window on self's storage. ValueError if it reaches outside.
Tensor as_strided(const Tensor& self, IntList sizes, IntList strides, int64_t offset = 0);
/// The diagonal of two dimensions as the last one; offset > 0 is above the main diagonal.
Tensor diagonal(const Tensor& self, int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1);
/// Windows of `size` at every `step` along `dim`; their elements are a new last dimension.
Tensor unfold(const Tensor& self, int64_t dim, int64_t size, int64_t step);
/// Pieces of `size` (the last may be smaller), or of given sizes that sum up to the dimension.
std::vector<Tensor> split(const Tensor& self, int64_t size, int64_t dim = 0);
std::vector<Tensor> split(const Tensor& self, IntList sizes, int64_t dim = 0);
/// At most `chunks` pieces of equal size (the last may be smaller).
std::vector<Tensor> chunk(const Tensor& self, int64_t chunks, int64_t dim = 0);
/// Exactly `sections` pieces, the first ones larger by one where it does not divide.
std::vector<Tensor> tensor_split(const Tensor& self, int64_t sections, int64_t dim = 0);
/// Cut before each of the indices.
std::vector<Tensor> tensor_split(const Tensor& self, IntList indices, int64_t dim = 0);
/// Along dimension 1 (0 for 1-d), 0 or 2: equal pieces, or cuts before the indices. ValueError if
/// the rank is too low or the sections do not divide the size.
std::vector<Tensor> hsplit(const Tensor& self, int64_t sections);
std::vector<Tensor> hsplit(const Tensor& self, IntList indices);
std::vector<Tensor> vsplit(const Tensor& self, int64_t sections);
std::vector<Tensor> vsplit(const Tensor& self, IntList indices);
std::vector<Tensor> dsplit(const Tensor& self, int64_t sections);
std::vector<Tensor> dsplit(const Tensor& self, IntList indices);
/// All slices along `dim`, without it.
std::vector<Tensor> unbind(const Tensor& self, int64_t dim = 0);
/// At least 1, 2 or 3 dimensions, as NumPy places them.
Tensor atleast_1d(const Tensor& self);
Tensor atleast_2d(const Tensor& self);
Tensor atleast_3d(const Tensor& self);

// ---- copies

/// Joins along an existing dimension; dtypes are promoted, sizes must agree elsewhere. 1-d tensors
/// without elements are ignored.
Tensor cat(const std::vector<Tensor>& tensors, int64_t dim = 0);
inline Tensor concat(const std::vector<Tensor>& t, int64_t dim = 0) { return cat(t, dim); }
/// Joins equal shapes along a new dimension.
Tensor stack(const std::vector<Tensor>& tensors, int64_t dim = 0);
/// cat along dimension 1 (0 for 1-d).
Tensor hstack(const std::vector<Tensor>& tensors);
/// cat of rows.
Tensor vstack(const std::vector<Tensor>& tensors);
/// cat along dimension 2 of tensors with at least 3 dimensions.
Tensor dstack(const std::vector<Tensor>& tensors);
/// cat along dimension 1; 1-d tensors are columns.
Tensor column_stack(const std::vector<Tensor>& tensors);
/// All tuples of one element of each 1-d tensor, in order: (n, k); one tensor stays as it is.
Tensor cartesian_prod(const std::vector<Tensor>& tensors);
/// All choices of r elements of a 1-d tensor, in order of positions: (n, r).
Tensor combinations(const Tensor& self, int64_t r = 2, bool with_replacement = false);
/// The whole tensor repeats[d] times along each dimension; leading dimensions may be added.
Tensor repeat(const Tensor& self, IntList repeats);
/// As repeat, but missing leading counts are 1.
Tensor tile(const Tensor& self, IntList repeats);
/// Every element `repeats` times in a row along `dim` (without it: of the flattened tensor).
Tensor repeat_interleave(const Tensor& self, int64_t repeats, std::optional<int64_t> dim = {});
/// The same with a count for each index of `dim` (1-d, integer; read on the host).
Tensor repeat_interleave(const Tensor& self, const Tensor& repeats,
                         std::optional<int64_t> dim = {});
/// Shifts cyclically; without dims, in row-major order.
Tensor roll(const Tensor& self, IntList shifts, IntList dims = {});
/// Reversed along the dimensions.
Tensor flip(const Tensor& self, IntList dims);
/// Columns (dimension 1) or rows (dimension 0) reversed.
Tensor fliplr(const Tensor& self);
Tensor flipud(const Tensor& self);
/// Rotates by 90 degrees k times in the plane of two dimensions, from the first to the second.
Tensor rot90(const Tensor& self, int64_t k = 1, IntList dims = {0, 1});
/// The lower (upper) triangle of the last two dimensions up to (from) a diagonal, else zero.
Tensor tril(const Tensor& self, int64_t diagonal = 0);
Tensor triu(const Tensor& self, int64_t diagonal = 0);
/// The diagonal of a matrix as a copy, or a matrix with a vector as its diagonal.
Tensor diag(const Tensor& self, int64_t diagonal = 0);
/// A matrix with the flattened self as its diagonal.
Tensor diagflat(const Tensor& self, int64_t offset = 0);
/// The last dimension as the diagonal of two new ones (dim1, dim2 of the result), else zeros.
Tensor diag_embed(const Tensor& self, int64_t offset = 0, int64_t dim1 = -2, int64_t dim2 = -1);
/// Matrices along the diagonal of a larger one; vectors and numbers are rows.
Tensor block_diag(const std::vector<Tensor>& tensors);
/// Pads (pairs before, after; last dimension first; negative: crops). mode: "constant" (`value`),
/// "reflect", "replicate" or "circular".
Tensor pad(const Tensor& self, IntList pad, std::string_view mode = "constant", double value = 0);
/// Coordinate grids of 1-d tensors; indexing "ij" (matrix) or "xy" (Cartesian).
std::vector<Tensor> meshgrid(const std::vector<Tensor>& tensors, std::string_view indexing = "ij");

// ---- copies with a part replaced by src, which has the sizes of the part

/// select(dim, index), slice(dim, start, stop, step) or diagonal(offset, dim1, dim2) of a copy of
/// self replaced.
Tensor select_scatter(const Tensor& self, const Tensor& src, int64_t dim, int64_t index);
Tensor slice_scatter(const Tensor& self, const Tensor& src, int64_t dim = 0,
                     std::optional<int64_t> start = {}, std::optional<int64_t> stop = {},
                     int64_t step = 1);
Tensor diagonal_scatter(const Tensor& self, const Tensor& src, int64_t offset = 0, int64_t dim1 = 0,
                        int64_t dim2 = 1);
/// A window on the copy's storage replaced; without an offset it begins where self does.
Tensor as_strided_scatter(const Tensor& self, const Tensor& src, IntList sizes, IntList strides,
                          std::optional<int64_t> offset = {});

namespace ops {
/// Zeros of `sizes` (row-major) into which `values` are added where a view with `strides` and
/// `offset` would show them: the gradient of views. Repeated places add up.
Tensor embed_window(const Tensor& values, IntList sizes, IntList strides, int64_t offset);
/// The in-place form of a view: self's handle gets the layout and history of one of its views.
Tensor& become(Tensor& self, const Tensor& view);
}  // namespace ops

}  // namespace arete
