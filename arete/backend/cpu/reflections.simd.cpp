// Products of Householder's reflections, one after the other. Compiled once per instruction set.
#include <algorithm>

#include "arete/backend/cpu/columns.inl.h"
#include "arete/backend/cpu/small_matrices.h"

namespace arete::cpu::ARETE_SIMD_TARGET {
namespace {

// kCount columns from `column` on, rows from `row` on: x -= tau v (v^T x).
template <int kCount, class T>
void reflect_columns(const Columns<T>& a, int64_t column, int64_t row, const T* v, T tau) {
  PackOf<T> total[kCount] = {};
  for (int64_t i = row; i < a.stride; i += kWidth<T>) {
    const PackOf<T> vi = pack_at(v + i);
#pragma GCC unroll 4
    for (int c = 0; c < kCount; ++c) total[c] += vi * pack_at(a[column + c] + i);
  }
  T factor[kCount];
#pragma GCC unroll 4
  for (int c = 0; c < kCount; ++c) factor[c] = tau * sum_of<T>(total[c]);
  for (int64_t i = row; i < a.stride; i += kWidth<T>) {
    const PackOf<T> vi = pack_at(v + i);
#pragma GCC unroll 4
    for (int c = 0; c < kCount; ++c) pack_at(a[column + c] + i) -= vi * factor[c];
  }
}
template <class T>
void reflect(const Columns<T>& a, int64_t first, int64_t row, const T* v, T tau) {
  if (tau == 0) return;
  row = row / kWidth<T> * kWidth<T>;
  int64_t j = first;
  for (; j + 4 <= a.n; j += 4) reflect_columns<4>(a, j, row, v, tau);
  for (; j < a.n; ++j) reflect_columns<1>(a, j, row, v, tau);
}

// A copy of m x n elements in whole vectors, and room for one column.
template <class T>
struct Copy {
  int64_t m, stride;
  Scratch scratch;
  Columns<T> columns;
  T* v;
  Copy(int64_t m_in, int64_t n, const T* a)
      : m(m_in),
        stride((m + kWidth<T> - 1) / kWidth<T> * kWidth<T>),
        scratch(Scratch::size<T>(n * stride) + Scratch::size<T>(stride)),
        columns{scratch.take<T>(n * stride), n, stride},
        v(scratch.take<T>(stride)) {
    for (int64_t j = 0; j < n; ++j) {
      std::copy_n(a + j * m, m, columns[j]);
      std::fill(columns[j] + m, columns[j] + stride, T(0));
    }
  }
  // v: rows [first, m) of column j, zeros elsewhere.
  void take_column(int64_t j, int64_t first) {
    std::fill(v, v + first, T(0));
    std::copy(columns[j] + first, columns[j] + stride, v + first);
  }
  void put_back(T* a) const {
    for (int64_t j = 0; j < columns.n; ++j) std::copy_n(columns[j], m, a + j * m);
  }
};

template <class T>
void factor(int64_t m, int64_t n, T* a, T* tau) {
  Copy<T> copy(m, n, a);
  for (int64_t k = 0; k < std::min(m, n); ++k) {
    copy.take_column(k, k);
    const Reflection<T> h(copy.v, k, copy.stride);
    tau[k] = h.tau;
    reflect(copy.columns, k + 1, k, copy.v, h.tau);
    std::copy(copy.v + k, copy.v + m, copy.columns[k] + k);
    copy.columns[k][k] = h.beta;
  }
  copy.put_back(a);
}

template <class T>
void first_columns(int64_t m, int64_t n, int64_t reflectors, T* a, const T* tau) {
  Copy<T> copy(m, n, a);
  for (int64_t j = reflectors; j < n; ++j) {
    std::fill(copy.columns[j], copy.columns[j] + m, T(0));
    copy.columns[j][j] = 1;
  }
  for (int64_t k = reflectors - 1; k >= 0; --k) {
    copy.take_column(k, k);
    copy.v[k] = 1;
    reflect(copy.columns, k + 1, k, copy.v, tau[k]);
    T* const column = copy.columns[k];
    std::fill(column, column + k, T(0));
    for (int64_t i = k; i < m; ++i) column[i] = -tau[k] * copy.v[i];
    column[k] += 1;
  }
  copy.put_back(a);
}

}  // namespace

void geqrf(bool wide, int64_t m, int64_t n, void* a, void* tau) {
  if (wide) return factor(m, n, static_cast<double*>(a), static_cast<double*>(tau));
  factor(m, n, static_cast<float*>(a), static_cast<float*>(tau));
}

void orgqr(bool wide, int64_t m, int64_t columns, int64_t reflectors, void* a, const void* tau) {
  if (wide)
    return first_columns(m, columns, reflectors, static_cast<double*>(a),
                         static_cast<const double*>(tau));
  first_columns(m, columns, reflectors, static_cast<float*>(a), static_cast<const float*>(tau));
}

}  // namespace arete::cpu::ARETE_SIMD_TARGET
