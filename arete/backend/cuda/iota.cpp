// Arithmetic progressions.
#include <algorithm>

#include "arete/backend/cuda/codegen/iota.h"
#include "arete/backend/cuda/kernel_memo.h"
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
  static KernelTable<kNumDTypes> kernels;
  const Kernel& k = kernels.get(*this, size_t(out.dtype), [&] { return iota_source(out.dtype); });
  const int64_t n = out.sizes[0];
  const IotaKernelArgs a{out.data,  out.strides[0], n,         args.start,
                         args.step, args.istart,    args.istep};
  const int64_t per_block = 256 * int64_t(iota_vector(out.dtype));
  const int64_t grid = std::clamp<int64_t>((n + per_block - 1) / per_block, 1,
                                           int64_t(limits().multiprocessors) * 32);
  launch(k, Dim3{unsigned(grid)}, Dim3{256}, 0, stream, a);
}

}  // namespace arete::cuda
