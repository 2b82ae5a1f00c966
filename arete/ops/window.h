// Reading and writing a strided window of a tensor as differentiable operators: the gradients of
// views and of in-place writes through views.
#pragma once

#include "arete/core/tensor.h"

namespace arete::ops {

/// The elements a view with `sizes`, `strides` at `offset` would show of a memory in which `self`
/// has the strides `base_strides`. Any window inside that memory; the result is a new tensor.
Tensor read_window(const Tensor& self, IntList base_strides, IntList sizes, IntList strides,
                   int64_t offset);
/// A copy of `self` in which that window (of values' sizes) holds `values`. The window must not
/// overlap itself.
Tensor write_window(const Tensor& self, const Tensor& values, IntList base_strides,
                    IntList strides, int64_t offset);

}  // namespace arete::ops
