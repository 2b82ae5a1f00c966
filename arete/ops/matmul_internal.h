// Shared by the files of the matrix products.
#pragma once

#include "arete/ops/call.h"

namespace arete::ops {

/// out = a @ b (b transposed on request) + bias as one gemm, under the shape rules of matmul.
void run_product(const Tensor& a, const Tensor& b, const Tensor& out, prim::Primitives& p,
                 const Tensor& bias, bool transpose_b);

}  // namespace arete::ops
