// LAPACK and BLAS on matrices in host memory.
#pragma once

#include <complex>
#include <cstdint>

#include "arete/prim/args.h"

namespace arete::cpu::lapack {

/// The type of magnitudes.
template <class T>
struct RealOf {
  using type = T;
};
template <class T>
struct RealOf<std::complex<T>> {
  using type = T;
};
template <class T>
using Real = typename RealOf<T>::type;
template <class T>
constexpr bool kIsComplex = !std::is_same_v<T, Real<T>>;

// All matrices are column-major without gaps, T is float, double or complex numbers of them, and
// the names are LAPACK's for real numbers: for complex ones read unitary for orthogonal, Hermitian
// for symmetric, and Q^H, V^H for the transposed factors. "Transposed" is without conjugation.
// What returns a number returns LAPACK's `info`: 0 for success, k > 0 for a failure at step k.
// Sizes that do not fit LAPACK's 32-bit integers are a ValueError.

/// a (n x n, the triangle named is read) becomes its Cholesky factor; the other triangle stays.
template <class T>
int potrf(bool upper, int64_t n, T* a);
/// a (m x n) = P L U, both factors in a; row i was swapped with row pivots[i] (from 1) in turn.
template <class T>
int getrf(int64_t m, int64_t n, T* a, int32_t* pivots);
/// Solves A X = B or, transposed, A^T X = B with the factors of getrf; b (n x columns) becomes X.
template <class T>
int getrs(bool transposed, int64_t n, int64_t columns, const T* lu, const int32_t* pivots, T* b);
/// Solves A X = B (left) or X A = B for a triangular A, or its transpose; b (m x n) becomes X.
/// `unit`: the diagonal is not read but taken as ones.
template <class T>
void trsm(bool left, bool upper, bool transposed, bool unit, int64_t m, int64_t n, const T* a,
          T* b);
/// a (m x n) = Q R: R in the upper triangle of a, below it and in tau (min(m, n)) the reflectors.
template <class T>
int geqrf(int64_t m, int64_t n, T* a, T* tau);
/// The first `columns` columns of Q from the reflectors of geqrf; a has m rows.
template <class T>
int orgqr(int64_t m, int64_t columns, int64_t reflectors, T* a, const T* tau);

enum class Vectors : uint8_t { none, reduced, full };
/// a (m x n, overwritten) = U S V^T with k = min(m, n) values s, largest first; u has m x k
/// (full: m x m) elements, vt k x n (n x n). Without vectors u and vt are not touched.
template <class T>
int gesdd(Vectors vectors, int64_t m, int64_t n, T* a, Real<T>* s, T* u, T* vt);
/// Eigenvalues w, smallest first, of the symmetric matrix whose named triangle is in a; a becomes
/// the eigenvectors (columns) if wanted, else it is overwritten.
template <class T>
int syevd(bool vectors, bool upper, int64_t n, T* a, Real<T>* w);
/// Eigenvalues re + i im of a (overwritten). Vectors in LAPACK's packed form: of a pair of
/// conjugate values the columns of v are the real and the imaginary part.
template <class T>
int geev(bool vectors, int64_t n, T* a, T* re, T* im, T* v);
/// The same of complex matrices, w and v as they are.
template <class T>
int geev(bool vectors, int64_t n, std::complex<T>* a, std::complex<T>* w, std::complex<T>* v);

using Driver = prim::LinalgArgs::Driver;
/// Least squares solution of A X = B: b (max(m, n) x columns) holds B in its first m rows and
/// becomes X in its first n. `rank` and `s` (min(m, n) singular values) are set by the drivers that
/// find them. gels takes A to have full rank.
template <class T>
int least_squares(Driver driver, int64_t m, int64_t n, int64_t columns, T* a, T* b, double rcond,
                  int32_t* rank, Real<T>* s);

}  // namespace arete::cpu::lapack
