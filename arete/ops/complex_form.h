// Short ways to say what a pointwise record does with complex numbers.
#pragma once

#include <type_traits>

#include "arete/ops/complex_value.h"
#include "arete/ops/record.h"

namespace arete::ops {

/// Number i among values that are parts of numbers.
inline Complex complex_at(std::span<const expr::Value> v, size_t i) {
  return {v[2 * i], v[2 * i + 1]};
}
/// What a definition returns.
inline std::vector<expr::Value> parts(Complex a) { return {a.re, a.im}; }
inline std::vector<expr::Value> parts(Complex a, Complex b) { return {a.re, a.im, b.re, b.im}; }
inline std::vector<expr::Value> parts(expr::Value a) { return {a}; }

/// A function of one to four numbers, inputs before parameters, whose result is complex, real or
/// boolean. Its derivative is `gradient`, which sees the parts (PointwiseDef::gradient); without it
/// the symbolic one. `shortcut`: see ComplexForm.
template <class F>
ComplexForm of_complex(F f, expr::Definition gradient = {},
                       Results (*shortcut)(const Call&, DType) = nullptr) {
  return {[f](std::span<const expr::Value> v) {
            const auto z = [v](size_t i) { return complex_at(v, i); };
            if constexpr (std::is_invocable_v<F, Complex>)
              return parts(f(z(0)));
            else if constexpr (std::is_invocable_v<F, Complex, Complex>)
              return parts(f(z(0), z(1)));
            else if constexpr (std::is_invocable_v<F, Complex, Complex, Complex>)
              return parts(f(z(0), z(1), z(2)));
            else
              return parts(f(z(0), z(1), z(2), z(3)));
          },
          std::move(gradient), ~0u, shortcut};
}

/// The shortcut of operators that do with each part what they do with a real number (a sum, up to a
/// real factor; a negative): one pass over memory as it lies. Of complex tensors without history.
Results by_parts(const Call& call, DType promoted);

/// A holomorphic function of one number with derivative slope(z, f(z)).
template <class F, class Slope>
ComplexForm holomorphic(F f, Slope slope) {
  return of_complex(f, [slope](std::span<const expr::Value> v) {
    return parts(complex_at(v, 2) * conj(slope(complex_at(v, 0), complex_at(v, 1))));
  });
}

}  // namespace arete::ops
