// Elements of a triangle whose rows lie one after the other.
#pragma once

#include "arete/expr/value.h"

namespace arete::ops {

/// Of rows of width, width - 1, ..., 1 elements: how many elements precede a row.
inline expr::Value before_row(expr::Value row, expr::Value width) {
  return row * width - ((row * (row - 1.0)) >> row.builder()->constant(expr::Type::i64, 1));
}

/// Where element `number` of them is: its row and its place within (i64).
struct TrianglePlace {
  expr::Value row, within;

  TrianglePlace(expr::Value number, expr::Value width) {
    using expr::Type;
    using expr::Value;
    const Value b = expr::cast(width * 2.0 + 1.0, Type::f64);
    const Value root = sqrt(expr::max(b * b - expr::cast(number, Type::f64) * 8.0, 0.0));
    // Rounded, this may be one beside it.
    const Value about =
        expr::max(expr::min(expr::cast(floor((b - root) * 0.5), Type::i64), width - 1.0), 0.0);
    const Value low = expr::where(before_row(about, width) > number, about - 1.0, about);
    row = expr::where(before_row(low + 1.0, width) <= number, low + 1.0, low);
    within = number - before_row(row, width);
  }
};

}  // namespace arete::ops
