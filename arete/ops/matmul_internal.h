// Shared by the files of the matrix products.
#pragma once

#include <utility>

#include "arete/ops/call.h"
#include "arete/ops/vmap_internal.h"

namespace arete::ops {

/// out = a @ b (b transposed on request) + bias as one gemm, under the shape rules of matmul.
void run_product(const Tensor& a, const Tensor& b, const Tensor& out, prim::Primitives& p,
                 const Tensor& bias, bool transpose_b);

/// "2x3".
std::string shape_text(IntList sizes);
/// The layout with dimensions of size 1 before the others, so that it has the rank.
void pad_front(Layout& layout, size_t rank);

/// grad^T @ input and the sums of grad's columns: the gradients of a linear layer's parameters.
std::pair<Tensor, Tensor> linear_weight_grad(const Tensor& grad, const Tensor& input);

namespace vmaps {
/// What matmul makes of each element.
Tensor product(const Operand& a, const Operand& b);
}  // namespace vmaps

}  // namespace arete::ops
