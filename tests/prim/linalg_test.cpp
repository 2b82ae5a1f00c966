// Factors by elimination and reflection, and the systems that they solve: residuals, and the codes
// of matrices that have no answer.
#include <algorithm>
#include <cmath>

#include "tests/prim/linalg_test_support.h"

namespace arete::test::linalg {
namespace {

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
  for (int64_t n : {3, 40, 150, 270}) {
    Matrices<T> a = noise_matrices<T>(3, n, n);
    for (int64_t i = 0; i < n; ++i) a(0, i, 1) = a(2, i, 0) = T(0);
    Vectors<int32_t> pivots(3, n);
    Info info(3);
    run({.op = Op::lu, .a = a.view(), .b = pivots.view(), .info = info.view()});
    expect_info(info, {2, 0, 1});
  }
}
FOR_BOTH_TYPES(LuSaysWhereAPivotIsZero)

// Also of more rows than code of our own takes, and with columns that begin with zeros.
template <class T>
void LuSolvesSystems() {
  for (int64_t n : {1, 3, 17, 64, 150, 270})
    for (int64_t count : kCounts)
      for (int64_t columns : {1, 5, n == 17 ? 1030 : 40})
        for (bool transposed : {false, true}) {
          TRACE(n << ", " << count << " matrices, " << columns << ", transposed " << transposed);
          Matrices<T> a = noise_matrices<T>(count, n, n);
          for (int64_t b = 0; b < count; ++b)  // rows that must be exchanged, but well conditioned
            for (int64_t i = 0; i < n; ++i) a(b, i, n - 1 - i) += T(n);
          Matrices<T> right = noise_matrices<T>(count, n, columns);
          for (int64_t j = 0; j < columns; ++j)
            for (int64_t i = 0; i < j * 7 % columns * n / columns; ++i)
              right(0, i, j) = right(0, n - 1 - i, j) = T(0);
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
void triangular_case(int64_t n, int64_t count, int64_t others, bool upper, bool left, bool unit,
                     bool transposed) {
  TRACE(n << ", " << count << " matrices, " << others << ", upper " << upper << ", left " << left
          << ", unit " << unit << ", transposed " << transposed);
  // What must not be read is large.
  Matrices<T> a(count, n, n, T(1e20));
  const auto is_read = [&](int64_t i, int64_t j) { return i == j ? !unit : (i < j) == upper; };
  for (int64_t b = 0; b < count; ++b)
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j)
        if (is_read(i, j)) a(b, i, j) = T(i == j ? 2 + noise() : noise() / double(n));
  const auto value = [&](int64_t b, int64_t i, int64_t j) {
    if (transposed) std::swap(i, j);
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
       .unit = unit,
       .transposed = transposed});
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
    for (int64_t count : {1, 3, 9})
      for (int64_t others : {1, 6, n == 17 ? 530 : 21})
        for (int bits = 0; bits < 16; ++bits)
          triangular_case<T>(n, count, others, bits & 1, bits & 2, bits & 4, bits & 8);
}
FOR_BOTH_TYPES(TriangularSystemsAreSolved)

// What a system has in each of the ways that code of our own and libraries are called: on either
// side, with the triangle and its transpose, of few right sides and of several parts of them.
template <class T>
void for_each_way(const std::function<void(int64_t columns, bool left, bool transposed)>& f) {
  for (int64_t columns : {8, 40, 1030})
    for (bool left : {true, false})
      for (bool transposed : {false, true}) {
        TRACE(columns << " right sides, left " << left << ", transposed " << transposed);
        f(columns, left, transposed);
      }
}
// The triangle `a` and all right sides equal to `b`, or the transposed ones of the same system.
template <class T>
Matrices<T> solve_equal(const Matrices<T>& a, bool upper, Matrices<T> b, bool left,
                        bool transposed) {
  const int64_t n = a.rows;
  Matrices<T> f(1, n, n, T(1e20)), x = left ? b : Matrices<T>(1, b.columns, n);
  const bool turned = transposed == left;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = upper ? i : 0; j < (upper ? n : i + 1); ++j)
      turned ? f(0, j, i) = a(0, i, j) : f(0, i, j) = a(0, i, j);
  for (int64_t i = 0; !left && i < n; ++i)
    for (int64_t j = 0; j < b.columns; ++j) x(0, j, i) = b(0, i, j);
  Info info(1);
  run({.op = Op::triangular_solve,
       .a = f.view(),
       .b = x.view(),
       .info = info.view(),
       .upper = upper != turned,
       .left = left,
       .transposed = transposed});
  expect_success(info);
  for (int64_t i = 0; !left && i < n; ++i)
    for (int64_t j = 0; j < b.columns; ++j) b(0, i, j) = x(0, j, i);
  return left ? x : b;
}

// An element of the matrix by the diagonal is out of range where the solution is not.
template <class T>
void QuotientsOutOfRangeAreNotTaken() {
  ARETE_CPU_ONLY();
  constexpr bool kWide = sizeof(T) == 8;
  struct Case {
    T pivot, below, right, x0, x1;
  };
  const T small = T(kWide ? 1e-200 : 1e-25), large = T(kWide ? 1e180 : 1e20),
          least = std::numeric_limits<T>::min() / 64, tiny = T(kWide ? 1e-150 : 1e-30);
  for (const Case& c : {Case{small, large, small, 1, -large}, Case{least, 0, least, 1, 0},
                        Case{least, least, least, 1, -least},
                        Case{large, tiny, large * T(1e10), T(1e10), tiny * T(-1e10)}}) {
    for_each_way<T>([&](int64_t columns, bool left, bool transposed) {
      for (const bool upper : {false, true}) {
        const int64_t n = 20, first = upper ? n - 1 : 0, second = upper ? 2 : 17;
        Matrices<T> a(1, n, n), b(1, n, columns);
        for (int64_t i = 0; i < n; ++i) a(0, i, i) = T(1);
        a(0, first, first) = c.pivot;
        a(0, second, first) = c.below;
        for (int64_t j = 0; j < columns; ++j) b(0, first, j) = c.right;
        const Matrices<T> x = solve_equal(a, upper, b, left, transposed);
        for (int64_t j = 0; j < columns; ++j)
          for (int64_t i = 0; i < n; ++i) {
            const T want = i == first ? c.x0 : i == second ? c.x1 : T(0);
            ASSERT_NEAR(x(0, i, j), want, 4 * eps<T>() * std::abs(want)) << i << ", " << j;
          }
      }
    });
  }
}
FOR_BOTH_TYPES(QuotientsOutOfRangeAreNotTaken)

template <class T>
void FewRightSidesOverSubnormalNumbers() {
  ARETE_CPU_ONLY();
  const T least = std::numeric_limits<T>::min() / 64;
  for (const int64_t n : {1, 5, 20, 300})
    for (const int64_t columns : {1, 3, 7})
      for (const bool left : {true, false})
        for (const bool transposed : {false, true}) {
          TRACE(n << ", " << columns << " right sides, left " << left << ", transposed "
                  << transposed);
          Matrices<T> a(1, n, n), b(1, n, columns, T(1));
          for (int64_t i = 0; i < n; ++i) a(0, i, i) = T(1);
          a(0, n / 2, n / 2) = least;
          for (int64_t j = 0; j < columns; ++j) b(0, n / 2, j) = 3 * least;
          const Matrices<T> x = solve_equal(a, true, b, left, transposed);
          Vectors<int32_t> pivots(1, n);
          for (int64_t i = 0; i < n; ++i) pivots(0, i) = int32_t(i + 1);
          Info solved(1);
          run({.op = Op::lu_solve,
               .a = a.view(),
               .b = pivots.view(),
               .c = b.view(),
               .info = solved.view(),
               .transposed = transposed});
          for (int64_t j = 0; j < columns; ++j)
            for (int64_t i = 0; i < n; ++i) {
              ASSERT_EQ(x(0, i, j), i == n / 2 ? T(3) : T(1)) << i;
              ASSERT_EQ(b(0, i, j), i == n / 2 ? T(3) : T(1)) << i;
            }
        }
}
FOR_BOTH_TYPES(FewRightSidesOverSubnormalNumbers)

// Rows before a pivot of zero, or a right side that is not finite, are as without it; so are other
// right sides.
template <class T>
void WhatIsNotFiniteStaysWhereItMatters() {
  ARETE_CPU_ONLY();
  const int64_t n = 20;
  const T infinity = std::numeric_limits<T>::infinity();
  Matrices<T> a(1, n, n);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j <= i; ++j) a(0, i, j) = T(i == j ? 1 : 0.5);
  for_each_way<T>([&](int64_t columns, bool left, bool transposed) {
    const Matrices<T> ones(1, n, columns, T(1));
    Matrices<T> pivot = a, right = ones, inner = a;
    pivot(0, 5, 5) = T(0);
    right(0, 7, 3) = infinity;
    inner(0, 9, 2) = infinity;  // of a block, times a number that is not 0
    const Matrices<T> by_pivot = solve_equal(pivot, false, ones, left, transposed),
                      by_right = solve_equal(a, false, right, left, transposed),
                      by_inner = solve_equal(inner, false, ones, left, transposed);
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t i = 0; i < n; ++i) {
        const T want = T(std::ldexp(1.0, -int(i)));
        const auto expect = [&](T value, bool finite) {
          EXPECT_EQ(std::isfinite(value), finite) << i << ", " << j;
          EXPECT_TRUE(!finite || value == want) << i << ", " << j << ": " << value;
        };
        expect(by_pivot(0, i, j), i < 5);
        expect(by_right(0, i, j), i < 7 || j != 3);
        expect(by_inner(0, i, j), i < 9);
      }
    ASSERT_EQ(by_pivot(0, 5, 0), infinity);
    ASSERT_EQ(by_right(0, 7, 3), infinity);
    ASSERT_EQ(by_inner(0, 9, 0), -infinity);
  });
}
FOR_BOTH_TYPES(WhatIsNotFiniteStaysWhereItMatters)

// The factors up to the column of an infinity are as without it, and what is not finite lies in
// that column or below and beside it.
template <class T>
void LuKeepsWhatDoesNotDependOnAnInfinity() {
  ARETE_CPU_ONLY();
  for (int64_t n : {8, 40, 150}) {
    TRACE(n);
    const int64_t at = n * 3 / 4;
    Matrices<T> want = noise_matrices<T>(1, n, n);
    want(0, 3, 0) = T(2);  // the first pivot, so that all rows lose multiples of the infinity
    Matrices<T> got = want;
    got(0, 3, at) = std::numeric_limits<T>::infinity();
    Vectors<int32_t> pivots(1, n), same(1, n);
    Info info(1), success(1);
    run({.op = Op::lu, .a = got.view(), .b = pivots.view(), .info = info.view()});
    run({.op = Op::lu, .a = want.view(), .b = same.view(), .info = success.view()});
    bool found = false;
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_GE(pivots(0, i), i + 1);
      ASSERT_LE(pivots(0, i), n);
      if (i < at) {
        ASSERT_EQ(pivots(0, i), same(0, i));
      }
      for (int64_t j = 0; j < n; ++j) {
        if (!std::isfinite(got(0, i, j))) {
          EXPECT_TRUE(j == at || (i >= at && j > at)) << i << ", " << j;
          found = true;
        } else if (i < at && j != at) {
          EXPECT_NEAR(got(0, i, j), want(0, i, j), 1e4 * eps<T>()) << i << ", " << j;
        }
      }
    }
    EXPECT_TRUE(found);
    // And a system of them, which is solved as far as it goes.
    Matrices<T> x(1, n, 9, T(1));
    Info solved(1);
    run({.op = Op::lu_solve,
         .a = got.view(),
         .b = pivots.view(),
         .c = x.view(),
         .info = solved.view()});
    expect_success(solved);
    EXPECT_FALSE(std::isfinite(x(0, n - 1, 0)));
  }
}
FOR_BOTH_TYPES(LuKeepsWhatDoesNotDependOnAnInfinity)

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

}  // namespace
}  // namespace arete::test::linalg
