// Least squares by the normal equations, with each driver.
#include <algorithm>

#include "tests/prim/linalg_test_support.h"

namespace arete::test::linalg {
namespace {

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

}  // namespace
}  // namespace arete::test::linalg
