// More than 2^31 elements: nowhere may an index or a byte count be 32 bits wide.
#include <gtest/gtest.h>

#include "arete/core/modes.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "tests/support/test_device.h"

namespace arete {
namespace {

constexpr int64_t kMany = (int64_t(1) << 31) + 8;

TEST(LargeIndex, OneLongTensor) {
#ifdef ARETE_SANITIZED
  GTEST_SKIP() << "checking every byte of two gigabytes takes minutes";
#endif
  if (test::too_large_for_reference(kMany)) GTEST_SKIP();
  // Two gigabytes; freed at the end of the test.
  Tensor x = zeros({kMany}, TensorOptions(kUInt8, test::test_device()));
  x[kMany - 1].fill_(3);
  x[(int64_t(1) << 31) - 1].fill_(4);
  EXPECT_EQ(x.sum().item<int64_t>(), 7);
  EXPECT_EQ(x.argmax().item<int64_t>(), (int64_t(1) << 31) - 1);
  x.add_(1);
  EXPECT_EQ(x.narrow(0, kMany - 2, 2).to_vector<int64_t>(), (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(x.index_select(0, tensor(std::vector<int64_t>{kMany - 1}, test::test_device()))
                .item<int64_t>(),
            4);
  const Tensor columns = x.view({kMany / 8, 8});
  EXPECT_EQ(columns.sum(0)[7].item<int64_t>(), kMany / 8 + 3 + 4);
}

TEST(LargeIndex, BroadcastViewsNeedNoMemory) {
  if (test::too_large_for_reference(int64_t(1) << 32)) GTEST_SKIP();
  const Tensor one = ones({1, 1}, TensorOptions(kFloat32, test::test_device()));
  const Tensor wide = one.expand({int64_t(1) << 20, int64_t(1) << 12});
  EXPECT_EQ(wide.numel(), int64_t(1) << 32);
  EXPECT_EQ(wide.sum().item<double>(), double(int64_t(1) << 32));
}

// Each element has an index of its own along the first dimension, of more than caches hold.
TEST(LargeIndex, RowsOfOwnIndices) {
  constexpr int64_t kRows = 900, kColumns = 8001;
  if (test::too_large_for_reference(kRows * kColumns)) GTEST_SKIP();
  const TensorOptions here(kInt64, test::test_device());
  const Tensor row = arange(kRows, here).unsqueeze(1), column = arange(kColumns, here);
  const Tensor index = (row * 7 + column * 13).remainder(kRows);
  const Tensor x = (row * kColumns + column).remainder(1009).to(kFloat32);
  const Tensor picked = x.gather(0, index);
  EXPECT_TRUE(equal(picked, (index * kColumns + column).remainder(1009).to(kFloat32)));
  // In a column 7 r + 13 c goes through all rows once: 7 does not divide their number.
  const Tensor back = zeros({kRows, kColumns}, TensorOptions(kFloat32, here.device_));
  EXPECT_TRUE(equal(back.scatter(0, index, picked), x));
  EXPECT_TRUE(equal(back.scatter_add(0, index, picked).add(x), x * 2));
  EXPECT_TRUE(
      equal(ones_like(x)
                .scatter_add(0, index.sub(index.remainder(2)).div(2).to(kInt64), ones_like(x))
                .sum(0),
            full({kColumns}, 2.0 * kRows, back.options())));
}

TEST(LargeIndex, SizesThatOverflowAreErrors) {
  EXPECT_THROW(empty({int64_t(1) << 40, int64_t(1) << 40}), Error);
  EXPECT_THROW(empty({int64_t(1) << 61}, kFloat64), Error);
  EXPECT_THROW(ops::empty_tensor({int64_t(1) << 48}, kUInt8, kCPU), Error) << "256 TiB";
}

}  // namespace
}  // namespace arete
