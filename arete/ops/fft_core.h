// What the transforms of fft.cpp are made of.
#pragma once

#include "arete/core/tensor.h"

namespace arete::ops {

/// Transforms lines of complex numbers, given as real tensors (..., n, 2), f32 or f64, along the
/// dimension before the last: scale * DFT, with exp(-2 pi i jk/n) if forward, else exp(+...).
Tensor transform_lines(const Tensor& parts, bool forward, double scale);

}  // namespace arete::ops
