// Positions of true elements.
#include <gtest/gtest.h>

#include "arete/prim/backend.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

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
