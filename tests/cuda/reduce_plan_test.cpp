// How reductions and scans are laid out over threads: plans need no GPU.
#include <gtest/gtest.h>

#include "arete/backend/cuda/codegen/reduce_plan.h"
#include "arete/backend/cuda/codegen/scan.h"

namespace arete::cuda {
namespace {

using prim::View;

constexpr int kMultiprocessors = 132;

std::byte* address(int number) { return reinterpret_cast<std::byte*>(uintptr_t(number) << 40); }

ReducePlan over_rows(DType dtype, int64_t rows, int64_t columns) {
  const Shape space{rows, columns}, strides{columns, 1}, one{1, columns};
  const View views[] = {{address(1), dtype, one, strides}, {address(2), dtype, space, strides}};
  return plan_reduce(space, 1, views, 1, {kMultiprocessors, 16});
}

TEST(ReducePlan, ColumnsOfAnyWidthTakeWholeVectors) {
  for (const DType dtype : {kFloat32, kBFloat16, kInt16})
    for (const int64_t columns : {31, 40, 195, 285}) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::to_string(columns));
      const ReducePlan p = over_rows(dtype, 4096, columns);
      EXPECT_TRUE(p.columns);
      EXPECT_EQ(p.shifted, columns % 2 != 0);
      EXPECT_GE(p.vector * size_of(dtype), 8u);
    }
}

// What many parts leave lies side by side: a warp or more combines them.
TEST(ReducePlan, ManyPartsOfAResultAreNeighbours) {
  for (const DType dtype : {kFloat32, kBFloat16, kInt16}) {
    SCOPED_TRACE(name_of(dtype));
    const ReduceHeader many = over_rows(dtype, 70001, 31).header;
    EXPECT_GE(many.splits, 64);
    EXPECT_EQ(many.part_step, 1);
    EXPECT_EQ(many.result_step, many.splits);
    const ReduceHeader few = over_rows(dtype, 30011, 31).header;
    EXPECT_GT(few.splits, 1);
    EXPECT_LT(few.splits, 64);
    EXPECT_EQ(few.part_step, 31);
    EXPECT_EQ(few.result_step, 1);
  }
}

// Lanes that a warp almost holds get one round more, where its threads have the registers.
TEST(ScanPlan, ARoundMoreWhereItFitsTheRegisters) {
  const auto plan = [](DType dtype, int64_t length, bool logarithmic) {
    const Shape sizes{10000, length}, strides{length, 1};
    return plan_scan({.monoid = prim::Monoid::sum,
                      .in = {address(1), dtype, sizes, strides},
                      .out = {address(2), dtype, sizes, strides},
                      .dim = 1,
                      .logarithmic = logarithmic},
                     kMultiprocessors);
  };
  EXPECT_EQ(plan(kFloat32, 511, false).form, ScanPlan::Form::rows);
  EXPECT_EQ(plan(kFloat32, 511, false).rounds, 5);
  EXPECT_EQ(plan(kFloat32, 511, true).form, ScanPlan::Form::tiles);
  EXPECT_EQ(plan(kBFloat16, 1016, false).form, ScanPlan::Form::rows);
  EXPECT_EQ(plan(kBFloat16, 1025, false).form, ScanPlan::Form::tiles);
  EXPECT_EQ(plan(kUInt8, 1025, false).form, ScanPlan::Form::tiles);
}

}  // namespace
}  // namespace arete::cuda
