// The one place where tests get their tolerances from.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "arete/core/dtype.h"

namespace arete::test {

/// How far a result of storage type `dtype` may be from the exact one: c * eps * f(n) * magnitude.
/// `reduction_length`: how many terms each element sums (1: none); their errors add up like a
/// random walk, f(n) = sqrt(n). `magnitude`: the scale of the terms, or of the result where there
/// is no cancellation. Exact types (integers, booleans) give 0; below the smallest normal number
/// errors do not shrink any more.
inline double tolerance(DType dtype, int64_t reduction_length, double magnitude) {
  if (category_of(dtype) < 2) return 0;
  // A few roundings of intermediate results and one of the result.
  constexpr double kRoundings = 4;
  const double eps = epsilon_of(dtype);
  double smallest = 0;  // spacing of subnormal numbers
  switch (dtype) {
    case kFloat16:
      smallest = std::ldexp(1.0, -24);
      break;
    case kBFloat16:
      smallest = std::ldexp(1.0, -133);
      break;
    case kFloat32:
    case kComplex64:
      smallest = std::ldexp(1.0, -149);
      break;
    case kFloat8E4M3:
      smallest = std::ldexp(1.0, -9);
      break;
    case kFloat8E5M2:
      smallest = std::ldexp(1.0, -16);
      break;
    default:
      smallest = std::ldexp(1.0, -1074);
      break;
  }
  const double length = std::sqrt(double(std::max<int64_t>(reduction_length, 1)));
  return kRoundings * std::max(eps * length * std::fabs(magnitude), smallest);
}

}  // namespace arete::test
