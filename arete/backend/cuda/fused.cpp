// Fused kernels (Note [Fused kernels] in prim/args.h): codegen/fused_plan.h chooses,
// codegen/fused.h writes the kernel.
#include <vector>

#include "arete/backend/cuda/codegen/fused_plan.h"
#include "arete/backend/cuda/kernel_memo.h"
#include "arete/backend/cuda/scratch_memory.h"
#include "arete/prim/fused_forms.h"
#include "arete/prim/slots.h"

namespace arete::cuda {
namespace {

// The reduce_columns stages alone.
prim::FusedSpec only_columns(const prim::FusedSpec& spec) {
  prim::FusedSpec r{{}, spec.n_inputs, spec.n_outputs};
  for (const prim::FusedStage& s : spec.stages)
    if (s.kind == prim::FusedStage::Kind::reduce_columns) r.stages.push_back(s);
  return r;
}

}  // namespace

void CudaBackend::fused(const prim::FusedArgs& args) {
  if (!args.slots.empty()) [[unlikely]] {
    enter(args);
    return fused(prim::Addressed(args).args());
  }
  if (prim::run_one_stage(*this, args)) return;
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
      const prim::View& out = args.outputs[size_t(c.output)];
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
