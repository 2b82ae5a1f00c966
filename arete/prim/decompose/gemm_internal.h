// What backends do with the parts of a product that their kernels lack.
#pragma once

#include "arete/prim/backend.h"

namespace arete::prim {

/// Whether a product asks for a derivative, sums of rows or scales.
bool has_parts(const GemmArgs& args);
/// Such a product by one without them and passes over operands and result.
void gemm_in_parts(Primitives& p, const GemmArgs& args);
/// What follows the product: scales, bias or derivative, activation, aux; `product` may be out.
void finish_gemm(Primitives& p, const View& product, const GemmArgs& args);
/// out[i] = sum of row i of a matrix, of one dtype.
void sum_rows(Primitives& p, const View& in, const View& out);

}  // namespace arete::prim
