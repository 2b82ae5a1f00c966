// iota, and add_rows on shapes that several threads share.
#include <gtest/gtest.h>

#include "arete/base/thread_pool.h"
#include "arete/prim/backend.h"
#include "tests/prim/program_reference.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

TEST(Iota, EveryDtype) {
  for (int t = 0; t < kNumDTypes; ++t)
    for (int64_t stride : {1, 3, -1}) {
      const DType dtype = DType(t);
      GuardedBuffer out(dtype, Layout(Shape{7}, Shape{stride}));
      prim::IotaArgs args{.out = out.view(), .start = 1.5, .step = 0.5};
      args.istart = 3;
      args.istep = 2;
      backend_under_test().iota(args);
      ASSERT_TRUE(out.guards_intact());
      for (int64_t i = 0; i < 7; ++i) {
        GuardedBuffer expected(dtype, Shape{1});  // rounds as the dtype does
        expected.set(Shape{0},
                     is_integral_or_bool(dtype) ? double(3 + 2 * i) : 1.5 + 0.5 * double(i));
        EXPECT_EQ(out.get(Shape{i}), expected.get(Shape{0})) << name_of(dtype);
      }
    }
}

TEST(Iota, WrapsAndStaysExactFarOut) {
  GuardedBuffer wide(kInt64, Shape{3}), narrow(kInt8, Shape{300});
  prim::IotaArgs args{.out = wide.view()};
  args.istart = INT64_MAX - 1;
  backend_under_test().iota(args);
  EXPECT_EQ(wide.at<int64_t>(Shape{1}), INT64_MAX);
  EXPECT_EQ(wide.at<int64_t>(Shape{2}), INT64_MIN);
  backend_under_test().iota({.out = narrow.view()});
  EXPECT_EQ(narrow.at<int8_t>(Shape{299}), int8_t(299 - 256));
}

// Long enough for the parallel paths, by rows and by columns; the order of additions, and so every
// bit, is that of one thread.
TEST(AddRows, SameBitsForAnyNumberOfThreads) {
  std::mt19937_64 rng(1);
  for (const auto& [rows, width, n] : {std::array<int64_t, 3>{50, 512, 2000}, {3000, 20, 20000}}) {
    GuardedBuffer src(kFloat32, Shape{n, width}), index(kInt64, Shape{n});
    src.fill([&](IntList) { return double(rng() >> 11) * 0x1p-53; });
    for (IndexWalk w(Shape{n}); w; ++w) index.set_at<int64_t>(*w, int64_t(rng() % uint64_t(rows)));
    GuardedBuffer expected(kFloat32, Shape{rows, width}), out(kFloat32, Shape{rows, width});
    for (IndexWalk w(Shape{n, width}); w; ++w) {
      const Shape to{index.at<int64_t>(Shape{(*w)[0]}), (*w)[1]};
      expected.set_at<float>(to, expected.at<float>(to) + src.at<float>(*w));
    }
    const int before = num_threads();
    set_num_threads(3);
    backend_under_test().add_rows({out.view(), index.view(), src.view()});
    set_num_threads(before);
    EXPECT_EQ(out.values(), expected.values());
  }
}

// Runs of equal indices are added up in f32, whatever their length and that of the rows, and
// rounded once.
TEST(AddRows, RunsOfHalves) {
  std::mt19937_64 rng(2);
  for (DType dtype : {kFloat16, kBFloat16, kFloat32})
    for (int64_t width : {1, 7, 8, 19, 64, 100}) {
      constexpr int64_t n = 60, rows = 20;
      GuardedBuffer src(dtype, Shape{rows, width}), index(kInt64, Shape{n}),
          source(kInt64, Shape{n}), out(dtype, Shape{11, width});
      src.fill([&](IntList) { return double(rng() >> 11) * 0x1p-53 - 0.5; });
      out.fill([&](IntList) { return double(rng() % 64) / 8; });
      // Of one, of two, of three and so on.
      for (int64_t i = 0, run = 0, left = 1; i < n; ++i, --left) {
        if (left == 0) left = ++run + 1;
        index.set_at<int64_t>(Shape{i}, run);
        source.set_at<int64_t>(Shape{i}, int64_t(rng() % rows));
      }
      std::vector<float> want;
      for (IndexWalk w(Shape{11, width}); w; ++w) {
        float sum = float(out.get(*w));
        for (int64_t i = 0; i < n; ++i)
          if (index.at<int64_t>(Shape{i}) == (*w)[0])
            sum += float(src.get(Shape{source.at<int64_t>(Shape{i}), (*w)[1]}));
        want.push_back(sum);
      }
      prim::AddRowsArgs args{out.view(), index.view(), src.view()};
      args.source = source.view();
      args.sorted = true;
      backend_under_test().add_rows(args);
      EXPECT_TRUE(out.guards_intact());
      size_t at = 0;
      for (IndexWalk w(Shape{11, width}); w; ++w, ++at) {
        GuardedBuffer rounded(dtype, Shape{1});
        rounded.set(Shape{0}, double(want[at]));
        // In this order on CPUs.
        if (test_device().is_cpu())
          ASSERT_EQ(out.get(*w), rounded.get(Shape{0}))
              << name_of(dtype) << " " << width << " " << to_string(*w);
        else
          ASSERT_EQ(mismatch(out.get(*w), double(want[at]), dtype, 12, 16), "");
      }
    }
}

}  // namespace
}  // namespace arete::test
