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
constexpr int64_t kShort = 8;
Misplaced find_misplaced(const prim::FusedArgs& args) {
  constexpr int64_t kFewElements = 1 << 18;
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

// The dimension and the steps in which rows are gone through, so that the copy of an input is no
// larger than what stays in the second cache until it is read, and takes little memory; dim -1: all
// at once, as rows are that are summed up together.
struct Slices {
  int dim = -1;
  int64_t step = 0;
};
Slices slices_of(const prim::FusedArgs& args, DType copied) {
  constexpr int64_t kMostCopied = int64_t(16) << 20;
  const int64_t bytes = numel_of(args.space) * int64_t(size_of(copied));
  if (bytes <= kMostCopied || args.outer_rank == 0 || !columns_of(*args.spec).empty()) return {};
  const auto rows = args.space.first(size_t(args.outer_rank));
  const int dim = int(std::ranges::max_element(rows) - rows.begin());
  const int64_t pieces = (bytes + kMostCopied - 1) / kMostCopied, size = rows[size_t(dim)];
  const int64_t step = std::max(kShort, (size + pieces - 1) / pieces);
  if (step >= size) return {};
  return {dim, step};
}

// Part of a call's rows: `count` from `first` on along an outer dimension.
class RowsOf {
 public:
  RowsOf(const prim::FusedArgs& args, int dim, int64_t first, int64_t count)
      : args_(args), space_(args.space) {
    space_[size_t(dim)] = count;
    const uint32_t tables = prim::tables_of(*args.spec);
    sizes_.reserve(args.inputs.size() + args.outputs.size());
    const auto narrowed = [&](View v, bool whole) {
      if (whole) return v;
      const size_t d = size_t(dim) + v.sizes.size() - args.space.size();
      if (d >= v.sizes.size() || v.sizes[d] != args.space[size_t(dim)]) return v;
      Shape& sizes = sizes_.emplace_back(v.sizes);
      sizes[d] = count;
      v.data += first * v.strides[d] * int64_t(size_of(v.dtype));
      v.sizes = sizes;
      return v;
    };
    for (size_t i = 0; i < args.inputs.size(); ++i)
      inputs_.push_back(narrowed(args.inputs[i], tables >> i & 1));
    for (const View& v : args.outputs) outputs_.push_back(narrowed(v, false));
    args_.space = space_;
    args_.inputs = {inputs_.data(), inputs_.size()};
    args_.outputs = {outputs_.data(), outputs_.size()};
  }
  RowsOf(const RowsOf&) = delete;
  const prim::FusedArgs& args() const { return args_; }

 private:
  prim::FusedArgs args_;
  Shape space_;
  std::vector<Shape> sizes_;
  SmallVector<View, 8> inputs_, outputs_;
};

}  // namespace

void CudaBackend::fused(const prim::FusedArgs& args) {
  if (!args.slots.empty()) [[unlikely]] {
    enter(args);
    return fused(prim::Addressed(args).args());
  }
  if (prim::run_one_stage(*this, args)) return;
  if (const Misplaced found = find_misplaced(args); found.input >= 0) {
    const View& in = args.inputs[size_t(found.input)];
    if (const Slices slices = slices_of(args, in.dtype); slices.dim >= 0) {
      const int64_t size = args.space[size_t(slices.dim)];
      for (int64_t i = 0; i < size; i += slices.step)
        fused(RowsOf(args, slices.dim, i, std::min(slices.step, size - i)).args());
      return;
    }
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
