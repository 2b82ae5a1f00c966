// Test operands of any memory order, with gaps.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "tests/support/guarded_buffer.h"

namespace arete::test {

/// Memory of a view whose strides come from: the order of dimensions (outermost first), and for
/// each dimension a gap in elements after it (negative: the step of the innermost one).
class StridedBuffer : public GuardedBuffer {
 public:
  StridedBuffer(DType dtype, const Shape& sizes, std::vector<int> order = {}, int64_t gap = 0,
                bool reversed = false)
      : GuardedBuffer(dtype, layout_of(sizes, std::move(order), gap, reversed)) {}

  const Shape& sizes() const { return layout().sizes; }
  int64_t numel() const { return layout().numel(); }

  /// Values in row-major order of indices.
  void set(const std::vector<double>& values) {
    fill([&, i = size_t(0)](IntList) mutable { return values[i++]; });
  }
  /// Random values as the dtype holds them: small integers or halves of [-1, 1].
  void randomize(std::mt19937_64& rng) {
    fill([&](IntList) {
      const double u = double(rng() >> 11) * 0x1p-53;
      return is_integral_or_bool(dtype()) ? std::floor(u * 9) - (dtype() == kUInt8 ? 0 : 4)
                                          : 2 * u - 1;
    });
  }
  void expect_guards_intact() const {
    EXPECT_TRUE(guards_intact()) << "memory outside the view was written";
  }

 private:
  static Layout layout_of(const Shape& sizes, std::vector<int> order, int64_t gap, bool reversed) {
    Layout l(sizes);
    if (order.empty()) {
      order.resize(sizes.size());
      std::iota(order.begin(), order.end(), 0);
    }
    int64_t step = gap < 0 ? -gap : 1;
    for (size_t i = order.size(); i-- > 0;) {
      const size_t d = size_t(order[i]);
      l.strides[d] = step;
      step = step * std::max<int64_t>(sizes[d], 1) + std::max<int64_t>(gap, 0);
    }
    if (reversed && !sizes.empty()) l.strides[0] = -l.strides[0];
    return l;
  }
};

}  // namespace arete::test
