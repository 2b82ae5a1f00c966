// More elementwise arithmetic, and differences and integrals along a dimension. Unless noted: any
// shapes that broadcast, dtypes promoted as in PyTorch.
#pragma once

#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include "arete/core/tensor.h"

namespace arete {

/// other - alpha * self.
Tensor rsub(const Tensor& self, const Tensor& other, Scalar alpha = 1);
Tensor rsub(const Tensor& self, Scalar other, Scalar alpha = 1);
/// self / other, rounded: "trunc" towards zero, "floor" downwards (both keep integers), nothing for
/// true division. ValueError for other texts.
Tensor div(const Tensor& self, const Tensor& other, std::string_view rounding_mode);
Tensor div(const Tensor& self, Scalar other, std::string_view rounding_mode);
/// Rounded to `decimals` digits behind (negative: before) the point. Floating only.
Tensor round(const Tensor& self, int64_t decimals);
/// self ** exponent, in float64.
Tensor float_power(const Tensor& self, const Tensor& exponent);
Tensor float_power(const Tensor& self, Scalar exponent);
/// self * 2^other; floating.
Tensor ldexp(const Tensor& self, const Tensor& other);
/// self = mantissa * 2^exponent with 0.5 <= |mantissa| < 1 and int32 exponents; 0, inf and NaN are
/// their own mantissas. Floating only.
std::tuple<Tensor, Tensor> frexp(const Tensor& self);
/// log2(2^self + 2^other) without overflow.
Tensor logaddexp2(const Tensor& self, const Tensor& other);
/// 0 where self < 0 (or NaN), values where it is 0, 1 above.
Tensor heaviside(const Tensor& self, const Tensor& values);
/// Greatest common divisor and least common multiple of integers, not negative.
Tensor gcd(const Tensor& self, const Tensor& other);
Tensor lcm(const Tensor& self, const Tensor& other);
/// log(x / (1 - x)) of x limited to [eps, 1 - eps].
Tensor logit(const Tensor& self, double eps);

/// Tests of one sign's infinity (bool), and for numbers without an imaginary part.
Tensor isposinf(const Tensor& self);
Tensor isneginf(const Tensor& self);
Tensor isreal(const Tensor& self);
/// The angle of complex numbers; of real ones 0 for x >= 0, pi below, NaN for NaN.
Tensor angle(const Tensor& self);

/// The n-th differences of neighbours along `dim`, of [prepend, self, append]; bool: whether they
/// differ.
Tensor diff(const Tensor& self, int64_t n = 1, int64_t dim = -1, const Tensor& prepend = {},
            const Tensor& append = {});
/// Derivatives along `dims` (all) by central differences, one-sided of order 1 or 2 at the ends;
/// `spacing` is the step of each dim, or one for all.
std::vector<Tensor> gradient(const Tensor& self, Scalar spacing = 1,
                             std::optional<std::vector<int64_t>> dims = {}, int64_t edge_order = 1);
/// The same where spacing[k] are the coordinates (1-d) along the k-th dim, or its step (0-d).
std::vector<Tensor> gradient(const Tensor& self, const std::vector<Tensor>& spacing,
                             std::optional<std::vector<int64_t>> dims = {}, int64_t edge_order = 1);
/// The integral along `dim` by the trapezoidal rule, for steps dx or coordinates x (1-d or like y).
Tensor trapezoid(const Tensor& y, Scalar dx = 1, int64_t dim = -1);
Tensor trapezoid(const Tensor& y, const Tensor& x, int64_t dim = -1);
/// The integral up to each point but the first.
Tensor cumulative_trapezoid(const Tensor& y, Scalar dx = 1, int64_t dim = -1);
Tensor cumulative_trapezoid(const Tensor& y, const Tensor& x, int64_t dim = -1);

}  // namespace arete
