// Fourier transforms.
#include "arete/backend/cuda/cuda_backend.h"
#include "arete/backend/cuda/lib/cufft.h"
#include "arete/backend/cuda/scratch_memory.h"

namespace arete::cuda {

void CudaBackend::transform_lines(const void* in, void* out, DType dtype, int64_t lines, int64_t n,
                                  bool forward) {
  const CUstream stream = enter(std::initializer_list<const prim::View*>{});
  if (several_streams()) {
    note_use(in, stream);
    note_use(out, stream);
  }
  const std::shared_ptr<FftPlan> plan = find_fft_plan(context_.ordinal(), dtype, lines, n);
  const std::lock_guard lock(plan->mutex);
  const Scratch work(*this, plan->work_bytes());
  plan->run(in, out, forward, work.data(), stream);
}

}  // namespace arete::cuda
