// What the records of special functions share.
#pragma once

#include "arete/expr/special.h"
#include "arete/ops/pointwise_family.h"
#include "arete/ops/special.h"

namespace arete::ops {

/// `f` computed in f64, with its results back in the type of the first value.
template <class F>
expr::Definition in_f64(F f) {
  return [f](std::span<const expr::Value> v) {
    const expr::SinglePrecision digits(v[0].type() != expr::Type::f64);
    std::vector<expr::Value> wide;
    for (expr::Value x : v) wide.push_back(cast(x, expr::Type::f64));
    std::vector<expr::Value> out = f(std::span<const expr::Value>(wide));
    for (expr::Value& y : out) y = cast(y, v[0].type());
    return out;
  };
}

/// `f` computed in the type of its values, with no more terms than that has digits.
template <class F>
expr::Definition in_own_type(F f) {
  return [f](std::span<const expr::Value> v) {
    const expr::SinglePrecision digits(v[0].type() != expr::Type::f64);
    return f(v);
  };
}

/// A floating pointwise definition of n inputs without an in-place form.
inline PointwiseDef special_def(int n, expr::Definition f, expr::Definition gradient = {}) {
  PointwiseDef d;
  d.n_inputs = n;
  d.result = PointwiseDef::Result::floating;
  d.definition = std::move(f);
  d.gradient = std::move(gradient);
  return d;
}

/// A function of one value, computed in its type or, if `wide`, in f64. `slope(x, y)`: its
/// derivative at x, where it is y.
inline PointwiseDef special_unary(expr::Value (*f)(expr::Value),
                                  expr::Value (*slope)(expr::Value, expr::Value) = nullptr,
                                  bool wide = false) {
  using Values = std::span<const expr::Value>;
  const auto typed = [wide](expr::Definition g) {
    return wide ? in_f64(std::move(g)) : in_own_type(std::move(g));
  };
  expr::Definition gradient;
  if (slope) gradient = typed([slope](Values v) { return std::vector{v[2] * slope(v[0], v[1])}; });
  return special_def(1, typed([f](Values v) { return std::vector{f(v[0])}; }), gradient);
}

}  // namespace arete::ops
