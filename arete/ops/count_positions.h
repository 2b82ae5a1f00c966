// Vectors that are computed from the numbers of their elements.
#pragma once

#include <algorithm>
#include <array>

#include "arete/expr/value.h"
#include "arete/prim/positions.h"

namespace arete::ops {

/// As many elements are a row of what count_positions() goes over: numbers that devices keep.
inline constexpr int64_t kCountedRow = int64_t{1} << 16;

/// Some rows of a vector, or part of one row.
class Stretch {
 public:
  Stretch(int64_t begin, int64_t rows, int64_t columns) : begin_(begin), sizes_{rows, columns} {}
  const Shape& sizes() const { return sizes_; }
  /// These elements of a vector, as a matrix; the view is valid as long as this object.
  prim::View of(prim::View vector) {
    const int64_t step = vector.strides[0];
    Shape& strides = strides_[used_++];
    strides = {kCountedRow * step, step};
    vector.data += begin_ * step * int64_t(size_of(vector.dtype));
    vector.sizes = sizes_;
    vector.strides = strides;
    return vector;
  }

 private:
  int64_t begin_;
  Shape sizes_;
  std::array<Shape, 2> strides_;
  size_t used_ = 0;
};

/// The number of an element, by the first two inputs of a program that count_positions() is for.
inline expr::Value counted_position(std::span<const expr::Value> inputs, expr::Type type) {
  return expr::cast(inputs[0], type) * double(kCountedRow) + expr::cast(inputs[1], type);
}
/// Their dtype.
inline constexpr DType kCountedDType = kInt32;

/// Calls use(inputs, stretch) once or twice for a program that computes the n elements of a vector
/// from their numbers. The inputs are the numbers of rows and of columns, so that no memory holds a
/// number for each element.
template <class Use>
void count_positions(prim::Primitives& p, int64_t n, const Use& use) {
  const int64_t columns = std::min(n, kCountedRow), rows = n / columns, rest = n % columns;
  prim::Positions counted(p, kCountedDType, std::max(columns, rows + 1));
  Stretch whole(0, rows, columns);
  use(std::array{counted.along(whole.sizes(), 0, 0), counted.along(whole.sizes(), 1, 1)}, whole);
  if (rest == 0) return;
  Stretch last(rows * columns, 1, rest);
  std::array inputs{counted.along(last.sizes(), 0, 0), counted.along(last.sizes(), 1, 1)};
  inputs[0].data += rows * int64_t(size_of(kCountedDType));
  use(inputs, last);
}

}  // namespace arete::ops
