// Scalar combination of stored values, as scatter and scan do it: half types through f32.
#pragma once

#include <complex>
#include <type_traits>

#include "arete/core/dtype.h"

namespace arete::cpu {

/// The type in which values stored as T are combined.
template <class T>
using CombineType = std::conditional_t<is_reduced_float(dtype_of<T>), float, T>;

/// min / max that give NaN if either is NaN.
template <class T>
inline T nan_min(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    return a < b || a != a ? a : b;
  else
    return a < b ? a : b;
}
template <class T>
inline T nan_max(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    return a > b || a != a ? a : b;
  else
    return a > b ? a : b;
}
/// Sum and product; integers wrap, booleans are "or" and "and".
template <class T>
inline T wrapping_add(T a, T b) {
  if constexpr (std::is_same_v<T, bool>)
    return a || b;
  else if constexpr (std::is_integral_v<T>)
    return T(uint64_t(a) + uint64_t(b));
  else
    return a + b;
}
template <class T>
inline T wrapping_mul(T a, T b) {
  if constexpr (std::is_same_v<T, bool>)
    return a && b;
  else if constexpr (std::is_integral_v<T>)
    return T(uint64_t(a) * uint64_t(b));
  else
    return a * b;
}

}  // namespace arete::cpu
