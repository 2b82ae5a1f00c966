// What the samples of linear algebra share: matrices to factorize, and plain-loop matrices for
// references.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "arete/ops/complex.h"
#include "arete/samples/reference_util.h"

namespace arete::ops {

// Leaves, as of SampleMaker::make.
/// Diagonally dominant matrices: well-conditioned, their symmetric part positive definite, and
/// their singular values distinct.
Tensor make_invertible(SampleMaker& m, IntList sizes);
/// The same, exactly symmetric, or Hermitian.
Tensor make_symmetric(SampleMaker& m, IntList sizes);

/// A row-major matrix of doubles.
struct Matrix {
  int64_t rows = 0, columns = 0;
  std::vector<double> values;
  Matrix(int64_t r, int64_t c) : rows(r), columns(c), values(size_t(r * c), 0.0) {}
  double& operator()(int64_t i, int64_t j) { return values[size_t(i * columns + j)]; }
  double operator()(int64_t i, int64_t j) const { return values[size_t(i * columns + j)]; }
};

inline Matrix identity_matrix(int64_t n) {
  Matrix m(n, n);
  for (int64_t i = 0; i < n; ++i) m(i, i) = 1;
  return m;
}
inline Matrix transposed(const Matrix& a) {
  Matrix t(a.columns, a.rows);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.columns; ++j) t(j, i) = a(i, j);
  return t;
}
inline Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c(a.rows, b.columns);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < b.columns; ++j)
      for (int64_t k = 0; k < a.columns; ++k) c(i, j) += a(i, k) * b(k, j);
  return c;
}

/// The matrices of a contiguous f64 or complex128 tensor. A complex matrix is a real one, in which
/// a number is the matrix [re -im; im re]: sums, products and inverses of the one are those of the
/// other, and its transpose is the adjoint.
inline std::vector<Matrix> matrices_of(const Tensor& t) {
  if (is_complex(t.dtype())) {
    std::vector<Matrix> all;
    const std::vector<Matrix> real = matrices_of(arete::real(t).contiguous()),
                              imag = matrices_of(arete::imag(t).contiguous());
    for (size_t k = 0; k < real.size(); ++k) {
      Matrix& m = all.emplace_back(2 * real[k].rows, 2 * real[k].columns);
      for (int64_t i = 0; i < m.rows; ++i)
        for (int64_t j = 0; j < m.columns; ++j) {
          const Matrix& part = i % 2 == j % 2 ? real[k] : imag[k];
          m(i, j) = part(i / 2, j / 2) * (i % 2 < j % 2 ? -1 : 1);
        }
    }
    return all;
  }
  const std::vector<double> v = values_of(t);
  const int64_t rows = t.size(-2), columns = t.size(-1), n = rows * columns;
  int64_t count = 1;
  for (int64_t d = 0; d + 2 < t.dim(); ++d) count *= t.sizes()[size_t(d)];
  std::vector<Matrix> all;
  for (int64_t i = 0; i < count; ++i) {
    Matrix m(rows, columns);
    m.values.assign(v.begin() + i * n, v.begin() + (i + 1) * n);
    all.push_back(std::move(m));
  }
  return all;
}
/// The reverse: `batch` sizes in front of those of the matrices.
inline Tensor from_matrices(const std::vector<Matrix>& all, IntList batch, int64_t rows,
                            int64_t columns, DType dtype = kFloat64) {
  if (is_complex(dtype)) {
    std::vector<Matrix> parts[2];
    for (const Matrix& m : all)
      for (int64_t p = 0; p < 2; ++p) {
        Matrix& part = parts[p].emplace_back(rows, columns);
        for (int64_t i = 0; i < rows; ++i)
          for (int64_t j = 0; j < columns; ++j) part(i, j) = m(2 * i + p, 2 * j);
      }
    return complex(from_matrices(parts[0], batch, rows, columns),
                   from_matrices(parts[1], batch, rows, columns));
  }
  std::vector<double> v;
  for (const Matrix& m : all) v.insert(v.end(), m.values.begin(), m.values.end());
  Shape sizes(batch);
  sizes.push_back(rows);
  sizes.push_back(columns);
  return from_values(v, sizes);
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
  std::vector<double> v;
  for (const Matrix& m : matrices_of(t)) v.push_back(double(f(m)));
  return from_values(v, t.sizes().first(size_t(t.dim() - 2)), dtype);
}

/// LU with partial pivoting by elimination, in place; the row exchanges (from 0).
inline std::vector<int64_t> eliminate(Matrix& a) {
  std::vector<int64_t> pivots;
  for (int64_t k = 0; k < std::min(a.rows, a.columns); ++k) {
    int64_t best = k;
    for (int64_t i = k + 1; i < a.rows; ++i)
      if (std::fabs(a(i, k)) > std::fabs(a(best, k))) best = i;
    pivots.push_back(best);
    for (int64_t j = 0; j < a.columns; ++j) std::swap(a(k, j), a(best, j));
    for (int64_t i = k + 1; i < a.rows && a(k, k) != 0; ++i) {
      a(i, k) /= a(k, k);
      for (int64_t j = k + 1; j < a.columns; ++j) a(i, j) -= a(i, k) * a(k, j);
    }
  }
  return pivots;
}
inline double determinant(Matrix a) {
  double d = 1;
  const std::vector<int64_t> pivots = eliminate(a);
  for (int64_t k = 0; k < a.rows; ++k) d *= a(k, k) * (pivots[size_t(k)] == k ? 1 : -1);
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

/// Singular values, largest first, by one-sided Jacobi rotations of the columns.
inline std::vector<double> singular_values(Matrix a) {
  if (a.rows < a.columns) a = transposed(a);
  for (int sweep = 0; sweep < 60; ++sweep) {
    for (int64_t p = 0; p < a.columns; ++p) {
      for (int64_t q = p + 1; q < a.columns; ++q) {
        double pp = 0, qq = 0, pq = 0;
        for (int64_t i = 0; i < a.rows; ++i) {
          pp += a(i, p) * a(i, p);
          qq += a(i, q) * a(i, q);
          pq += a(i, p) * a(i, q);
        }
        if (pq == 0) continue;
        const double angle = 0.5 * std::atan2(2 * pq, pp - qq);
        const double c = std::cos(angle), s = std::sin(angle);
        for (int64_t i = 0; i < a.rows; ++i) {
          const double x = a(i, p), y = a(i, q);
          a(i, p) = c * x + s * y;
          a(i, q) = c * y - s * x;
        }
      }
    }
  }
  std::vector<double> values;
  for (int64_t j = 0; j < a.columns; ++j) {
    double sum = 0;
    for (int64_t i = 0; i < a.rows; ++i) sum += a(i, j) * a(i, j);
    values.push_back(std::sqrt(sum));
  }
  std::sort(values.rbegin(), values.rend());
  return values;
}

}  // namespace arete::ops
