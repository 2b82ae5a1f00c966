// topk, the backend's own and the decomposition, against a stable sort.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "arete/prim/backend.h"
#include "tests/prim/ordering_reference.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

void check(DType dtype, const Layout& layout, int dim, int64_t k, bool largest, bool decomposed,
           std::mt19937_64& rng) {
  GuardedBuffer in(dtype, layout);
  in.fill_random(rng, -100, 100);
  if (is_floating(dtype))
    for (IndexWalk w(layout.sizes); w; ++w)
      if (rng() % 50 == 0) in.set(*w, std::nan(""));
  Shape out_sizes = layout.sizes;
  if (!out_sizes.empty()) out_sizes[size_t(dim)] = k;
  const auto layouts = dense_and_strided_layouts(out_sizes);
  GuardedBuffer values(dtype, layouts[rng() % layouts.size()]),
      indices(kInt64, layouts[rng() % layouts.size()]);
  const prim::TopkArgs args{.in = in.view(),
                            .values = values.view(),
                            .indices = indices.view(),
                            .dim = dim,
                            .largest = largest};
  decomposed ? backend_under_test().Primitives::topk(args) : backend_under_test().topk(args);
  ASSERT_TRUE(values.guards_intact() && indices.guards_intact());
  for (IndexWalk w(out_sizes); w; ++w) {
    Shape at = *w;
    std::vector<double> lane;
    if (at.empty())
      lane = {in.get({})};
    else
      for (int64_t i = 0; i < layout.sizes[size_t(dim)]; ++i) {
        at[size_t(dim)] = i;
        lane.push_back(in.get(at));
      }
    const int64_t rank = (*w).empty() ? 0 : (*w)[size_t(dim)];
    const int64_t position = sorted_positions(lane, largest)[size_t(rank)];
    ASSERT_EQ(indices.at<int64_t>(*w), position) << name_of(dtype) << " k=" << k;
    ASSERT_TRUE(same_value(values.get(*w), lane[size_t(position)]));
  }
}

TEST(Topk, EveryDtype) {
  std::mt19937_64 rng(1);
  for (DType dtype : real_dtypes())
    for (const Shape& sizes :
         {Shape{}, Shape{1}, Shape{50}, Shape{4, 7}, Shape{7, 2, 3}, Shape{2, 900}})
      for (int dim = 0; dim < std::max(1, int(sizes.size())); ++dim) {
        const int64_t n = sizes.empty() ? 1 : sizes[size_t(dim)];
        for (int64_t k : {int64_t(0), int64_t(1), (n + 1) / 2, n})
          for (bool decomposed : {false, true}) {
            if (sizes.empty() && k == 0) continue;
            const auto layouts = input_layouts(sizes);
            if (n > 800 && k > 1 && dim == 1 && dtype != kFloat32) continue;  // slow reference
            check(dtype, layouts[rng() % layouts.size()], dim, k, rng() % 2, decomposed, rng);
            if (HasFatalFailure()) return;
          }
      }
}

// Few of many, with one, few and many different numbers and some NaN, along either dimension.
TEST(Topk, FewOfLongRows) {
  std::mt19937_64 rng(3);
  for (DType dtype : {kFloat32, kFloat64, kBFloat16, kInt64, kUInt8})
    for (int64_t n : {1025, 5000, 16384, 20001})
      for (int64_t k : {2, 250})
        for (uint64_t different : {1, 3, 2000}) {
          const int dim = int(rng() % 2);
          const bool largest = rng() % 2;
          Shape sizes{2, 2}, out_sizes{2, 2};
          sizes[size_t(dim)] = n;
          out_sizes[size_t(dim)] = k;
          GuardedBuffer in(dtype, sizes), values(dtype, out_sizes), indices(kInt64, out_sizes);
          in.fill([&](IntList) {
            if (is_floating(dtype) && different > 1 && rng() % 1000 == 0) return double(NAN);
            const double number = double(rng() % different);
            return dtype == kUInt8 ? std::fmod(number, 256.0) : number - 1;
          });
          backend_under_test().topk({.in = in.view(),
                                     .values = values.view(),
                                     .indices = indices.view(),
                                     .dim = dim,
                                     .largest = largest});
          ASSERT_TRUE(values.guards_intact() && indices.guards_intact());
          for (int64_t row = 0; row < 2; ++row) {
            Shape at{row, row};
            std::vector<double> lane;
            for (int64_t& i = at[size_t(dim)] = 0; i < n; ++i) lane.push_back(in.get(at));
            const std::vector<int64_t> order = sorted_positions(lane, largest);
            for (int64_t& i = at[size_t(dim)] = 0; i < k; ++i) {
              ASSERT_EQ(indices.at<int64_t>(at), order[size_t(i)])
                  << name_of(dtype) << " " << n << " " << k << " " << different;
              ASSERT_TRUE(same_value(values.get(at), lane[size_t(order[size_t(i)])]));
            }
          }
        }
}

TEST(Topk, LongLaneOnSeveralThreads) {
  std::mt19937_64 rng(2);
  const int64_t n = (1 << 17) + 5, k = 100;
  for (bool largest : {false, true}) {
    GuardedBuffer in(kFloat32, Shape{n}), values(kFloat32, Shape{k}), indices(kInt64, Shape{k});
    in.fill([&](IntList) { return double(rng() % 5000); });
    backend_under_test().topk({.in = in.view(),
                               .values = values.view(),
                               .indices = indices.view(),
                               .dim = 0,
                               .largest = largest});
    const std::vector<int64_t> order = sorted_positions(in.values(), largest);
    for (int64_t i = 0; i < k; ++i) ASSERT_EQ(indices.at<int64_t>(Shape{i}), order[size_t(i)]);
  }
}

}  // namespace
}  // namespace arete::test
