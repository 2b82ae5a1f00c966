// Complex numbers: their parts, and complex tensors made of real ones. Arithmetic and functions of
// complex tensors are the operators of pointwise.h, numeric.h, ... themselves.
#pragma once

#include "arete/core/tensor.h"

namespace arete {

/// A view of a complex tensor's memory as real numbers, with one dimension more: (*) to (*, 2).
Tensor view_as_real(const Tensor& self);
/// The reverse: float32 or float64, a last dimension of size 2 and stride 1, even other strides and
/// offset (ValueError).
Tensor view_as_complex(const Tensor& self);
/// The real part, a view of a complex tensor's memory; real tensors themselves.
Tensor real(const Tensor& self);
/// The imaginary part, a view; TypeError for real tensors.
Tensor imag(const Tensor& self);
/// The conjugate numbers (a copy; PyTorch delays the work); real tensors themselves.
Tensor conj(const Tensor& self);
/// The same, always a copy.
Tensor conj_physical(const Tensor& self);
/// The tensor itself: conjugates are never delayed.
Tensor resolve_conj(const Tensor& self);
/// real + i * imag, which are of one dtype: float32 or float64.
Tensor complex(const Tensor& real, const Tensor& imag);
/// abs * (cos(angle) + i * sin(angle)).
Tensor polar(const Tensor& abs, const Tensor& angle);

}  // namespace arete
