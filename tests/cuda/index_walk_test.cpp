// Walks of gather and scatter in strips: they visit what the whole walk does, each element once.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <vector>

#include "arete/backend/cuda/codegen/index.h"

namespace arete::cuda::indexing {
namespace {

using Addresses = std::array<const std::byte*, 3>;

void visit(const prim::LoopNest& nest, std::map<Addresses, int>& seen) {
  for (int64_t i = 0; i < nest.numel(); ++i) {
    Addresses at;
    for (size_t k = 0; k < 3; ++k) {
      at[k] = nest.operands[k].data;
      int64_t rest = i;
      for (size_t d = 0; d < size_t(nest.rank); rest /= nest.sizes[d++])
        at[k] += rest % nest.sizes[d] * nest.operands[k].strides[d];
    }
    ++seen[at];
  }
}

// The nest of a gather along the dimension before the last one.
struct Rows {
  Rows(Shape sizes, bool own_indices)
      : sizes(std::move(sizes)), out(contiguous_strides(this->sizes)), indices(out), in(out) {
    if (!own_indices) indices.back() = 0;
    in[in.size() - 2] = 0;
  }
  prim::LoopNest nest() {
    const auto view = [&](size_t k, DType t, const Shape& strides) {
      return prim::View{memory.data() + k * (memory.size() / 3), t, sizes, strides};
    };
    const std::array views{view(0, kFloat32, out), view(1, kInt64, indices), view(2, kFloat32, in)};
    return prim::LoopNest::plan(sizes, views);
  }
  Shape sizes, out, indices, in;
  std::vector<std::byte> memory = std::vector<std::byte>(3 << 20);
};

TEST(IndexWalk, StripsVisitEachElementOnce) {
  constexpr int64_t kPositions = 50, kCache = 16384;
  struct Case {
    Shape sizes;
    int64_t rest;  // of the columns, in a walk of its own
  };
  for (const auto& [sizes, rest] :
       {Case{{40, 100}, 36}, Case{{40, 96}, 0}, Case{{3, 33, 141}, 13}, Case{{2, 3, 40, 65}, 33}}) {
    Rows rows(sizes, true);
    const prim::LoopNest whole = rows.nest();
    const int64_t width = strip_width(whole, kPositions, kCache);
    ASSERT_EQ(width, 32) << to_string(sizes);
    const auto walks = strips_of(whole, width);
    EXPECT_EQ(walks.size(), rest ? 2u : 1u);
    std::map<Addresses, int> expected, found;
    visit(whole, expected);
    for (const prim::LoopNest& walk : walks) {
      EXPECT_EQ(walk.sizes[0], &walk == &walks[0] ? width : rest);
      EXPECT_EQ(walk.sizes[1], sizes[sizes.size() - 2]) << "rows come again within a strip";
      visit(walk, found);
    }
    EXPECT_TRUE(found == expected) << to_string(sizes);
    EXPECT_EQ(int64_t(found.size()), whole.numel());
  }
}

TEST(IndexWalk, StripsLeaveNothingOverWhereTheyCan) {
  constexpr int64_t kPositions = 50, kCache = 6 * 4 * kPositions * 64;
  const auto width = [](int64_t columns) {
    Rows rows({40, columns}, true);
    return strip_width(rows.nest(), kPositions, kCache);
  };
  EXPECT_EQ(width(256), 64);
  EXPECT_EQ(width(216), 72) << "three, which are a little wider";
  EXPECT_EQ(width(219), 64) << "three of 73 columns would begin within sectors";
  EXPECT_EQ(width(260), 64) << "and so would four of 65";
  Rows rows({40, 260}, true);
  const auto walks = strips_of(rows.nest(), 64);
  ASSERT_EQ(walks.size(), 2u);
  EXPECT_EQ(walks[0].sizes[2], 3);
  EXPECT_EQ(walks[1].sizes[0], 68) << "with the four that are left over";
  EXPECT_EQ(width(211), 64) << "a prime: three and a rest of 19 would be one launch for few";
}

TEST(IndexWalk, NoStripsWhereTheyWouldNotHelp) {
  constexpr int64_t kPositions = 50, kCache = 16384;
  Rows long_rows({40, 100}, true), short_rows({40, 60}, true), few_rows({8, 100}, true),
      shared({40, 100}, false);
  EXPECT_EQ(strip_width(long_rows.nest(), kPositions, kCache), 32);
  EXPECT_EQ(strip_width(long_rows.nest(), kPositions, 1 << 20), 0) << "all of it fits in the cache";
  EXPECT_EQ(strip_width(long_rows.nest(), 1000, kCache), 0) << "no strip fits in the cache";
  EXPECT_EQ(strip_width(long_rows.nest(), kPositions, 0), 0);
  EXPECT_EQ(strip_width(short_rows.nest(), kPositions, kCache), 0);
  EXPECT_EQ(strip_width(few_rows.nest(), kPositions, kCache), 0);
  EXPECT_EQ(strip_width(shared.nest(), kPositions, kCache), 0) << "whole rows are moved";
}

}  // namespace
}  // namespace arete::cuda::indexing
