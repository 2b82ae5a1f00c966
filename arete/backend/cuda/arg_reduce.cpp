// Positions of extrema along a dimension.
#include "arete/backend/cuda/codegen/arg_reduce.h"

#include "arete/backend/cuda/reduce_launch.h"
#include "arete/base/error.h"

namespace arete::cuda {

using prim::View;

void CudaBackend::arg_reduce(const prim::ArgReduceArgs& args) {
  ARETE_ASSERT(args.out.dtype == kInt64);
  if (is_complex(args.in.dtype))
    throw NotImplementedError(args.largest ? "argmax" : "argmin", "complex numbers have no order")
        .argument("input");
  const bool values = bool(args.values);
  const CUstream stream = enter(args);
  SmallVector<View, 4> views{args.out};
  if (values) views.push_back(args.values);
  views.push_back(args.in);
  const ReduceLimits limit{limits().multiprocessors, kMaxArgVector};
  const uint32_t reduced = args.in.rank() == 0 ? 0 : 1u << args.dim;
  ReducePlan plan = plan_reduce(args.in.sizes, reduced, views, values ? 2 : 1, limit);
  if (plan.header.outputs == 0) return;

  static thread_local KernelMemo memo;
  ArgReduceKernel wanted{args.in.dtype, args.largest, values};
  const auto find = [&](const ReducePlan& p) -> const Kernel& {
    const uint64_t key = plan_key(p);
    const Hash128 memo_key{key, uint64_t(context_.ordinal()) << 32 | uint64_t(args.in.dtype) << 8 |
                                    uint64_t(wanted.largest) << 2 | uint64_t(wanted.values) << 1 |
                                    uint64_t(wanted.combine)};
    return memo.get(*this, memo_key, [&] { return arg_reduce_source(wanted, p); });
  };
  const Kernel& kernel = find(plan);
  if (plan.n_partials() == 0) return launch_reduce(*this, kernel, plan, stream);

  const int64_t size = wanted.partial_size();
  const prim::ScratchView partials(*this, kUInt8, Shape{plan.n_partials() * size});
  plan.header.partials = partials.view().data;
  launch_reduce(*this, kernel, plan, stream);
  const ReducePlan second = plan_combine(plan, partials.view().data, size, limit);
  wanted.combine = true;
  launch_reduce(*this, find(second), second, stream);
}

}  // namespace arete::cuda
