// What the reference device finds wrong with calls.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "arete/base/error.h"
#include "arete/expr/value.h"
#include "tests/support/reference_backend.h"

namespace arete::test {
namespace {

using prim::ScratchView;
using prim::View;

// Elements `start`, `start + stride`, ... of a row.
struct Part {
  Shape sizes, strides;
  View view;
  Part(const View& row, int64_t start, int64_t n, int64_t stride) : sizes{n}, strides{stride} {
    view = View(row.data + start * 4, row.dtype, sizes, strides);
  }
};

TEST(ReferenceDevice, RefusesWhatOverlaps) {
  prim::Backend& device = reference_device();
  const ScratchView row(device, kFloat32, {8});
  device.fill({row, expr::Literal{.f = 1}});
  const Part even(row, 0, 4, 2), odd(row, 1, 4, 2), first(row, 0, 4, 1), second(row, 1, 4, 1),
      one(row, 0, 4, 0);
  EXPECT_NO_THROW(device.copy({even.view, odd.view})) << "they share a range, but no element";
  EXPECT_THROW(device.copy({first.view, second.view}), BugError);
  EXPECT_THROW(device.copy({first.view, first.view}), BugError);
  EXPECT_THROW(device.fill({one.view, expr::Literal{.f = 1}}), BugError);
  EXPECT_NO_THROW(device.copy({first.view, Part(row, 7, 4, 0).view}));

  const std::vector<DType> f32{kFloat32};
  const expr::ProgramPtr twice = expr::trace(
      [](std::span<const expr::Value> v) { return std::vector{v[0] + v[0]}; }, f32, {}, f32);
  EXPECT_NO_THROW(device.pointwise({twice.get(), {&first.view, 1}, {&first.view, 1}, {}}));
  EXPECT_EQ(row.view().as<float>()[3], 2);
  EXPECT_THROW(device.pointwise({twice.get(), {&second.view, 1}, {&first.view, 1}, {}}), BugError);
}

TEST(ReferenceDevice, RefusesForeignMemory) {
  prim::Backend& device = reference_device();
  const ScratchView row(device, kFloat32, {8});
  std::vector<float> host(8);
  const View outside(reinterpret_cast<std::byte*>(host.data()), kFloat32, row.view().sizes,
                     row.view().strides);
  EXPECT_THROW(device.copy({row, outside}), BugError);
  EXPECT_THROW(device.fill({outside, expr::Literal{.f = 1}}), BugError);
  EXPECT_THROW(device.fill({Part(row, 1, 8, 1).view, expr::Literal{.f = 1}}), BugError);
}

TEST(ReferenceDevice, MemoryHoldsNothingUseful) {
  prim::Backend& device = reference_device();
  const ScratchView row(device, kFloat32, {2});
  EXPECT_TRUE(std::isnan(row.view().as<float>()[1]));
  EXPECT_FALSE(device.has_own(prim::Primitive::conv, kFloat32));
}

}  // namespace
}  // namespace arete::test
