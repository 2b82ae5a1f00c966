// Kernels that users write.
#include "arete/backend/cuda/cuda_backend.h"
#include "arete/backend/cuda/runtime/kernel.h"
#include "arete/backend/cuda/runtime/nvrtc.h"
#include "arete/base/error.h"

namespace arete::cuda {

const void* CudaBackend::find_user_kernel(const std::string& source, const std::string& name,
                                          const std::vector<std::string>& options) {
  try {
    return &find_kernel(context_, {name, source, options, true});
  } catch (const BugError& e) {
    // The compiler's messages without the source, which the user has.
    std::string text = e.message();
    if (text.ends_with(source)) text.resize(text.size() - source.size());
    throw ValueError(name, text).hint("line numbers are those of the source that was given");
  }
}

void CudaBackend::launch_user_kernel(const void* kernel, const prim::UserLaunch& launch) {
  const Kernel& k = *static_cast<const Kernel*>(kernel);
  const int64_t threads = int64_t(launch.block[0]) * launch.block[1] * launch.block[2];
  if (threads > k.max_threads)
    throw ValueError(k.name, "a block has more threads than the kernel can be launched with")
        .expected("at most " + std::to_string(k.max_threads))
        .got(std::to_string(threads));
  const CUstream stream = enter();
  if (several_streams())
    for (const void* p : launch.memory)
      if (p) note_use(p, stream);
  launch_raw(context_, k, {launch.grid[0], launch.grid[1], launch.grid[2]},
             {launch.block[0], launch.block[1], launch.block[2]}, launch.shared, stream,
             launch.arguments);
}

}  // namespace arete::cuda
