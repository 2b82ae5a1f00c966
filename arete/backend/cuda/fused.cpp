// Fused kernels (Note [Fused kernels] in prim/args.h): codegen/fused_plan.h chooses,
// codegen/fused.h writes the kernel.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <vector>

#include "arete/backend/cuda/codegen/fused_plan.h"
#include "arete/backend/cuda/kernel_memo.h"
#include "arete/backend/cuda/scratch_memory.h"
#include "arete/prim/fused_forms.h"
#include "arete/prim/slots.h"
#include "arete/prim/tables.h"

namespace arete::cuda {

using prim::View;

namespace {

// The reduce_columns stages alone.
prim::FusedSpec only_columns(const prim::FusedSpec& spec) {
  prim::FusedSpec r{{}, spec.n_inputs, spec.n_outputs};
  for (const prim::FusedStage& s : spec.stages)
    if (s.kind == prim::FusedStage::Kind::reduce_columns) r.stages.push_back(s);
  return r;
}

// The dimension along which a view of all elements of the space runs through memory; -1: none does.
int running_dim(const View& v, IntList space) {
  if (!std::ranges::equal(v.sizes, space)) return -1;
  int running = -1;
  for (size_t d = 0; d < space.size(); ++d) {
    if (space[d] == 1) continue;
    if (v.strides[d] == 0) return -1;
    if (v.strides[d] == 1) running = int(d);
  }
  return running;
}

// The first output that runs through memory along some dimension, and an input that does along
// another: a kernel would find one of them scattered. Copies are tiles that turn over.
struct Misplaced {
  int input = -1;
  const View* out = nullptr;
};
Misplaced find_misplaced(const prim::FusedArgs& args) {
  constexpr int64_t kFewElements = 1 << 18, kShort = 8;
  if (numel_of(args.space) < kFewElements) return {};
  const uint32_t tables = prim::tables_of(*args.spec);
  for (const View& out : args.outputs) {
    const int along = running_dim(out, args.space);
    if (along < 0 || args.space[size_t(along)] < kShort) continue;
    for (size_t i = 0; i < args.inputs.size(); ++i) {
      if (tables >> i & 1) continue;
      const int other = running_dim(args.inputs[i], args.space);
      if (other >= 0 && other != along && args.space[size_t(other)] >= kShort)
        return {int(i), &out};
    }
    return {};
  }
  return {};
}

}  // namespace

void CudaBackend::fused(const prim::FusedArgs& args) {
  if (!args.slots.empty()) [[unlikely]] {
    enter(args);
    return fused(prim::Addressed(args).args());
  }
  if (prim::run_one_stage(*this, args)) return;
  if (const Misplaced found = find_misplaced(args); found.input >= 0) {
    const View& in = args.inputs[size_t(found.input)];
    SmallVector<int, 8> order;
    for (size_t d = 0; d < args.space.size(); ++d) order.push_back(int(d));
    std::ranges::stable_sort(order, std::greater(),
                             [&](int d) { return std::abs(found.out->strides[size_t(d)]); });
    Shape sizes, strides(args.space);
    for (const int d : order) sizes.push_back(args.space[size_t(d)]);
    const prim::ScratchView dense(*this, in.dtype, sizes);
    for (size_t k = 0; k < sizes.size(); ++k) strides[size_t(order[k])] = dense.view().strides[k];
    View placed = dense;
    placed.sizes = args.space, placed.strides = strides;
    copy({placed, in, args.context});
    SmallVector<View, 8> inputs;
    inputs.append(args.inputs.begin(), args.inputs.end());
    inputs[size_t(found.input)] = placed;
    prim::FusedArgs alike = args;
    alike.inputs = {inputs.data(), inputs.size()};
    return fused(alike);
  }
  const DeviceLimits& l = limits();
  FusedPlan plan =
      plan_fused(args, {l.multiprocessors, l.shared_per_block, l.shared_per_multiprocessor});
  if (plan.kind == FusedPlan::Kind::decompose) return Backend::fused(args);
  const std::vector<FusedColumn> columns = columns_of(*args.spec);
  if (!columns.empty() && !plan.variant.columns) {
    const prim::FusedSpec alone = only_columns(*args.spec);
    prim::FusedArgs a = args;
    a.spec = &alone;
    Backend::fused(a);
  }
  if (plan.kind == FusedPlan::Kind::nothing) return;
  const CUstream stream = enter(args);
  static thread_local KernelMemo memo;

  const auto run = [&](int phase, unsigned splits) {
    plan.variant.phase = phase;
    const Kernel& k = memo.get(*this, fused_key(*args.spec, plan.variant, context_.ordinal()),
                               [&] { return fused_source(*args.spec, plan.variant); });
    void* arguments[] = {plan.arguments.data(), nullptr};
    launch_raw(context_, k, {plan.grid, splits, 1}, {unsigned(plan.variant.block()), 1, 1},
               plan.shared, stream, arguments);
  };
  const Scratch partials(*this, plan.partials);
  plan.arguments[FusedPlan::kPartials] = partials.address();
  if (plan.kind == FusedPlan::Kind::one_launch) {
    run(-1, 1);
    if (!plan.variant.columns) return;
    SmallVector<uint64_t, 8> totals{plan.arguments[FusedPlan::kPartials], uint64_t(plan.grid),
                                    uint64_t(plan.columns)};
    std::vector<DType> dtypes;
    // What the source depends on, and the device.
    SmallVector<uint64_t, 8> key{0x746f74616c73, uint64_t(context_.ordinal())};
    for (const FusedColumn& c : columns) {
      const View& out = args.outputs[size_t(c.output)];
      totals.push_back(uint64_t(reinterpret_cast<uintptr_t>(out.data)));
      dtypes.push_back(out.dtype);
      key.push_back(uint64_t(c.monoid) | uint64_t(c.type) << 8 | uint64_t(out.dtype) << 16);
    }
    const Kernel& k = memo.get(*this, hash_bytes(key.data(), key.size() * sizeof(uint64_t)),
                               [&] { return fused_totals_source(*args.spec, dtypes); });
    void* arguments[] = {totals.data(), nullptr};
    const unsigned groups = unsigned((plan.columns + kTotalsColumns - 1) / kTotalsColumns);
    return launch_raw(context_, k, {groups, unsigned(columns.size()), 1}, {kTotalsBlock, 1, 1}, 0,
                      stream, arguments);
  }
  const int phases = reductions_of(*args.spec).stages + 1;
  for (int phase = 0; phase < phases; ++phase) {
    if (phase_is_empty(*args.spec, phase)) continue;
    run(phase, phase_has_elements(*args.spec, phase) ? plan.splits : 1);
  }
}

}  // namespace arete::cuda
