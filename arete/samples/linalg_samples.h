// What the samples of linear algebra share: matrices to factorize, and plain-loop matrices for
// references.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <vector>

#include "arete/ops/call.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {

// Leaves, as of SampleMaker::make.
/// Diagonally dominant matrices: well-conditioned, their symmetric part positive definite, and
/// their singular values distinct.
Tensor make_invertible(SampleMaker& m, IntList sizes);
/// The same, exactly symmetric, or Hermitian.
Tensor make_symmetric(SampleMaker& m, IntList sizes);

/// References compute in complex numbers: real ones have no imaginary part.
using Number = std::complex<double>;

/// A row-major matrix.
struct Matrix {
  int64_t rows = 0, columns = 0;
  std::vector<Number> values;
  Matrix(int64_t r, int64_t c) : rows(r), columns(c), values(size_t(r * c)) {}
  Number& operator()(int64_t i, int64_t j) { return values[size_t(i * columns + j)]; }
  const Number& operator()(int64_t i, int64_t j) const { return values[size_t(i * columns + j)]; }
};

inline Matrix identity_matrix(int64_t n) {
  Matrix m(n, n);
  for (int64_t i = 0; i < n; ++i) m(i, i) = 1;
  return m;
}
inline Matrix adjoint(const Matrix& a) {
  Matrix t(a.columns, a.rows);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.columns; ++j) t(j, i) = std::conj(a(i, j));
  return t;
}
inline Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c(a.rows, b.columns);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < b.columns; ++j)
      for (int64_t k = 0; k < a.columns; ++k) c(i, j) += a(i, k) * b(k, j);
  return c;
}

/// All elements of a contiguous CPU tensor of f64 or complex128, and the reverse: of other dtypes
/// than complex128 the real parts.
inline std::vector<Number> numbers_of(const Tensor& t) {
  if (is_complex(t.dtype())) {
    const auto* const first = static_cast<const Number*>(t.data_ptr());
    return {first, first + t.numel()};
  }
  const std::vector<double> v = values_of(t);
  return {v.begin(), v.end()};
}
inline Tensor from_numbers(const std::vector<Number>& v, IntList sizes, DType dtype) {
  if (is_complex(dtype)) {
    const Tensor t = empty_tensor(sizes, dtype, kCPU);
    std::copy(v.begin(), v.end(), static_cast<Number*>(t.data_ptr()));
    return t;
  }
  std::vector<double> reals;
  for (const Number& x : v) reals.push_back(x.real());
  return from_values(reals, sizes, dtype);
}

/// The matrices of a contiguous f64 or complex128 tensor.
inline std::vector<Matrix> matrices_of(const Tensor& t) {
  const std::vector<Number> v = numbers_of(t);
  const int64_t rows = t.size(-2), columns = t.size(-1), n = rows * columns;
  std::vector<Matrix> all;
  for (int64_t i = 0; i < numel_of(t.sizes().first(size_t(t.dim() - 2))); ++i)
    all.emplace_back(rows, columns).values.assign(v.begin() + i * n, v.begin() + (i + 1) * n);
  return all;
}
/// The reverse: `batch` sizes in front of those of the matrices.
inline Tensor from_matrices(const std::vector<Matrix>& all, IntList batch, int64_t rows,
                            int64_t columns, DType dtype) {
  std::vector<Number> v;
  for (const Matrix& m : all) v.insert(v.end(), m.values.begin(), m.values.end());
  Shape sizes(batch);
  sizes.push_back(rows);
  sizes.push_back(columns);
  return from_numbers(v, sizes, dtype);
}
/// f(matrix) -> matrix of rows x columns, for every matrix of a batch.
template <class F>
Tensor map_matrices(const Tensor& t, int64_t rows, int64_t columns, F&& f) {
  std::vector<Matrix> all;
  for (const Matrix& m : matrices_of(t)) all.push_back(f(m));
  return from_matrices(all, t.sizes().first(size_t(t.dim() - 2)), rows, columns, t.dtype());
}
/// f(matrix) -> number.
template <class F>
Tensor map_matrices_to_numbers(const Tensor& t, F&& f, DType dtype = kFloat64) {
  std::vector<Number> v;
  for (const Matrix& m : matrices_of(t)) v.push_back(Number(f(m)));
  return from_numbers(v, t.sizes().first(size_t(t.dim() - 2)), dtype);
}

/// LU with partial pivoting by elimination, in place; the row exchanges (from 0). Of complex
/// numbers that is the largest whose parts have the largest sum, as in LAPACK.
inline std::vector<int64_t> eliminate(Matrix& a) {
  const auto size = [](const Number& x) { return std::fabs(x.real()) + std::fabs(x.imag()); };
  std::vector<int64_t> pivots;
  for (int64_t k = 0; k < std::min(a.rows, a.columns); ++k) {
    int64_t best = k;
    for (int64_t i = k + 1; i < a.rows; ++i)
      if (size(a(i, k)) > size(a(best, k))) best = i;
    pivots.push_back(best);
    for (int64_t j = 0; j < a.columns; ++j) std::swap(a(k, j), a(best, j));
    for (int64_t i = k + 1; i < a.rows && a(k, k) != 0.0; ++i) {
      a(i, k) /= a(k, k);
      for (int64_t j = k + 1; j < a.columns; ++j) a(i, j) -= a(i, k) * a(k, j);
    }
  }
  return pivots;
}
inline Number determinant(Matrix a) {
  Number d = 1;
  const std::vector<int64_t> pivots = eliminate(a);
  for (int64_t k = 0; k < a.rows; ++k) d *= pivots[size_t(k)] == k ? a(k, k) : -a(k, k);
  return d;
}
/// X with A X = B, by elimination.
inline Matrix solved(Matrix a, Matrix b) {
  const std::vector<int64_t> pivots = eliminate(a);
  for (int64_t k = 0; k < a.rows; ++k)
    for (int64_t j = 0; j < b.columns; ++j) std::swap(b(k, j), b(pivots[size_t(k)], j));
  for (int64_t j = 0; j < b.columns; ++j) {
    for (int64_t i = 0; i < a.rows; ++i)
      for (int64_t k = 0; k < i; ++k) b(i, j) -= a(i, k) * b(k, j);
    for (int64_t i = a.rows; i-- > 0;) {
      for (int64_t k = i + 1; k < a.rows; ++k) b(i, j) -= a(i, k) * b(k, j);
      b(i, j) /= a(i, i);
    }
  }
  return b;
}
inline Matrix inverted(const Matrix& a) { return solved(a, identity_matrix(a.rows)); }

/// Turns columns p and q of a (and with `rows` the rows, as of a similar matrix) by a plane
/// rotation that makes their product, which is pq, vanish; pp and qq are their squares.
inline void rotate(Matrix& a, int64_t p, int64_t q, double pp, double qq, Number pq, bool rows) {
  if (std::abs(pq) < std::numeric_limits<double>::min()) return;
  const Number phase = pq / std::abs(pq);
  const double angle = 0.5 * std::atan2(2 * std::abs(pq), pp - qq);
  const double c = std::cos(angle), s = std::sin(angle);
  const auto turn = [&](Number& at_p, Number& at_q, const Number& by) {
    const Number x = at_p, y = at_q * by;
    at_p = c * x + s * y;
    at_q = c * y - s * x;
  };
  for (int64_t i = 0; i < a.rows; ++i) turn(a(i, p), a(i, q), std::conj(phase));
  for (int64_t i = 0; rows && i < a.columns; ++i) turn(a(p, i), a(q, i), phase);
}

/// Singular values, largest first, by one-sided Jacobi rotations of the columns.
inline std::vector<double> singular_values(Matrix a) {
  if (a.rows < a.columns) a = adjoint(a);
  for (int sweep = 0; sweep < 60; ++sweep) {
    for (int64_t p = 0; p < a.columns; ++p) {
      for (int64_t q = p + 1; q < a.columns; ++q) {
        double pp = 0, qq = 0;
        Number pq = 0;
        for (int64_t i = 0; i < a.rows; ++i) {
          pp += std::norm(a(i, p));
          qq += std::norm(a(i, q));
          pq += std::conj(a(i, p)) * a(i, q);
        }
        rotate(a, p, q, pp, qq, pq, false);
      }
    }
  }
  std::vector<double> values;
  for (int64_t j = 0; j < a.columns; ++j) {
    double sum = 0;
    for (int64_t i = 0; i < a.rows; ++i) sum += std::norm(a(i, j));
    values.push_back(std::sqrt(sum));
  }
  std::sort(values.rbegin(), values.rend());
  return values;
}

/// X with A X = B (left) or X A = B.
inline Matrix solved_side(const Matrix& a, const Matrix& b, bool left) {
  return left ? solved(a, b) : adjoint(solved(adjoint(a), adjoint(b)));
}

/// f(matrix of a, matrix of b) for all pairs of the broadcast batch; matrices `of_a` have batch_a.
template <class F>
Tensor map_pairs(const std::vector<Matrix>& of_a, const Shape& batch_a, const Tensor& b, F f) {
  const std::vector<Matrix> of_b = matrices_of(b);
  const Shape batch_b(b.sizes().first(size_t(b.dim()) - 2));
  const Shape batch = broadcast_shapes(batch_a, batch_b, "");
  std::vector<Matrix> all;
  for_each_index(batch, [&](const Shape& i) {
    all.push_back(
        f(of_a[size_t(flat_position(batch_a, i))], of_b[size_t(flat_position(batch_b, i))]));
  });
  return from_matrices(all, batch, b.size(-2), b.size(-1), b.dtype());
}
template <class F>
Tensor map_pairs(const Tensor& a, const Tensor& b, F f) {
  return map_pairs(matrices_of(a), Shape(a.sizes().first(size_t(a.dim()) - 2)), b, f);
}

}  // namespace arete::ops
