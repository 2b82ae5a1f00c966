// What the tests of linear algebra share: column-major matrices, and measures of what defines a
// result.
#pragma once

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

namespace arete::test::linalg {

using prim::LinalgArgs;
using prim::View;
using Op = LinalgArgs::Op;
using Driver = LinalgArgs::Driver;

inline constexpr int64_t kSizes[] = {1, 3, 17, 64, 150};
inline constexpr int64_t kCounts[] = {1, 3};
struct Sides {
  int64_t rows, columns;
};
inline constexpr Sides kShapes[] = {{1, 1},   {3, 3}, {17, 17}, {64, 64}, {150, 150},
                                    {5, 3},   {3, 5}, {150, 7}, {7, 150}, {64, 17},
                                    {17, 64}, {1, 4}, {4, 1}};

template <class T>
constexpr DType type_of() {
  if (std::is_same_v<T, double>) return kFloat64;
  if (std::is_same_v<T, float>) return kFloat32;
  if (std::is_same_v<T, std::complex<double>>) return kComplex128;
  if (std::is_same_v<T, std::complex<float>>) return kComplex64;
  return std::is_same_v<T, int64_t> ? kInt64 : kInt32;
}

// Numbers between -1 and 1.
inline double noise() {
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
    return {reinterpret_cast<std::byte*>(const_cast<T*>(values.data())), type_of<T>(), layout.sizes,
            layout.strides};
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

inline void run(const LinalgArgs& l) { backend_under_test().linalg(l); }

inline void expect_info(const Info& info, const std::vector<int32_t>& codes) {
  EXPECT_EQ(info.values, codes);
}
inline void expect_success(const Info& info) {
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
inline constexpr double kLimit = 10;

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

}  // namespace arete::test::linalg
