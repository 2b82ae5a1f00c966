// Arithmetic progressions.
#include <algorithm>
#include <array>
#include <atomic>

#include "arete/backend/cuda/codegen/iota.h"
#include "arete/backend/cuda/cuda_backend.h"
#include "arete/base/error.h"

namespace arete::cuda {

namespace {

// Mirrors device/iota.cuh.
struct IotaKernelArgs {
  std::byte* out;
  int64_t stride, n;
  double start, step;
  int64_t istart, istep;
};

}  // namespace

void CudaBackend::iota(const prim::IotaArgs& args) {
  const prim::View& out = args.out;
  ARETE_ASSERT(out.rank() == 1);
  if (out.numel() == 0) return;
  const CUstream stream = enter(args);
  static std::array<std::atomic<const Kernel*>, 64 * kNumDTypes> kernels{};
  std::atomic<const Kernel*>& entry =
      kernels[size_t(context_.ordinal()) * kNumDTypes + size_t(out.dtype)];
  const Kernel* k = entry.load(std::memory_order_acquire);
  if (!k) {
    k = &kernel(iota_source(out.dtype));
    entry.store(k, std::memory_order_release);
  }
  const int64_t n = out.sizes[0];
  const IotaKernelArgs a{out.data,  out.strides[0], n,         args.start,
                         args.step, args.istart,    args.istep};
  const int64_t per_block = 256 * int64_t(iota_vector(out.dtype));
  const int64_t grid = std::clamp<int64_t>((n + per_block - 1) / per_block, 1,
                                           int64_t(limits().multiprocessors) * 32);
  launch(*k, Dim3{unsigned(grid)}, Dim3{256}, 0, stream, a);
}

}  // namespace arete::cuda
