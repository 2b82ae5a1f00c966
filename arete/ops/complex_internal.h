// How operators meet complex tensors (Note [Complex tensors] in complex_call.cpp).
#pragma once

#include <complex>

#include "arete/core/complex.h"
#include "arete/ops/call.h"

namespace arete::ops {

/// float32 for complex64, float64 for complex128; real dtypes themselves.
DType real_of(DType t);
/// complex64 for float32 (and what computes in it), complex128 for float64.
DType complex_of(DType t);
/// The conjugate number.
inline Scalar conjugate(const Scalar& s) {
  return s.is_complex() ? Scalar(std::conj(to_complex(s))) : s;
}

/// Memory of complex numbers as one of real numbers: layouts in units of the parts, with one
/// dimension more.
Layout layout_of_parts(const Layout& l);
/// A complex tensor's memory as a real tensor under that layout, without history.
Tensor parts_in(const Tensor& t);
/// The real (0) or imaginary (1) part of a complex tensor as a real tensor over the same memory,
/// without history.
Tensor part_of(const Tensor& t, int part);
/// Both parts, with history: views.
Results parts_of(const Tensor& t);

/// A tensor over t's storage with another dtype, whose elements `layout` counts; no history.
Tensor alias(const Tensor& t, Layout layout, DType dtype);

/// A call of a pointwise record that promotes to complex numbers. NotImplementedError for records
/// that have no complex form.
Results call_complex(const Call& call, DType promoted);

}  // namespace arete::ops
