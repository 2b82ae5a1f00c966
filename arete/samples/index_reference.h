// What the references of indexing share.
#pragma once

#include "arete/samples/reference_util.h"

namespace arete::ops {

/// The position that an index in a reference names.
inline int64_t wrapped(double index, int64_t size) {
  return int64_t(index) + (index < 0 ? size : 0);
}
/// `i` with another position along `dim`.
inline Shape at_dim(const Shape& i, int dim, int64_t k) {
  Shape r = i;
  if (!r.empty()) r[size_t(dim)] = k;
  return r;
}

}  // namespace arete::ops
