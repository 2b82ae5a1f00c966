// Fourier transforms by a device's own library.
#pragma once

#include <cstdint>

#include "arete/core/dtype.h"

namespace arete::prim {

/// What a backend with a library of Fourier transforms is besides.
class LineTransformer {
 public:
  /// The unscaled transform of `lines` contiguous lines of n pairs (real, imaginary) of f32 or f64,
  /// from `in` to `out` (which may be the same), on the current stream. `forward`: exponent -2 pi
  /// i.
  virtual void transform_lines(const void* in, void* out, DType dtype, int64_t lines, int64_t n,
                               bool forward) = 0;

 protected:
  ~LineTransformer() = default;
};

}  // namespace arete::prim
