// Special functions (PyTorch's torch.special, without its prefix where the name says enough):
// elementwise, any shapes that broadcast, floating dtypes (integers become default_dtype()).
// Computed in f64 inside, but for the simple ones, so f32 results are right to the last places.
#pragma once

#include "arete/core/tensor.h"

namespace arete {

// ---- error function and normal distribution
/// -x log(x), 0 at 0, -inf for negative x.
Tensor special_entr(const Tensor& self);
/// exp(x^2) erfc(x), without overflow for large x.
Tensor special_erfcx(const Tensor& self);
/// The probability that a normal variable is below x; its logarithm; and the inverse on [0, 1].
Tensor special_ndtr(const Tensor& self);
Tensor special_log_ndtr(const Tensor& self);
Tensor special_ndtri(const Tensor& self);
/// self * log1p(other), 0 where self is 0.
Tensor special_xlog1py(const Tensor& self, const Tensor& other);

// ---- gamma function
/// The n-th derivative of digamma (n >= 0). ValueError for negative n.
Tensor polygamma(int64_t n, const Tensor& self);
/// log of the multivariate gamma function of dimension p >= 1, for x > (p - 1) / 2.
Tensor mvlgamma(const Tensor& self, int64_t p);
/// Regularized lower (upper) incomplete gamma function of a = self and x = other, both >= 0; no
/// gradient for a.
Tensor igamma(const Tensor& self, const Tensor& other);
Tensor igammac(const Tensor& self, const Tensor& other);
/// Hurwitz zeta: the sum of (other + k)^-self over k >= 0; self > 1, other > -10. No gradient for
/// self.
Tensor special_zeta(const Tensor& self, const Tensor& other);

// ---- Bessel functions
Tensor i0(const Tensor& self);                                 ///< modified, first kind, order 0
Tensor special_i0e(const Tensor& self);                        ///< exp(-|x|) times it
Tensor special_i1(const Tensor& self);                         ///< of order 1
Tensor special_i1e(const Tensor& self);                        ///< exp(-|x|) times it
Tensor special_modified_bessel_k0(const Tensor& self);         ///< modified, second kind, order 0
Tensor special_modified_bessel_k1(const Tensor& self);         ///< of order 1
Tensor special_scaled_modified_bessel_k0(const Tensor& self);  ///< exp(x) times k0
Tensor special_scaled_modified_bessel_k1(const Tensor& self);  ///< exp(x) times k1
Tensor special_bessel_j0(const Tensor& self);                  ///< first kind, order 0
Tensor special_bessel_j1(const Tensor& self);                  ///< of order 1
Tensor special_bessel_y0(const Tensor& self);                  ///< second kind, order 0
Tensor special_bessel_y1(const Tensor& self);                  ///< of order 1
Tensor special_spherical_bessel_j0(const Tensor& self);        ///< sin(x) / x, 1 at 0
Tensor special_airy_ai(const Tensor& self);                    ///< Airy's Ai; no gradient

// ---- orthogonal polynomials of degree n (truncated to a whole number; 0 where n is negative), for
// n a number or a tensor that broadcasts with x. The largest n is read from the data.
Tensor special_chebyshev_polynomial_t(const Tensor& x, const Tensor& n);
Tensor special_chebyshev_polynomial_u(const Tensor& x, const Tensor& n);
Tensor special_chebyshev_polynomial_v(const Tensor& x, const Tensor& n);
Tensor special_chebyshev_polynomial_w(const Tensor& x, const Tensor& n);
/// The same in 2 x - 1, for x in [0, 1].
Tensor special_shifted_chebyshev_polynomial_t(const Tensor& x, const Tensor& n);
Tensor special_shifted_chebyshev_polynomial_u(const Tensor& x, const Tensor& n);
Tensor special_shifted_chebyshev_polynomial_v(const Tensor& x, const Tensor& n);
Tensor special_shifted_chebyshev_polynomial_w(const Tensor& x, const Tensor& n);
Tensor special_hermite_polynomial_h(const Tensor& x, const Tensor& n);   ///< the physicists'
Tensor special_hermite_polynomial_he(const Tensor& x, const Tensor& n);  ///< the statisticians'
Tensor special_laguerre_polynomial_l(const Tensor& x, const Tensor& n);
Tensor special_legendre_polynomial_p(const Tensor& x, const Tensor& n);

}  // namespace arete
