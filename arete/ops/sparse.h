// Sparse gradients: what autograd, optimizers and scalers do with them (Note [Sparse tensors]).
#pragma once

#include <cstdint>

#include "arete/core/sparse.h"

namespace arete::ops {

/// The same elements with other values.
Tensor with_values(const Tensor& sparse, Tensor values);
/// Elements in order, each once; values of one place are added in the order in which they are
/// there. Waits for the device: how many there are depends on the indices.
Tensor coalesce(const Tensor& sparse);
/// All elements; a plain tensor as it is.
Tensor dense_of(const Tensor& t);
/// The elements that are in memory: of a plain tensor all.
Tensor elements_of(const Tensor& t);
/// The sum of two tensors of one size, sparse if both are: elements of the first, then of the
/// second, not coalesced.
Tensor sum_of(const Tensor& a, const Tensor& b);
/// The gradient of a table of `rows` rows, from values (n, width) and of which row each is; what is
/// of the row `padding` (-1: none) is left out.
Tensor rows_gradient(const Tensor& index, const Tensor& values, int64_t rows, int64_t padding);
/// The values of a plain tensor at the places of a sparse one.
Tensor at_places(const Tensor& dense, const Tensor& sparse);
/// dense += alpha * values at the places of a sparse tensor, in place.
void add_at_places(Tensor dense, const Tensor& sparse, const Tensor& values, double alpha = 1);

}  // namespace arete::ops
