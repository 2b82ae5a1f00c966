// The launches of plans of codegen/reduce_plan.h, shared by reduce and arg_reduce.
#pragma once

#include <vector>

#include "arete/backend/cuda/codegen/reduce.h"
#include "arete/backend/cuda/kernel_memo.h"

namespace arete::cuda {

/// Launches `kernel` for a plan with at least one output.
inline void launch_reduce(CudaBackend& backend, const Kernel& kernel, const ReducePlan& plan,
                          CUstream stream, std::span<const expr::Literal> params = {},
                          std::span<const expr::Literal> more_params = {}) {
  std::vector<std::byte> arguments = reduce_arguments(plan, params, more_params);
  void* pointers[] = {arguments.data()};
  launch_raw(backend.context(), kernel, {plan.grid}, {plan.threads}, 0, stream, pointers);
}

}  // namespace arete::cuda
