#include "arete/device/cuda_kernel.h"

#include <optional>

#include "arete/base/error.h"
#include "arete/device/cuda.h"
#include "arete/prim/backend.h"

namespace arete::cuda {

KernelArgument::KernelArgument(const Tensor& t) : tensor_(t) {
  if (!t.defined()) throw TypeError("RawKernel", "an argument is an undefined tensor");
  void* const data = t.data_ptr();
  std::memcpy(bytes_.data(), &data, sizeof(data));
}

RawKernel::RawKernel(std::string source, std::string name, std::vector<std::string> options)
    : source_(std::move(source)), name_(std::move(name)), options_(std::move(options)) {
  if (name_.empty()) throw ValueError("RawKernel", "the name of the function is empty");
}

void RawKernel::operator()(Dim grid, Dim block, std::vector<KernelArgument> arguments,
                           size_t shared_bytes) const {
  std::optional<Device> device;
  std::vector<void*> addresses;
  std::vector<const void*> memory;
  for (KernelArgument& a : arguments) {
    addresses.push_back(a.address());
    if (!a.tensor().defined()) continue;
    const Device d = a.tensor().device();
    if (!d.is_cuda() || (device && *device != d))
      throw DeviceError(name_, "all tensors of a kernel must be on one GPU").got(d.to_string());
    device = d;
    memory.push_back(a.tensor().data_ptr());
  }
  for (int i = 0; i < 3; ++i) {
    if (grid[size_t(i)] == 0) return;  // nothing to do
    if (block[size_t(i)] == 0) throw ValueError(name_, "a block has no threads");
  }
  if (!device) device = Device(DeviceType::cuda, current_device());
  addresses.push_back(nullptr);
  prim::Backend& backend = prim::backend_for(*device);
  backend.launch_user_kernel(backend.find_user_kernel(source_, name_, options_),
                             {grid, block, shared_bytes, addresses.data(), memory});
}

void RawKernel::compile() const {
  prim::backend_for(Device(DeviceType::cuda, current_device()))
      .find_user_kernel(source_, name_, options_);
}

}  // namespace arete::cuda
