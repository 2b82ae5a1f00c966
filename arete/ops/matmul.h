// Matrix products and einsum.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "arete/core/tensor.h"

namespace arete {

/// The product of two matrices, (n, m) @ (m, p) -> (n, p). No broadcasting.
/// Errors: ValueError "self must be a matrix", "mat1 and mat2 shapes cannot be multiplied
/// (2x3 and 4x5)"; TypeError "expected m1 and m2 to have the same dtype".
Tensor mm(const Tensor& self, const Tensor& mat2);
/// Products of matrices pair by pair, (b, n, m) @ (b, m, p) -> (b, n, p). No broadcasting.
Tensor bmm(const Tensor& self, const Tensor& mat2);
/// NumPy's matmul: dot product of two vectors, matrix times vector or matrix, and for more
/// dimensions products of the last two with the others broadcast. Both need at least one dimension
/// and one dtype.
Tensor matmul(const Tensor& self, const Tensor& other);
/// alpha * matmul(self, other) in one pass.
Tensor matmul_scaled(const Tensor& self, const Tensor& other, double alpha);
/// Matrix (n, m) times vector (m) -> (n).
Tensor mv(const Tensor& self, const Tensor& vec);
/// Sum of products of two vectors of one length -> 0-d.
Tensor dot(const Tensor& self, const Tensor& tensor);
/// All products of two vectors, (n) and (m) -> (n, m).
Tensor outer(const Tensor& self, const Tensor& vec2);
/// beta * self + alpha * mat1 @ mat2; `self` broadcasts to (n, p). With beta 0 `self` is not read.
Tensor addmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2, Scalar beta = 1,
             Scalar alpha = 1);
/// beta * self + alpha * batch1 @ batch2, as addmm for batches of matrices.
Tensor baddbmm(const Tensor& self, const Tensor& batch1, const Tensor& batch2, Scalar beta = 1,
               Scalar alpha = 1);
/// input @ weight^T + bias: input (*, in), weight (out, in), bias (out) or undefined -> (*, out).
/// A weight of one dimension (in) gives (*).
Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias = {});
/// x1^T A x2 + bias: input1 (*, n), input2 (*, m), weight (out, n, m), bias (out) or undefined.
Tensor bilinear(const Tensor& input1, const Tensor& input2, const Tensor& weight,
                const Tensor& bias = {});

/// Two linear layers with an activation between them, linear(f(linear(input, weight1, bias1)),
/// weight2, bias2): input (*, in), weight1 (hidden, in), weight2 (out, hidden) -> (*, out).
/// `activation`: "relu", "gelu" or "gelu_tanh" (gelu's tanh approximation). What separate calls do
/// in passes of their own is done on the way out of the products, forward and backward.
Tensor feed_forward(const Tensor& input, const Tensor& weight1, const Tensor& bias1,
                    const Tensor& weight2, const Tensor& bias2,
                    std::string_view activation = "relu");
/// (self * scale_a) @ (mat2 * scale_b) + bias of float8 matrices (n, m) and (m, p), in `out_dtype`
/// (bfloat16 if not given; float16, float32). Scales are float32: one number each, or (n, 1) and
/// (1, p). Fastest where mat2 is a transposed contiguous tensor. Has no gradient.
Tensor scaled_mm(const Tensor& self, const Tensor& mat2, const Tensor& scale_a,
                 const Tensor& scale_b, const Tensor& bias = {},
                 std::optional<DType> out_dtype = {});

/// Sums of products named by letters: einsum("bij,bjk->bik", {a, b}). Letters are dimensions; the
/// same letter in one operand takes the diagonal, letters missing in the result are summed, "..."
/// stands for broadcast dimensions, and without "->" the result has the letters that occur once,
/// in alphabetical order. Products of two operands become batched matrix products; more operands
/// are contracted from left to right.
/// Errors: ValueError beginning "einsum(): ..." for a malformed equation or sizes that differ.
Tensor einsum(std::string_view equation, std::span<const Tensor> operands);
inline Tensor einsum(std::string_view equation, std::initializer_list<Tensor> operands) {
  return einsum(equation, std::span<const Tensor>(operands.begin(), operands.size()));
}

}  // namespace arete
