// sort, topk and arg_reduce against a stable sort of doubles.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "arete/base/error.h"
#include "arete/prim/backend.h"
#include "tests/prim/ordering_reference.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

using prim::View;

// The lane through `index` along `dim`.
std::vector<double> lane(const GuardedBuffer& b, Shape index, int dim) {
  std::vector<double> out;
  if (b.layout().rank() == 0) return {b.get({})};
  for (index[dim] = 0; index[dim] < b.layout().sizes[dim]; ++index[dim])
    out.push_back(b.get(index));
  return out;
}

// Many equal values, both zeros, infinities and NaN.
void fill_ties(GuardedBuffer& b, std::mt19937_64& rng) {
  b.fill_random(rng, -5, 5);
  if (!is_floating(b.dtype())) return;
  for (IndexWalk w(b.layout().sizes); w; ++w) {
    const uint64_t r = rng() % 16;
    if (r == 0) b.set(*w, std::nan(""));
    if (r == 1) b.set(*w, -0.0);
    if (r == 2 && b.dtype() != kFloat8E4M3) b.set(*w, std::numeric_limits<double>::infinity());
    if (r == 3 && b.dtype() != kFloat8E4M3) b.set(*w, -std::numeric_limits<double>::infinity());
  }
}

// Shapes with lanes that are short, medium (radix) and many.
std::vector<Shape> shapes() {
  return {{}, {0}, {1}, {37}, {3, 0, 2}, {2, 3, 5}, {3, 1500}, {1030, 3}};
}

void check_sort(DType dtype, const Layout& layout, const Layout& out_layout, int dim,
                bool descending, std::mt19937_64& rng) {
  GuardedBuffer in(dtype, layout), values(dtype, out_layout), indices(kInt64, out_layout);
  fill_ties(in, rng);
  backend_under_test().sort({.in = in.view(),
                             .values = values.view(),
                             .indices = indices.view(),
                             .dim = dim,
                             .descending = descending});
  ASSERT_TRUE(in.guards_intact() && values.guards_intact() && indices.guards_intact());
  for (IndexWalk w(layout.sizes); w; ++w) {
    if (layout.rank() > 0 && (*w)[dim] != 0) continue;
    const std::vector<double> v = lane(in, *w, dim);
    const std::vector<int64_t> order = sorted_positions(v, descending);
    const std::vector<double> got = lane(values, *w, dim), at = lane(indices, *w, dim);
    for (size_t i = 0; i < v.size(); ++i) {
      ASSERT_EQ(int64_t(at[i]), order[i]) << name_of(dtype) << " position " << i;
      ASSERT_TRUE(same_value(got[i], v[size_t(order[i])]));
      ASSERT_EQ(std::signbit(got[i]), std::signbit(v[size_t(order[i])]));
    }
  }
}

TEST(Sort, EveryDtypeLayoutAndDimension) {
  std::mt19937_64 rng(1);
  for (DType dtype : real_dtypes())
    for (const Shape& sizes : shapes())
      for (int dim = 0; dim < std::max(1, int(sizes.size())); ++dim)
        for (bool descending : {false, true}) {
          const auto inputs = input_layouts(sizes);
          const auto outputs = dense_and_strided_layouts(sizes);
          const size_t k = rng() % inputs.size();
          check_sort(dtype, inputs[k], outputs[rng() % outputs.size()], dim, descending, rng);
          if (HasFatalFailure()) return;
        }
}

TEST(Sort, LongLanesOnSeveralThreads) {
  std::mt19937_64 rng(2);
  for (DType dtype : {kFloat32, kInt64, kFloat16, kUInt8, kFloat64}) {
    const int64_t n = (1 << 16) + 77;
    GuardedBuffer in(dtype, Shape{n}), values(dtype, Shape{n}), indices(kInt64, Shape{n});
    in.fill(
        [&](IntList) { return double(int64_t(rng() % 200000) - (dtype == kUInt8 ? 0 : 100000)); });
    backend_under_test().sort(
        {.in = in.view(), .values = values.view(), .indices = indices.view(), .dim = 0});
    const std::vector<double> v = in.values();
    const std::vector<int64_t> order = sorted_positions(v, false);
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(indices.at<int64_t>(Shape{i}), order[size_t(i)]) << name_of(dtype);
      ASSERT_EQ(values.get(Shape{i}), v[size_t(order[size_t(i)])]);
    }
    ASSERT_TRUE(values.guards_intact() && indices.guards_intact());
  }
}

void check_values(DType dtype, const std::vector<double>& v, bool descending) {
  const Shape sizes{int64_t(v.size())};
  GuardedBuffer in(dtype, sizes), values(dtype, sizes), indices(kInt64, sizes);
  size_t at = 0;
  in.fill([&](IntList) { return v[at++]; });
  backend_under_test().sort({.in = in.view(),
                             .values = values.view(),
                             .indices = indices.view(),
                             .dim = 0,
                             .descending = descending});
  const std::vector<int64_t> order = sorted_positions(in.values(), descending);
  for (int64_t i = 0; i < sizes[0]; ++i)
    ASSERT_EQ(indices.at<int64_t>(Shape{i}), order[size_t(i)])
        << name_of(dtype) << " of " << v.size();
  ASSERT_TRUE(values.guards_intact() && indices.guards_intact());
}

// Of which the upper 32 bits decide little: small numbers of both signs, beside some far away, and
// many that are equal in them.
TEST(Sort, KeysOf64BitsWithTies) {
  std::mt19937_64 rng(3);
  for (const int64_t n : {int64_t(1000), int64_t(1 << 16) + 5})
    for (const bool descending : {false, true})
      for (int kind = 0; kind < 4; ++kind)
        for (DType dtype : {kInt64, kFloat64}) {
          std::vector<double> v(static_cast<size_t>(n));
          for (double& x : v) {
            const double small = double(int64_t(rng() % 2001) - 1000);
            x = kind == 0   ? small
                : kind == 1 ? (rng() % 1000 ? small : 4e18)
                : kind == 2 ? double(int64_t(rng() % 3) << 40) + double(rng() % 500)
                            : double(int64_t(rng() % (uint64_t(1) << 52)) - (int64_t(1) << 51));
            if (dtype == kFloat64 && rng() % 500 == 0) x = std::nan("");
          }
          check_values(dtype, v, descending);
          if (HasFatalFailure()) return;
        }
}

TEST(Sort, ShortLanes) {
  std::mt19937_64 rng(4);
  for (const int64_t n : {1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 257})
    for (DType dtype : {kFloat32, kInt64, kFloat64, kInt8, kBFloat16})
      for (const bool descending : {false, true}) {
        std::vector<double> v(static_cast<size_t>(n));
        for (double& x : v) x = double(int64_t(rng() % 41) - 20);
        if (is_floating(dtype)) v[rng() % v.size()] = std::nan(""), v[rng() % v.size()] = -0.0;
        check_values(dtype, v, descending);
        if (HasFatalFailure()) return;
      }
}

// Values in order, as many of each bit pattern as before, but for NaN, which has no bits to keep.
TEST(Sort, ValuesAlone) {
  std::mt19937_64 rng(5);
  for (DType dtype : real_dtypes())
    for (const Shape& sizes : {Shape{9000}, Shape{2, 4500}, Shape{3, 40}})
      for (const bool descending : {false, true}) {
        GuardedBuffer in(dtype, Layout(sizes)), values(dtype, Layout(sizes));
        fill_ties(in, rng);
        const int dim = int(sizes.size()) - 1;
        backend_under_test().sort({.in = in.view(),
                                   .values = values.view(),
                                   .indices = View{},
                                   .dim = dim,
                                   .descending = descending});
        ASSERT_TRUE(in.guards_intact() && values.guards_intact());
        for (int64_t row = 0; row < (dim ? sizes[0] : 1); ++row) {
          const Shape first = dim ? Shape{row, 0} : Shape{0};
          const std::vector<double> v = lane(in, first, dim), got = lane(values, first, dim);
          const std::vector<int64_t> order = sorted_positions(v, descending);
          int64_t negative_zeros = 0;
          for (size_t i = 0; i < v.size(); ++i) {
            ASSERT_TRUE(same_value(got[i], v[size_t(order[i])])) << name_of(dtype) << " " << i;
            negative_zeros +=
                (v[i] == 0 && std::signbit(v[i])) - (got[i] == 0 && std::signbit(got[i]));
          }
          ASSERT_EQ(negative_zeros, 0) << name_of(dtype);
        }
      }
}

// Around the sizes at which blocks and partitions begin, with kinds of keys that split unevenly.
TEST(Sort, ValuesAloneOfManyLengths) {
  std::mt19937_64 rng(6);
  const auto kinds = std::to_array<double (*)(std::mt19937_64&, int64_t, int64_t)>({
      [](std::mt19937_64& r, int64_t, int64_t) { return double(r() % 100000) - 50000; },
      [](std::mt19937_64&, int64_t, int64_t) { return 7.0; },
      [](std::mt19937_64& r, int64_t, int64_t) { return double(r() % 2); },
      [](std::mt19937_64&, int64_t i, int64_t) { return double(i); },
      [](std::mt19937_64&, int64_t i, int64_t n) { return double(n - i); },
      [](std::mt19937_64& r, int64_t i, int64_t) { return i % 3 ? double(r() % 1000) : -1000.0; },
      [](std::mt19937_64& r, int64_t, int64_t) { return std::ldexp(1.0, int(r() % 31)); },
  });
  for (DType dtype : {kInt32, kUInt32, kFloat32, kInt64, kUInt64, kFloat64})
    for (const int64_t n : {1, 9, 127, 128, 129, 255, 256, 257, 511, 513, 1023, 5000, 70001})
      for (const auto kind : kinds)
        for (const bool descending : {false, true}) {
          GuardedBuffer in(dtype, Shape{n}), values(dtype, Shape{n});
          int64_t i = 0;
          in.fill([&](IntList) {
            const double v = kind(rng, i++, n);
            return is_unsigned(dtype) ? std::abs(v) : v;
          });
          backend_under_test().sort({.in = in.view(),
                                     .values = values.view(),
                                     .indices = View{},
                                     .dim = 0,
                                     .descending = descending});
          std::vector<double> expected = in.values();
          std::ranges::sort(expected);
          if (descending) std::ranges::reverse(expected);
          ASSERT_EQ(values.values(), expected) << name_of(dtype) << " of " << n;
          ASSERT_TRUE(in.guards_intact() && values.guards_intact());
        }
}

TEST(Sort, PositionsAlone) {
  std::mt19937_64 rng(8);
  for (DType dtype : {kInt32, kFloat32, kInt64, kFloat64, kUInt8})
    for (const int64_t n : {1, 200, 5000, 70001})
      for (const bool wide : {false, true}) {
        GuardedBuffer in(dtype, Shape{2, n}), indices(kInt64, Shape{2, n});
        in.fill([&](IntList) {
          return wide && dtype != kUInt8 ? double(int32_t(rng())) : double(rng() % 100);
        });
        backend_under_test().sort(
            {.in = in.view(), .values = View{}, .indices = indices.view(), .dim = 1});
        for (int64_t r = 0; r < 2; ++r) {
          std::vector<double> row;
          for (int64_t i = 0; i < n; ++i) row.push_back(in.get(Shape{r, i}));
          const std::vector<int64_t> order = sorted_positions(row, false);
          for (int64_t i = 0; i < n; ++i)
            ASSERT_EQ((indices.at<int64_t>(Shape{r, i})), order[size_t(i)])
                << name_of(dtype) << " of " << n;
        }
        ASSERT_TRUE(in.guards_intact() && indices.guards_intact());
      }
}

// All keys are the largest there is, or near it.
TEST(Sort, ValuesAloneAtTheEnd) {
  for (const int64_t n : {300, 1000}) {
    GuardedBuffer in(kUInt64, Shape{n}), out(kUInt64, Shape{n});
    for (int64_t i = 0; i < n; ++i) in.set_at<uint64_t>(Shape{i}, UINT64_MAX - uint64_t(i % 2));
    backend_under_test().sort({.in = in.view(), .values = out.view(), .indices = View{}, .dim = 0});
    for (int64_t i = 0; i < n; ++i)
      ASSERT_EQ(out.at<uint64_t>(Shape{i}), UINT64_MAX - uint64_t(i < n / 2));
    GuardedBuffer nan(kFloat64, Shape{n}), same(kFloat64, Shape{n});
    nan.fill([](IntList) { return -std::nan(""); });
    backend_under_test().sort(
        {.in = nan.view(), .values = same.view(), .indices = View{}, .dim = 0});
    for (const double v : same.values()) ASSERT_TRUE(std::isnan(v));
  }
}

TEST(Sort, FullRangeOf64Bits) {
  GuardedBuffer in(kInt64, Shape{5}), out(kInt64, Shape{5});
  const int64_t v[5] = {INT64_MAX, -1, INT64_MIN, 0, INT64_MAX - 1};
  for (int64_t i = 0; i < 5; ++i) in.set_at<int64_t>(Shape{i}, v[i]);
  backend_under_test().sort({.in = in.view(), .values = out.view(), .indices = View{}, .dim = 0});
  const int64_t expected[5] = {INT64_MIN, -1, 0, INT64_MAX - 1, INT64_MAX};
  for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(out.at<int64_t>(Shape{i}), expected[i]);
}

TEST(Sort, ComplexIsRefused) {
  GuardedBuffer in(kComplex64, Shape{3}), out(kComplex64, Shape{3}), at(kInt64, Shape{3});
  EXPECT_THROW(backend_under_test().sort(
                   {.in = in.view(), .values = out.view(), .indices = at.view(), .dim = 0}),
               NotImplementedError);
}

void check_arg_reduce(const GuardedBuffer& in, int dim, bool largest) {
  Shape out_sizes = in.layout().sizes;
  if (!out_sizes.empty()) out_sizes[size_t(dim)] = 1;
  GuardedBuffer out(kInt64, out_sizes), values(in.dtype(), out_sizes);
  backend_under_test().arg_reduce({.in = in.view(),
                                   .out = out.view(),
                                   .values = values.view(),
                                   .dim = dim,
                                   .largest = largest});
  ASSERT_TRUE(out.guards_intact() && values.guards_intact());
  for (IndexWalk w(out_sizes); w; ++w) {
    const std::vector<double> v = lane(in, *w, dim);
    int64_t best = 0;
    for (size_t i = 1; i < v.size(); ++i) {
      const double b = v[size_t(best)];
      if (std::isnan(b)) break;
      if (std::isnan(v[i]) || (largest ? v[i] > b : v[i] < b)) best = int64_t(i);
    }
    ASSERT_EQ(out.at<int64_t>(*w), best) << name_of(in.dtype());
    ASSERT_TRUE(same_value(values.get(*w), v[size_t(best)]));
  }
}

TEST(ArgReduce, EveryDtypeLayoutAndDimension) {
  std::mt19937_64 rng(4);
  for (DType dtype : real_dtypes())
    for (const Shape& sizes : shapes()) {
      if (numel_of(sizes) == 0) continue;
      for (int dim = 0; dim < std::max(1, int(sizes.size())); ++dim)
        for (bool largest : {false, true})
          for (const Layout& layout : input_layouts(sizes)) {
            GuardedBuffer in(dtype, layout);
            fill_ties(in, rng);
            check_arg_reduce(in, dim, largest);
            if (HasFatalFailure()) return;
          }
    }
}

// Rows begin anywhere in a vector; of each column there are parts.
TEST(ArgReduce, FewColumnsOfManyRows) {
  std::mt19937_64 rng(5);
  for (DType dtype : {kFloat32, kBFloat16, kInt16})
    for (const int64_t rows : {30011, 70001}) {
      GuardedBuffer in(dtype, Shape{rows, 31});
      in.fill([&](IntList) { return double(rng() % 20000 == 0); });
      for (bool largest : {false, true}) {
        check_arg_reduce(in, 0, largest);
        if (HasFatalFailure()) return;
      }
    }
}

TEST(ArgReduce, FirstOfEqualsInALongLane) {
  const int64_t n = 300000;
  GuardedBuffer in(kFloat32, Shape{n}), out(kInt64, Shape{1});
  for (int64_t at : {int64_t(0), n / 2, n - 1}) {
    in.fill([](IntList) { return 1.0; });
    in.set(Shape{at}, 2.0);
    in.set(Shape{n - 1}, 2.0);
    backend_under_test().arg_reduce(
        {.in = in.view(), .out = out.view(), .values = View{}, .dim = 0, .largest = true});
    EXPECT_EQ(out.at<int64_t>(Shape{0}), at);
  }
}

}  // namespace
}  // namespace arete::test
