// Tensors as plain bits: moves and fills do not care what elements mean, only how wide they are.
#pragma once

#include <array>
#include <span>

#include "arete/backend/cuda/pointwise_launch.h"

namespace arete::cuda {

/// Rewrites a nest of operands of one element size so that its elements are as wide as addresses
/// and strides allow, up to 16 bytes: wider where dimension 0 is one run of bytes for every
/// operand, narrower where an address is not aligned to its element. Returns the width. `dtype`s no
/// longer mean anything afterwards.
int widen_elements(prim::LoopNest& nest);

/// The kernels for elements of 1, 2, 4, 8 or 16 bytes.
PointwiseKernels& move_kernels(int bytes);
PointwiseKernels& fill_kernels(int bytes);

/// One value, repeated over 16 bytes.
struct RawPattern {
  alignas(16) std::byte bytes[16];

  bool is_one_byte() const;
  /// The parameters of fill_kernels(width).
  std::span<const expr::Literal> params(int width) const;
};

}  // namespace arete::cuda
