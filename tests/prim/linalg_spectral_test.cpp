// Singular values and eigenvalues: residuals, orthogonality, matrices of lost rank or without
// answer.
#include <algorithm>
#include <complex>

#include "tests/prim/linalg_test_support.h"

namespace arete::test::linalg {
namespace {

// ---- singular values

template <class T>
struct Svd {
  Vectors<T> s;
  Matrices<T> u, vt;
  Info info;
  Svd(const Matrices<T>& a, bool full)
      : s(a.count, std::min(a.rows, a.columns)),
        u(a.count, a.rows, full ? a.rows : s.rows),
        vt(a.count, full ? a.columns : s.rows, a.columns),
        info(a.count) {
    Matrices<T> lost = a;
    run({.op = Op::svd,
         .a = lost.view(),
         .b = s.view(),
         .c = u.view(),
         .d = vt.view(),
         .info = info.view()});
  }
};

template <class T>
void expect_svd(const Matrices<T>& a, const Svd<T>& r) {
  expect_orthonormal_columns(r.u);
  expect_orthonormal_rows(r.vt);
  for (int64_t b = 0; b < a.count; ++b)
    for (int64_t i = 0; i < r.s.rows; ++i) {
      EXPECT_GE(r.s(b, i), T(0));
      EXPECT_LE(r.s(b, i), r.s(b, std::max<int64_t>(i - 1, 0)));
    }
  const int64_t length = std::max(a.rows, a.columns);
  const double e =
      worst<T>(a.count, a.rows, a.columns, length, r.s.largest(), [&](auto b, auto i, auto j) {
        double sum = -double(a(b, i, j));
        for (int64_t k = 0; k < r.s.rows; ++k)
          sum += double(r.u(b, i, k)) * double(r.s(b, k)) * double(r.vt(b, k, j));
        return sum;
      });
  EXPECT_LT(e, kLimit);
}

template <class T>
void SvdFactorsGiveTheMatrixBack() {
  for (const auto [m, n] : kShapes)
    for (int64_t count : kCounts)
      for (bool full : {false, true}) {
        TRACE(m << " x " << n << ", " << count << " matrices, full " << full);
        const Matrices<T> a = noise_matrices<T>(count, m, n);
        const Svd<T> r(a, full);
        expect_success(r.info);
        expect_svd(a, r);
        Matrices<T> lost = a;
        Vectors<T> only(count, r.s.rows);
        Info info(count);
        run({.op = Op::svd, .a = lost.view(), .b = only.view(), .info = info.view()});
        expect_success(info);
        const double e =
            worst<T>(count, r.s.rows, 1, std::max(m, n), r.s.largest(),
                     [&](auto b, auto i, auto) { return double(only(b, i)) - double(r.s(b, i)); });
        EXPECT_LT(e, kLimit);
      }
}
FOR_BOTH_TYPES(SvdFactorsGiveTheMatrixBack)

template <class T>
void SvdOfLostRank() {
  for (const auto [m, n] : {Sides{17, 17}, Sides{40, 9}, Sides{9, 40}}) {
    TRACE(m << " x " << n);
    Matrices<T> a(3, m, n);  // rank 1, zero, and equal values
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        a(0, i, j) = T(double(i + 1) / double(j + 1));
        a(2, i, j) = T(i == j ? 2 : 0);
      }
    const Svd<T> r(a, true);
    expect_success(r.info);
    expect_svd(a, r);
    EXPECT_LT(double(r.s(0, 1)), 50 * eps<T>() * double(r.s(0, 0)));
    EXPECT_EQ(double(r.s(1, 0)), 0);
  }
}
FOR_BOTH_TYPES(SvdOfLostRank)

// Whether every element of matrix b is NaN, or none is.
enum class Nans { all, none, some };
template <class T>
Nans nans_of(const Matrices<T>& m, int64_t b) {
  int64_t found = 0;
  const int64_t size = m.rows * m.columns;
  for (int64_t i = 0; i < size; ++i) {
    const std::complex<double> x = m.values[size_t(b * size + i)];
    found += std::isnan(x.real()) || std::isnan(x.imag());
  }
  return found == 0 ? Nans::none : found == size ? Nans::all : Nans::some;
}
template <class T>
Matrices<T> with_non_finite(int64_t rows, int64_t columns) {
  Matrices<T> a = noise_matrices<T>(3, rows, columns);
  a(1, rows - 1, 0) = std::numeric_limits<T>::quiet_NaN();
  a(2, 0, 0) = -std::numeric_limits<T>::infinity();
  return a;
}

template <class T>
void NonFiniteMatricesHaveNoSvd() {
  for (const auto [m, n] : {Sides{5, 5}, Sides{40, 9}, Sides{9, 40}, Sides{70, 70}})
    for (bool full : {false, true}) {
      TRACE(m << " x " << n << ", full " << full);
      const Svd<T> r(with_non_finite<T>(m, n), full);
      expect_info(r.info, {0, -1, -1});
      for (int64_t b = 0; b < 3; ++b) {
        const Nans expected = b ? Nans::all : Nans::none;
        EXPECT_EQ(nans_of(r.s, b), expected);
        EXPECT_EQ(nans_of(r.u, b), expected);
        EXPECT_EQ(nans_of(r.vt, b), expected);
      }
    }
}
FOR_BOTH_TYPES(NonFiniteMatricesHaveNoSvd)

// ---- eigenvalues

template <class T>
void SymmetricEigenvectorsAreOrthonormal() {
  for (int64_t n : kSizes)
    for (int64_t count : kCounts)
      for (bool upper : {false, true}) {
        TRACE(n << ", " << count << " matrices, upper " << upper);
        Matrices<T> a = noise_matrices<T>(count, n, n);
        Matrices<T> v = a, lost = a;
        for (int64_t b = 0; b < count; ++b)
          for (int64_t i = 0; i < n; ++i)
            for (int64_t j = 0; j < i; ++j)
              (upper ? a(b, i, j) : a(b, j, i)) = upper ? a(b, j, i) : a(b, i, j);
        Vectors<T> w(count, n), only(count, n);
        Info info(count), info_only(count);
        run({.op = Op::symmetric_eigen,
             .a = v.view(),
             .b = w.view(),
             .info = info.view(),
             .upper = upper});
        run({.op = Op::symmetric_eigen,
             .a = lost.view(),
             .b = only.view(),
             .info = info_only.view(),
             .upper = upper,
             .vectors = false});
        expect_success(info);
        expect_success(info_only);
        expect_orthonormal_columns(v);
        for (int64_t b = 0; b < count; ++b)
          for (int64_t i = 1; i < n; ++i) EXPECT_LE(w(b, i - 1), w(b, i));
        const double scale = std::max(w.largest(), a.largest());
        const double e = worst<T>(count, n, n, n, scale, [&](auto b, auto i, auto j) {
          double sum = -double(w(b, j)) * double(v(b, i, j));
          for (int64_t k = 0; k < n; ++k) sum += double(a(b, i, k)) * double(v(b, k, j));
          return sum;
        });
        EXPECT_LT(e, kLimit);
        const double difference = worst<T>(count, n, 1, n, scale, [&](auto b, auto i, auto) {
          return double(w(b, i)) - double(only(b, i));
        });
        EXPECT_LT(difference, kLimit);
      }
}
FOR_BOTH_TYPES(SymmetricEigenvectorsAreOrthonormal)

template <class T>
void NonFiniteMatricesHaveNoEigenvalues() {
  for (int64_t n : {4, 17, 70}) {
    TRACE(n);
    Matrices<T> a = with_non_finite<T>(n, n), v = a;
    Vectors<T> w(3, n);
    Info info(3);
    run({.op = Op::symmetric_eigen, .a = v.view(), .b = w.view(), .info = info.view()});
    expect_info(info, {0, -1, -1});
    Vectors<std::complex<T>> values(3, n);
    Matrices<std::complex<T>> vectors(3, n, n);
    Info general(3);
    run({.op = Op::eigen,
         .a = a.view(),
         .b = values.view(),
         .c = vectors.view(),
         .info = general.view()});
    expect_info(general, {0, -1, -1});
    for (int64_t b = 0; b < 3; ++b) {
      const Nans expected = b ? Nans::all : Nans::none;
      EXPECT_EQ(nans_of(w, b), expected);
      EXPECT_EQ(nans_of(v, b), expected);
      EXPECT_EQ(nans_of(values, b), expected);
      EXPECT_EQ(nans_of(vectors, b), expected);
    }
  }
}
FOR_BOTH_TYPES(NonFiniteMatricesHaveNoEigenvalues)

template <class T>
void EigenvectorsAreOnlyStretched() {
  for (int64_t n : kSizes)
    for (int64_t count : kCounts) {
      TRACE(n << ", " << count << " matrices");
      const Matrices<T> a = noise_matrices<T>(count, n, n);
      Matrices<T> lost = a, lost_too = a;
      Vectors<std::complex<T>> w(count, n), only(count, n);
      Matrices<std::complex<T>> v(count, n, n);
      Info info(count), info_only(count);
      run({.op = Op::eigen, .a = lost.view(), .b = w.view(), .c = v.view(), .info = info.view()});
      run({.op = Op::eigen, .a = lost_too.view(), .b = only.view(), .info = info_only.view()});
      expect_success(info);
      expect_success(info_only);
      using Complex = std::complex<double>;
      const double e = worst<T>(count, n, n, n, w.largest(), [&](auto b, auto i, auto j) {
        Complex sum = -Complex(w(b, j)) * Complex(v(b, i, j));
        for (int64_t k = 0; k < n; ++k) sum += double(a(b, i, k)) * Complex(v(b, k, j));
        return std::abs(sum);
      });
      EXPECT_LT(e, kLimit);
      for (int64_t b = 0; b < count; ++b) {
        Complex trace, sum, sum_only;
        for (int64_t i = 0; i < n; ++i) {
          double length = 0;
          for (int64_t j = 0; j < n; ++j) length += std::norm(Complex(v(b, j, i)));
          EXPECT_NEAR(length, 1, 100 * eps<T>());
          trace += double(a(b, i, i)), sum += Complex(w(b, i)), sum_only += Complex(only(b, i));
        }
        const double limit = kLimit * double(n) * eps<T>() * w.largest() * 4;
        EXPECT_LT(std::abs(trace - sum), limit);
        EXPECT_LT(std::abs(trace - sum_only), limit);
      }
    }
}
FOR_BOTH_TYPES(EigenvectorsAreOnlyStretched)

// What a backend without a library inherits gives the CPU's results in its own memory.
template <class T>
void TheFallbackIsTheCpu() {
  prim::Backend& device = backend_under_test();
  prim::Backend& cpu = prim::backend_for(kCPU);
  const Matrices<T> a = noise_matrices<T>(3, 17, 9);
  Matrices<T> here = a, there = a, u(3, 17, 9), u2 = u, vt(3, 9, 9), vt2 = vt;
  Vectors<T> s(3, 9), s2 = s;
  Info info(3), info2(3);
  device.prim::Backend::linalg({.op = Op::svd,
                                .a = here.view(),
                                .b = s.view(),
                                .c = u.view(),
                                .d = vt.view(),
                                .info = info.view()});
  cpu.linalg({.op = Op::svd,
              .a = there.view(),
              .b = s2.view(),
              .c = u2.view(),
              .d = vt2.view(),
              .info = info2.view()});
  expect_success(info);
  EXPECT_EQ(s.values, s2.values);
  EXPECT_EQ(u.values, u2.values);
  EXPECT_EQ(vt.values, vt2.values);
  Matrices<T> square = definite_matrices<T>(1, 5), v = square, v2 = square;
  Vectors<T> w(1, 5), w2 = w;
  Info one(1), one2(1);
  device.prim::Backend::linalg(
      {.op = Op::symmetric_eigen, .a = v.view(), .b = w.view(), .info = one.view()});
  cpu.linalg({.op = Op::symmetric_eigen, .a = v2.view(), .b = w2.view(), .info = one2.view()});
  expect_success(one);
  EXPECT_EQ(w.values, w2.values);
  EXPECT_EQ(v.values, v2.values);
}
FOR_BOTH_TYPES(TheFallbackIsTheCpu)

}  // namespace
}  // namespace arete::test::linalg
