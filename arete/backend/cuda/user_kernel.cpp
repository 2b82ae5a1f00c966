// Kernels that users write.
#include <map>
#include <memory>
#include <mutex>

#include "arete/backend/cuda/cuda_backend.h"
#include "arete/backend/cuda/runtime/driver.h"
#include "arete/backend/cuda/runtime/kernel.h"
#include "arete/backend/cuda/runtime/nvrtc.h"
#include "arete/base/error.h"
#include "arete/prim/user_kernel.h"

namespace arete::cuda {
namespace {

using prim::KernelFact;

constexpr CUfunction_attribute attribute_of(KernelFact which) {
  return static_cast<CUfunction_attribute>(which);
}
static_assert(attribute_of(KernelFact::num_regs) == CU_FUNC_ATTRIBUTE_NUM_REGS &&
              attribute_of(KernelFact::preferred_shared_memory_carveout) ==
                  CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);

class CompiledKernel final : public prim::UserKernel {
 public:
  CompiledKernel(DeviceContext& context, const Kernel& kernel)
      : context_(context), kernel_(kernel) {}
  const Kernel& kernel() const { return kernel_; }

  int64_t fact(KernelFact which) const override {
    context_.make_current();
    int value = 0;
    ARETE_CU(cuFuncGetAttribute, &value, attribute_of(which), kernel_.function);
    return value;
  }
  void set(KernelFact which, int value) const override {
    context_.make_current();
    if (driver().cuFuncSetAttribute(kernel_.function, attribute_of(which), value) != CUDA_SUCCESS)
      throw ValueError(kernel_.name, "the GPU does not take this value of an attribute")
          .got(std::to_string(value));
  }
  int resident_blocks(int threads, size_t shared_bytes) const override {
    context_.make_current();
    int blocks = 0;
    ARETE_CU(cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, kernel_.function, threads,
             shared_bytes);
    return blocks;
  }
  prim::KernelVariable variable(const std::string& name) const override {
    context_.make_current();
    CUdeviceptr address = 0;
    size_t bytes = 0;
    if (driver().cuModuleGetGlobal(&address, &bytes, kernel_.module, name.c_str()) != CUDA_SUCCESS)
      throw ValueError(kernel_.name, "the source has no such variable")
          .got(name)
          .hint(
              "one that is used nowhere is left out, and the name of a C++ one is another: "
              "extern \"C\" keeps it");
    return {reinterpret_cast<void*>(address), bytes};
  }
  void* native_handle() const override { return kernel_.function; }

 private:
  DeviceContext& context_;
  const Kernel& kernel_;
};

const Kernel& kernel_of(const void* found) {
  return static_cast<const CompiledKernel*>(static_cast<const prim::UserKernel*>(found))->kernel();
}

}  // namespace

const void* CudaBackend::find_user_kernel(const std::string& source, const std::string& name,
                                          const std::vector<std::string>& options) {
  try {
    const Kernel& kernel = find_kernel(context_, {name, source, options, true});
    static auto& mutex = *new std::mutex;
    static auto& all = *new std::map<const Kernel*, std::unique_ptr<CompiledKernel>>;
    const std::lock_guard lock(mutex);
    std::unique_ptr<CompiledKernel>& compiled = all[&kernel];
    if (!compiled) compiled = std::make_unique<CompiledKernel>(context_, kernel);
    return static_cast<const prim::UserKernel*>(compiled.get());
  } catch (const BugError& e) {
    // The compiler's messages without the source, which the user has.
    std::string text = e.message();
    if (text.ends_with(source)) text.resize(text.size() - source.size());
    throw ValueError(name, text).hint("line numbers are those of the source that was given");
  }
}

void CudaBackend::launch_user_kernel(const void* kernel, const prim::UserLaunch& launch) {
  const Kernel& k = kernel_of(kernel);
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
