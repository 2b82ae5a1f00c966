// copy of the CPU: any strides, any pair of dtypes.
#include <complex>

#include "arete/base/thread_pool.h"
#include "arete/prim/backend.h"
#include "tests/prim/program_reference.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

TEST(Copy, every_pair_of_dtypes) {
  std::mt19937_64 rng(1);
  for (int from = 0; from < kNumDTypes; ++from)
    for (int to = 0; to < kNumDTypes; ++to) {
      SCOPED_TRACE(std::string(name_of(DType(from))) + " to " + std::string(name_of(DType(to))));
      for (const Shape& sizes : {Shape{}, Shape{0}, Shape{1037}, Shape{7, 33}}) {
        GuardedBuffer in(DType(from), random_input_layout(rng, sizes));
        GuardedBuffer out(DType(to), random_layout(rng, sizes));
        in.fill([&](IntList) {
          if (DType(from) == kBool) return double(rng() % 2);
          return double(rng() % 5);  // exact in every type
        });
        backend_under_test().copy({out.view(), in.view()});
        EXPECT_TRUE(out.guards_intact());
        for (IndexWalk w(sizes); w; ++w) {
          const double v = in.get(broadcast_index(in.layout(), *w));
          ASSERT_EQ(out.get(*w), DType(to) == kBool ? double(v != 0) : v) << to_string(*w);
        }
      }
    }
}

TEST(Copy, random_layouts_of_every_size) {
  std::mt19937_64 rng(2);
  for (DType dtype : {kUInt8, kFloat16, kFloat32, kFloat64, kComplex128})
    for (int round = 0; round < 120; ++round) {
      SCOPED_TRACE(round);
      const Shape sizes = random_shape(rng, 6, 20000);
      GuardedBuffer in(dtype, random_input_layout(rng, sizes));
      GuardedBuffer out(dtype, random_layout(rng, sizes));
      in.fill([&](IntList) { return double(rng() % 200); });
      backend_under_test().copy({out.view(), in.view()});
      EXPECT_TRUE(out.guards_intact());
      for (IndexWalk w(sizes); w; ++w)
        ASSERT_EQ(out.get(*w), in.get(broadcast_index(in.layout(), *w)))
            << to_string(*w) << " of " << to_string(sizes);
    }
}

// Parts of longer runs, and of rows of odd lengths, that begin at any element.
TEST(Copy, runs_and_rows_at_odd_places) {
  for (DType dtype : {kUInt8, kFloat16, kFloat32})
    for (const auto& [rows, row, length] :
         {std::tuple{int64_t(1), int64_t(1200000), int64_t(1100003)}, {301, 207, 197}}) {
      GuardedBuffer in(dtype, Shape{rows * row}), out(dtype, Shape{rows * row});
      in.fill([](IntList at) { return double(at[0] * 7 % 251); });
      for (const auto& [from, to] : {std::pair{0, 0}, {1, 6}, {3, 3}, {8, 5}}) {
        out.fill([](IntList) { return 77.0; });
        const Shape sizes{rows, length}, strides{row, 1};
        prim::View source = in.view(), target = out.view();
        source.data += from * int64_t(size_of(dtype));
        target.data += to * int64_t(size_of(dtype));
        for (prim::View* v : {&source, &target}) v->sizes = sizes, v->strides = strides;
        backend_under_test().copy({target, source});
        EXPECT_TRUE(out.guards_intact());
        for (int64_t i = 0; i < rows * row; ++i) {
          const int64_t at = i - to, r = at / row, e = at % row;
          const bool copied = at >= 0 && e < length;
          ASSERT_EQ(out.get(Shape{i}), copied ? in.get(Shape{r * row + e + from}) : 77.0)
              << i << " from " << from << " to " << to;
        }
      }
    }
}

TEST(Copy, transposed) {
  for (int threads : {1, 3}) {
    set_num_threads(threads);
    for (DType dtype : {kInt8, kInt16, kFloat32, kInt64, kComplex128})
      for (const Shape& sizes : {Shape{257, 130}, Shape{64, 64}, Shape{5, 1000}, Shape{1000, 9},
                                 Shape{3, 100, 70}, Shape{70, 3, 100}}) {
        Layout turned(sizes);
        int64_t step = 1;
        for (size_t d = 0; d < sizes.size(); ++d) {
          turned.strides[d] = step;
          step *= sizes[d];
        }
        for (bool forward : {true, false}) {
          GuardedBuffer in(dtype, forward ? turned : Layout(sizes));
          GuardedBuffer out(dtype, forward ? Layout(sizes) : turned);
          int64_t count = 0;
          in.fill([&](IntList) { return double(++count % 120); });
          backend_under_test().copy({out.view(), in.view()});
          EXPECT_TRUE(out.guards_intact());
          for (IndexWalk w(sizes); w; ++w) ASSERT_EQ(out.get(*w), in.get(*w)) << to_string(*w);
        }
      }
  }
}

TEST(Copy, rows_at_any_places_of_their_pages) {
  const Shape sizes{5, 300}, page{1024, 1};
  GuardedBuffer in(kFloat32, Layout(sizes, page));
  in.fill([](IntList i) { return double(i[0] * 1000 + i[1]); });
  for (int64_t shift = 0; shift < 1024; shift += 13) {
    GuardedBuffer out(kFloat32, Layout(sizes, page, shift));
    backend_under_test().copy({out.view(), in.view()});
    EXPECT_TRUE(out.guards_intact());
    for (IndexWalk w(sizes); w; ++w) ASSERT_EQ(out.get(*w), in.get(*w)) << to_string(*w);
  }
}

TEST(Copy, complex_parts) {
  using C64 = std::complex<float>;
  using C128 = std::complex<double>;
  GuardedBuffer a(kComplex64, Layout(Shape{5, 9}, Shape{20, 2}));
  for (IndexWalk w(Shape{5, 9}); w; ++w) a.set_at<C64>(*w, C64(float((*w)[0]), float((*w)[1]) - 4));
  GuardedBuffer b(kComplex128, Shape{5, 9}), c(kBool, Shape{5, 9});
  backend_under_test().copy({b.view(), a.view()});
  backend_under_test().copy({c.view(), a.view()});
  EXPECT_TRUE(b.guards_intact());
  for (IndexWalk w(Shape{5, 9}); w; ++w) {
    EXPECT_EQ(b.at<C128>(*w), C128(a.at<C64>(*w)));
    EXPECT_EQ(c.get(*w) != 0, a.at<C64>(*w) != C64(0));
  }
  GuardedBuffer d(kFloat32, Shape{5, 9});
  d.fill([](IntList i) { return double(i[0]); });
  backend_under_test().copy({a.view(), d.view()});
  for (IndexWalk w(Shape{5, 9}); w; ++w) EXPECT_EQ(a.at<C64>(*w), C64(float((*w)[0]), 0));
  EXPECT_TRUE(a.guards_intact());
}

}  // namespace
}  // namespace arete::test
