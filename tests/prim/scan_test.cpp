// Running monoids against a plain loop. Values are chosen so that every partial result is exact.
#include <gtest/gtest.h>

#include "arete/base/thread_pool.h"
#include "arete/prim/backend.h"
#include "tests/prim/ordering_reference.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/test_device.h"

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
