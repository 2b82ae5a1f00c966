// Vectors that are computed from the numbers of their elements.
#pragma once

#include <algorithm>

#include "arete/prim/positions.h"

namespace arete::ops {

/// Elements begin, begin + 1, ..., begin + sizes[0] - 1 of a vector, with these sizes.
inline prim::View stretch_of(prim::View vector, int64_t begin, const Shape& sizes) {
  vector.data += begin * vector.strides[0] * int64_t(size_of(vector.dtype));
  vector.sizes = sizes;
  return vector;
}

/// Calls use(numbers, begin, sizes) for stretches of the vector `out`, one after the other:
/// `numbers` are begin, begin + 1, ..., sizes[0] of them, for a program that computes the elements
/// there. They are those that the device keeps, or are counted in out's own memory where its dtype
/// has them all, or 2^21 at a time: memory for all would be several times the result's.
template <class Use>
void count_positions(prim::Primitives& p, const prim::View& out, const Use& use) {
  const Shape all{out.sizes[0]}, dense{1};
  if (std::byte* const kept = prim::kept_numbers(p.device(), kInt64, all[0]))
    return use(prim::View{kept, kInt64, all, dense}, int64_t(0), all);
  const auto count = [&](const prim::View& numbers, int64_t begin) {
    p.iota({.out = numbers, .start = double(begin), .istart = begin});
  };
  if (prim::counts_to(out.dtype, all[0])) {
    count(out, 0);
    return use(out, int64_t(0), all);
  }
  const Shape most{std::min(all[0], int64_t{1} << 21)};
  const prim::ScratchView memory(p, kInt64, most);
  for (int64_t begin = 0; begin < all[0]; begin += most[0]) {
    const Shape sizes{std::min(most[0], all[0] - begin)};
    const prim::View numbers = stretch_of(memory.view(), 0, sizes);
    count(numbers, begin);
    use(numbers, begin, sizes);
  }
}

}  // namespace arete::ops
