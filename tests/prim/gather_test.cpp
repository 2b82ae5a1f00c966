// gather and take_rows against plain loops.
#include <gtest/gtest.h>

#include <algorithm>

#include "arete/base/error.h"
#include "arete/prim/backend.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

int64_t pick_index(std::mt19937_64& rng, int64_t size) {
  return int64_t(rng() % uint64_t(2 * size)) - size;  // negative ones count from the end
}

TEST(Gather, EveryDtypeAndLayout) {
  std::mt19937_64 rng(1);
  for (int t = 0; t < kNumDTypes; ++t)
    for (const Shape& in_sizes : {Shape{}, Shape{5}, Shape{4, 6}, Shape{3, 5, 4}})
      for (int dim = 0; dim < std::max(1, int(in_sizes.size())); ++dim)
        for (int64_t n : {0, 1, 7}) {
          Shape out_sizes = in_sizes;  // other dimensions may be shorter than the input's
          for (int64_t& s : out_sizes) s = std::max<int64_t>(1, s - int64_t(rng() % 2));
          if (!in_sizes.empty()) out_sizes[size_t(dim)] = n;
          for (const Layout& layout : input_layouts(in_sizes)) {
            GuardedBuffer in(DType(t), layout);
            in.fill_random(rng, 0, 100);
            const auto index_layouts = input_layouts(out_sizes);
            const auto out_layouts = dense_and_strided_layouts(out_sizes);
            GuardedBuffer index(kInt64, index_layouts[rng() % index_layouts.size()]);
            GuardedBuffer out(DType(t), out_layouts[rng() % out_layouts.size()]);
            const int64_t size = in_sizes.empty() ? 1 : in_sizes[size_t(dim)];
            for (IndexWalk w(out_sizes); w; ++w) index.set_at<int64_t>(*w, pick_index(rng, size));
            backend_under_test().gather(
                {.in = in.view(), .index = index.view(), .out = out.view(), .dim = dim});
            ASSERT_TRUE(out.guards_intact());
            for (IndexWalk w(out_sizes); w; ++w) {
              Shape from = *w;
              const int64_t i = index.at<int64_t>(*w);
              if (!from.empty()) from[size_t(dim)] = i < 0 ? i + size : i;
              ASSERT_EQ(out.get(*w), in.get(from)) << name_of(DType(t));
            }
          }
        }
}

// One index for all that lies behind it, as index_select has it.
TEST(Gather, AnIndexMovesRuns) {
  std::mt19937_64 rng(3);
  for (DType t : {kUInt8, kBFloat16, kFloat32, kFloat64})
    for (int64_t run : {1, 3, 4, 6, 8, 16, 20})
      for (int64_t gap : {0, 1, 8}) {
        const Shape in_sizes{3, 5, run}, out_sizes{3, 7, run};
        Layout from(in_sizes), one(Shape{7});
        from.strides = {5 * (run + gap), run + gap, 1};
        GuardedBuffer in(t, from), out(t, out_sizes), index(kInt64, one);
        in.fill_random(rng, 0, 100);
        for (IndexWalk w(one.sizes); w; ++w) index.set_at<int64_t>(*w, pick_index(rng, 5));
        prim::View positions = index.view();
        const Shape steps{0, 1, 0};
        positions.sizes = out_sizes;
        positions.strides = steps;
        backend_under_test().gather(
            {.in = in.view(), .index = positions, .out = out.view(), .dim = 1});
        ASSERT_TRUE(out.guards_intact());
        for (IndexWalk w(out_sizes); w; ++w) {
          const int64_t i = index.at<int64_t>(Shape{(*w)[1]});
          ASSERT_EQ(out.get(*w), in.get(Shape{(*w)[0], i < 0 ? i + 5 : i, (*w)[2]}))
              << name_of(t) << " runs of " << run;
        }
      }
}

void expect_index_error(auto&& f, std::string_view op, std::string_view text) {
  try {
    f();
    ADD_FAILURE() << "no error";
  } catch (const IndexError& e) {
    EXPECT_EQ(e.op(), op);
    EXPECT_NE(std::string_view(e.what()).find(text), std::string_view::npos) << e.what();
  }
}

TEST(Gather, IndexOutOfRange) {
  for (int64_t bad : {int64_t(3), int64_t(-4), INT64_MAX, INT64_MIN}) {
    GuardedBuffer in(kFloat32, Shape{2, 3}), index(kInt64, Shape{2, 2}), out(kFloat32, Shape{2, 2});
    index.set_at<int64_t>(Shape{1, 1}, bad);
    expect_index_error(
        [&] {
          backend_under_test().gather({.in = in.view(),
                                       .index = index.view(),
                                       .out = out.view(),
                                       .dim = 1,
                                       .op = "take_along_dim"});
        },
        "take_along_dim",
        "index " + std::to_string(bad) + " is out of bounds for dimension 1 with size 3");
    EXPECT_TRUE(out.guards_intact());
  }
}

TEST(Gather, LeavesAnIndexOut) {
  for (const int64_t left_out : {int64_t(-100), int64_t(0), int64_t(2), INT64_MIN})
    for (const bool slices : {false, true}) {
      // One index for each element, or for rows.
      GuardedBuffer in(kFloat32, Shape{4, 3}), out(kFloat32, Shape{5, 3}),
          index(kInt64, slices ? Layout(Shape{5, 3}, Shape{1, 0}) : Layout(Shape{5, 3}));
      for (IndexWalk w(Shape{4, 3}); w; ++w) in.set_at<float>(*w, float(1 + (*w)[0] * 3 + (*w)[1]));
      const auto place = [&](const Shape& at) {
        const int64_t i = (at[0] + (slices ? 0 : at[1])) % 5;
        return i == 4 ? left_out : i;
      };
      for (IndexWalk w(Shape{5, 3}); w; ++w) index.set_at<int64_t>(*w, place(*w));
      prim::GatherArgs args{.in = in.view(), .index = index.view(), .out = out.view(), .dim = 0};
      args.leaves_out = true;
      args.left_out = left_out;
      backend_under_test().gather(args);
      ASSERT_TRUE(out.guards_intact());
      for (IndexWalk w(Shape{5, 3}); w; ++w) {
        const int64_t i = place(*w);
        ASSERT_EQ(out.at<float>(*w), i == left_out ? 0 : in.at<float>(Shape{i, (*w)[1]}));
      }
      // Nothing counts from the end.
      index.set_at<int64_t>(Shape{1, 0}, -1);
      args.op = "cross_entropy";
      expect_index_error([&] { backend_under_test().gather(args); }, "cross_entropy",
                         "index -1 is out of bounds for dimension 0 with size 4");
    }
}

TEST(TakeRows, EveryDtypeNativeAndDecomposed) {
  std::mt19937_64 rng(2);
  for (int t = 0; t < kNumDTypes; ++t)
    for (int64_t width : {0, 1, 3, 130})
      for (int64_t n : {0, 1, 9})
        for (bool decomposed : {false, true})
          for (const Layout& layout : input_layouts(Shape{6, width})) {
            GuardedBuffer table(DType(t), layout), index(kInt64, Shape{n});
            const auto outs = dense_and_strided_layouts(Shape{n, width});
            GuardedBuffer out(DType(t), outs[rng() % outs.size()]);
            table.fill_random(rng, 0, 100);
            for (IndexWalk w(Shape{n}); w; ++w) index.set_at<int64_t>(*w, pick_index(rng, 6));
            const prim::TakeRowsArgs args{table.view(), index.view(), out.view()};
            decomposed ? backend_under_test().Primitives::take_rows(args)
                       : backend_under_test().take_rows(args);
            ASSERT_TRUE(out.guards_intact());
            for (IndexWalk w(Shape{n, width}); w; ++w) {
              const int64_t i = index.at<int64_t>(Shape{(*w)[0]});
              ASSERT_EQ(out.get(*w), table.get(Shape{i < 0 ? i + 6 : i, (*w)[1]}));
            }
          }
}

TEST(TakeRows, IndexOutOfRange) {
  GuardedBuffer table(kFloat32, Shape{4, 8}), index(kInt64, Shape{3}), out(kFloat32, Shape{3, 8});
  index.set_at<int64_t>(Shape{2}, 4);
  for (bool decomposed : {false, true})
    expect_index_error(
        [&] {
          const prim::TakeRowsArgs args{table.view(), index.view(), out.view(), "embedding"};
          decomposed ? backend_under_test().Primitives::take_rows(args)
                     : backend_under_test().take_rows(args);
        },
        "embedding", "index 4 is out of bounds for dimension 0 with size 4");
}

}  // namespace
}  // namespace arete::test
