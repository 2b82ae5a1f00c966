// Which fused kernels run: plans need no GPU.
#include <gtest/gtest.h>

#include <algorithm>

#include "arete/backend/cuda/codegen/fused_plan.h"
#include "arete/expr/value.h"
#include "arete/prim/loop_nest.h"

namespace arete::cuda {
namespace {

using prim::FusedSpec;
using prim::FusedStage;
using Kind = FusedStage::Kind;
using Values = std::vector<expr::Value>;

constexpr FusedLimits kHopper{
    .multiprocessors = 132, .shared_per_block = 232448, .shared_per_multiprocessor = 233472};

// As the gradient of a norm: x minus its row's mean, and sums of x and of its square over rows.
FusedSpec with_columns() {
  FusedSpec spec;
  spec.n_inputs = 1;
  spec.n_outputs = 3;
  const auto add = [&](Kind kind, std::vector<int> inputs, int output, const auto& definition) {
    FusedStage s{kind,
                 expr::trace(definition, std::vector<DType>(inputs.size(), kFloat32), {},
                             std::vector{kFloat32}),
                 inputs};
    s.first_output = output;
    spec.stages.push_back(std::move(s));
  };
  add(Kind::reduce, {0}, 0, [](auto v) { return Values{v[0] * 1.0}; });
  add(Kind::store, {0, ~0}, 0, [](auto v) { return Values{v[0] - v[1]}; });
  add(Kind::reduce_columns, {0}, 1, [](auto v) { return Values{v[0] * v[0]}; });
  add(Kind::reduce_columns, {0}, 2, [](auto v) { return Values{v[0] * 1.0}; });
  return spec;
}

FusedPlan plan_of(int64_t rows, int64_t elements, bool in_place) {
  const FusedSpec spec = with_columns();
  const auto at = [](int memory) {  // apart by more than any of them has
    return reinterpret_cast<std::byte*>(uintptr_t(memory) << 40);
  };
  const Shape sizes{rows, elements}, strides{elements, 1}, one{1, elements};
  const prim::View x(at(1), kFloat32, sizes, strides),
      centred(at(in_place ? 1 : 2), kFloat32, sizes, strides),
      squares(at(3), kFloat32, one, strides), sums(at(4), kFloat32, one, strides);
  const prim::View inputs[] = {x}, outputs[] = {centred, squares, sums};
  return plan_fused({&spec, sizes, 1, inputs, outputs, {}}, kHopper);
}

TEST(FusedPlan, SumsOverRowsTakeLittleMemory) {
  for (const int64_t elements : {64, 280, 768, 1024, 2896, 4096, 8192})
    for (int64_t rows = 1; rows <= 1 << 20; rows = rows * 3 / 2 + 1) {
      for (const bool in_place : {false, true}) {
        SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(elements) +
                     (in_place ? " in place" : ""));
        const FusedPlan p = plan_of(rows, elements, in_place);
        if (!p.variant.columns) {
          EXPECT_EQ(p.partials, 0u);
          continue;
        }
        EXPECT_EQ(p.partials, 2 * size_t(p.grid) * size_t(elements) * sizeof(float));
        EXPECT_LE(p.grid, unsigned((rows + p.variant.rows - 1) / p.variant.rows));
        EXPECT_LE(p.partials, std::max(size_t(4) << 20, size_t(rows * elements) * 4 / 2));
      }
    }
}

TEST(FusedPlan, SumsOverManyOrFewRowsAreMadeWithTheRest) {
  for (const bool in_place : {false, true}) {
    SCOPED_TRACE(in_place);
    const auto variant_of = [&](int64_t rows, int64_t elements) {
      return plan_of(rows, elements, in_place).variant;
    };
    EXPECT_EQ(variant_of(1 << 16, 768).rows, 1);
    EXPECT_TRUE(variant_of(1 << 16, 768).columns);
    EXPECT_TRUE(variant_of(4096, 768).columns);
    EXPECT_TRUE(variant_of(1024, 768).columns);
    EXPECT_TRUE(variant_of(64, 256).columns);
    // A block of 64 or 128 threads has one row at a time: larger ones leave less.
    EXPECT_EQ(variant_of(4096, 768).block(), 256);
    EXPECT_FALSE(variant_of(724, 2896).columns);
    EXPECT_FALSE(variant_of(28, 6860).columns);
  }
}

// Rows less their means and times a weight that all share; they begin anywhere in a vector.
TEST(FusedPlan, RowsOfAnyLengthTakeWholeVectors) {
  FusedSpec spec;
  spec.n_inputs = 2, spec.n_outputs = 1;
  const auto variant_of = [&](DType dtype, int64_t length, int64_t out_stride, DType weight) {
    spec.stages = {
        {Kind::reduce,
         expr::trace([](auto v) { return Values{v[0] * 1.0}; }, std::vector<DType>{dtype}, {},
                     std::vector{kFloat32}),
         {0}},
        {Kind::store,
         expr::trace([](auto v) { return Values{(v[0] - v[1]) * to_float(v[2])}; },
                     std::vector<DType>{dtype, kFloat32, weight}, {}, std::vector{dtype}),
         {0, ~0, 1}}};
    const auto at = [](int memory) {
      return reinterpret_cast<std::byte*>(uintptr_t(memory) << 40);
    };
    const Shape sizes{10000, length}, strides{length, 1}, out_strides{out_stride, 1},
        one{1, length};
    const prim::View inputs[] = {{at(1), dtype, sizes, strides}, {at(2), weight, one, strides}},
                     out{at(3), dtype, sizes, out_strides};
    return plan_fused({&spec, sizes, 1, inputs, {&out, 1}, {}}, kHopper).variant;
  };
  for (const DType dtype : {kFloat32, kBFloat16})
    for (int64_t length = 32; length < 100000; length = length * 5 / 4 + 1) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::to_string(length));
      const int widest = int(16 / size_of(dtype));
      const FusedVariant v = variant_of(dtype, length, length, dtype);
      EXPECT_EQ(v.vector, widest);
      EXPECT_EQ(v.shifted, length % widest != 0);
      EXPECT_EQ(v.shared, v.shifted ? 2u : 0u);
      if (v.resident) {
        EXPECT_GE(v.threads * v.count * v.vector, length + (v.shifted ? widest - 1 : 0));
      }
      // What the output has elsewhere in its vectors is stored one by one.
      EXPECT_FALSE(variant_of(dtype, length, length + 1, dtype).shifted);
      EXPECT_EQ(variant_of(dtype, length, length + 1, dtype).shared, 0u);
    }
  EXPECT_FALSE(variant_of(kFloat64, 285, 285, kFloat64).shifted);
  // What rows share is read one by one, whatever its size.
  EXPECT_EQ(variant_of(kBFloat16, 285, 285, kFloat32).vector, 8);
  EXPECT_EQ(variant_of(kFloat32, 285, 285, kFloat64).vector, 4);
}

// Scores and a mask that some rows share, as those of a picture's heads do: it begins elsewhere in
// a vector than they do.
TEST(FusedPlan, RowsOfAnyLengthWithAMaskThatSomeShareTakeWholeVectors) {
  for (const DType dtype : {kFloat32, kBFloat16}) {
    const std::vector<DType> both{dtype, dtype}, with_row{dtype, dtype, kFloat32};
    FusedSpec spec;
    spec.n_inputs = 2, spec.n_outputs = 1;
    const auto plan_of = [&](int64_t length, bool mask_first) {
      const int scores = mask_first, mask = !mask_first;
      spec.stages = {
          {Kind::reduce,
           expr::trace([](auto v) { return Values{v[0] + v[1]}; }, both, {}, std::vector{kFloat32}),
           {scores, mask},
           prim::Monoid::max},
          {Kind::store,
           expr::trace([](auto v) { return Values{v[0] + v[1] - v[2]}; }, with_row, {},
                       std::vector{dtype}),
           {scores, mask, ~0}}};
      const auto at = [](int memory) {
        return reinterpret_cast<std::byte*>(uintptr_t(memory) << 40);
      };
      const Shape space{8, 300, length}, strides{300 * length, length, 1}, masks{8, 1, length},
          mask_strides{length, length, 1};
      const prim::View of_scores{at(1), dtype, space, strides},
          of_mask{at(2), dtype, masks, mask_strides}, out{at(3), dtype, space, strides};
      const prim::View inputs[] = {mask_first ? of_mask : of_scores,
                                   mask_first ? of_scores : of_mask};
      return plan_fused({&spec, space, 2, inputs, {&out, 1}, {}}, kHopper);
    };
    for (const int64_t length : {33, 285, 1025, 9001, 70001})
      for (const bool mask_first : {false, true}) {
        SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::to_string(length));
        const FusedPlan p = plan_of(length, mask_first);
        const uint32_t mask = mask_first ? 1u : 2u;
        EXPECT_TRUE(p.variant.shifted);
        EXPECT_EQ(p.variant.vector, int(16 / size_of(dtype)));
        EXPECT_EQ(p.variant.shared, mask);
        // Copies to shared memory are of aligned chunks.
        if (!p.variant.resident) {
          EXPECT_EQ(p.variant.cached & mask, 0u);
        }
      }
    EXPECT_FALSE(plan_of(1024, false).variant.shifted);
  }
}

// As forces between bodies: each row's number beside those that all rows share.
TEST(FusedPlan, WholeRoundsNeedNoLookAtTheEndOfARow) {
  FusedSpec spec;
  spec.n_inputs = 2;
  spec.n_outputs = 1;
  const std::vector<DType> one{kFloat32}, two{kFloat32, kFloat32};
  const auto distance = [](auto v) { return Values{v[0] - v[1]}; };
  spec.stages.push_back({Kind::reduce, expr::trace(distance, two, {}, one), {0, 1}});
  spec.stages.push_back({Kind::store_row,
                         expr::trace([](auto v) { return Values{v[0] * 1.0}; }, one, {}, one),
                         {~0}});
  const auto plan = [&](int64_t length, int64_t count = 32768) {
    const Shape space{count, length}, shared{1, length}, rows{count, 1};
    const Shape along{0, 3}, across{3, 0};
    std::byte* const memory = reinterpret_cast<std::byte*>(uintptr_t(1) << 40);
    const prim::View inputs[] = {prim::View(memory, kFloat32, shared, along),
                                 prim::View(memory, kFloat32, rows, across)},
                     outputs[] = {prim::View(memory + count * 12, kFloat32, rows, across)};
    return plan_fused({&spec, space, 1, inputs, outputs, {}}, kHopper);
  };
  for (const auto& [length, exact] : {std::pair{16384, true}, {16383, false}, {16386, false}}) {
    const FusedPlan p = plan(length);
    ASSERT_TRUE(p.kind == FusedPlan::Kind::one_launch && !p.variant.resident);
    EXPECT_EQ(p.variant.exact, exact) << length;
    // What all rows share has one address for all of them.
    EXPECT_EQ(p.variant.single, 1u);
    const std::string text = fused_source(spec, p.variant).text;
    EXPECT_EQ(text.find("p1 += i64(i0)"), std::string::npos) << text;
    EXPECT_NE(text.find("p2 += i64(i0)"), std::string::npos) << text;
    EXPECT_EQ(text.find("if (place < stop)") == std::string::npos, exact) << text;
  }
  // Blocks are large where a multiprocessor has one of them: of 32 rows of `vector` neighbours.
  const int64_t one_each = int64_t(kHopper.multiprocessors) * 32 * plan(16384).variant.vector;
  EXPECT_EQ(plan(16384, one_each).variant.threads, 32);
  EXPECT_EQ(plan(16384, one_each + 32).variant.threads, 16);
}

// Columns that are read twice and too long to be held, of a GPU that is full with one block each.
TEST(FusedPlan, LargeBlocksStayWhereColumnsAreNotHeld) {
  FusedSpec spec;
  spec.n_inputs = 1;
  spec.n_outputs = 1;
  const std::vector<DType> one{kFloat32}, two{kFloat32, kFloat32};
  spec.stages.push_back(
      {Kind::reduce, expr::trace([](auto v) { return Values{v[0] * 1.0}; }, one, {}, one), {0}});
  spec.stages.push_back({Kind::store,
                         expr::trace([](auto v) { return Values{v[0] - v[1]}; }, two, {}, one),
                         {0, ~0}});
  const auto variant_of = [&](int64_t blocks) {
    const int64_t rows = blocks * 32 * 2, length = 8192;
    const Shape space{rows, length}, beside{1, rows};
    const auto at = [](int memory) {
      return reinterpret_cast<std::byte*>(uintptr_t(memory) << 40);
    };
    const prim::View input(at(1), kFloat32, space, beside), output(at(2), kFloat32, space, beside);
    const FusedPlan p = plan_fused({&spec, space, 1, {&input, 1}, {&output, 1}, {}}, kHopper);
    EXPECT_TRUE(p.kind == FusedPlan::Kind::one_launch && !p.variant.resident);
    EXPECT_TRUE(p.variant.bundles && p.variant.vector == 2 && p.variant.cached == 0);
    return p.variant;
  };
  EXPECT_EQ(variant_of(kHopper.multiprocessors).threads, 32);
  EXPECT_EQ(variant_of(kHopper.multiprocessors + 1).threads, 16);
}

// Positions of 32 bits hold the bytes from one bundle of rows to the next, too.
TEST(FusedPlan, BundlesFarApartHaveWidePositions) {
  FusedSpec spec;
  spec.n_inputs = 2;  // elements of rows side by side, a number of each row
  spec.n_outputs = 1;
  spec.stages.push_back({Kind::store,
                         expr::trace([](auto v) { return Values{v[0] * v[1]}; },
                                     std::vector{kFloat32, kFloat32}, {}, std::vector{kFloat32}),
                         {0, 1}});
  const auto at = [](int memory) { return reinterpret_cast<std::byte*>(uintptr_t(memory) << 40); };
  const Shape sizes{64, 1000}, one{64, 1}, beside{1, 64};
  for (const int64_t apart : {int64_t(1) << 27, int64_t(1) << 28}) {
    const Shape by_row{apart, 0};
    const prim::View inputs[] = {{at(1), kFloat32, sizes, beside}, {at(2), kFloat32, one, by_row}},
                     outputs[] = {{at(3), kFloat32, sizes, beside}};
    const FusedPlan p = plan_fused({&spec, sizes, 1, inputs, outputs, {}}, kHopper);
    ASSERT_TRUE(p.variant.bundles && p.variant.vector == 2);
    EXPECT_EQ(p.variant.wide, 4 * apart * p.variant.vector > INT32_MAX);
  }
}

// As images at given places: elements that a row looks up in what all rows share, times a number of
// the row.
FusedSpec with_look_ups() {
  FusedSpec spec;
  spec.n_inputs = 3;  // the table, the numbers of elements, a number of each row
  spec.n_outputs = 1;
  const auto add = [&](Kind kind, std::vector<int> inputs, std::vector<DType> types,
                       uint32_t tables, const auto& definition) {
    spec.stages.push_back(FusedStage{
        kind, expr::trace(definition, types, {}, std::vector{kFloat32}, tables), inputs});
  };
  add(Kind::row, {2}, {kFloat32}, 0, [](auto v) { return Values{v[0] * 2.0}; });
  add(Kind::store, {0, 1, ~0}, {kFloat32, kInt32, kFloat32}, 1,
      [](auto v) { return Values{load(v[0], v[1]) * v[2]}; });
  return spec;
}

// Rows lie side by side in the result, as the places of an image do.
FusedPlan plan_of_look_ups(int64_t rows, int64_t elements) {
  const FusedSpec spec = with_look_ups();
  const auto at = [](int memory) { return reinterpret_cast<std::byte*>(uintptr_t(memory) << 40); };
  const Shape sizes{rows, elements}, table{1 << 20}, by_element{0, 1}, by_row{1, 0},
      beside{1, rows}, one{1};
  const prim::View inputs[] = {{at(1), kFloat32, table, one},
                               {at(2), kInt32, sizes, by_element},
                               {at(3), kFloat32, sizes, by_row}},
                   outputs[] = {{at(4), kFloat32, sizes, beside}};
  return plan_fused({&spec, sizes, 1, inputs, outputs, {}}, kHopper);
}

TEST(FusedPlan, RowsThatLookUpShareLines) {
  for (const int64_t elements : {3, 8, 64, 65, 1000, 1000000})
    for (const int64_t rows : {2, 8, 100, 1000, 30000, 131072, 1 << 22}) {
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(elements));
      const FusedPlan p = plan_of_look_ups(rows, elements);
      // The threads of a block are at one element at a time.
      EXPECT_EQ(p.variant.mapping, FusedVariant::Mapping::columns);
      EXPECT_EQ(p.variant.threads, 1);
      EXPECT_GE(int64_t(p.grid) * p.variant.rows * p.variant.vector, rows);
      // Half of a block's threads or more have a row, if it is more than a warp.
      EXPECT_LT(p.variant.rows, std::max<int64_t>(33, 2 * rows / p.variant.vector));
      // All elements are somebody's, and every block has some.
      const int64_t span = p.splits == 1 ? elements : int64_t(p.arguments[3]);
      EXPECT_GE(int64_t(p.splits) * span, elements);
      EXPECT_LT(int64_t(p.splits - 1) * span, elements);
      // Few rows keep the multiprocessors busy, if there is enough to look up.
      if (rows * elements >= 132 * 32 * 16) {
        EXPECT_GE(p.grid * p.splits, 132u * 3 / 4);
      }
    }
}

}  // namespace
}  // namespace arete::cuda
