// Sums, products, extrema and logic over any dimensions, with programs before and after.
#include "arete/backend/cuda/codegen/reduce.h"

#include <algorithm>
#include <cstring>

#include "arete/backend/cuda/reduce_launch.h"
#include "arete/base/error.h"
#include "arete/expr/value.h"
#include "arete/prim/slots.h"
#include "arete/prim/tables.h"

namespace arete::cuda {

using prim::ReduceArgs;
using prim::View;

namespace {

// Everything that the text of a kernel depends on.
Hash128 memo_key(int device, const ReduceArgs& a, const ReducePlan& plan, bool combine) {
  struct Fixed {
    Hash128 prologue, epilogue;
    uint64_t plan;
    uint8_t device, monoid, combine, out;
    uint8_t has_prologue, has_epilogue, n_inputs, unused = 0;
  } fixed{};
  if (a.prologue) fixed.prologue = a.prologue->hash(), fixed.has_prologue = 1;
  if (a.epilogue) fixed.epilogue = a.epilogue->hash(), fixed.has_epilogue = 1;
  fixed.plan = plan_key(plan);
  fixed.device = uint8_t(device);
  fixed.monoid = uint8_t(a.monoid);
  fixed.combine = combine;
  fixed.out = uint8_t(a.out.dtype);
  fixed.n_inputs = uint8_t(a.inputs.size());
  std::array<std::byte, sizeof(Fixed) + prim::LoopNest::kMaxOperands> bytes;
  std::memcpy(bytes.data(), &fixed, sizeof fixed);
  for (size_t k = 0; k < a.inputs.size(); ++k)
    bytes[sizeof fixed + k] = std::byte(a.inputs[k].dtype);
  return hash_bytes(bytes.data(), sizeof fixed + a.inputs.size());
}

ReduceKernel kernel_of(const ReduceArgs& a) {
  ReduceKernel kernel{a.monoid, {}, a.out.dtype, a.prologue, a.epilogue, false};
  for (const View& v : a.inputs) kernel.inputs.push_back(v.dtype);
  return kernel;
}

// The type of partial results.
DType partial_dtype(const ReduceArgs& a) {
  const DType value = a.prologue ? a.prologue->outputs()[0].dtype : a.inputs[0].dtype;
  return expr::storage_type(accumulation_of(a.monoid, expr::compute_type(value), false).wide);
}

// A result for each element: a reduction of nothing but the elements' own values.
bool is_of_single_elements(const ReduceArgs& a) {
  if (a.epilogue || (a.prologue && a.prologue->outputs()[0].dtype != a.out.dtype)) return false;
  for (size_t d = 0; d < a.space.size(); ++d)
    if ((a.reduced >> d & 1) && a.space[d] != 1) return false;
  return true;
}

}  // namespace

void CudaBackend::reduce(const ReduceArgs& args) {
  if (!args.slots.empty() || !args.epilogue_slots.empty()) [[unlikely]] {
    enter(args);
    return reduce(prim::Addressed(args).args());
  }
  ARETE_ASSERT(args.inputs.size() + 1 <= size_t(prim::LoopNest::kMaxOperands));
  if (is_of_single_elements(args)) {
    if (!args.prologue && std::ranges::equal(args.inputs[0].sizes, args.out.sizes))
      return copy({args.out, args.inputs[0], args.context});
    const expr::Program* program =
        args.prologue ? args.prologue
                      : expr::conversion(args.inputs[0].dtype, args.out.dtype).get();
    return pointwise({.program = program,
                      .inputs = args.inputs,
                      .outputs = {&args.out, 1},
                      .params = args.params,
                      .context = args.context});
  }
  const CUstream stream = enter(args);
  SmallVector<View, 4> views{args.out};
  for (const View& v :
       prim::heads_of_tables(args.inputs, args.prologue ? args.prologue->tables() : 0))
    views.push_back(v);
  ReduceLimits limit{limits().multiprocessors};
  limit.tiles = args.inputs.size() == 2 && args.prologue && args.prologue->tables() == 0;
  ReducePlan plan = plan_reduce(args.space, args.reduced, views, 1, limit);
  if (plan.header.outputs == 0) return;

  static thread_local KernelMemo memo;
  const int ordinal = context_.ordinal();
  const Kernel& kernel = memo.get(*this, memo_key(ordinal, args, plan, false),
                                  [&] { return reduce_source(kernel_of(args), plan); });
  if (plan.n_partials() == 0)
    return launch_reduce(*this, kernel, plan, stream, args.params, args.epilogue_params);

  const DType dtype = partial_dtype(args);
  const int64_t size = int64_t(size_of(dtype));
  const prim::ScratchView partials(*this, dtype, Shape{plan.n_partials()});
  plan.header.partials = partials.view().data;
  launch_reduce(*this, kernel, plan, stream, args.params, args.epilogue_params);

  const ReducePlan second = plan_combine(plan, partials.view().data, size, limit);
  const Kernel& combine = memo.get(*this, memo_key(ordinal, args, second, true), [&] {
    ReduceKernel k = kernel_of(args);
    k.inputs = {dtype};
    k.prologue = nullptr;
    k.combine = true;
    return reduce_source(k, second);
  });
  launch_reduce(*this, combine, second, stream, {}, args.epilogue_params);
}

}  // namespace arete::cuda
