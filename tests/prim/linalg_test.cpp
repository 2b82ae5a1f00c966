// Dense linear algebra by what defines each result: residuals, orthogonality, and the codes of
// matrices that have no answer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <functional>
#include <limits>
#include <type_traits>
#include <vector>

#include "arete/core/layout.h"
#include "arete/prim/backend.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

using prim::LinalgArgs;
using prim::View;
using Op = LinalgArgs::Op;
using Driver = LinalgArgs::Driver;

constexpr int64_t kSizes[] = {1, 3, 17, 64, 150};
constexpr int64_t kCounts[] = {1, 3};
struct Sides {
  int64_t rows, columns;
};
constexpr Sides kShapes[] = {{1, 1},   {3, 3},   {17, 17}, {64, 64}, {150, 150}, {5, 3}, {3, 5},
                             {150, 7}, {7, 150}, {64, 17}, {17, 64}, {1, 4},     {4, 1}};

template <class T>
constexpr DType type_of() {
  if (std::is_same_v<T, double>) return kFloat64;
  if (std::is_same_v<T, float>) return kFloat32;
  if (std::is_same_v<T, std::complex<double>>) return kComplex128;
  if (std::is_same_v<T, std::complex<float>>) return kComplex64;
  return std::is_same_v<T, int64_t> ? kInt64 : kInt32;
}

// Numbers between -1 and 1.
double noise() {
  static uint64_t state = 1;
  state = state * 6364136223846793005u + 1442695040888963407u;
  return double(int64_t(state >> 11)) / double(int64_t(1) << 52) - 1;
}

// Column-major matrices; a single one has no batch dimension.
template <class T>
struct Matrices {
  int64_t count, rows, columns;
  std::vector<T> values;
  Layout layout;

  Matrices(int64_t count_in, int64_t rows_in, int64_t columns_in, T value = T(0))
      : count(count_in),
        rows(rows_in),
        columns(columns_in),
        values(size_t(count * rows * columns), value) {
    layout = count == 1 ? Layout(Shape{columns, rows}) : Layout(Shape{count, columns, rows});
    layout = transpose(layout, -1, -2);
  }
  T& operator()(int64_t b, int64_t i, int64_t j) {
    return values[size_t((b * columns + j) * rows + i)];
  }
  const T& operator()(int64_t b, int64_t i, int64_t j) const {
    return values[size_t((b * columns + j) * rows + i)];
  }
  View view() const {
    View v;
    v.data = reinterpret_cast<std::byte*>(const_cast<T*>(values.data()));
    v.dtype = type_of<T>();
    v.sizes = layout.sizes;
    v.strides = layout.strides;
    return v;
  }
  double largest() const {
    double m = 0;
    for (const T& x : values) m = std::max(m, double(std::abs(x)));
    return m;
  }
};
template <class T>
struct Vectors : Matrices<T> {
  Vectors(int64_t count, int64_t n, T value = T(0)) : Matrices<T>(count, n, 1, value) {
    this->layout = count == 1 ? Layout(Shape{n}) : Layout(Shape{count, n});
  }
  T& operator()(int64_t b, int64_t i) { return this->values[size_t(b * this->rows + i)]; }
  const T& operator()(int64_t b, int64_t i) const {
    return this->values[size_t(b * this->rows + i)];
  }
};
struct Info : Vectors<int32_t> {
  explicit Info(int64_t count) : Vectors<int32_t>(count, 1, 12345) {
    layout = count == 1 ? Layout(Shape{}) : Layout(Shape{count});
  }
};

template <class T>
Matrices<T> noise_matrices(int64_t count, int64_t rows, int64_t columns) {
  Matrices<T> m(count, rows, columns);
  for (T& x : m.values) x = T(noise());
  return m;
}
// Symmetric and positive definite.
template <class T>
Matrices<T> definite_matrices(int64_t count, int64_t n) {
  Matrices<T> m(count, n, n);
  for (int64_t b = 0; b < count; ++b)
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j <= i; ++j)
        m(b, i, j) = m(b, j, i) = T(i == j ? 1.5 : noise() / double(n));
  return m;
}

void run(const LinalgArgs& l) { backend_under_test().linalg(l); }

void expect_info(const Info& info, const std::vector<int32_t>& codes) {
  EXPECT_EQ(info.values, codes);
}
void expect_success(const Info& info) {
  expect_info(info, std::vector<int32_t>(info.values.size(), 0));
}

template <class T>
double eps() {
  return double(std::numeric_limits<T>::epsilon());
}
// error(b, i, j) over all elements, in rounding errors of numbers of size `scale` times the length
// of the sums.
template <class T>
double worst(int64_t count, int64_t rows, int64_t columns, int64_t length, double scale,
             const std::function<double(int64_t, int64_t, int64_t)>& error) {
  double most = 0;
  for (int64_t b = 0; b < count; ++b)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) {
        const double e = std::fabs(error(b, i, j));
        if (!(e <= most)) most = std::isnan(e) ? HUGE_VAL : e;
      }
  return most / (eps<T>() * double(std::max<int64_t>(length, 4)) * std::max(scale, 1e-300));
}
constexpr double kLimit = 10;

// Columns [0, n) of q are orthonormal.
template <class T>
void expect_orthonormal_columns(const Matrices<T>& q) {
  const double e = worst<T>(q.count, q.columns, q.columns, q.rows, 1, [&](auto b, auto i, auto j) {
    double sum = 0;
    for (int64_t r = 0; r < q.rows; ++r) sum += double(q(b, r, i)) * double(q(b, r, j));
    return sum - double(i == j);
  });
  EXPECT_LT(e, kLimit);
}
template <class T>
void expect_orthonormal_rows(const Matrices<T>& q) {
  Matrices<T> t(q.count, q.columns, q.rows);
  for (int64_t b = 0; b < q.count; ++b)
    for (int64_t i = 0; i < q.rows; ++i)
      for (int64_t j = 0; j < q.columns; ++j) t(b, j, i) = q(b, i, j);
  expect_orthonormal_columns(t);
}

#define FOR_BOTH_TYPES(name) \
  TEST(Linalg, name) {       \
    {                        \
      SCOPED_TRACE("f32");   \
      name<float>();         \
    }                        \
    {                        \
      SCOPED_TRACE("f64");   \
      name<double>();        \
    }                        \
  }
#define TRACE(what) SCOPED_TRACE(::testing::Message() << what)

// ---- Cholesky

template <class T>
void CholeskyFactorsGiveTheMatrixBack() {
  for (int64_t n : kSizes)
    for (int64_t count : kCounts)
      for (bool upper : {false, true}) {
        TRACE(n << ", " << count << " matrices, upper " << upper);
        const Matrices<T> a = definite_matrices<T>(count, n);
        Matrices<T> f = a;
        const auto is_other = [&](int64_t i, int64_t j) { return upper ? i > j : i < j; };
        for (int64_t b = 0; b < count; ++b)
          for (int64_t i = 0; i < n; ++i)
            for (int64_t j = 0; j < n; ++j)
              if (is_other(i, j)) f(b, i, j) = T(-7);
        Info info(count);
        run({.op = Op::cholesky, .a = f.view(), .info = info.view(), .upper = upper});
        expect_success(info);
        int64_t changed = 0;
        for (int64_t b = 0; b < count; ++b)
          for (int64_t i = 0; i < n; ++i)
            for (int64_t j = 0; j < n; ++j) changed += is_other(i, j) && f(b, i, j) != T(-7);
        EXPECT_EQ(changed, 0);
        const double e = worst<T>(count, n, n, n, a.largest(), [&](auto b, auto i, auto j) {
          double sum = 0;
          for (int64_t k = 0; k <= std::min(i, j); ++k)
            sum += upper ? double(f(b, k, i)) * double(f(b, k, j))
                         : double(f(b, i, k)) * double(f(b, j, k));
          return sum - double(a(b, i, j));
        });
        EXPECT_LT(e, kLimit);
      }
}
FOR_BOTH_TYPES(CholeskyFactorsGiveTheMatrixBack)

template <class T>
void CholeskySaysWhichMinorIsNotPositive() {
  for (int64_t n : {3, 40, 150}) {
    Matrices<T> a = definite_matrices<T>(3, n);
    a(1, 2, 2) = T(-1);
    a(2, 0, 0) = T(0);
    Info info(3);
    run({.op = Op::cholesky, .a = a.view(), .info = info.view()});
    expect_info(info, {0, 3, 1});
  }
}
FOR_BOTH_TYPES(CholeskySaysWhichMinorIsNotPositive)

// ---- LU

template <class T>
void LuFactorsGiveTheMatrixBack() {
  for (const auto [m, n] : kShapes)
    for (int64_t count : kCounts) {
      TRACE(m << " x " << n << ", " << count << " matrices");
      const int64_t k = std::min(m, n);
      const Matrices<T> a = noise_matrices<T>(count, m, n);
      Matrices<T> f = a, permuted = a;
      Vectors<int32_t> pivots(count, k, -1);
      Info info(count);
      run({.op = Op::lu, .a = f.view(), .b = pivots.view(), .info = info.view()});
      expect_success(info);
      for (int64_t b = 0; b < count; ++b)
        for (int64_t i = 0; i < k; ++i) {
          const int64_t p = pivots(b, i) - 1;
          ASSERT_GE(p, i);
          ASSERT_LT(p, m);
          for (int64_t j = 0; j < n; ++j) std::swap(permuted(b, i, j), permuted(b, p, j));
        }
      const double e = worst<T>(count, m, n, k, f.largest(), [&](auto b, auto i, auto j) {
        double sum = 0;
        for (int64_t r = 0; r < std::min({i, j + 1, k}); ++r)
          sum += double(f(b, i, r)) * double(f(b, r, j));
        if (i <= j && i < k) sum += double(f(b, i, j));  // times the ones of L
        return sum - double(permuted(b, i, j));
      });
      EXPECT_LT(e, kLimit);
      double multiplier = 0;
      for (int64_t b = 0; b < count; ++b)
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < std::min(i, k); ++j)
            multiplier = std::max(multiplier, double(std::abs(f(b, i, j))));
      EXPECT_LE(multiplier, 1 + 4 * eps<T>());
    }
}
FOR_BOTH_TYPES(LuFactorsGiveTheMatrixBack)

template <class T>
void LuSaysWhereAPivotIsZero() {
  for (int64_t n : {3, 40, 150}) {
    Matrices<T> a = noise_matrices<T>(3, n, n);
    for (int64_t i = 0; i < n; ++i) a(0, i, 1) = a(2, i, 0) = T(0);
    Vectors<int32_t> pivots(3, n);
    Info info(3);
    run({.op = Op::lu, .a = a.view(), .b = pivots.view(), .info = info.view()});
    expect_info(info, {2, 0, 1});
  }
}
FOR_BOTH_TYPES(LuSaysWhereAPivotIsZero)

template <class T>
void LuSolvesSystems() {
  for (int64_t n : kSizes)
    for (int64_t count : kCounts)
      for (int64_t columns : {1, 5})
        for (bool transposed : {false, true}) {
          TRACE(n << ", " << count << " matrices, " << columns << ", transposed " << transposed);
          Matrices<T> a = noise_matrices<T>(count, n, n);
          for (int64_t b = 0; b < count; ++b)  // rows that must be exchanged, but well conditioned
            for (int64_t i = 0; i < n; ++i) a(b, i, n - 1 - i) += T(n);
          const Matrices<T> right = noise_matrices<T>(count, n, columns);
          Matrices<T> f = a, x = right;
          Vectors<int32_t> pivots(count, n);
          Info info(count), solved(count);
          run({.op = Op::lu, .a = f.view(), .b = pivots.view(), .info = info.view()});
          run({.op = Op::lu_solve,
               .a = f.view(),
               .b = pivots.view(),
               .c = x.view(),
               .info = solved.view(),
               .transposed = transposed});
          expect_success(info);
          expect_success(solved);
          const double scale = a.largest() * x.largest();
          const double e = worst<T>(count, n, columns, n, scale, [&](auto b, auto i, auto j) {
            double sum = -double(right(b, i, j));
            for (int64_t k = 0; k < n; ++k)
              sum += double(transposed ? a(b, k, i) : a(b, i, k)) * double(x(b, k, j));
            return sum;
          });
          EXPECT_LT(e, kLimit);
        }
}
FOR_BOTH_TYPES(LuSolvesSystems)

// ---- triangular systems

template <class T>
void triangular_case(int64_t n, int64_t count, int64_t others, bool upper, bool left, bool unit) {
  TRACE(n << ", " << count << " matrices, " << others << ", upper " << upper << ", left " << left
          << ", unit " << unit);
  // What must not be read is large.
  Matrices<T> a(count, n, n, T(1e20));
  const auto is_read = [&](int64_t i, int64_t j) { return i == j ? !unit : (i < j) == upper; };
  for (int64_t b = 0; b < count; ++b)
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j)
        if (is_read(i, j)) a(b, i, j) = T(i == j ? 2 + noise() : noise() / double(n));
  const auto value = [&](int64_t b, int64_t i, int64_t j) {
    return is_read(i, j) ? double(a(b, i, j)) : double(i == j);
  };
  const Matrices<T> right =
      left ? noise_matrices<T>(count, n, others) : noise_matrices<T>(count, others, n);
  Matrices<T> x = right;
  Info info(count);
  run({.op = Op::triangular_solve,
       .a = a.view(),
       .b = x.view(),
       .info = info.view(),
       .upper = upper,
       .left = left,
       .unit = unit});
  expect_success(info);
  const double e =
      worst<T>(count, right.rows, right.columns, n, 3 * x.largest(), [&](auto b, auto i, auto j) {
        double sum = -double(right(b, i, j));
        for (int64_t k = 0; k < n; ++k)
          sum += left ? value(b, i, k) * double(x(b, k, j)) : double(x(b, i, k)) * value(b, k, j);
        return sum;
      });
  EXPECT_LT(e, kLimit);
}
template <class T>
void TriangularSystemsAreSolved() {
  for (int64_t n : kSizes)
    for (int64_t count : kCounts)
      for (int64_t others : {1, 6})
        for (int bits = 0; bits < 8; ++bits)
          triangular_case<T>(n, count, others, bits & 1, bits & 2, bits & 4);
}
FOR_BOTH_TYPES(TriangularSystemsAreSolved)

// ---- QR

template <class T>
void QrFactorsGiveTheMatrixBack() {
  for (const auto [m, n] : kShapes)
    for (int64_t count : kCounts)
      for (bool complete : {false, true}) {
        TRACE(m << " x " << n << ", " << count << " matrices, complete " << complete);
        const int64_t k = std::min(m, n), columns = complete ? m : k;
        const Matrices<T> a = noise_matrices<T>(count, m, n);
        Matrices<T> f = a, q(count, m, columns, T(7));
        Vectors<T> tau(count, k);
        Info info(count), made(count);
        run({.op = Op::qr, .a = f.view(), .b = tau.view(), .info = info.view()});
        for (int64_t b = 0; b < count; ++b)
          for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < k; ++j) q(b, i, j) = f(b, i, j);
        run({.op = Op::qr_vectors, .a = q.view(), .b = tau.view(), .info = made.view()});
        expect_success(info);
        expect_success(made);
        expect_orthonormal_columns(q);
        const double e = worst<T>(count, m, n, m, a.largest(), [&](auto b, auto i, auto j) {
          double sum = -double(a(b, i, j));
          for (int64_t r = 0; r <= std::min(j, k - 1); ++r)
            sum += double(q(b, i, r)) * double(f(b, r, j));
          return sum;
        });
        EXPECT_LT(e, kLimit);
      }
}
FOR_BOTH_TYPES(QrFactorsGiveTheMatrixBack)

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

// ---- least squares

template <class T>
void least_squares_case(int64_t m, int64_t n, int64_t count, int64_t columns, Driver driver) {
  TRACE(m << " x " << n << ", " << count << " matrices, " << columns << ", driver " << int(driver));
  const int64_t k = std::min(m, n), rows = std::max(m, n);
  Matrices<T> a = noise_matrices<T>(count, m, n);
  for (int64_t b = 0; b < count; ++b)
    for (int64_t i = 0; i < k; ++i) a(b, i, i) += T(k);
  Matrices<T> x = noise_matrices<T>(count, rows, columns), lost = a;
  const Matrices<T> right = x;
  Vectors<int64_t> ranks_of_one(count, 1, -1);
  ranks_of_one.layout = count == 1 ? Layout(Shape{}) : Layout(Shape{count});
  Vectors<T> s(count, k, T(-1));
  Info info(count);
  run({.op = Op::least_squares,
       .a = lost.view(),
       .b = x.view(),
       .c = ranks_of_one.view(),
       .d = s.view(),
       .info = info.view(),
       .driver = driver,
       .rcond = eps<T>() * double(rows)});
  expect_success(info);
  EXPECT_EQ(ranks_of_one.values, std::vector<int64_t>(size_t(count), k));
  Matrices<double> residual(count, m, columns);
  for (int64_t b = 0; b < count; ++b)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < columns; ++j) {
        double sum = -double(right(b, i, j));
        for (int64_t r = 0; r < n; ++r) sum += double(a(b, i, r)) * double(x(b, r, j));
        residual(b, i, j) = sum;
      }
  const double size = a.largest() * std::max(x.largest(), 1.0);
  if (m <= n) {
    const double e = worst<T>(count, m, columns, n, size,
                              [&](auto b, auto i, auto j) { return residual(b, i, j); });
    EXPECT_LT(e, kLimit);
  } else {  // A^T (A X - B) = 0, and the rest of b has the residual's length
    const double e =
        worst<T>(count, n, columns, m, size * a.largest(), [&](auto b, auto i, auto j) {
          double sum = 0;
          for (int64_t r = 0; r < m; ++r) sum += double(a(b, r, i)) * residual(b, r, j);
          return sum;
        });
    EXPECT_LT(e, kLimit);
    const bool in_basis = driver != Driver::gelsy;
    for (int64_t b = 0; in_basis && b < count; ++b)
      for (int64_t j = 0; j < columns; ++j) {
        double expected = 0, got = 0;
        for (int64_t i = 0; i < m; ++i) expected += residual(b, i, j) * residual(b, i, j);
        for (int64_t i = n; i < m; ++i) got += double(x(b, i, j)) * double(x(b, i, j));
        EXPECT_NEAR(got, expected, kLimit * eps<T>() * double(m) * (1 + expected));
      }
  }
  for (int64_t b = 0; b < count; ++b) {
    double squares = 0, norm = 0;
    for (int64_t i = 0; i < k; ++i) squares += double(s(b, i)) * double(s(b, i));
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) norm += double(a(b, i, j)) * double(a(b, i, j));
    if (driver == Driver::gelsd || driver == Driver::gelss)
      EXPECT_NEAR(squares, norm, kLimit * eps<T>() * double(rows) * norm);
    else
      EXPECT_EQ(squares, 0) << "no driver that finds singular values";
  }
}
template <class T>
void LeastSquaresFulfilTheNormalEquations() {
  for (const auto [m, n] : {Sides{1, 1}, Sides{3, 3}, Sides{17, 5}, Sides{5, 17}, Sides{64, 64},
                            Sides{150, 64}, Sides{64, 150}, Sides{40, 1}})
    for (int64_t count : kCounts)
      for (int64_t columns : {1, 4})
        for (Driver d : {Driver::gels, Driver::gelsy, Driver::gelsd, Driver::gelss})
          least_squares_case<T>(m, n, count, columns, d);
}
FOR_BOTH_TYPES(LeastSquaresFulfilTheNormalEquations)

template <class T>
void GelsSaysWhereAColumnIsMissing() {
  Matrices<T> a = noise_matrices<T>(3, 9, 4), b = noise_matrices<T>(3, 9, 2);
  for (int64_t i = 0; i < 9; ++i) a(0, i, 1) = a(2, i, 0) = T(0);
  Vectors<int64_t> ranks(3, 1);
  ranks.layout = Layout(Shape{3});
  Vectors<T> s(3, 4);
  Info info(3);
  run({.op = Op::least_squares,
       .a = a.view(),
       .b = b.view(),
       .c = ranks.view(),
       .d = s.view(),
       .info = info.view()});
  expect_info(info, {2, 0, 1});
}
FOR_BOTH_TYPES(GelsSaysWhereAColumnIsMissing)

// ---- the rest

template <class T>
void NothingIsNothing() {
  Matrices<T> none(0, 3, 3);
  Info no_info(0);
  run({.op = Op::cholesky, .a = none.view(), .info = no_info.view()});
  Matrices<T> empty(3, 0, 0), right(3, 0, 2);
  Vectors<int32_t> pivots(3, 0);
  Info info(3), solved(3), definite(3);
  run({.op = Op::cholesky, .a = empty.view(), .info = definite.view()});
  run({.op = Op::lu, .a = empty.view(), .b = pivots.view(), .info = info.view()});
  run({.op = Op::lu_solve,
       .a = empty.view(),
       .b = pivots.view(),
       .c = right.view(),
       .info = solved.view()});
  expect_success(info);
  expect_success(solved);
  expect_success(definite);
  // No reflections at all make identities.
  Matrices<T> q(3, 4, 4, T(7));
  Vectors<T> tau(3, 0);
  Info made(3);
  run({.op = Op::qr_vectors, .a = q.view(), .b = tau.view(), .info = made.view()});
  expect_success(made);
  for (int64_t b = 0; b < 3; ++b)
    for (int64_t i = 0; i < 4; ++i)
      for (int64_t j = 0; j < 4; ++j) EXPECT_EQ(q(b, i, j), T(i == j));
}
FOR_BOTH_TYPES(NothingIsNothing)

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
}  // namespace arete::test
