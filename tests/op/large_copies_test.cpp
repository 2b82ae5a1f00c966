// Operators that go another way where there is much: the same as they give a CPU.
#include <gtest/gtest.h>

#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/random.h"
#include "arete/ops/shape.h"
#include "tests/support/test_device.h"

namespace arete {
namespace {

TEST(LargeCopies, SlicesAtPositions) {
  const Tensor x = rand({96, 150, 160}), order = tensor(std::vector<int64_t>{7, -2, 3, 95, 0, -60});
  for (const int64_t dim : {0, 1, 2}) {
    Shape sizes(x.sizes());
    sizes[size_t(dim)] = order.numel();
    const Tensor slices = rand(sizes), expected = index_copy(x, dim, order, slices);
    const Device device = test::test_device();
    const Tensor found = index_copy(x.to(device), dim, order.to(device), slices.to(device));
    EXPECT_TRUE(equal(found.cpu(), expected)) << dim;
  }
}

TEST(LargeCopies, FirstOfManyPositions) {
  const TensorOptions o(kFloat32, test::test_device());
  for (const int64_t first : {0, 3000}) {
    Tensor x = zeros({4096, 256}, o);
    x.narrow(0, first, 4096 - first).fill_(1);
    const Tensor found = nonzero_static(x, 300);
    ASSERT_EQ(Shape(found.sizes()), (Shape{300, 2}));
    for (const int64_t k : {0, 255, 256, 299}) {
      EXPECT_EQ(found[k][0].item<int64_t>(), first + k / 256);
      EXPECT_EQ(found[k][1].item<int64_t>(), k % 256);
    }
  }
}

}  // namespace
}  // namespace arete
