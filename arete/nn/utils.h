// Gradient clipping, and parameters as one vector.
#pragma once

#include <vector>

#include "arete/core/tensor.h"

namespace arete::nn::utils {

/// Scales the gradients of `parameters` in place so that their joint norm (of order norm_type;
/// INFINITY: the largest absolute value) is at most max_norm: by max_norm / (norm + 1e-6) where
/// that is below 1. Returns the norm before, 0-d. Parameters without gradient do not count. Nothing
/// is read on the host unless error_if_nonfinite (ValueError for a norm that is NaN or infinite).
Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm, double norm_type = 2,
                       bool error_if_nonfinite = false);
/// The second half of it: scales the gradients by max_norm / (total_norm + 1e-6) where that is
/// below 1, for a norm (0-d) found otherwise.
void clip_grads_with_norm_(const std::vector<Tensor>& parameters, double max_norm,
                           const Tensor& total_norm);
/// The norm alone: f32, or f64 if one of the tensors is.
Tensor get_total_norm(const std::vector<Tensor>& tensors, double norm_type = 2);
/// Limits every element of the gradients to [-clip_value, clip_value], in place.
void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value);

/// All elements in one 1-d tensor, in order (differentiable), and back (copied in, without
/// history). ValueError if the sizes do not match.
Tensor parameters_to_vector(const std::vector<Tensor>& parameters);
void vector_to_parameters(const Tensor& vector, const std::vector<Tensor>& parameters);

}  // namespace arete::nn::utils
