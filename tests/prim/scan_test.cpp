// Running monoids against a plain loop. Values are chosen so that every partial result is exact.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "arete/base/thread_pool.h"
#include "arete/prim/backend.h"
#include "tests/prim/ordering_reference.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/test_device.h"
#include "tests/support/tolerance.h"

namespace arete::test {
namespace {

using prim::Monoid;

double combine_scanned(Monoid m, double a, double b) {
  switch (m) {
    case Monoid::sum:
      return a + b;
    case Monoid::prod:
      return a * b;
    case Monoid::min:
      return std::isnan(a) || std::isnan(b) ? NAN : std::min(a, b);
    case Monoid::max:
      return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b);
    case Monoid::all:
      return a != 0 && b != 0;
    case Monoid::any:
      return a != 0 || b != 0;
  }
  return 0;
}

// What an integer type makes of a number that it cannot hold.
double wrap(DType t, double v) {
  switch (t) {
    case kUInt8:
      return double(uint8_t(int64_t(v)));
    case kInt8:
      return double(int8_t(int64_t(v)));
    case kInt16:
      return double(int16_t(int64_t(v)));
    case kUInt16:
      return double(uint16_t(int64_t(v)));
    case kUInt32:
      return double(uint32_t(int64_t(v)));
    case kBool:
      return v != 0;
    default:
      return v;
  }
}

void check(Monoid m, const GuardedBuffer& in, const GuardedBuffer& out, int dim, bool reverse) {
  ASSERT_TRUE(out.guards_intact());
  const Shape& sizes = in.layout().sizes;
  for (IndexWalk w(sizes); w; ++w) {
    double expected = in.get(*w);
    if (!sizes.empty()) {
      Shape at = *w;
      const int64_t end = at[size_t(dim)];
      const int64_t n = sizes[size_t(dim)];
      bool first = true;
      for (int64_t i = reverse ? n - 1 : 0; reverse ? i >= end : i <= end; reverse ? --i : ++i) {
        at[size_t(dim)] = i;
        expected = first ? in.get(at) : wrap(out.dtype(), combine_scanned(m, expected, in.get(at)));
        first = false;
      }
    }
    ASSERT_TRUE(same_value(out.get(*w), expected))
        << name_of(out.dtype()) << " monoid " << int(m) << " got " << out.get(*w) << " expected "
        << expected;
  }
}

void fill_exact(GuardedBuffer& b, Monoid m, std::mt19937_64& rng) {
  if (m == Monoid::prod)
    b.fill([&](IntList) { return rng() % 4 == 0 ? 2.0 : 1.0; });
  else if (is_float8(b.dtype()))
    b.fill([&](IntList) { return double(rng() % 5 == 0); });
  else
    b.fill_random(rng, -4, 4);
  if (is_floating(b.dtype()) && (m == Monoid::min || m == Monoid::max))
    for (IndexWalk w(b.layout().sizes); w; ++w)
      if (rng() % 40 == 0) b.set(*w, std::nan(""));
}

TEST(Scan, EveryDtypeMonoidLayoutAndDimension) {
  std::mt19937_64 rng(1);
  for (int t = 0; t < kNumDTypes; ++t)
    for (Monoid m :
         {Monoid::sum, Monoid::prod, Monoid::min, Monoid::max, Monoid::all, Monoid::any}) {
      const DType dtype = DType(t);
      const bool logic = m == Monoid::all || m == Monoid::any;
      if ((logic && dtype != kBool) ||
          (is_complex(dtype) && (m == Monoid::min || m == Monoid::max)))
        continue;
      for (const Shape& sizes : {Shape{}, Shape{0}, Shape{1}, Shape{9}, Shape{3, 0}, Shape{4, 70},
                                 Shape{5, 3, 2}, Shape{7, 131}})
        for (int dim = 0; dim < std::max(1, int(sizes.size())); ++dim)
          for (const Layout& layout : input_layouts(sizes)) {
            if (m == Monoid::prod && !sizes.empty() && sizes[size_t(dim)] > 16) continue;
            if (is_float8(dtype) && !sizes.empty() && sizes[size_t(dim)] > 8) continue;
            GuardedBuffer in(dtype, layout);
            const auto outs = dense_and_strided_layouts(sizes);
            GuardedBuffer out(dtype, outs[rng() % outs.size()]);
            fill_exact(in, m, rng);
            const bool reverse = rng() % 2;
            backend_under_test().scan(
                {.monoid = m, .in = in.view(), .out = out.view(), .dim = dim, .reverse = reverse});
            check(m, in, out, dim, reverse);
            if (HasFatalFailure()) return;
          }
    }
}

TEST(Scan, LongLanesInChunks) {
  std::mt19937_64 rng(2);
  const int64_t n = (1 << 15) * 3 + 123;
  for (DType dtype : {kFloat32, kFloat64, kInt32, kInt64, kFloat16})
    for (Monoid m : {Monoid::sum, Monoid::max})
      for (int64_t stride : {1, 2})
        for (bool reverse : {false, true}) {
          const Layout layout(Shape{n}, Shape{stride});
          GuardedBuffer in(dtype, layout), out(dtype, layout);
          // Sums of halves stay exact: rarely anything but 0.
          in.fill([&](IntList) {
            return rng() % 1000 == 0 ? 1.0 : rng() % 1000 == 0 ? -1.0 : 0.0;
          });
          backend_under_test().scan(
              {.monoid = m, .in = in.view(), .out = out.view(), .dim = 0, .reverse = reverse});
          ASSERT_TRUE(out.guards_intact());
          double expected = m == Monoid::max ? -INFINITY : 0;
          for (int64_t k = 0; k < n; ++k) {
            const Shape i{reverse ? n - 1 - k : k};
            expected = combine_scanned(m, expected, in.get(i));
            ASSERT_EQ(out.get(i), expected) << name_of(dtype) << " at " << i[0];
          }
        }
}

// Lanes begin anywhere in a vector.
TEST(Scan, LanesALittleLongerThanAWarpHolds) {
  std::mt19937_64 rng(6);
  for (const auto& [dtype, n] : {std::pair{kFloat32, 511},
                                 {kFloat32, 513},
                                 {kBFloat16, 1023},
                                 {kBFloat16, 1025},
                                 {kBFloat16, 1279},
                                 {kUInt8, 1531}})
    for (bool reverse : {false, true}) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::to_string(n));
      GuardedBuffer in(dtype, Shape{6, n}), out(dtype, Shape{6, n});
      in.fill([&](IntList) { return double(rng() % 20 == 0); });  // sums of halves stay exact
      backend_under_test().scan({.monoid = Monoid::sum,
                                 .in = in.view(),
                                 .out = out.view(),
                                 .dim = 1,
                                 .reverse = reverse});
      check(Monoid::sum, in, out, 1, reverse);
      if (HasFatalFailure()) return;
    }
}

// Of every form and layout against a plain loop: sums with factors (powers of two, so that they
// are exact), logarithms of sums, and positions of extrema.
// A test of each type, since a GPU compiles a kernel for each form and rank.
class ScanOfType : public ::testing::TestWithParam<DType> {};

TEST_P(ScanOfType, FactorsLogarithmsAndPositions) {
  const DType dtype = GetParam();
  std::mt19937_64 rng(4);
  for (const Shape& sizes : {Shape{}, Shape{0}, Shape{1}, Shape{9}, Shape{4, 70}, Shape{5, 3, 2},
                             Shape{3, 1000}, Shape{9, 255}, Shape{700, 40}, Shape{100, 72},
                             Shape{2, 33, 41}, Shape{20000}, Shape{3, 9000, 2}})
    for (int dim = 0; dim < std::max(1, int(sizes.size())); ++dim)
      for (const Layout& layout : dense_and_strided_layouts(sizes)) {
        Layout of_all(sizes);
        if (too_large_for_reference(of_all.numel() / 8)) continue;
        const auto outs = dense_and_strided_layouts(sizes);
        const auto any = [&]() -> const Layout& { return outs[rng() % outs.size()]; };
        GuardedBuffer in(dtype, layout), factors(dtype, any()), out(dtype, any()),
            wide(kFloat64, any()), logs(dtype, any()), indices(kInt64, any());
        in.fill([&](IntList) { return double(int(rng() % 9) - 4); });
        factors.fill([&](IntList) { return rng() % 3 == 0 ? 0.5 : rng() % 3 == 0 ? -0.5 : 0.0; });
        const bool reverse = rng() % 2, largest = rng() % 2;
        const int64_t n = sizes.empty() ? 1 : sizes[size_t(dim)];
        // Exponentials of whole numbers that grow towards the end, with infinities.
        GuardedBuffer exponents(dtype, any());
        exponents.fill(
            [&](IntList) { return rng() % 50 == 0 ? -INFINITY : double(int(rng() % 60) - 30); });
        GuardedBuffer values(dtype, any());
        values.fill([&](IntList) { return rng() % 300 == 0 ? NAN : double(rng() % 5); });
        prim::ScanArgs scan{.monoid = Monoid::sum,
                            .in = in.view(),
                            .out = out.view(),
                            .dim = dim,
                            .reverse = reverse,
                            .factors = factors.view()};
        backend_under_test().scan(scan);
        for (GuardedBuffer* to : {&logs, &wide})
          backend_under_test().scan({.monoid = Monoid::sum,
                                     .in = exponents.view(),
                                     .out = to->view(),
                                     .dim = dim,
                                     .reverse = reverse,
                                     .logarithmic = true});
        GuardedBuffer extremes(dtype, any());
        backend_under_test().scan({.monoid = largest ? Monoid::max : Monoid::min,
                                   .in = values.view(),
                                   .out = extremes.view(),
                                   .dim = dim,
                                   .reverse = reverse,
                                   .indices = indices.view()});
        for (const GuardedBuffer* b : {&out, &wide, &logs, &indices, &extremes})
          ASSERT_TRUE(b->guards_intact());
        Shape heads = sizes;
        if (!sizes.empty()) heads[size_t(dim)] = std::min<int64_t>(n, 1);
        for (IndexWalk w(heads); w; ++w) {
          double carry = 0, top = -INFINITY, sum = 0, best = 0;
          int64_t place = -1;
          for (int64_t step = 0; step < n; ++step) {
            const int64_t i = reverse ? n - 1 - step : step;
            Shape at = *w;
            if (!at.empty()) at[size_t(dim)] = i;
            const double y = in.get(at) + carry;
            carry = y * factors.get(at);
            ASSERT_NEAR(out.get(at), y, tolerance(dtype, 1, 16)) << name_of(dtype) << " " << i;
            const double v = exponents.get(at);
            if (v > top) {
              sum *= std::exp(top - v);
              top = v;
            }
            if (top > -INFINITY) sum += std::exp(v - top);
            const double log = top > -INFINITY ? top + std::log(sum) : -INFINITY;
            if (std::isinf(log)) {
              ASSERT_EQ(logs.get(at), log);
              ASSERT_EQ(wide.get(at), log);
            } else {
              ASSERT_NEAR(logs.get(at), log, tolerance(dtype, n, 30)) << name_of(dtype);
              ASSERT_NEAR(wide.get(at), log, tolerance(kFloat64, n, 30)) << name_of(dtype);
            }
            const double x = values.get(at);
            if (place < 0 || x != x || (largest ? x >= best : x <= best)) {
              best = x;
              place = step;
            }
            ASSERT_EQ(indices.get(at), double(place)) << name_of(dtype);
            ASSERT_TRUE(same_value(extremes.get(at), best));
          }
        }
      }
}

INSTANTIATE_TEST_SUITE_P(Types, ScanOfType,
                         ::testing::Values(kFloat32, kFloat64, kBFloat16, kFloat16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(Scan, InPlaceAndConverting) {
  GuardedBuffer mask(kBool, Shape{6}), out(kInt64, Shape{6});
  mask.fill([](IntList i) { return double(i[0] % 2); });
  backend_under_test().scan(
      {.monoid = Monoid::sum, .in = mask.view(), .out = out.view(), .dim = 0});
  EXPECT_EQ(out.values(), (std::vector<double>{0, 1, 1, 2, 2, 3}));
  backend_under_test().scan({.monoid = Monoid::sum, .in = out.view(), .out = out.view(), .dim = 0});
  EXPECT_EQ(out.values(), (std::vector<double>{0, 1, 2, 4, 6, 9}));
}

// The chunks do not depend on the number of threads.
TEST(Scan, SameBitsForAnyNumberOfThreads) {
  std::mt19937_64 rng(3);
  const int64_t n = 700001;
  GuardedBuffer in(kFloat32, Shape{n}), one(kFloat32, Shape{n}), many(kFloat32, Shape{n});
  in.fill([&](IntList) { return double(rng() >> 11) * 0x1p-53 - 0.5; });
  const int before = num_threads();
  set_num_threads(1);
  backend_under_test().scan({.monoid = Monoid::sum, .in = in.view(), .out = one.view(), .dim = 0});
  set_num_threads(3);
  backend_under_test().scan({.monoid = Monoid::sum, .in = in.view(), .out = many.view(), .dim = 0});
  set_num_threads(before);
  EXPECT_EQ(one.values(), many.values());
}

}  // namespace
}  // namespace arete::test
