// Which fused kernels run: plans need no GPU.
#include <gtest/gtest.h>

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

FusedPlan plan_of(int64_t rows, int64_t elements) {
  const FusedSpec spec = with_columns();
  auto* const data = reinterpret_cast<std::byte*>(uintptr_t(4096));
  const Shape sizes{rows, elements}, strides{elements, 1}, one{1, elements};
  const prim::View x(data, kFloat32, sizes, strides), sums(data, kFloat32, one, strides);
  const prim::View inputs[] = {x}, outputs[] = {x, sums, sums};
  return plan_fused({&spec, sizes, 1, inputs, outputs, {}}, kHopper);
}

TEST(FusedPlan, SumsOverRowsTakeLittleMemory) {
  for (const int64_t elements : {64, 280, 768, 1024, 2896, 4096, 8192})
    for (int64_t rows = 1; rows <= 1 << 20; rows = rows * 3 / 2 + 1) {
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(elements));
      const FusedPlan p = plan_of(rows, elements);
      if (!p.variant.columns) {
        EXPECT_EQ(p.partials, 0u);
        continue;
      }
      EXPECT_EQ(p.partials, 2 * size_t(p.grid) * size_t(elements) * sizeof(float));
      EXPECT_LE(p.grid, unsigned((rows + p.variant.rows - 1) / p.variant.rows));
      EXPECT_LE(p.partials, std::max(size_t(4) << 20, size_t(rows * elements) * 4 / 2));
    }
}

TEST(FusedPlan, SumsOverManyOrFewRowsAreMadeWithTheRest) {
  EXPECT_EQ(plan_of(1 << 16, 768).variant.rows, 1);
  EXPECT_TRUE(plan_of(1 << 16, 768).variant.columns);
  EXPECT_TRUE(plan_of(4096, 768).variant.columns);
  EXPECT_TRUE(plan_of(1024, 768).variant.columns);
  EXPECT_TRUE(plan_of(64, 256).variant.columns);
  // A block of 64 or 128 threads has one row at a time: larger ones leave less.
  EXPECT_EQ(plan_of(4096, 768).variant.block(), 256);
  EXPECT_FALSE(plan_of(724, 2896).variant.columns);
  EXPECT_FALSE(plan_of(28, 6860).variant.columns);
}

}  // namespace
}  // namespace arete::cuda
