// What the transforms of fft.cpp and stft.cpp are made of.
#pragma once

#include "arete/core/tensor.h"

namespace arete::ops {

/// Which sides are complex; half: real numbers on the other one, and of the last dimension the
/// first n / 2 + 1 numbers, of which the others are the conjugates.
enum class FourierKind : uint8_t { complex, to_half, from_half, from_real, to_real };

/// scale * DFT over `dims` (from 0) of `points` each, to which x is cut or filled up with zeros;
/// exp(-2 pi i jk/n) if forward, else exp(+...). x is f32, f64 or complex, with any strides.
/// window, where there is one dimension: factors for its elements on the real side, or the signal's
/// where both are complex: before a forward transform, after the other one.
Tensor fourier_transform(const Tensor& x, FourierKind kind, IntList dims, IntList points,
                         bool forward, double scale, const Tensor& window = {});

}  // namespace arete::ops
