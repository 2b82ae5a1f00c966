// Where views lie.
#pragma once

#include "arete/prim/view.h"

namespace arete::test {

/// The bytes from a view's first to its last element; none where it has no elements.
struct ByteRange {
  std::byte *begin, *end;
};
inline ByteRange range_of(const prim::View& v) {
  if (v.numel() == 0) return {v.data, v.data};
  int64_t low = 0, high = 1;
  for (int d = 0; d < v.rank(); ++d) {
    const int64_t reach = (v.sizes[size_t(d)] - 1) * v.strides[size_t(d)];
    (reach < 0 ? low : high) += reach;
  }
  const int64_t size = int64_t(size_of(v.dtype));
  return {v.data + low * size, v.data + high * size};
}

}  // namespace arete::test
