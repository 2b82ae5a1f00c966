// Complex memory as pairs of real numbers.
#pragma once

#include "arete/prim/backend.h"

namespace arete::prim {

/// The real (0) or imaginary (1) parts of a complex view, as a real one.
struct PartView {
  PartView(const View& v, int part);
  PartView(const PartView&) = delete;
  PartView& operator=(const PartView&) = delete;
  Shape strides;
  View view;
};

/// What Primitives::copy does if the dtypes differ and one of them is complex: copies of the parts,
/// by `p`. False, and nothing is done, where both are real.
bool copy_by_parts(Primitives& p, const CopyArgs& args);

}  // namespace arete::prim
