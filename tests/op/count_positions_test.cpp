// What is computed from the numbers of elements: less than a row of them, rows, and what is left.
#include <gtest/gtest.h>

#include "arete/ops/creation.h"
#include "arete/ops/fft.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "tests/support/test_device.h"

namespace arete {
namespace {

constexpr int64_t kShort = 1000, kRow = int64_t{1} << 16, kLong = (int64_t{1} << 22) + 77;

// On the host, by definition.
Tensor frequencies(int64_t n, DType dtype) {
  std::vector<double> all;
  for (int64_t i = 0; i < n; ++i)
    all.push_back(double(i < (n + 1) / 2 ? i : i - n) * (1 / (double(n) * 0.25)));
  return tensor(all, kFloat64).to(dtype);
}

TEST(CountPositions, Frequencies) {
  for (const auto& [n, dtype] : {std::pair{int64_t{1}, kFloat32},
                                 {int64_t{2}, kFloat32},
                                 {kShort, kFloat16},
                                 {kShort, kFloat64},
                                 {kRow, kFloat32},
                                 {kRow + 1, kFloat32},
                                 {3 * kRow, kBFloat16},
                                 {kLong, kFloat32},
                                 {kLong, kFloat16}}) {
    const Tensor found = fft::fftfreq(n, 0.25, TensorOptions(dtype, test::test_device()));
    EXPECT_TRUE(equal(found.cpu(), frequencies(n, dtype))) << n << " " << name_of(dtype);
    const Tensor half = fft::rfftfreq(n, 0.25, TensorOptions(dtype, test::test_device()));
    ASSERT_EQ(half.numel(), n / 2 + 1);
    // The same numbers, but the last one of an even count is not below zero.
    const int64_t same = (n + 1) / 2;
    EXPECT_TRUE(equal(half.narrow(0, 0, same).cpu(), frequencies(n, dtype).narrow(0, 0, same)));
  }
}

TEST(CountPositions, Triangles) {
  for (const DType dtype : {kInt64, kInt32})
    for (const int64_t rows : {int64_t{30}, int64_t{700}}) {
      const TensorOptions here(dtype, test::test_device()), host(dtype);
      EXPECT_TRUE(equal(tril_indices(rows, rows + 3, 2, here).cpu(),
                        tril_indices(rows, rows + 3, 2, host)));
      EXPECT_TRUE(equal(triu_indices(rows, rows + 3, -2, here).cpu(),
                        triu_indices(rows, rows + 3, -2, host)));
    }
}

}  // namespace
}  // namespace arete
