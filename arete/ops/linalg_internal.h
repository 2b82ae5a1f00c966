// What the families of linear algebra share.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "arete/core/modes.h"
#include "arete/ops/call.h"

namespace arete::ops {

/// Dtypes that are factorized, and those that are only multiplied and added.
inline const std::vector<DType> kFactorizableTypes{kFloat32, kFloat64};
/// The same, of records whose references know complex matrices (samples/linalg_samples.h); of the
/// others tests/op/linalg_test.cpp and the tests of Python compare these.
inline const std::vector<DType> kMatrixTypes{kFloat32, kFloat64, kComplex64, kComplex128};
inline const std::vector<DType> kMultipliedTypes{kFloat32, kFloat64, kBFloat16, kFloat16, kInt64};

// ---- shapes and checks. `name` is torch's name of the function, "linalg.inv".

/// "linalg.inv" for the record "linalg_inv"; other names as they are.
std::string public_name(const Call& c);
/// Floating and complex numbers of 32 and 64 bits only: NotImplementedError "linalg.inv: Low
/// precision dtypes not supported. Got float16", TypeError for integers.
void check_factorizable(const std::string& name, const Tensor& t);
/// Rank 2 at least: ValueError "linalg.inv: The input tensor A must have at least 2 dimensions."
void check_matrix(const std::string& name, const Tensor& t, const char* argument = "A");
/// Also square: "linalg.inv: A must be batches of square matrices, but they are 2 by 3 matrices".
void check_square(const std::string& name, const Tensor& t, const char* argument = "A");
void check_same_dtype(const std::string& name, const Tensor& a, const Tensor& b);

/// All sizes but the last `kept`.
inline Shape batch_sizes(IntList sizes, size_t kept = 2) {
  return Shape(sizes.first(sizes.size() - kept));
}
/// The batch sizes followed by more.
Shape with_sizes(IntList batch, std::initializer_list<int64_t> more);
/// infer() of a square matrix from each of the first argument's, and an error number for each.
void square_with_info(const Call& c, OutputSpecs& out);
/// An output of batches of rows x columns matrices, each column-major as LAPACK wants it.
OutputSpec matrix_spec(IntList batch, int64_t rows, int64_t columns, const Tensor& like);
/// A column-major copy of the matrices of `t`, their batch broadcast to `batch`. No history.
Tensor column_major(const Tensor& t, IntList batch, prim::Primitives& p);

/// Triangular matrices as a factor that p.linalg() reads: no copy if they are dense already, as
/// they are or transposed.
struct TriangularFactor {
  Tensor matrices;  // column-major
  bool upper;       // the triangle of them that is read
  bool transposed;  // whether they are the transposed ones
  TriangularFactor(const Tensor& a, IntList batch, bool reads_upper, prim::Primitives& p);
  /// b (column-major) becomes X with A X = b (left) or X A = b, or A^T for A.
  void solve(const Tensor& b, prim::Primitives& p, bool of_transposed = false, bool left = true,
             bool unit = false) const;
};

/// Right-hand sides of matrices A that several systems of a batch share, side by side: A is not
/// repeated, and many sides of one matrix are solved faster than one after the other.
class SharedSides {
 public:
  /// Whether some A, of which there is a batch `own`, is that of several matrices of `out`, and it
  /// pays to put their sides together.
  static bool are_in(const Tensor& out, IntList own, bool left);
  /// b as right-hand sides of A X = B, or of A^T X^T = B^T, which is X A = B; not empty.
  SharedSides(IntList own, const Tensor& b, const Tensor& out, bool left, prim::Primitives& p);
  /// The batch without the dimensions that share.
  const Shape& batch() const { return batch_; }
  /// (batch..., n, sides), column-major, to be solved in place; then finish() writes `out`.
  Tensor columns() const { return rows_.mT(); }
  void finish(prim::Primitives& p) const;

 private:
  Shape batch_;
  Tensor out_, memory_, rows_;  // out_ in the order of memory_, which is out_ where that is dense
};

/// Leaves one matrix along the dimensions of a batch along which expand() repeats it, as if it were
/// broadcast: `vectors`, which belong to the matrices, too, where both are repeated.
void drop_repeats(Tensor& matrices, Tensor* vectors = nullptr);

/// a b (batches of matrices), summed over the batch to these sizes of matrices: one product of what
/// is summed up side by side.
Tensor sum_of_products(const Tensor& a, const Tensor& b, IntList sizes);

/// What a lower() hands to p.linalg(): its input in column-major tensors, on the device of the
/// call.
using Factorization = prim::LinalgArgs::Op;
/// Memory for one number for each matrix of `a`.
inline Tensor empty_info(const Tensor& a) {
  return empty_tensor(batch_sizes(a.sizes()), kInt32, a.device());
}

/// While it lives, products inside a composition are not made in autocast's lower precision.
class FullPrecision : ModesGuard {
 public:
  FullPrecision() { modes().word &= ~uint32_t(Modes::kAutocast); }
};

/// While it lives, operators called to compute a result record no history and are not changed by
/// autocast.
class PlainCalls : ModesGuard {
 public:
  PlainCalls() {
    modes().grad_enabled = false;
    modes().word &= ~uint32_t(Modes::kAutocast | Modes::kObserve);
  }
};

/// Throws ValueError "name: (Batch element 2): text(info)" for the first matrix whose info (int32,
/// one for each matrix) is positive, and ValueError(not_finite) before that if some info is -1, or
/// lets that pass where there is no such text. Reads the data; meta tensors pass.
void check_info(const std::string& name, const Tensor& info, std::string (*text)(int64_t info),
                const char* not_finite = nullptr);
std::string not_positive_definite_text(int64_t info);
std::string singular_inverse_text(int64_t info);
std::string singular_solve_text(int64_t info);

/// m * n * min(m, n) for all matrices of argument 0: what factorizations cost, but for a factor.
double factorization_flops(const Call& c);

// ---- formulas and pieces
/// The transposed matrices, conjugated if they are complex.
Tensor adjoint(const Tensor& t);
/// Whether b holds a vector for each of the matrices a, and no matrices.
inline bool has_vectors(const Tensor& a, const Tensor& b) {
  const IntList s = a.sizes().first(size_t(a.dim() - 1)), t = b.sizes();
  return std::equal(s.begin(), s.end(), t.begin(), t.end());
}
/// The order of the rows after exchanges with pivots (from 1).
template <class T>
inline void apply_exchanges(const T* pivots, int64_t k, int64_t* order, int64_t n) {
  for (int64_t i = 0; i < n; ++i) order[i] = i;
  for (int64_t i = 0; i < k; ++i) std::swap(order[i], order[int64_t(pivots[i]) - 1]);
}
/// X with the diagonals of its last two dimensions multiplied.
Tensor scale_diagonal(Tensor x, double factor);
/// Vectors (..., n) as diagonal matrices (..., n, n).
Tensor diagonal_matrices(const Tensor& v);
/// Identity matrices expanded to a batch.
Tensor identities(IntList batch, int64_t n, const TensorOptions& options);
/// X with A X = B (left) or X A = B, or A^T for A (`transposed`), from the factors of A and
/// exchanges that Factorization::lu made, whose batch is broadcast to that of `out`: column-major,
/// or row-major for X A = B.
void solve_by_factors(Tensor lu, Tensor pivots, const Tensor& b, const Tensor& out, bool left,
                      bool transposed, prim::Primitives& p);
/// The same as an operator, without history, and with A^H for A^T.
Tensor lu_solution(const Tensor& lu, const Tensor& pivots, const Tensor& b, bool left,
                   bool of_adjoint);
/// The gradient of the pseudo-inverse P of A.
Tensor pinv_gradient(const Tensor& grad, const Tensor& p, const Tensor& a);

}  // namespace arete::ops
