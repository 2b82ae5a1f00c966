// What the transforms of fft.cpp are made of.
#pragma once

#include <cstdint>

#include "arete/core/tensor.h"

namespace arete::ops {

/// Transforms lines of complex numbers, given as real tensors (..., n, 2), f32 or f64, along the
/// dimension before the last: scale * DFT, with exp(-2 pi i jk/n) if forward, else exp(+...).
Tensor transform_lines(const Tensor& parts, bool forward, double scale);
/// Pairs (..., 2) cut along `dim` to n or filled up with zeros.
Tensor with_size(const Tensor& parts, int64_t dim, int64_t n);
/// All n values of lines with conjugate symmetry from the first n / 2 + 1.
Tensor completed(const Tensor& parts, int64_t dim, int64_t n);

}  // namespace arete::ops
