// LoopNest against plain index arithmetic: the walk meets every element once, in the same order
// for all operands.
#include "arete/prim/loop_nest.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <set>

#include "tests/support/guarded_buffer.h"

namespace arete::test {
namespace {

using prim::LoopNest;
using prim::View;

struct Operand {
  Shape sizes, strides;
  DType dtype;
};
struct Space {
  Shape sizes;
  std::vector<Operand> operands;
};

/// Any shape of rank <= 5; operands broadcast, are permuted, have gaps, zero and negative strides.
Space arbitrary_space() {
  Space s;
  const int rank = *rc::gen::inRange(0, 6);
  for (int d = 0; d < rank; ++d) s.sizes.push_back(*rc::gen::inRange<int64_t>(0, 5));
  const int n = *rc::gen::inRange(1, 4);
  for (int k = 0; k < n; ++k) {
    Operand o;
    o.dtype = *rc::gen::element(kUInt8, kFloat16, kFloat32, kFloat64);
    const int drop = k == 0 ? 0 : *rc::gen::inRange(0, rank + 1);
    for (int d = drop; d < rank; ++d)
      o.sizes.push_back(k > 0 && *rc::gen::inRange(0, 4) == 0 ? 1 : s.sizes[size_t(d)]);
    std::vector<size_t> order(o.sizes.size());
    for (size_t d = 0; d < order.size(); ++d) order[d] = d;
    if (*rc::gen::arbitrary<bool>()) std::reverse(order.begin(), order.end());
    if (order.size() > 1 && *rc::gen::arbitrary<bool>()) std::swap(order[0], order[1]);
    o.strides = Shape(o.sizes.size(), 0);
    int64_t step = *rc::gen::inRange<int64_t>(1, 3);
    for (size_t d : order) {
      const int kind = *rc::gen::inRange(0, 6);
      o.strides[d] = kind == 0 && k > 0 ? 0 : kind == 1 ? -step : step;
      step *= std::max<int64_t>(o.sizes[d], 1);
      if (kind == 2) step += 2;
    }
    s.operands.push_back(o);
  }
  return s;
}

std::vector<View> views_of(const Space& s) {
  std::vector<View> views;
  for (const Operand& o : s.operands) {
    views.emplace_back(reinterpret_cast<std::byte*>(uintptr_t(1) << 40), o.dtype, o.sizes,
                       o.strides);
  }
  return views;
}

using Offsets = std::vector<int64_t>;  // of all operands at one point

std::multiset<Offsets> naive(const Space& s) {
  std::multiset<Offsets> out;
  for (IndexWalk w(s.sizes); w; ++w) {
    Offsets at;
    for (const Operand& o : s.operands) {
      int64_t offset = 0;
      const size_t skip = s.sizes.size() - o.sizes.size();
      for (size_t d = 0; d < o.sizes.size(); ++d)
        if (o.sizes[d] != 1) offset += (*w)[skip + d] * o.strides[d] * int64_t(size_of(o.dtype));
      at.push_back(offset);
    }
    out.insert(at);
  }
  return out;
}

std::vector<Offsets> walk(const LoopNest& nest) {
  std::vector<Offsets> out;
  Shape sizes;
  for (int d = nest.rank; d-- > 0;) sizes.push_back(nest.sizes[size_t(d)]);
  for (IndexWalk w(sizes); w; ++w) {
    Offsets at;
    for (const LoopNest::Operand& o : nest.operands) {
      int64_t offset = 0;
      for (int d = 0; d < nest.rank; ++d)
        offset += (*w)[size_t(nest.rank - 1 - d)] * o.strides[size_t(d)];
      at.push_back(offset);
    }
    out.push_back(at);
  }
  return out;
}

RC_GTEST_PROP(LoopNestProperty, visits_what_plain_loops_visit, ()) {
  const Space s = arbitrary_space();
  const LoopNest nest = LoopNest::plan(s.sizes, views_of(s));
  RC_ASSERT(nest.rank >= 1);
  RC_ASSERT(nest.numel() == numel_of(s.sizes));
  const std::vector<Offsets> got = walk(nest);
  RC_ASSERT(std::multiset<Offsets>(got.begin(), got.end()) == naive(s));
}

RC_GTEST_PROP(LoopNestProperty, keep_order_is_row_major, ()) {
  const Space s = arbitrary_space();
  const std::vector<Offsets> got = walk(LoopNest::plan(s.sizes, views_of(s), true));
  size_t at = 0;
  for (IndexWalk w(s.sizes); w; ++w, ++at) {
    const Operand& o = s.operands[0];
    int64_t offset = 0;
    for (size_t d = 0; d < o.sizes.size(); ++d)
      if (o.sizes[d] != 1) offset += (*w)[d] * o.strides[d] * int64_t(size_of(o.dtype));
    RC_ASSERT(at < got.size());
    RC_ASSERT(got[at][0] == offset);
  }
  RC_ASSERT(at == got.size());
}

RC_GTEST_PROP(LoopNestProperty, split_keeps_the_parts_apart, ()) {
  const Space s = arbitrary_space();
  const int outer = *rc::gen::inRange(0, int(s.sizes.size()) + 1);
  int inner_rank = 0;
  const LoopNest nest = LoopNest::plan_split(s.sizes, outer, views_of(s), &inner_rank);
  RC_ASSERT(inner_rank >= 1);
  RC_ASSERT(inner_rank <= nest.rank);
  int64_t inside = 1, outside = 1;
  for (size_t d = 0; d < s.sizes.size(); ++d) (int(d) < outer ? outside : inside) *= s.sizes[d];
  int64_t got_inside = 1, got_outside = 1;
  for (int d = 0; d < nest.rank; ++d)
    (d < inner_rank ? got_inside : got_outside) *= nest.sizes[size_t(d)];
  RC_ASSERT(got_inside == inside);
  RC_ASSERT(got_outside == outside);
  const std::vector<Offsets> got = walk(nest);
  RC_ASSERT(std::multiset<Offsets>(got.begin(), got.end()) == naive(s));
}

RC_GTEST_PROP(LoopNestProperty, reduced_dimensions_are_inner_wherever_they_stand, ()) {
  const Space s = arbitrary_space();
  const auto reduced = *rc::gen::inRange<uint32_t>(0, uint32_t(1) << s.sizes.size());
  int inner_rank = 0;
  const LoopNest nest = LoopNest::plan_reduced(s.sizes, reduced, views_of(s), &inner_rank);
  RC_ASSERT(inner_rank >= 1);
  RC_ASSERT(inner_rank <= nest.rank);
  int64_t inside = 1, got_inside = 1;
  for (size_t d = 0; d < s.sizes.size(); ++d)
    if (reduced >> d & 1) inside *= s.sizes[d];
  for (int d = 0; d < inner_rank; ++d) got_inside *= nest.sizes[size_t(d)];
  RC_ASSERT(got_inside == inside);
  const std::vector<Offsets> got = walk(nest);
  RC_ASSERT(std::multiset<Offsets>(got.begin(), got.end()) == naive(s));
}

LoopNest plan(const Shape& space, std::vector<std::pair<Shape, Shape>> operands) {
  Space s{space, {}};
  for (auto& [sizes, strides] : operands) s.operands.push_back({sizes, strides, kFloat32});
  return LoopNest::plan(s.sizes, views_of(s));
}

TEST(LoopNest, contiguous_operands_become_one_run) {
  const LoopNest nest = plan({4, 5, 6}, {{{4, 5, 6}, {30, 6, 1}}, {{4, 5, 6}, {30, 6, 1}}});
  EXPECT_EQ(nest.rank, 1);
  EXPECT_EQ(nest.sizes[0], 120);
  EXPECT_TRUE(nest.is_linear());
}

TEST(LoopNest, permuted_alike_become_one_run) {
  const LoopNest nest = plan({4, 5, 6}, {{{4, 5, 6}, {1, 4, 20}}, {{4, 5, 6}, {1, 4, 20}}});
  EXPECT_EQ(nest.rank, 1);
  EXPECT_TRUE(nest.is_linear());
}

TEST(LoopNest, the_output_decides_the_order) {
  const LoopNest nest = plan({4, 5}, {{{4, 5}, {5, 1}}, {{4, 5}, {1, 4}}});
  ASSERT_EQ(nest.rank, 2);
  EXPECT_EQ(nest.sizes[0], 5);
  EXPECT_EQ(nest.operands[0].strides[0], 4);
  EXPECT_EQ(nest.operands[1].strides[0], 16);
  EXPECT_FALSE(nest.is_linear());
}

TEST(LoopNest, broadcast_rows_and_scalars) {
  const LoopNest bias = plan({8, 5}, {{{8, 5}, {5, 1}}, {{5}, {1}}});
  ASSERT_EQ(bias.rank, 2);
  EXPECT_EQ(bias.operands[1].strides[1], 0);
  const LoopNest scalar = plan({8, 5}, {{{8, 5}, {5, 1}}, {{}, {}}});
  EXPECT_EQ(scalar.rank, 1);
  EXPECT_TRUE(scalar.is_linear());
}

TEST(LoopNest, rank_zero_and_empty) {
  const LoopNest one = plan({}, {{{}, {}}});
  EXPECT_EQ(one.rank, 1);
  EXPECT_EQ(one.numel(), 1);
  EXPECT_TRUE(one.is_linear());
  EXPECT_EQ(plan({3, 0}, {{{3, 0}, {1, 1}}}).numel(), 0);
}

TEST(LoopNest, offsets_that_need_64_bits) {
  const int64_t big = int64_t(1) << 28;
  EXPECT_TRUE(plan({big}, {{{big}, {1}}}).fits_32bit());
  EXPECT_FALSE(plan({4 * big}, {{{4 * big}, {1}}}).fits_32bit());
  EXPECT_FALSE(plan({big, 2}, {{{big, 2}, {-4, 1}}}).fits_32bit());
}

}  // namespace
}  // namespace arete::test
