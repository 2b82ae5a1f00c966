// Tensors of which only some elements are in memory.
#pragma once

#include "arete/core/tensor.h"

namespace arete {

// Note [Sparse tensors]
// A sparse tensor (layout sparse_coo: coordinates) is a tensor of device meta, with the sizes and
// the dtype of the whole, whose storage has no bytes and owns the parts: plain tensors, of which
// the values have the history and the device. So what asks for sizes alone works as it does for
// all tensors, copies of the handle are the same sparse tensor, and nothing takes one for a tensor
// with elements: operators refuse it (ops/call.cpp) but for those of ops/sparse.h, of which the
// gradients of tables are made, and Python's, which its class SparseTensor finds.

/// The parts of a sparse tensor.
struct SparseParts {
  Tensor indices;          ///< int64, (sparse dimensions, n): where the elements are
  Tensor values;           ///< (n, ...): the rest of the dimensions is dense
  bool coalesced = false;  ///< in order, each place once; else values of one place count together
};

/// A sparse tensor of these sizes. Nothing is checked but the number of elements (ValueError).
Tensor sparse_tensor(SparseParts parts, IntList sizes);
/// The parts; null of a plain tensor.
const SparseParts* sparse_parts(const Tensor& t);
inline bool is_sparse(const Tensor& t) { return t.is_meta() && sparse_parts(t); }
/// Puts other parts of the same sizes in their place, for all who hold the tensor.
void replace_parts(const Tensor& sparse, SparseParts parts);
/// NotImplementedError, in the name of an operator, for a sparse tensor.
void check_not_sparse(const char* op, const Tensor& t);
/// Where the elements are: of a sparse tensor the device of its values.
Device device_of_elements(const Tensor& t);

}  // namespace arete
