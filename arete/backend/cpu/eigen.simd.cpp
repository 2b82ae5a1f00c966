// Compiled once per instruction set; see Note [Symmetric eigenvalues].
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "arete/backend/cpu/columns.inl.h"
#include "arete/backend/cpu/small_matrices.h"

// Note [Symmetric eigenvalues]
// Householder's reflections make the matrix tridiagonal, implicit QL steps with Wilkinson's shifts
// make that diagonal (Golub and Van Loan, "Matrix computations", chapter 8), and the rotations of
// each step go through the vectors. Both triangles are kept, so that all loops run down columns;
// what one reflection does to the matrix and the product which the next one needs are one pass over
// it, and the same pass multiplies the reflections. Rotations are computed in f64 for both types.
// The matrix is scaled by a power of two to elements of at most one: squares may underflow, which
// the places that take roots look after, but not overflow.
// What a library's calls for each column cost shows up to some hundred rows.

namespace arete::cpu::ARETE_SIMD_TARGET {
namespace {

// Columns [first, n) of a, rows from `row` on: a -= x y^T, and with kRank 2 also y x^T; then
// product = a v. kRows vectors of rows at a time.
template <int kRank, int kRows, class T>
void update_rows(const Columns<T>& a, int64_t row, int64_t first, const T* x, const T* y,
                 const T* v, T* product) {
  PackOf<T> total[kRows] = {}, xs[kRows], ys[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    xs[r] = pack_at(x + row + r * kWidth<T>);
    ys[r] = pack_at(y + row + r * kWidth<T>);
  }
  for (int64_t j = first; j < a.n; ++j) {
    T* const column = a[j] + row;
    const T xj = x[j], yj = y[j], vj = v[j];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      PackOf<T> z = pack_at(column + r * kWidth<T>) - xs[r] * yj;
      if constexpr (kRank == 2) z -= ys[r] * xj;
      pack_at(column + r * kWidth<T>) = z;
      total[r] += z * vj;
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) pack_at(product + row + r * kWidth<T>) = total[r];
}

template <int kRank, class T>
void update_and_multiply(const Columns<T>& a, int64_t first, const T* x, const T* y, const T* v,
                         T* product) {
  int64_t row = first / kWidth<T> * kWidth<T>;
  for (; row + 4 * kWidth<T> <= a.stride; row += 4 * kWidth<T>)
    update_rows<kRank, 4>(a, row, first, x, y, v, product);
  for (; row < a.stride; row += kWidth<T>) update_rows<kRank, 1>(a, row, first, x, y, v, product);
}

// a becomes the reflections, column k holding that of step k; `diagonal` and `off` what is left.
template <class T>
void make_tridiagonal(const Columns<T>& a, double* diagonal, double* off, T* taus, T* x, T* y,
                      T* product) {
  const int64_t n = a.n;
  std::fill(x, x + a.stride, T(0));
  std::fill(y, y + a.stride, T(0));
  for (int64_t k = 0; k < n; ++k) {
    T* const v = a[k];
    for (int64_t i = k / kWidth<T> * kWidth<T>; i < a.stride; i += kWidth<T>)
      pack_at(v + i) -= pack_at(x + i) * y[k] + pack_at(y + i) * x[k];
    diagonal[k] = double(v[k]);
    if (k + 1 == n) break;
    std::fill(v, v + k + 1, T(0));
    if (k + 2 == n) {
      off[k] = double(v[k + 1]);
      continue;
    }
    const Reflection<T> h(v, k + 1, a.stride);
    off[k] = double(h.beta), taus[k] = h.tau;
    update_and_multiply<2>(a, k + 1, x, y, v, product);
    const int64_t from = (k + 1) / kWidth<T> * kWidth<T>;
    std::fill(product + from, product + k + 1, T(0));
    const T half = h.tau * h.tau / 2 * dot(product, v, from, a.stride);
    for (int64_t i = from; i < a.stride; i += kWidth<T>) {
      pack_at(y + i) = pack_at(product + i) * h.tau - pack_at(v + i) * half;
      pack_at(x + i) = pack_at(v + i);
    }
  }
}

// q^T = (H_0 H_1 ...)^T for the reflections of make_tridiagonal.
template <class T>
void multiply_reflections(const Columns<T>& reflections, const T* taus, const Columns<T>& q, T* x,
                          T* y, T* product) {
  const int64_t n = q.n;
  std::fill(q.data, q.data + n * q.stride, T(0));
  for (int64_t j = 0; j < n; ++j) q[j][j] = 1;
  std::fill(x, x + q.stride, T(0));
  std::fill(y, y + q.stride, T(0));
  // After the last reflection, whose product is not needed, one pass more does what it does.
  for (int64_t k = n - 3; k >= -1; --k) {
    const T* v = reflections[std::max<int64_t>(k, 0)];
    update_and_multiply<1>(q, std::max<int64_t>(k, 0) + 1, x, y, v, product);
    if (k < 0) break;
    const int64_t from = (k + 1) / kWidth<T> * kWidth<T>;
    for (int64_t i = from; i < q.stride; i += kWidth<T>) {
      pack_at(x + i) = pack_at(product + i);
      pack_at(y + i) = pack_at(v + i) * taus[k];
    }
  }
}

template <class T>
void transpose_square(const Columns<T>& from, const Columns<T>& to) {
  constexpr int64_t kTile = 16;
  for (int64_t j0 = 0; j0 < from.n; j0 += kTile)
    for (int64_t i0 = 0; i0 < from.n; i0 += kTile)
      for (int64_t j = j0; j < std::min(from.n, j0 + kTile); ++j)
        for (int64_t i = i0; i < std::min(from.n, i0 + kTile); ++i) to[i][j] = from[j][i];
}

template <class T>
struct Rotation {
  T c, s;
};

// Columns i and i + 1 of z are turned by rotations[i], for i from last - 1 down to `first`.
template <int kRows, class T>
void rotate_rows(const Columns<T>& z, int64_t row, int64_t first, int64_t last,
                 const Rotation<T>* rotations) {
  PackOf<T> carried[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) carried[r] = pack_at(z[last] + row + r * kWidth<T>);
  for (int64_t i = last - 1; i >= first; --i) {
    const T c = rotations[i].c, s = rotations[i].s;
    T* const column = z[i] + row;
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const PackOf<T> x = pack_at(column + r * kWidth<T>);
      pack_at(column + z.stride + r * kWidth<T>) = s * x + c * carried[r];
      carried[r] = c * x - s * carried[r];
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) pack_at(z[first] + row + r * kWidth<T>) = carried[r];
}
template <class T>
void rotate(const Columns<T>& z, int64_t first, int64_t last, const Rotation<T>* rotations) {
  int64_t row = 0;
  for (; row + 4 * kWidth<T> <= z.stride; row += 4 * kWidth<T>)
    rotate_rows<4>(z, row, first, last, rotations);
  for (; row < z.stride; row += kWidth<T>) rotate_rows<1>(z, row, first, last, rotations);
}

double length_of(double f, double g) {
  const double squares = f * f + g * g;
  return squares > 1e-280 ? std::sqrt(squares) : std::hypot(f, g);
}

// d becomes the eigenvalues, in no order, and with z (n columns, or none) z times the vectors.
// `off` has n elements. Returns how many of them are left.
template <class T>
int diagonalize(int64_t n, double* d, double* off, const Columns<T>& z, Rotation<T>* rotations) {
  constexpr double kEps = std::numeric_limits<T>::epsilon() / 2;
  constexpr double kNothing = 1e-140;  // beside elements of at most one; its square is a number
  int64_t steps = 30 * n;
  for (int64_t l = 0; l + 1 < n;) {
    int64_t m = l;
    const auto is_left = [&](int64_t i) {
      return std::fabs(off[i]) > kEps * (std::fabs(d[i]) + std::fabs(d[i + 1])) + kNothing;
    };
    while (m + 1 < n && is_left(m)) ++m;
    if (m == l) {
      off[l++] = 0;
      continue;
    }
    if (steps-- == 0) return int(n - 1 - std::count(off, off + n - 1, 0.0));
    double g = (d[l + 1] - d[l]) / (2 * off[l]);
    g = d[m] - d[l] + off[l] / (g + std::copysign(length_of(g, 1), g));
    double s = 1, c = 1, p = 0;
    int64_t i = m - 1;
    for (; i >= l; --i) {
      const double f = s * off[i], b = c * off[i], r = length_of(f, g);
      off[i + 1] = r;
      if (r == 0) break;  // the part below is on its own
      s = f / r, c = g / r;
      g = d[i + 1] - p;
      const double t = (d[i] - g) * s + 2 * c * b;
      p = s * t;
      d[i + 1] = g + p;
      g = c * t - b;
      rotations[i] = {T(c), T(s)};
    }
    off[m] = 0;
    if (i >= l) {
      d[i + 1] -= p;
    } else {
      d[l] -= p;
      off[l] = g;
    }
    if (z.data && i + 1 < m) rotate(z, i + 1, m, rotations);
  }
  return 0;
}

template <class T>
int run(bool vectors, bool upper, int64_t n, T* a, T* values) {
  const int64_t stride = (n + kWidth<T> - 1) / kWidth<T> * kWidth<T>;
  Scratch scratch(2 * Scratch::size<T>(n * stride) + 4 * Scratch::size<T>(stride) +
                  2 * Scratch::size<double>(n) + Scratch::size<Rotation<T>>(n) +
                  Scratch::size<int64_t>(n));
  const Columns<T> full{scratch.take<T>(n * stride), n, stride};
  const Columns<T> q{scratch.take<T>(n * stride), n, stride};
  T *const taus = scratch.take<T>(stride), *const x = scratch.take<T>(stride);
  T *const y = scratch.take<T>(stride), *const product = scratch.take<T>(stride);
  double *const d = scratch.take<double>(n), *const off = scratch.take<double>(n);
  const auto rotations = scratch.take<Rotation<T>>(n);
  const auto order = scratch.take<int64_t>(n);

  T largest = 0;
  for (int64_t j = 0; j < n; ++j)
    for (int64_t i = upper ? 0 : j; i < (upper ? j + 1 : n); ++i)
      largest = std::max(largest, std::fabs(a[j * n + i]));
  int exponent = 0;
  std::frexp(largest, &exponent);
  // In two steps: the factor for the smallest numbers is not one of the type.
  const T half = std::ldexp(T(1), -exponent / 2),
          other = std::ldexp(T(1), -exponent + exponent / 2);
  for (int64_t j = 0; j < n; ++j) {
    std::fill(full[j] + n, full[j] + stride, T(0));
    for (int64_t i = upper ? 0 : j; i < (upper ? j + 1 : n); ++i)
      full[i][j] = full[j][i] = a[j * n + i] * half * other;
  }

  make_tridiagonal(full, d, off, taus, x, y, product);
  Columns<T> z{nullptr, n, stride};
  if (vectors) {
    multiply_reflections(full, taus, q, x, y, product);
    std::fill(full.data, full.data + n * stride, T(0));
    transpose_square(q, z = full);
  }
  if (const int left = diagonalize(n, d, off, z, rotations); left != 0) return left;
  std::iota(order, order + n, int64_t(0));
  std::sort(order, order + n, [&](int64_t i, int64_t j) { return d[i] < d[j]; });
  for (int64_t j = 0; j < n; ++j) {
    values[j] = T(std::ldexp(d[order[j]], exponent));
    if (vectors) std::copy_n(z[order[j]], n, a + j * n);
  }
  return 0;
}

}  // namespace

int symmetric_eigen(bool wide, bool vectors, bool upper, int64_t n, void* a, void* values) {
  if (wide) return run(vectors, upper, n, static_cast<double*>(a), static_cast<double*>(values));
  return run(vectors, upper, n, static_cast<float*>(a), static_cast<float*>(values));
}

}  // namespace arete::cpu::ARETE_SIMD_TARGET
