// Softmax along a dimension and its relatives.
#pragma once

#include <optional>

#include "arete/core/tensor.h"

namespace arete {

/// exp(x) / sum(exp(x)) along `dim`, computed without overflow. With `dtype` the input is converted
/// first. Half types compute in f32. Errors: TypeError for integers without `dtype`, IndexError for
/// `dim`.
Tensor softmax(const Tensor& input, int64_t dim, std::optional<DType> dtype = {});
/// log(softmax(x)), accurate where softmax underflows.
Tensor log_softmax(const Tensor& input, int64_t dim, std::optional<DType> dtype = {});
/// softmax(-x).
Tensor softmin(const Tensor& input, int64_t dim, std::optional<DType> dtype = {});

namespace ops {
/// Gradients of softmax and log_softmax with respect to their input, from their output.
Tensor softmax_backward(const Tensor& grad, const Tensor& output, int64_t dim);
Tensor log_softmax_backward(const Tensor& grad, const Tensor& output, int64_t dim);
/// softmax along the last dimension of scores under a mask that broadcasts to them: where a boolean
/// mask is false the result is 0, a floating one is added to the scores. Rows without any allowed
/// element are 0. `mask` may be undefined.
Tensor masked_softmax(const Tensor& scores, const Tensor& mask);
/// The same under the mask of causal attention: row i has weights at columns up to i only.
Tensor causal_softmax(const Tensor& scores);
}  // namespace ops

}  // namespace arete
