// The launches of plans of codegen/reduce_plan.h, shared by reduce and arg_reduce.
#pragma once

#include <unordered_map>
#include <vector>

#include "arete/backend/cuda/codegen/reduce.h"
#include "arete/backend/cuda/cuda_backend.h"
#include "arete/base/hash.h"

namespace arete::cuda {

/// Kernels found before by this thread, by a hash of what they depend on.
class KernelMemo {
 public:
  template <class MakeSource>
  const Kernel& get(CudaBackend& backend, const Hash128& key, MakeSource&& make_source) {
    const Kernel*& kernel = kernels_[key];
    if (!kernel) [[unlikely]]
      kernel = &backend.kernel(make_source());
    return *kernel;
  }

 private:
  std::unordered_map<Hash128, const Kernel*, Hash128Hasher> kernels_;
};

/// Launches `kernel` for a plan with at least one output.
inline void launch_reduce(CudaBackend& backend, const Kernel& kernel, const ReducePlan& plan,
                          CUstream stream, std::span<const expr::Literal> params = {},
                          std::span<const expr::Literal> more_params = {}) {
  std::vector<std::byte> arguments = reduce_arguments(plan, params, more_params);
  void* pointers[] = {arguments.data()};
  launch_raw(backend.context(), kernel, {plan.grid}, {plan.threads}, 0, stream, pointers);
}

}  // namespace arete::cuda
