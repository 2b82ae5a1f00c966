// For files that compute with elements of every dtype, complex ones among them.
#pragma once

#include <complex>

#include "arete/core/dtype.h"
#include "arete/core/scalar.h"

namespace arete {

inline std::complex<double> to_complex(const Scalar& v) { return {v.real(), v.imag()}; }

// clang-format off
#define ARETE_FOR_EACH_DTYPE(X) \
  ARETE_FOR_EACH_REAL_DTYPE(X) X(std::complex<float>, c64) X(std::complex<double>, c128)
// clang-format on

/// A value that carries a C++ type: `visit_dtype(t, [](auto tag) { using T = decltype(tag)::type;
/// })`.
template <class T>
struct TypeTag {
  using type = T;
};

/// Calls `f` with the TypeTag of `t`'s C++ type, for every dtype.
template <class F>
decltype(auto) visit_dtype(DType t, F&& f) {
  switch (t) {
#define ARETE_VISIT(T, e) \
  case DType::e:          \
    return f(TypeTag<T>{});
    ARETE_FOR_EACH_DTYPE(ARETE_VISIT)
#undef ARETE_VISIT
  }
  __builtin_unreachable();
}

}  // namespace arete
