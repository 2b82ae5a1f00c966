// Numbers as values of a dtype.
#pragma once

#include <algorithm>

#include "arete/core/scalar.h"
#include "arete/prim/args.h"
#include "arete/prim/backend.h"

namespace arete::ops {

/// ValueError "value cannot be converted to type ... without overflow" for a number beyond an
/// integer dtype's range, and for a complex one where the dtype is real. Fractions are cut off, and
/// unsigned integers take minus what they can hold, too, as two's complements.
void check_holds(DType dtype, const Scalar& value, const char* op);

/// How to fill `out` with a number that it holds (check_holds); of booleans: whether it is zero.
prim::FillArgs filling(const prim::View& out, const Scalar& value, const char* op);

/// Whether a dtype has all of 0, 1, ..., n - 1.
bool counts_to(DType dtype, int64_t n);

/// Elements begin, begin + 1, ..., begin + sizes[0] - 1 of a vector, which is `all`.
inline prim::View part_of(prim::View all, int64_t begin, const Shape& sizes) {
  all.data += begin * all.strides[0] * int64_t(size_of(all.dtype));
  all.sizes = sizes;
  return all;
}

/// Memory where positions 0, 1, ..., out.sizes[0] - 1 of the vector `out` can be counted: its own
/// where its dtype has them all, otherwise that of 2^21 int64 after the other. Calls
/// use(memory, begin, sizes) for each part, elements [begin, begin + sizes[0]).
template <class Use>
void count_positions(prim::Primitives& p, const prim::View& out, const Use& use) {
  const int64_t n = out.sizes[0];
  if (counts_to(out.dtype, n)) return use(out, int64_t(0), Shape{n});
  const int64_t most = std::min(n, int64_t{1} << 21);
  const prim::ScratchView wide(p, kInt64, Shape{most});
  for (int64_t begin = 0; begin < n; begin += most) {
    const Shape sizes{std::min(most, n - begin)};
    use(part_of(wide.view(), 0, sizes), begin, sizes);
  }
}

}  // namespace arete::ops
