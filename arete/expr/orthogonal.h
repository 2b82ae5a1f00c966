// Orthogonal polynomials: what Op::polynomial computes. Plain text that vector kernels include too.
#pragma once

namespace arete::expr {

/// p_0 = 1, p_1 = f1 x + f0 and, for k from 1 on,
///   p_(k+1) = ((a x + b) p_k - c p_(k-1)) / d
/// where a = a0 + a1 k, b = b0 + b1 k, c = c0 + c1 k and d = 1 + d1 k.
struct OrthogonalFamily {
  double f1, f0, a0, a1, b0, b1, c0, c1, d1;
};

enum Orthogonal : int {
  chebyshev_t,
  chebyshev_u,
  chebyshev_v,
  chebyshev_w,
  shifted_chebyshev_t,
  shifted_chebyshev_u,
  shifted_chebyshev_v,
  shifted_chebyshev_w,
  hermite_h,
  hermite_he,
  laguerre_l,
  legendre_p,
};
constexpr OrthogonalFamily kOrthogonal[] = {
    {1, 0, 2, 0, 0, 0, 1, 0, 0},   {2, 0, 2, 0, 0, 0, 1, 0, 0},   {2, -1, 2, 0, 0, 0, 1, 0, 0},
    {2, 1, 2, 0, 0, 0, 1, 0, 0},   {2, -1, 4, 0, -2, 0, 1, 0, 0}, {4, -2, 4, 0, -2, 0, 1, 0, 0},
    {4, -3, 4, 0, -2, 0, 1, 0, 0}, {4, -1, 4, 0, -2, 0, 1, 0, 0}, {2, 0, 2, 0, 0, 0, 0, 2, 0},
    {1, 0, 1, 0, 0, 0, 0, 1, 0},   {-1, 1, -1, 0, 1, 2, 0, 1, 1}, {1, 0, 1, 2, 0, 0, 0, 1, 1},
};

/// Op::polynomial's index says the family and which derivative in x is meant.
constexpr int kOrthogonalOrders = 4;
constexpr int polynomial_index(int family, int order) { return family * kOrthogonalOrders + order; }
constexpr int family_of(int index) { return index / kOrthogonalOrders; }
constexpr int order_of(int index) { return index % kOrthogonalOrders; }

/// Degrees are cut to whole numbers; of those below 0, and of what is no number or so large that no
/// walk ends there, the polynomial is 0.
constexpr double kLargestDegree = 0x1p53;

}  // namespace arete::expr
