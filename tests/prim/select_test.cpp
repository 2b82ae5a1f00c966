// select, the backend's own and the decomposition, against a stable sort.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "arete/prim/backend.h"
#include "tests/prim/ordering_reference.h"
#include "tests/support/errors.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

using Place = prim::SelectArgs::Place;

int64_t place_of_median(const std::vector<double>& lane, bool skip_nan) {
  const int64_t n = int64_t(lane.size());
  const int64_t numbers =
      std::count_if(lane.begin(), lane.end(), [](double v) { return !std::isnan(v); });
  if (!skip_nan && numbers < n) return numbers;
  return std::max<int64_t>(numbers - 1, 0) / 2;
}

// An input's rows along a dimension, and their orders.
class SortedRows {
 public:
  SortedRows(const GuardedBuffer& in, int dim) : dim_(size_t(dim)) {
    Shape rows = in.layout().sizes;
    const int64_t n = rows[dim_];
    rows[dim_] = 1;
    for (IndexWalk w(rows); w; ++w) {
      Row row;
      Shape at = *w;
      for (int64_t& i = at[dim_]; i < n; ++i) row.elements.push_back(in.get(at));
      row.order = sorted_positions(row.elements, false);
      rows_.emplace(to_string(*w), std::move(row));
    }
  }
  struct Row {
    std::vector<double> elements;
    std::vector<int64_t> order;
  };
  const Row& of(IntList element) const {
    Shape at(element);
    at[dim_] = 0;
    return rows_.at(to_string(at));
  }

 private:
  size_t dim_;
  std::map<std::string, Row> rows_;
};

// `ranks`: how many of them for each row, where they are what is asked for.
void check(const GuardedBuffer& in, const SortedRows& rows, int dim, Place place, int64_t ranks,
           bool decomposed, std::mt19937_64& rng) {
  Shape out_sizes = in.layout().sizes;
  const int64_t n = out_sizes[size_t(dim)];
  out_sizes[size_t(dim)] = place == Place::ranks ? ranks : 1;
  const auto layouts = dense_and_strided_layouts(out_sizes);
  const auto any = [&]() -> const Layout& { return layouts[rng() % layouts.size()]; };
  GuardedBuffer values(in.dtype(), any()), indices(kInt64, any()), at(kInt64, any());
  at.fill([&](IntList) { return double(rng() % uint64_t(n)) - (rng() % 3 == 0 ? double(n) : 0); });
  prim::SelectArgs args{.in = in.view(),
                        .values = values.view(),
                        .indices = indices.view(),
                        .dim = dim,
                        .place = place};
  if (place == Place::rank) args.rank = int64_t(rng() % uint64_t(n));
  if (place == Place::ranks) args.ranks = at.view();
  decomposed ? backend_under_test().Primitives::select(args) : backend_under_test().select(args);
  ASSERT_TRUE(values.guards_intact() && indices.guards_intact());
  for (IndexWalk w(out_sizes); w; ++w) {
    const SortedRows::Row& row = rows.of(*w);
    int64_t rank = args.rank;
    if (place == Place::ranks) {
      rank = at.at<int64_t>(*w);
      if (rank < 0) rank += n;
    } else if (place != Place::rank) {
      rank = place_of_median(row.elements, place == Place::nanmedian);
    }
    const int64_t position = row.order[size_t(rank)];
    ASSERT_EQ(indices.at<int64_t>(*w), position)
        << name_of(in.dtype()) << " n=" << n << " dim " << dim << " place " << int(place)
        << " rank " << rank;
    ASSERT_TRUE(same_value(values.get(*w), row.elements[size_t(position)]));
  }
}

void check_all(DType dtype, const Layout& layout, int dim, std::mt19937_64& rng) {
  GuardedBuffer in(dtype, layout);
  const double low = dtype == kUInt64 ? 0 : -100;  // doubles tell large numbers from none
  // Many ties, some, or of floats hardly any.
  if (is_floating(dtype) && rng() % 3 == 0)
    in.fill([&](IntList) { return std::ldexp(double(rng() >> 11), -40) - 4000; });
  else
    in.fill_random(rng, low, rng() % 2 ? low + 200 : low + 5);
  if (is_floating(dtype))
    for (IndexWalk w(layout.sizes); w; ++w) {
      if (rng() % 50 == 0) in.set(*w, std::nan(""));
      if (rng() % 50 == 0) in.set(*w, rng() % 2 ? 0.0 : -0.0);
    }
  const SortedRows rows(in, dim);
  for (Place place : {Place::rank, Place::ranks, Place::median, Place::nanmedian})
    for (bool decomposed : {false, true})
      check(in, rows, dim, place, 1 + rng() % 3, decomposed, rng);
}

TEST(Select, EveryDtype) {
  std::mt19937_64 rng(1);
  for (DType dtype : real_dtypes())
    for (const Shape& sizes : {Shape{1}, Shape{50}, Shape{4, 7}, Shape{7, 2, 3}, Shape{2, 900},
                               Shape{3, 0}, Shape{5, 33, 9}})
      for (int dim = 0; dim < int(sizes.size()); ++dim) {
        if (sizes[size_t(dim)] == 0) continue;
        const auto layouts = input_layouts(sizes);
        check_all(dtype, layouts[rng() % layouts.size()], dim, rng);
        if (HasFatalFailure()) return;
      }
}

// Every number of elements that threads, warps and blocks of a GPU hold.
TEST(Select, RowsOfEveryLength) {
  std::mt19937_64 rng(2);
  for (DType dtype : {kFloat32, kFloat64, kBFloat16, kInt64})
    for (int64_t n : {1,   2,   3,   5,   8,    9,    16,   17,   32,   40,   64,   65,   128,
                      129, 250, 256, 300, 1000, 1024, 1025, 2048, 3000, 4097, 9000, 16384})
      for (int dim : {0, 1}) {
        const int64_t rows = n > 1024 ? 2 : n > 64 ? 19 : 70;
        const Shape sizes = dim == 1 ? Shape{rows, n} : Shape{n, rows};
        check_all(dtype, Layout(sizes), dim, rng);
        if (HasFatalFailure()) return;
      }
}

// Rows that a GPU narrows digit by digit first; the reference device sorts all alike.
TEST(Select, LongRows) {
  std::mt19937_64 rng(3);
  for (DType dtype : {kFloat32, kFloat64, kFloat16, kInt8, kInt32, kInt64})
    for (int dim : {0, 1}) {
      const int64_t n = (too_large_for_reference(2 << 16) ? 1 << 11 : 1 << 16) + 11;
      check_all(dtype, Layout(dim == 1 ? Shape{2, n} : Shape{n, 2}), dim, rng);
      if (HasFatalFailure()) return;
    }
}

// More rows than a GPU narrows at one time.
TEST(Select, ManyLongRows) {
  if (!test_device().is_cuda() || too_large_for_reference(int64_t(1100) * 32779)) GTEST_SKIP();
  std::mt19937_64 rng(4);
  check_all(kInt8, Layout(Shape{1100, 32779}), 1, rng);
}

TEST(Select, ARankOutOfRangeIsAnError) {
  GuardedBuffer in(kFloat32, Shape{2, 5}), values(kFloat32, Shape{2, 1}),
      indices(kInt64, Shape{2, 1}), ranks(kInt64, Shape{2, 1});
  in.fill([](IntList at) { return double(at[1]); });
  ranks.fill([](IntList at) { return at[0] == 0 ? 1.0 : 5.0; });
  const auto select = [&] {
    backend_under_test().select({.in = in.view(),
                                 .values = values.view(),
                                 .indices = indices.view(),
                                 .dim = 1,
                                 .place = Place::ranks,
                                 .ranks = ranks.view()});
    prim::backend_for(test_device()).synchronize();
  };
  expect_error(ErrorKind::index, {"index 5 is out of bounds", "size 5"}, select);
}

TEST(Select, NothingButNanOrOneValue) {
  std::mt19937_64 rng(5);
  for (int64_t n : {5, 700, 70000}) {
    for (double fill : {std::nan(""), 3.0}) {
      GuardedBuffer in(kFloat32, Shape{n}), values(kFloat32, Shape{1}), indices(kInt64, Shape{1});
      in.fill([&](IntList) { return fill; });
      for (Place place : {Place::rank, Place::median, Place::nanmedian, Place::rank}) {
        const prim::SelectArgs args{.in = in.view(),
                                    .values = values.view(),
                                    .indices = indices.view(),
                                    .dim = 0,
                                    .place = place,
                                    .rank = n - 2};
        rng() % 2 ? backend_under_test().Primitives::select(args)
                  : backend_under_test().select(args);
        EXPECT_TRUE(same_value(values.get({0}), fill));
        const int64_t position = place == Place::rank ? n - 2 : std::isnan(fill) ? 0 : (n - 1) / 2;
        EXPECT_EQ(indices.at<int64_t>(Shape{0}), position) << n << " " << int(place);
      }
    }
  }
}

}  // namespace
}  // namespace arete::test
