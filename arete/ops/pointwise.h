// Elementwise operators: one lambda each (see unary.cpp, binary.cpp, ternary.cpp), any shapes that
// broadcast together, dtypes promoted as in PyTorch. The result has the broadcast shape. Integer
// inputs of floating functions compute in default_dtype(). All have in-place forms (methods with a
// trailing _), and gradients derived from the lambda.
#pragma once

#include <optional>

#include "arete/core/tensor.h"

namespace arete {

// ---- one input
#define ARETE_UNARY_FUNCTION(name) Tensor name(const Tensor& self);
ARETE_UNARY_FUNCTION(neg)       ///< -x; not for bool
ARETE_UNARY_FUNCTION(abs)       ///< |x|; gradient 0 at 0
ARETE_UNARY_FUNCTION(sign)      ///< -1, 0 or 1
ARETE_UNARY_FUNCTION(sgn)       ///< sign for real dtypes
ARETE_UNARY_FUNCTION(positive)  ///< x itself
ARETE_UNARY_FUNCTION(floor)     ///< largest whole number <= x
ARETE_UNARY_FUNCTION(ceil)      ///< smallest whole number >= x
ARETE_UNARY_FUNCTION(trunc)     ///< towards zero
ARETE_UNARY_FUNCTION(round)     ///< nearest, halves to even
ARETE_UNARY_FUNCTION(frac)      ///< x - trunc(x)
ARETE_UNARY_FUNCTION(sqrt)
ARETE_UNARY_FUNCTION(rsqrt)       ///< 1 / sqrt(x)
ARETE_UNARY_FUNCTION(square)      ///< x * x
ARETE_UNARY_FUNCTION(reciprocal)  ///< 1 / x
ARETE_UNARY_FUNCTION(exp)
ARETE_UNARY_FUNCTION(exp2)
ARETE_UNARY_FUNCTION(expm1)  ///< exp(x) - 1, exact near 0
ARETE_UNARY_FUNCTION(log)
ARETE_UNARY_FUNCTION(log2)
ARETE_UNARY_FUNCTION(log10)
ARETE_UNARY_FUNCTION(log1p)  ///< log(1 + x), exact near 0
ARETE_UNARY_FUNCTION(sin)
ARETE_UNARY_FUNCTION(cos)
ARETE_UNARY_FUNCTION(tan)
ARETE_UNARY_FUNCTION(asin)
ARETE_UNARY_FUNCTION(acos)
ARETE_UNARY_FUNCTION(atan)
ARETE_UNARY_FUNCTION(sinh)
ARETE_UNARY_FUNCTION(cosh)
ARETE_UNARY_FUNCTION(tanh)
ARETE_UNARY_FUNCTION(asinh)
ARETE_UNARY_FUNCTION(acosh)
ARETE_UNARY_FUNCTION(atanh)
ARETE_UNARY_FUNCTION(erf)
ARETE_UNARY_FUNCTION(erfc)
ARETE_UNARY_FUNCTION(erfinv)
ARETE_UNARY_FUNCTION(lgamma)   ///< log |gamma(x)|
ARETE_UNARY_FUNCTION(digamma)  ///< derivative of lgamma
ARETE_UNARY_FUNCTION(sigmoid)  ///< 1 / (1 + exp(-x))
ARETE_UNARY_FUNCTION(logit)    ///< log(x / (1 - x))
ARETE_UNARY_FUNCTION(sinc)     ///< sin(pi x) / (pi x), 1 at 0
ARETE_UNARY_FUNCTION(deg2rad)
ARETE_UNARY_FUNCTION(rad2deg)
ARETE_UNARY_FUNCTION(relu)         ///< max(x, 0); gradient 0 at 0
ARETE_UNARY_FUNCTION(logical_not)  ///< bool: x == 0
ARETE_UNARY_FUNCTION(bitwise_not)  ///< integers and bool
ARETE_UNARY_FUNCTION(isnan)        ///< bool
ARETE_UNARY_FUNCTION(isinf)        ///< bool
ARETE_UNARY_FUNCTION(isfinite)     ///< bool
ARETE_UNARY_FUNCTION(signbit)      ///< bool, true for -0.0
#undef ARETE_UNARY_FUNCTION
/// NaN, +inf and -inf replaced; by default by 0 and the dtype's largest and lowest values.
Tensor nan_to_num(const Tensor& self, double nan = 0, std::optional<double> posinf = {},
                  std::optional<double> neginf = {});

// ---- two inputs; one of them may be a number (which promotes by its category only)
#define ARETE_BINARY_FUNCTION(name)                     \
  Tensor name(const Tensor& self, const Tensor& other); \
  Tensor name(const Tensor& self, Scalar other);        \
  Tensor name(Scalar self, const Tensor& other);
/// self + alpha * other
Tensor add(const Tensor& self, const Tensor& other, Scalar alpha = 1);
Tensor add(const Tensor& self, Scalar other, Scalar alpha = 1);
/// self - alpha * other; not for bool
Tensor sub(const Tensor& self, const Tensor& other, Scalar alpha = 1);
Tensor sub(const Tensor& self, Scalar other, Scalar alpha = 1);
ARETE_BINARY_FUNCTION(mul)
ARETE_BINARY_FUNCTION(div)           ///< true division: integers give default_dtype()
ARETE_BINARY_FUNCTION(floor_divide)  ///< quotient rounded to -inf; integers by 0 give 0
ARETE_BINARY_FUNCTION(fmod)          ///< remainder with the sign of self (C)
ARETE_BINARY_FUNCTION(remainder)     ///< remainder with the sign of other (Python)
ARETE_BINARY_FUNCTION(pow)           ///< self ** other
ARETE_BINARY_FUNCTION(atan2)
ARETE_BINARY_FUNCTION(hypot)  ///< sqrt(self^2 + other^2)
ARETE_BINARY_FUNCTION(copysign)
ARETE_BINARY_FUNCTION(nextafter)  ///< not differentiable
ARETE_BINARY_FUNCTION(logaddexp)  ///< log(exp(self) + exp(other)) without overflow
ARETE_BINARY_FUNCTION(xlogy)      ///< self * log(other), 0 where self is 0
ARETE_BINARY_FUNCTION(eq)         ///< comparisons give bool
ARETE_BINARY_FUNCTION(ne)
ARETE_BINARY_FUNCTION(lt)
ARETE_BINARY_FUNCTION(le)
ARETE_BINARY_FUNCTION(gt)
ARETE_BINARY_FUNCTION(ge)
ARETE_BINARY_FUNCTION(logical_and)  ///< bool, of values compared with zero
ARETE_BINARY_FUNCTION(logical_or)
ARETE_BINARY_FUNCTION(logical_xor)
ARETE_BINARY_FUNCTION(bitwise_and)  ///< integers and bool
ARETE_BINARY_FUNCTION(bitwise_or)
ARETE_BINARY_FUNCTION(bitwise_xor)
ARETE_BINARY_FUNCTION(bitwise_left_shift)
ARETE_BINARY_FUNCTION(bitwise_right_shift)
#undef ARETE_BINARY_FUNCTION
/// The larger (smaller) element; NaN if either is NaN; at ties the gradient is shared.
Tensor maximum(const Tensor& self, const Tensor& other);
Tensor minimum(const Tensor& self, const Tensor& other);
/// The same, but NaN only if both are NaN.
Tensor fmax(const Tensor& self, const Tensor& other);
Tensor fmin(const Tensor& self, const Tensor& other);

// ---- three inputs
/// Elements of `self` where `condition` (bool) holds, else of `other`.
Tensor where(const Tensor& condition, const Tensor& self, const Tensor& other);
Tensor where(const Tensor& condition, const Tensor& self, Scalar other);
Tensor where(const Tensor& condition, Scalar self, const Tensor& other);
/// Limits to [min, max]; either may be absent, not both (ValueError). min > max gives max.
Tensor clamp(const Tensor& self, std::optional<Scalar> min = {}, std::optional<Scalar> max = {});
/// The same with tensors, of which one may be undefined.
Tensor clamp(const Tensor& self, const Tensor& min, const Tensor& max);
/// self + weight * (end - self)
Tensor lerp(const Tensor& self, const Tensor& end, Scalar weight);
Tensor lerp(const Tensor& self, const Tensor& end, const Tensor& weight);
/// self + value * a * b
Tensor addcmul(const Tensor& self, const Tensor& a, const Tensor& b, Scalar value = 1);
/// self + value * a / b
Tensor addcdiv(const Tensor& self, const Tensor& a, const Tensor& b, Scalar value = 1);

/// |a - b| <= atol + rtol * |b| element by element (bool); NaN equals NaN only if equal_nan.
Tensor isclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
               bool equal_nan = false);
/// All elements close.
bool allclose(const Tensor& a, const Tensor& b, double rtol = 1e-5, double atol = 1e-8,
              bool equal_nan = false);
/// Same sizes and all elements equal.
bool equal(const Tensor& a, const Tensor& b);

// ---- operators
#define ARETE_OPERATOR(symbol, function)                                                     \
  inline Tensor operator symbol(const Tensor& a, const Tensor& b) { return function(a, b); } \
  inline Tensor operator symbol(const Tensor& a, Scalar b) { return function(a, b); }
#define ARETE_OPERATOR_BOTH(symbol, function) \
  ARETE_OPERATOR(symbol, function)            \
  inline Tensor operator symbol(Scalar a, const Tensor& b) { return function(a, b); }
ARETE_OPERATOR(+, add)
ARETE_OPERATOR(-, sub)
inline Tensor operator+(Scalar a, const Tensor& b) { return add(b, a); }
inline Tensor operator-(Scalar a, const Tensor& b) { return add(neg(b), a); }
ARETE_OPERATOR_BOTH(*, mul)
ARETE_OPERATOR_BOTH(/, div)
ARETE_OPERATOR(%, remainder)
ARETE_OPERATOR_BOTH(==, eq)
ARETE_OPERATOR_BOTH(!=, ne)
ARETE_OPERATOR_BOTH(<, lt)
ARETE_OPERATOR_BOTH(<=, le)
ARETE_OPERATOR_BOTH(>, gt)
ARETE_OPERATOR_BOTH(>=, ge)
ARETE_OPERATOR(&, bitwise_and)
ARETE_OPERATOR(|, bitwise_or)
ARETE_OPERATOR(^, bitwise_xor)
#undef ARETE_OPERATOR
#undef ARETE_OPERATOR_BOTH

}  // namespace arete
