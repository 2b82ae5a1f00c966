// Positions and coordinates of true elements.
#include <gtest/gtest.h>

#include "arete/prim/backend.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

// Coordinates with room for all elements, and for those alone that there are, by dimension and by
// element.
void check_coordinates(const GuardedBuffer& mask, int64_t n) {
  const int64_t rank = int64_t(mask.layout().sizes.size());
  std::vector<std::vector<double>> expected(size_t(rank), std::vector<double>{});
  for (IndexWalk w(mask.layout().sizes); w; ++w)
    if (mask.get(*w) != 0)
      for (size_t d = 0; d < size_t(rank); ++d) expected[d].push_back(double((*w)[d]));
  for (const int64_t room : {mask.layout().numel(), n})
    for (const bool by_element : {false, true}) {
      const Layout layout =
          by_element ? transpose(Layout(IntList{room, rank}), 0, 1) : Layout(IntList{rank, room});
      GuardedBuffer out(kInt64, layout);
      if (room > 0) {
        ASSERT_EQ(backend_under_test().compact({.mask = mask.view(), .out = out.view()}), n);
      }
      for (int64_t d = 0; d < rank; ++d)
        for (int64_t i = 0; i < n; ++i)
          ASSERT_EQ(out.get(Shape{d, i}), expected[size_t(d)][size_t(i)])
              << d << " " << i << " of " << n;
      EXPECT_TRUE(out.guards_intact());
    }
}

void check(const GuardedBuffer& mask) {
  std::vector<double> expected;
  int64_t flat = 0;
  for (IndexWalk w(mask.layout().sizes); w; ++w, ++flat)
    if (mask.get(*w) != 0) expected.push_back(double(flat));
  GuardedBuffer out(kInt64, Shape{mask.layout().numel()});
  const int64_t n = backend_under_test().compact({.mask = mask.view(), .out = out.view()});
  ASSERT_EQ(n, int64_t(expected.size()));
  if (test_device().is_cpu()) {
    EXPECT_EQ(backend_under_test().compact({.mask = mask.view(), .out = prim::View{}}), n);
  }
  std::vector<double> got = out.values();
  got.resize(size_t(n));
  EXPECT_EQ(got, expected);
  EXPECT_TRUE(out.guards_intact());
  if (mask.layout().sizes.size() > 1) check_coordinates(mask, n);
}

TEST(Compact, LayoutsAndDensities) {
  std::mt19937_64 rng(1);
  for (DType dtype : {kBool, kUInt8})
    for (const Shape& sizes :
         {Shape{}, Shape{0}, Shape{1}, Shape{100}, Shape{3, 0, 2}, Shape{5, 6, 7}})
      for (const Layout& layout : input_layouts(sizes))
        for (uint64_t density : {0, 1, 5, 10}) {
          GuardedBuffer mask(dtype, layout);
          mask.fill([&](IntList) { return double(rng() % 10 < density); });
          check(mask);
        }
}

TEST(Compact, SeveralChunks) {
  std::mt19937_64 rng(2);
  for (const Layout& layout : dense_and_strided_layouts(Shape{350, 301})) {
    GuardedBuffer mask(kBool, layout);
    mask.fill([&](IntList i) { return double(i[0] < 100 ? 1 : i[0] < 200 ? 0 : rng() % 2); });
    check(mask);
    mask.fill([&](IntList) { return double(rng() % 9 == 0); });
    check(mask);
  }
}

}  // namespace
}  // namespace arete::test
