// Linear algebra: torch.linalg. Matrices are the last two dimensions; all dimensions before them
// are a batch, which may be empty, as may the matrices. Factorizations take float32 and float64
// (an error for others) and run on the host by LAPACK: tensors of other devices are copied there
// and back. Results that LAPACK makes are column-major in each matrix.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include "arete/core/tensor.h"

namespace arete {

namespace linalg {

// ---- Cholesky
/// L (or, with `upper`, L^T) with A = L L^T; one triangle of A is read. ValueError
/// "linalg.cholesky: The factorization could not be completed because the input is not
/// positive-definite ...".
Tensor cholesky(const Tensor& a, bool upper = false);
/// The same with an error number (int32) for each matrix, 0 for success, instead of an error.
std::tuple<Tensor, Tensor> cholesky_ex(const Tensor& a, bool upper = false,
                                       bool check_errors = false);

// ---- LU, with partial pivoting
/// P, L, U with A = P L U: (m, n) -> (m, m), (m, k), (k, n), k = min(m, n).
std::tuple<Tensor, Tensor, Tensor> lu(const Tensor& a);
/// L and D of a symmetric matrix A = P L D L^T P^T in one matrix, and LAPACK's pivots: for
/// ldl_solve. No gradient.
std::tuple<Tensor, Tensor> ldl_factor(const Tensor& a, bool hermitian = false);
/// The same, and for each matrix the first zero pivot (from 1) or 0.
std::tuple<Tensor, Tensor, Tensor> ldl_factor_ex(const Tensor& a, bool hermitian = false,
                                                 bool check_errors = false);
Tensor ldl_solve(const Tensor& ld, const Tensor& pivots, const Tensor& b, bool hermitian = false);

/// Both factors in one matrix, and the row exchanges (int32, from 1): for lu_solve.
std::tuple<Tensor, Tensor> lu_factor(const Tensor& a);
/// The same and error numbers, k where U[k, k] is zero.
std::tuple<Tensor, Tensor, Tensor> lu_factor_ex(const Tensor& a, bool check_errors = false);
/// X with A X = B (X A = B if not `left`; A^T for A if `adjoint`) from the factors of A.
Tensor lu_solve(const Tensor& lu, const Tensor& pivots, const Tensor& b, bool left = true,
                bool adjoint = false);

// ---- equations
/// X with A X = B, or X A = B if not `left`. A vector B has one dimension, or one less than A and
/// A's other sizes. ValueError "linalg.solve: The solver failed because the input matrix is
/// singular."
Tensor solve(const Tensor& a, const Tensor& b, bool left = true);
std::tuple<Tensor, Tensor> solve_ex(const Tensor& a, const Tensor& b, bool left = true,
                                    bool check_errors = false);
/// The same for a triangular A, of which one triangle is read; `unitriangular`: not its diagonal,
/// which is taken as ones. No error for singular A, but infinities.
Tensor solve_triangular(const Tensor& a, const Tensor& b, bool upper, bool left = true,
                        bool unitriangular = false);
/// Solution (n x k), residuals, rank and singular values of the least squares problem |A X - B|;
/// what a driver does not find is empty. driver: "gelsy" (default), "gels" (full rank), "gelsd",
/// "gelss". The gradient is that of the solution.
std::tuple<Tensor, Tensor, Tensor, Tensor> lstsq(const Tensor& a, const Tensor& b,
                                                 std::optional<double> rcond = {},
                                                 std::optional<std::string_view> driver = {});
/// ValueError "linalg.inv: The diagonal element 2 is zero, the inversion could not be completed
/// because the input matrix is singular."
Tensor inv(const Tensor& a);
std::tuple<Tensor, Tensor> inv_ex(const Tensor& a, bool check_errors = false);
/// The pseudo-inverse: singular values up to max(atol, rtol * largest) count as zero; rtol is
/// max(m, n) * eps unless atol is given. hermitian: A is symmetric.
Tensor pinv(const Tensor& a, std::optional<double> atol = {}, std::optional<double> rtol = {},
            bool hermitian = false);
/// The inverse of the product that turns the dimensions from `ind` on into those before.
Tensor tensorinv(const Tensor& a, int64_t ind = 2);
/// X with tensordot(A, X, X.dim()) = B; `dims` of A are moved to its end first.
Tensor tensorsolve(const Tensor& a, const Tensor& b, IntList dims = {});

// ---- orthogonal factors
/// A = Q R. mode "reduced": (m, k), (k, n), k = min(m, n); "complete": (m, m), (m, n); "r": Q is
/// empty.
std::tuple<Tensor, Tensor> qr(const Tensor& a, std::string_view mode = "reduced");
/// The first columns of H1 H2 ..., H = I - tau v v^T, v below the diagonal of A (1 on it).
Tensor householder_product(const Tensor& a, const Tensor& tau);
/// U, S, V^T with A = U diag(S) V^T, S largest first. Gradients through U and V need singular
/// values that differ.
std::tuple<Tensor, Tensor, Tensor> svd(const Tensor& a, bool full_matrices = true);
Tensor svdvals(const Tensor& a);
/// Eigenvalues, smallest first, and eigenvectors (columns) of symmetric matrices, of which one
/// triangle is read: "L" or "U".
std::tuple<Tensor, Tensor> eigh(const Tensor& a, std::string_view uplo = "L");
Tensor eigvalsh(const Tensor& a, std::string_view uplo = "L");
/// Complex eigenvalues and eigenvectors of any square matrices. No gradient.
std::tuple<Tensor, Tensor> eig(const Tensor& a);
Tensor eigvals(const Tensor& a);

// ---- numbers
Tensor det(const Tensor& a);
/// Sign (0 for singular matrices) and log |det A|.
std::tuple<Tensor, Tensor> slogdet(const Tensor& a);
/// How many singular values are above max(atol, rtol * largest); int64.
Tensor matrix_rank(const Tensor& a, std::optional<double> atol = {},
                   std::optional<double> rtol = {}, bool hermitian = false);
/// Condition number: ratio of singular values (p 2, -2) or |A| |A^-1| in another matrix norm.
Tensor cond(const Tensor& a, std::optional<double> p = {});
Tensor cond(const Tensor& a, std::string_view p);
/// (sum |x|^ord)^(1/ord) over `dims`, or everything.
Tensor vector_norm(const Tensor& x, double ord = 2, IntList dims = {}, bool keepdim = false,
                   std::optional<DType> dtype = {});
/// ord: 1, -1, inf, -inf (largest or smallest sum of magnitudes in a column or row), 2, -2 (largest
/// or smallest singular value), "fro", "nuc".
Tensor matrix_norm(const Tensor& a, double ord, IntList dims = {-2, -1}, bool keepdim = false,
                   std::optional<DType> dtype = {});
Tensor matrix_norm(const Tensor& a, std::string_view ord = "fro", IntList dims = {-2, -1},
                   bool keepdim = false, std::optional<DType> dtype = {});
/// A vector norm for one dim, a matrix norm for two; without ord the 2-norm of all elements.
Tensor norm(const Tensor& x, std::optional<double> ord = {}, IntList dims = {},
            bool keepdim = false, std::optional<DType> dtype = {});
Tensor norm(const Tensor& x, std::string_view ord, IntList dims = {}, bool keepdim = false,
            std::optional<DType> dtype = {});

// ---- functions and products
Tensor matrix_exp(const Tensor& a);
/// A^n; negative n: of the inverse.
Tensor matrix_power(const Tensor& a, int64_t n);
/// The product of matrices (the first and the last may be vectors) in the cheapest order.
Tensor multi_dot(const std::vector<Tensor>& tensors);
/// Cross products of vectors of 3 along `dim`.
Tensor cross(const Tensor& x, const Tensor& y, int64_t dim = -1);
/// Sums of products along `dim`.
Tensor vecdot(const Tensor& x, const Tensor& y, int64_t dim = -1);
/// Columns x^0, x^1, ..., x^(N-1); N: by default the size of x.
Tensor vander(const Tensor& x, std::optional<int64_t> n = {});
/// The diagonals of matrices: a view.
Tensor diagonal(const Tensor& a, int64_t offset = 0, int64_t dim1 = -2, int64_t dim2 = -1);
Tensor matmul(const Tensor& a, const Tensor& b);

}  // namespace linalg

// ---- torch's older names
Tensor cholesky(const Tensor& self, bool upper = false);
/// The inverse of A from its Cholesky factor.
Tensor cholesky_inverse(const Tensor& self, bool upper = false);
/// X with A X = B from the Cholesky factor of A.
Tensor cholesky_solve(const Tensor& self, const Tensor& input2, bool upper = false);
Tensor inverse(const Tensor& self);
Tensor pinverse(const Tensor& self, double rcond = 1e-15);
Tensor det(const Tensor& self);
/// log det A; NaN where the determinant is negative.
Tensor logdet(const Tensor& self);
std::tuple<Tensor, Tensor> slogdet(const Tensor& self);
/// P, L, U of the factors that lu_factor gives; parts not wanted are empty.
std::tuple<Tensor, Tensor, Tensor> lu_unpack(const Tensor& lu, const Tensor& pivots,
                                             bool unpack_data = true, bool unpack_pivots = true);
Tensor lu_solve(const Tensor& self, const Tensor& lu, const Tensor& pivots);
/// U, S, V (not transposed) with A = U diag(S) V^T; `some`: reduced. Without compute_uv U and V are
/// zeros.
std::tuple<Tensor, Tensor, Tensor> svd(const Tensor& self, bool some = true,
                                       bool compute_uv = true);
std::tuple<Tensor, Tensor> qr(const Tensor& self, bool some = true);
/// Reflectors and tau as LAPACK has them (see linalg::householder_product). No gradient.
std::tuple<Tensor, Tensor> geqrf(const Tensor& self);
Tensor orgqr(const Tensor& self, const Tensor& input2);
/// Q C, C Q, Q^T C or C Q^T, where Q (m x m) is made of the reflectors (self, tau).
Tensor ormqr(const Tensor& self, const Tensor& tau, const Tensor& other, bool left = true,
             bool transpose = false);
/// The solution X of A X = B for triangular A, and A.
std::tuple<Tensor, Tensor> triangular_solve(const Tensor& self, const Tensor& a, bool upper = true,
                                            bool transpose = false, bool unitriangular = false);
Tensor matrix_exp(const Tensor& self);
Tensor matrix_power(const Tensor& self, int64_t n);
Tensor chain_matmul(const std::vector<Tensor>& matrices);

// ---- products
/// As linalg::cross; without dim along the first dimension of size 3.
Tensor cross(const Tensor& self, const Tensor& other, std::optional<int64_t> dim = {});
/// Powers of a vector as columns, decreasing unless `increasing`.
Tensor vander(const Tensor& x, std::optional<int64_t> n = {}, bool increasing = false);
/// Sums of products over pairs of dimensions.
Tensor tensordot(const Tensor& self, const Tensor& other, IntList dims_self, IntList dims_other);
/// The same over the last `dims` dimensions of self and the first of other.
Tensor tensordot(const Tensor& self, const Tensor& other, int64_t dims = 2);
/// Every element of self times all of other, as blocks.
Tensor kron(const Tensor& self, const Tensor& other);
/// Sums of products over the last dimensions of both.
Tensor inner(const Tensor& self, const Tensor& other);
Tensor vdot(const Tensor& self, const Tensor& other);
Tensor ger(const Tensor& self, const Tensor& vec2);
/// beta * self + alpha * mat @ vec; with beta 0 self is not read (as in all of these).
Tensor addmv(const Tensor& self, const Tensor& mat, const Tensor& vec, Scalar beta = 1,
             Scalar alpha = 1);
/// beta * self + alpha * outer(vec1, vec2).
Tensor addr(const Tensor& self, const Tensor& vec1, const Tensor& vec2, Scalar beta = 1,
            Scalar alpha = 1);
/// beta * self + alpha * the sum of all batch1[i] @ batch2[i].
Tensor addbmm(const Tensor& self, const Tensor& batch1, const Tensor& batch2, Scalar beta = 1,
              Scalar alpha = 1);
/// The sum of a matrix's diagonal.
Tensor trace(const Tensor& self);

// ---- distances and statistics
/// p-norm of all elements of self - other.
Tensor dist(const Tensor& self, const Tensor& other, double p = 2);
/// The slices along `dim`, each scaled down to a p-norm of at most maxnorm.
Tensor renorm(const Tensor& self, double p, int64_t dim, double maxnorm);
/// p-norm distances of all rows of x1 (..., P, M) to all of x2 (..., R, M) -> (..., P, R).
/// compute_mode: "use_mm_for_euclid_dist" and "donot_use_mm_for_euclid_dist" say for p = 2 whether
/// a matrix product is used, which is fast but rounds more; by default from 25 rows on.
Tensor cdist(const Tensor& x1, const Tensor& x2, double p = 2,
             std::string_view compute_mode = "use_mm_for_euclid_dist_if_necessary");
/// Distances of all pairs of rows i < j of a matrix, in order.
Tensor pdist(const Tensor& self, double p = 2);
/// Covariance of variables (rows) over observations (columns), weighted by whole numbers
/// `fweights` and numbers `aweights` (1-d or undefined).
Tensor cov(const Tensor& self, int64_t correction = 1, const Tensor& fweights = {},
           const Tensor& aweights = {});
Tensor corrcoef(const Tensor& self);

}  // namespace arete
