// Numbers that stay in a device's memory.
#include "arete/prim/positions.h"

#include <gtest/gtest.h>

#include <vector>

#include "arete/prim/compiled_kernels.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

template <class T>
void expect_numbers(DType dtype) {
  const Device device = test_device();
  constexpr int64_t kCount = 60000;
  const std::byte* rehearsed;
  {
    const prim::Rehearsal rehearsal;  // on GPUs nothing is copied: what it makes must not stay
    rehearsed = prim::kept_numbers(device, dtype, kCount);
  }
  const std::byte* const kept = prim::kept_numbers(device, dtype, kCount);
  ASSERT_NE(kept, nullptr);
  EXPECT_TRUE(!rehearsed || rehearsed == kept);  // they may have been there before
  EXPECT_TRUE(prim::are_kept_numbers(kept));
  EXPECT_EQ(prim::kept_numbers(device, dtype, 1), kept);
  std::vector<T> numbers(kCount);
  prim::backend_for(device).copy_to_host(numbers.data(), kept, numbers.size() * sizeof(T));
  for (int64_t i = 0; i < kCount; ++i) ASSERT_EQ(numbers[size_t(i)], T(i));
  EXPECT_EQ(prim::kept_numbers(device, dtype, int64_t{1} << 40), nullptr);
}

TEST(KeptNumbers, are_counted_from_zero) {
  expect_numbers<int32_t>(kInt32);
  expect_numbers<int64_t>(kInt64);
}

}  // namespace
}  // namespace arete::test
