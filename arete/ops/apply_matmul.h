// Matrix products whose operands and result go through programs that users write.
#pragma once

#include <span>

#include "arete/core/scalar.h"
#include "arete/core/tensor.h"
#include "arete/expr/program.h"

namespace arete::ops {

/// What a program (one output) makes of the elements of a matrix, its first input; `inputs` are its
/// others, and broadcast to the matrix. Without a program the matrix stays as it is.
struct MatrixProgram {
  expr::ProgramPtr program;
  std::span<const Tensor> inputs{};
  std::span<const Scalar> params{};
};

/// result(left(a) @ right(b)), a (*, m, k), b (*, k, n) -> (*, m, n), with batches that broadcast
/// and history: an int8 weight with scales becomes floating on its way in, a bias and an activation
/// are applied on the way out. Both operands have one real dtype behind their programs, which is
/// that of the product and of the result program's first input. Where m or n is at most 4 it is one
/// kernel that reads the matrices as they are stored; else the operands' programs run before the
/// product, that of the result over it while it is in the cache. Where a gradient is wanted each
/// part is a call of its own. `name` is for history and errors; it must stay alive.
/// Errors: ValueError for sizes that do not go together, TypeError for dtypes.
Tensor apply_matmul(const Tensor& a, const Tensor& b, const MatrixProgram& left,
                    const MatrixProgram& right, const MatrixProgram& result, const char* name);

}  // namespace arete::ops
