// How operators meet complex tensors (Note [Complex tensors] in complex_call.cpp).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "arete/ops/call.h"

namespace arete::ops {

/// float32 for complex64, float64 for complex128; real dtypes themselves.
DType real_of(DType t);
/// complex64 for float32 (and what computes in it), complex128 for float64.
DType complex_of(DType t);

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

/// The views between complex numbers and their parts: the only ones that change the dtype.
Layout view_as_real_layout(const Call& c);
Layout view_as_complex_layout(const Call& c);
std::vector<Layout> complex_part_layouts(const Call& c);
/// The dtype in which a view operator shows memory of dtype `t`.
inline DType dtype_of_view(const OpRecord& op, DType t) {
  if (op.view == view_as_complex_layout) return complex_of(t);
  return op.view == view_as_real_layout || op.views == complex_part_layouts ? real_of(t) : t;
}

/// What operators with kernels of their own do with complex tensors, for which these have none: a
/// composition of others. Null if it has none.
using Composition = Results (*)(const Call&);
Composition complex_composition(std::string_view name);

/// A call of a pointwise record that promotes to complex numbers. NotImplementedError for records
/// that have no complex form.
Results call_complex(const Call& call, DType promoted);

/// The complex form of an operator: inputs and outputs in pairs of values.
struct ComplexForm {
  /// Inputs, then parameters. One output: a real or boolean result. Two: a complex one.
  expr::Definition definition;
  /// As PointwiseDef::gradient, of the parts; null: the symbolic derivative.
  expr::Definition gradient;
  uint32_t pairs = ~0u;  ///< which inputs are pairs (masks and conditions are not)
};
/// Null if the operator has none.
const ComplexForm* complex_form(std::string_view name);
/// Names of all operators that have one, in order.
std::vector<std::string> complex_names();

}  // namespace arete::ops
