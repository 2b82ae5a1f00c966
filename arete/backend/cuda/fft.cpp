// Fourier transforms.
#include "arete/backend/cuda/cuda_backend.h"
#include "arete/backend/cuda/lib/cufft.h"
#include "arete/backend/cuda/scale_program.h"
#include "arete/backend/cuda/scratch_memory.h"

namespace arete::cuda {

void CudaBackend::fft(const prim::FftArgs& a) {
  if (a.in.numel() == 0) return;
  if (!has_cufft()) return prim::Backend::fft(a);
  const CUstream stream = enter(a);
  const int64_t n = a.in.sizes[size_t(a.in.rank() - 2)];
  {
    const std::shared_ptr<FftPlan> plan =
        find_fft_plan(context_.ordinal(), a.in.dtype, a.in.numel() / (2 * n), n);
    const std::lock_guard lock(plan->mutex);
    const Scratch work(*this, plan->work_bytes());
    plan->run(a.in.data, a.out.data, a.forward, work.data(), stream);
  }
  if (a.scale == 1) return;
  const expr::Literal factor{.f = a.scale};
  pointwise({&scale_program(a.out.dtype), {&a.out, 1}, {&a.out, 1}, {&factor, 1}});
}

}  // namespace arete::cuda
