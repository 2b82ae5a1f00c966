// scatter and add_rows against plain loops, with repeated indices.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "arete/base/error.h"
#include "arete/core/modes.h"
#include "arete/expr/value.h"
#include "arete/prim/backend.h"
#include "tests/prim/ordering_reference.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

using prim::ScatterMode;

double combine(ScatterMode m, DType t, double old, double v) {
  const bool logic = t == kBool;
  switch (m) {
    case ScatterMode::set:
      return v;
    case ScatterMode::add:
      return logic ? old != 0 || v != 0 : old + v;
    case ScatterMode::mul:
      return old * v;
    case ScatterMode::min:
      return std::isnan(old) || std::isnan(v) ? NAN : std::min(old, v);
    case ScatterMode::max:
      return std::isnan(old) || std::isnan(v) ? NAN : std::max(old, v);
  }
  return 0;
}

TEST(Scatter, EveryDtypeModeAndLayout) {
  // With it, `set` keeps the last of repeated indices on every device.
  const ModesGuard guard;
  modes().deterministic = true;
  std::mt19937_64 rng(1);
  for (int t = 0; t < kNumDTypes; ++t)
    for (ScatterMode m : {ScatterMode::set, ScatterMode::add, ScatterMode::mul, ScatterMode::min,
                          ScatterMode::max}) {
      const DType dtype = DType(t);
      if (is_complex(dtype) && (m == ScatterMode::min || m == ScatterMode::max)) continue;
      for (const Shape& out_sizes : {Shape{}, Shape{5}, Shape{4, 6}, Shape{3, 5, 4}, Shape{40, 30}})
        for (int dim = 0; dim < std::max(1, int(out_sizes.size())); ++dim)
          for (const Layout& layout : dense_and_strided_layouts(out_sizes)) {
            Shape sizes = out_sizes;
            for (int64_t& s : sizes) s = std::max<int64_t>(1, s - int64_t(rng() % 2));
            if (!sizes.empty()) sizes[size_t(dim)] = int64_t(rng() % 6);
            const auto sources = input_layouts(sizes);
            GuardedBuffer out(dtype, layout), src(dtype, sources[rng() % sources.size()]),
                index(kInt64, sources[rng() % sources.size()]);
            const int64_t size = out_sizes.empty() ? 1 : out_sizes[size_t(dim)];
            // Products of at most six numbers up to 2 stay exact in every type.
            out.fill_random(rng, 1, 2);
            src.fill_random(rng, m == ScatterMode::mul ? 1 : -2,
                            m == ScatterMode::mul && is_float8(dtype) ? 1 : 2);
            if (is_floating(dtype) && (m == ScatterMode::min || m == ScatterMode::max))
              for (IndexWalk w(sizes); w; ++w)
                if (rng() % 30 == 0) src.set(*w, std::nan(""));
            for (IndexWalk w(sizes); w; ++w)
              index.set_at<int64_t>(*w, int64_t(rng() % uint64_t(2 * size)) - size);
            GuardedBuffer expected(dtype, out_sizes);
            for (IndexWalk w(out_sizes); w; ++w) expected.set(*w, out.get(*w));
            for (IndexWalk w(sizes); w; ++w) {
              Shape to = *w;
              const int64_t i = index.at<int64_t>(*w);
              if (!to.empty()) to[size_t(dim)] = i < 0 ? i + size : i;
              expected.set(to, combine(m, dtype, expected.get(to), src.get(*w)));
            }
            backend_under_test().scatter({.out = out.view(),
                                          .index = index.view(),
                                          .src = src.view(),
                                          .dim = dim,
                                          .mode = m});
            ASSERT_TRUE(out.guards_intact());
            for (IndexWalk w(out_sizes); w; ++w)
              ASSERT_TRUE(same_value(out.get(*w), expected.get(*w)))
                  << name_of(dtype) << " mode " << int(m) << " got " << out.get(*w) << " expected "
                  << expected.get(*w);
          }
    }
}

// So many that devices do not let all of them wait for each other at one place.
TEST(Scatter, ManyElementsToFewDestinations) {
  std::mt19937_64 rng(3);
  const Shape sizes{40000};
  for (const DType dtype : {kInt32, kInt64, kFloat32, kFloat64})
    for (const int64_t size : {1, 10, 700})
      for (const int64_t step : {0, 1, 2}) {  // between sources
        GuardedBuffer out(dtype, Layout(IntList{size}, IntList{step == 2 ? 2 : 1})),
            index(kInt64, sizes), src(dtype, Layout(sizes, IntList{step}));
        out.fill_random(rng, -2, 2);
        src.fill_random(rng, -2, 2);
        std::vector<double> expected;
        for (IndexWalk w(Shape{size}); w; ++w) expected.push_back(out.get(*w));
        for (IndexWalk w(sizes); w; ++w) {
          const int64_t to = int64_t(rng() % uint64_t(size));
          index.set_at<int64_t>(*w, rng() % 2 ? to : to - size);
          expected[size_t(to)] += src.get(*w);
        }
        backend_under_test().scatter({.out = out.view(),
                                      .index = index.view(),
                                      .src = src.view(),
                                      .dim = 0,
                                      .mode = ScatterMode::add});
        ASSERT_TRUE(out.guards_intact());
        for (IndexWalk w(Shape{size}); w; ++w)
          ASSERT_EQ(out.get(*w), expected[size_t((*w)[0])]) << name_of(dtype) << " " << size;
      }
}

TEST(Scatter, ToPlacesThatAProgramComputes) {
  std::mt19937_64 rng(5);
  const DType inputs[] = {kFloat32, kFloat64}, place_type = kInt64;
  const expr::Type params[] = {expr::Type::i64};
  const expr::ProgramPtr places = expr::trace(
      [](std::span<const expr::Value> v) {
        const expr::Value last = v[2] - 1;
        const expr::Value k = max(min(cast(v[0], expr::Type::i64), last), 0.0);
        return std::vector{expr::where(expr::load(v[1], k) > 0.0, k, last - k)};
      },
      inputs, params, {&place_type, 1}, 0b10);
  for (const DType dtype : {kInt32, kInt64, kFloat32})
    for (const int64_t size : {1, 10, 700, 9000})
      for (const int64_t count : {0, 1, 1003, 300001})
        for (const int64_t step : {0, 1, 2}) {  // between sources; of 2, also between inputs
          GuardedBuffer out(dtype, Layout(IntList{size}, IntList{step == 2 ? 2 : 1})),
              x(kFloat32, Layout(IntList{count}, IntList{step == 2 ? 2 : 1})),
              table(kFloat64, Shape{size}), src(dtype, Layout(IntList{count}, IntList{step}));
          out.fill_random(rng, -2, 2);
          x.fill_random(rng, -1, int(size) + 1);
          table.fill_random(rng, -1, 1);
          src.fill_random(rng, -2, 2);
          std::vector<double> expected;
          for (IndexWalk w(Shape{size}); w; ++w) expected.push_back(out.get(*w));
          for (IndexWalk w(Shape{count}); w; ++w) {
            const int64_t k = std::clamp<int64_t>(int64_t(x.get(*w)), 0, size - 1);
            expected[size_t(table.get(Shape{k}) > 0 ? k : size - 1 - k)] += src.get(*w);
          }
          const prim::View views[] = {x.view(), table.view()};
          const expr::Literal number{.i = size};
          backend_under_test().scatter({.out = out.view(),
                                        .src = src.view(),
                                        .dim = 0,
                                        .mode = ScatterMode::add,
                                        .places = places.get(),
                                        .inputs = views,
                                        .params = {&number, 1}});
          ASSERT_TRUE(out.guards_intact());
          for (IndexWalk w(Shape{size}); w; ++w)
            ASSERT_EQ(out.get(*w), expected[size_t((*w)[0])])
                << name_of(dtype) << " " << size << " " << count << " " << step;
        }
}

// Many small planes, which GPUs put in order in shared memory, few large ones, and more points than
// are stored at a time.
TEST(Scatter, ToTapsThatAProgramComputes) {
  std::mt19937_64 rng(6);
  struct Case {
    int64_t images, channels, points, plane;
  };
  for (const DType dtype : {kFloat32, kFloat64}) {
    const DType inputs[] = {kFloat32, dtype}, results[] = {kInt64, dtype, kInt64, dtype};
    const expr::Type params[] = {expr::Type::i64};
    const expr::ProgramPtr taps = expr::trace(
        [&](std::span<const expr::Value> v) {
          const expr::Value k = cast(v[0], expr::Type::i64);
          return std::vector{k, v[1], v[2] - 1 - k, where(v[1] > 1.0, 2.0 - v[1], v[1] * 0.0)};
        },
        inputs, params, results);
    for (const Case& c : {Case{1, 1, 1, 1}, Case{2, 5, 130, 1000}, Case{900, 3, 70, 40},
                          Case{1, 2, 40000, 300}, Case{3, 21, 7, 9}, Case{1, 70, 9, 3000},
                          Case{40, 1, 2000, 2000}, Case{2, 0, 3, 4}, Case{2, 3, 0, 4}})
      for (const bool deterministic : {false, true}) {
        const ModesGuard guard;
        modes().deterministic = deterministic;
        const Shape rows{c.images, c.points}, values{c.images, c.channels, c.points},
            planes{c.images, c.channels, c.plane};
        GuardedBuffer out(dtype, planes), src(dtype, values),
            place(kFloat32, Layout(rows, IntList{2 * c.points + 3, 2})),
            factor(dtype, Layout(rows, IntList{1, c.images}));
        out.fill_random(rng, -2, 2);
        src.fill_random(rng, -2, 2);
        place.fill_random(rng, 0, int(c.plane) - 1);
        factor.fill_random(rng, 0, 3);
        std::vector<double> expected;
        for (IndexWalk w(planes); w; ++w) expected.push_back(out.get(*w));
        for (IndexWalk w(values); w; ++w) {
          const Shape row{(*w)[0], (*w)[2]};
          const int64_t k = int64_t(place.get(row));
          const double f = factor.get(row), v = src.get(*w);
          double* const plane = expected.data() + ((*w)[0] * c.channels + (*w)[1]) * c.plane;
          plane[k] += v * f;
          plane[c.plane - 1 - k] += v * (f > 1 ? 2 - f : 0);
        }
        const prim::View views[] = {place.view(), factor.view()};
        const expr::Literal number{.i = c.plane};
        backend_under_test().scatter({.out = out.view(),
                                      .src = src.view(),
                                      .dim = 2,
                                      .mode = ScatterMode::add,
                                      .places = taps.get(),
                                      .inputs = views,
                                      .params = {&number, 1}});
        ASSERT_TRUE(out.guards_intact());
        size_t at = 0;
        for (IndexWalk w(planes); w; ++w, ++at)
          ASSERT_EQ(out.get(*w), expected[at])
              << name_of(dtype) << " " << c.images << " images of " << c.points << " points";
      }
  }
}

TEST(Scatter, IndexOutOfRangeWritesNothingOutside) {
  for (int64_t bad : {int64_t(3), int64_t(-4), INT64_MAX, INT64_MIN}) {
    GuardedBuffer out(kFloat32, Shape{3}), index(kInt64, Shape{2}), src(kFloat32, Shape{2});
    index.set_at<int64_t>(Shape{1}, bad);
    try {
      backend_under_test().scatter({.out = out.view(),
                                    .index = index.view(),
                                    .src = src.view(),
                                    .dim = 0,
                                    .mode = ScatterMode::add,
                                    .op = "scatter_add"});
      ADD_FAILURE() << "no error";
    } catch (const IndexError& e) {
      EXPECT_EQ(e.op(), "scatter_add");
      EXPECT_NE(std::string(e.what()).find("index " + std::to_string(bad) +
                                           " is out of bounds for dimension 0 with size 3"),
                std::string::npos)
          << e.what();
    }
    EXPECT_TRUE(out.guards_intact());
  }
}

TEST(AddRows, EveryDtypeNativeAndDecomposed) {
  std::mt19937_64 rng(2);
  for (int t = 0; t < kNumDTypes; ++t)
    for (int64_t width : {0, 1, 5, 300})
      for (int64_t n : {0, 1, 40})
        for (bool decomposed : {false, true})
          for (const Layout& layout : dense_and_strided_layouts(Shape{6, width})) {
            const DType dtype = DType(t);
            const auto sources = input_layouts(Shape{n, width});
            GuardedBuffer out(dtype, layout), src(dtype, sources[rng() % sources.size()]),
                index(kInt64, Shape{n});
            out.fill_random(rng, 0, 3);
            // Small enough for sums of 40 to be exact in 8 bits.
            src.fill([&](IntList) { return double(rng() % 40 == 0); });
            for (IndexWalk w(Shape{n}); w; ++w) index.set_at<int64_t>(*w, int64_t(rng() % 12) - 6);
            GuardedBuffer expected(dtype, Shape{6, width});
            for (IndexWalk w(Shape{6, width}); w; ++w) expected.set(*w, out.get(*w));
            for (IndexWalk w(Shape{n, width}); w; ++w) {
              const int64_t i = index.at<int64_t>(Shape{(*w)[0]});
              const Shape to{i < 0 ? i + 6 : i, (*w)[1]};
              expected.set(to, expected.get(to) + src.get(*w));
            }
            const prim::AddRowsArgs args{out.view(), index.view(), src.view()};
            decomposed ? backend_under_test().Primitives::add_rows(args)
                       : backend_under_test().add_rows(args);
            ASSERT_TRUE(out.guards_intact());
            ASSERT_EQ(out.values(), expected.values()) << name_of(dtype) << " width " << width;
          }
}

TEST(AddRows, OfSourcesWithFactors) {
  std::mt19937_64 rng(5);
  for (DType dtype : {kFloat32, kFloat64, kBFloat16, kFloat16})
    for (int64_t width : {1, 5, 64, 300})
      for (int64_t n : {0, 1, 40})
        for (int bits = 0; bits < 16; ++bits) {
          const bool decomposed = bits & 1, with_factors = bits & 2, leaves = bits & 4,
                     sorted = bits & 8;
          constexpr int64_t kRows = 6, kSources = 7, kLeftOut = 2;
          GuardedBuffer out(dtype, Shape{kRows, width}), src(dtype, Shape{kSources, width}),
              index(kInt64, Shape{n}), source(kInt64, Shape{n}), factors(dtype, Shape{n});
          out.fill([&](IntList) { return double(rng() % 3); });
          src.fill([&](IntList) { return double(rng() % 4 == 0); });
          factors.fill([&](IntList) { return double(1 + rng() % 2); });
          std::vector<int64_t> to;
          for (int64_t i = 0; i < n; ++i) to.push_back(int64_t(rng() % kRows));
          if (sorted) std::sort(to.begin(), to.end());
          GuardedBuffer expected(dtype, Shape{kRows, width});
          for (IndexWalk w(Shape{kRows, width}); w; ++w) expected.set(*w, out.get(*w));
          for (int64_t i = 0; i < n; ++i) {
            const int64_t from = int64_t(rng() % (2 * kSources)) - kSources;
            const int64_t row = from < 0 ? from + kSources : from;
            index.set_at<int64_t>(Shape{i}, to[size_t(i)]);
            source.set_at<int64_t>(Shape{i}, from);
            if (leaves && row == kLeftOut) continue;
            for (int64_t j = 0; j < width; ++j) {
              const Shape at{to[size_t(i)], j};
              const double factor = with_factors ? factors.get(Shape{i}) : 1;
              expected.set(at, expected.get(at) + src.get(Shape{row, j}) * factor);
            }
          }
          const prim::AddRowsArgs args{.out = out.view(),
                                       .index = index.view(),
                                       .src = src.view(),
                                       .source = source.view(),
                                       .factors = with_factors ? factors.view() : prim::View{},
                                       .left_out = leaves ? kLeftOut : -1,
                                       .sorted = sorted};
          decomposed ? backend_under_test().Primitives::add_rows(args)
                     : backend_under_test().add_rows(args);
          ASSERT_TRUE(out.guards_intact());
          ASSERT_EQ(out.values(), expected.values())
              << name_of(dtype) << " " << width << " " << bits;
        }
}

// What a factor of 0 belongs to is left out: no infinity or NaN, and no 0 that takes a sign away.
TEST(Scatter, FactorsOfZeroLeaveThePlaceAsItIs) {
  ARETE_CPU_ONLY();
  for (DType dtype : {kFloat32, kFloat64})
    for (double value : {1.0, HUGE_VAL, std::nan("")}) {
      GuardedBuffer out(dtype, Shape{4}), src(dtype, Shape{40}), index(kInt64, Shape{40}),
          factors(dtype, Shape{40});
      out.fill([](IntList at) { return at[0] == 3 ? 2.0 : -0.0; });
      src.fill([&](IntList) { return value; });
      index.fill([](IntList at) { return double(at[0] % 4); });
      factors.fill([](IntList at) { return at[0] % 2 == 0 ? 0.0 : -0.0; });
      backend_under_test().scatter({.out = out.view(),
                                    .index = index.view(),
                                    .src = src.view(),
                                    .dim = 0,
                                    .mode = ScatterMode::add,
                                    .factors = factors.view()});
      for (int64_t i = 0; i < 3; ++i) {
        EXPECT_EQ(out.get(Shape{i}), 0) << value;
        EXPECT_TRUE(std::signbit(out.get(Shape{i}))) << value;
      }
      EXPECT_EQ(out.get(Shape{3}), 2) << value;
    }
}

// Positions and their factors serve all channels.
TEST(Scatter, ProductsAtPositionsThatChannelsShare) {
  std::mt19937_64 rng(9);
  for (DType dtype : {kFloat32, kFloat64})
    for (int64_t channels : {1, 3, 8, 19})
      for (int64_t points : {1, 6, 300}) {
        constexpr int64_t kBatch = 2, kPlaces = 11;
        GuardedBuffer out(dtype, Shape{kBatch, channels, kPlaces}),
            src(dtype, Shape{kBatch, channels, points}), index(kInt64, Shape{kBatch, points}),
            factors(dtype, Shape{kBatch, points});
        out.fill_random(rng, 1, 9);
        src.fill_random(rng, -4, 4);
        factors.fill_random(rng, 0, 3);
        GuardedBuffer expected(dtype, Shape{kBatch, channels, kPlaces});
        for (IndexWalk w(Shape{kBatch, channels, kPlaces}); w; ++w) expected.set(*w, out.get(*w));
        for (IndexWalk w(Shape{kBatch, points}); w; ++w) {
          const int64_t i = int64_t(rng() % (2 * kPlaces)) - kPlaces;
          const double factor = factors.get(*w);
          index.set_at<int64_t>(*w, i);
          for (int64_t c = 0; c < channels && factor != 0; ++c) {
            const Shape to{(*w)[0], c, i < 0 ? i + kPlaces : i};
            expected.set(to, expected.get(to) + src.get(Shape{(*w)[0], c, (*w)[1]}) * factor);
          }
        }
        const Shape sizes{kBatch, channels, points}, strides{points, 0, 1};
        const auto shared = [&](prim::View v) {
          v.sizes = sizes, v.strides = strides;
          return v;
        };
        backend_under_test().scatter({.out = out.view(),
                                      .index = shared(index.view()),
                                      .src = src.view(),
                                      .dim = 2,
                                      .mode = ScatterMode::add,
                                      .factors = shared(factors.view())});
        ASSERT_TRUE(out.guards_intact());
        ASSERT_EQ(out.values(), expected.values())
            << name_of(dtype) << " " << channels << " " << points;
      }
}

TEST(AddRows, InRuns) {
  std::mt19937_64 rng(6);
  for (DType dtype : {kFloat32, kFloat64, kBFloat16, kFloat16})
    for (int64_t width : {1, 8, 300})
      for (int64_t n : {0, 6, 120})
        for (int bits = 0; bits < 32; ++bits) {
          const bool decomposed = bits & 1, with_factors = bits & 2, leaves = bits & 4,
                     equal = bits & 8, mean = bits & 16;
          constexpr int64_t kRows = 6, kSources = 7, kLeftOut = 2;
          GuardedBuffer out(dtype, Shape{kRows, width}), src(dtype, Shape{kSources, width}),
              begins(kInt64, Shape{kRows}), source(kInt64, Shape{n}), factors(dtype, Shape{n});
          out.fill([&](IntList) { return 7.0; });  // what is there does not matter
          src.fill([&](IntList) { return double(rng() % 4 == 0); });
          factors.fill([&](IntList) { return double(1 + rng() % 2); });
          std::vector<int64_t> from{0};
          while (int64_t(from.size()) < kRows) from.push_back(int64_t(rng() % uint64_t(n + 1)));
          std::sort(from.begin(), from.end());
          for (int64_t r = 0; r < kRows; ++r) {
            if (equal) from[size_t(r)] = r * (n / kRows);
            begins.set_at<int64_t>(Shape{r}, from[size_t(r)]);
          }
          from.push_back(n);
          GuardedBuffer expected(dtype, Shape{kRows, width});
          for (int64_t r = 0; r < kRows; ++r) {
            std::vector<double> sums(size_t(width), 0.0);
            double count = 0;
            for (int64_t i = from[size_t(r)]; i < from[size_t(r) + 1]; ++i) {
              const int64_t named = int64_t(rng() % (2 * kSources)) - kSources;
              const int64_t row = named < 0 ? named + kSources : named;
              source.set_at<int64_t>(Shape{i}, named);
              if (leaves && row == kLeftOut) continue;
              ++count;
              for (int64_t j = 0; j < width; ++j)
                sums[size_t(j)] +=
                    src.get(Shape{row, j}) * (with_factors ? factors.get(Shape{i}) : 1);
            }
            for (int64_t j = 0; j < width; ++j)
              expected.set(Shape{r, j}, sums[size_t(j)] / (mean ? std::max(count, 1.0) : 1));
          }
          const prim::AddRowsArgs args{
              .out = out.view(),
              .index = {},
              .src = src.view(),
              .source = source.view(),
              .factors = with_factors ? factors.view() : prim::View{},
              .left_out = leaves ? kLeftOut : -1,
              .begins = equal ? prim::View{} : begins.view(),
              .run = n / kRows,
              .what = mean ? prim::AddRowsArgs::Runs::mean : prim::AddRowsArgs::Runs::sum};
          decomposed ? backend_under_test().Primitives::add_rows(args)
                     : backend_under_test().add_rows(args);
          ASSERT_TRUE(out.guards_intact());
          ASSERT_EQ(out.values(), expected.values())
              << name_of(dtype) << " " << width << " " << n << " " << bits;
        }
}

// GPUs cut long runs where there are few, and leave them to a warp where there are many.
TEST(AddRows, ManyLongRunsAreSummedAsFewAre) {
  constexpr int64_t kRun = 300, kSome = 500, kSources = 64;
  const bool many = !test_device().is_cpu() && !too_large_for_reference(20000 * kRun);
  const int64_t n = many ? 20000 : 2000;
  std::mt19937_64 rng(8);
  GuardedBuffer src(kFloat32, Shape{kSources, 1}), source(kInt64, Shape{n * kRun});
  src.fill([&](IntList) { return double(rng() % 100000) / 77777; });
  for (int64_t i = 0; i < n * kRun; ++i)
    source.set_at<int64_t>(Shape{i}, int64_t(rng() % kSources));
  using Runs = prim::AddRowsArgs::Runs;
  for (const Runs what : {Runs::sum, Runs::mean, Runs::max}) {
    GuardedBuffer all(kFloat32, Shape{n, 1}), parts(kFloat32, Shape{n, 1});
    const auto sum = [&](GuardedBuffer& to, int64_t first, int64_t rows) {
      const Shape of_out{rows, 1}, of_source{rows * kRun};
      prim::View out = to.view(), from = source.view();
      out.data += first * int64_t(sizeof(float)), out.sizes = of_out;
      from.data += first * kRun * int64_t(sizeof(int64_t)), from.sizes = of_source;
      backend_under_test().add_rows(
          {.out = out, .index = {}, .src = src.view(), .source = from, .run = kRun, .what = what});
    };
    sum(all, 0, n);
    for (int64_t r = 0; r < n; r += kSome) sum(parts, r, kSome);
    ASSERT_TRUE(all.guards_intact() && parts.guards_intact());
    EXPECT_EQ(all.values(), parts.values());
    double first = 0;
    for (int64_t i = 0; i < kRun; ++i) {
      const double x = src.get(Shape{source.at<int64_t>(Shape{i}), 0});
      first = what == Runs::max ? std::max(first, x) : first + x / (what == Runs::mean ? kRun : 1);
    }
    EXPECT_NEAR(all.get(Shape{0, 0}), first, 1e-5 * first);
  }
}

TEST(AddRows, MaximaOfRuns) {
  std::mt19937_64 rng(7);
  constexpr double kNan = 99;  // stands for it in comparisons
  for (DType dtype : {kFloat32, kFloat64, kBFloat16, kFloat16})
    for (int64_t width : {1, 8, 77})
      for (int64_t n : {0, 6, 120, 2100})  // the last are cut into pieces
        for (int bits = 0; bits < 16; ++bits) {
          const bool decomposed = bits & 1, with_rows = bits & 2, leaves = bits & 4,
                     equal = bits & 8;
          if (n > 1000 && (decomposed || dtype == kFloat64 || dtype == kFloat16)) continue;
          constexpr int64_t kRows = 6, kSources = 7, kLeftOut = 2;
          GuardedBuffer out(dtype, Shape{kRows, width}), src(dtype, Shape{kSources, width}),
              begins(kInt64, Shape{kRows}), source(kInt64, Shape{n}),
              top(kInt64, Shape{kRows, width});
          out.fill([&](IntList) { return 7.0; });  // what is there does not matter
          src.fill([&](IntList) {
            const int number = int(rng() % 20);
            return number == 0 ? double(NAN) : number == 1 ? -double(INFINITY) : number % 4 - 3.0;
          });
          std::vector<int64_t> from{0};
          while (int64_t(from.size()) < kRows) from.push_back(int64_t(rng() % uint64_t(n + 1)));
          std::sort(from.begin(), from.end());
          for (int64_t r = 0; r < kRows; ++r) {
            if (equal) from[size_t(r)] = r * (n / kRows);
            begins.set_at<int64_t>(Shape{r}, from[size_t(r)]);
          }
          from.push_back(n);
          std::vector<double> values, rows;
          for (int64_t r = 0; r < kRows; ++r) {
            std::vector<double> most(size_t(width), 0.0), of(size_t(width), -1.0);
            for (int64_t i = from[size_t(r)]; i < from[size_t(r) + 1]; ++i) {
              const int64_t named = int64_t(rng() % (2 * kSources)) - kSources;
              const int64_t row = named < 0 ? named + kSources : named;
              source.set_at<int64_t>(Shape{i}, named);
              if (leaves && row == kLeftOut) continue;
              for (int64_t j = 0; j < width; ++j) {
                const double stored = src.get(Shape{row, j}),
                             x = std::isnan(stored) ? kNan : stored;
                if (of[size_t(j)] >= 0 && x <= most[size_t(j)]) continue;
                most[size_t(j)] = x;
                of[size_t(j)] = double(row);
              }
            }
            values.insert(values.end(), most.begin(), most.end());
            rows.insert(rows.end(), of.begin(), of.end());
          }
          const prim::AddRowsArgs args{.out = out.view(),
                                       .index = {},
                                       .src = src.view(),
                                       .source = source.view(),
                                       .left_out = leaves ? kLeftOut : -1,
                                       .begins = equal ? prim::View{} : begins.view(),
                                       .run = n / kRows,
                                       .what = prim::AddRowsArgs::Runs::max,
                                       .top = with_rows ? top.view() : prim::View{}};
          decomposed ? backend_under_test().Primitives::add_rows(args)
                     : backend_under_test().add_rows(args);
          ASSERT_TRUE(out.guards_intact() && top.guards_intact());
          std::vector<double> found = out.values();
          for (double& x : found)
            if (std::isnan(x)) x = kNan;
          ASSERT_EQ(found, values) << name_of(dtype) << " " << width << " " << n << " " << bits;
          if (!with_rows) continue;
          ASSERT_EQ(top.values(), rows)
              << name_of(dtype) << " " << width << " " << n << " " << bits;
        }
}

}  // namespace
}  // namespace arete::test
