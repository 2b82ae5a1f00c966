// What backends do with the parts of a product that their kernels lack.
#pragma once

#include "arete/prim/backend.h"

namespace arete::prim {

/// Whether each product of a batch has a bias of its own.
inline bool has_bias_of_each(const GemmArgs& args) { return args.bias.rank() > 1; }
/// Whether a product asks for a derivative, sums of rows, scales, programs or biases of its own.
bool has_parts(const GemmArgs& args);
/// Such a product by one without them and passes over operands and result.
void gemm_in_parts(Primitives& p, const GemmArgs& args);
/// Products with programs: those with a vector, or few of them, as one fused kernel, which reads
/// the matrix once; others with passes over operands and result.
void gemm_with_programs(Primitives& p, const GemmArgs& args);
/// Whether gemm_with_programs does no more than a plain product and finish_gemm in its place.
bool is_finished_in_place(const GemmArgs& args);
/// What follows the product: scales, bias or derivative, activation, aux, or the result's program;
/// `product` may be out.
void finish_gemm(Primitives& p, const View& product, const GemmArgs& args);
/// out[i] = sum of row i of a matrix, of one dtype.
void sum_rows(Primitives& p, const View& in, const View& out);

}  // namespace arete::prim
