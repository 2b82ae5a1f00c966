#include "arete/device/cuda_kernel.h"

#include <map>
#include <mutex>
#include <optional>
#include <span>

#include "arete/base/error.h"
#include "arete/device/cuda.h"
#include "arete/device/lane_program_internal.h"
#include "arete/prim/backend.h"

namespace arete::cuda {
namespace {

// Bytes from a tensor's first element to behind its last.
size_t span_of(const Tensor& t) {
  if (t.numel() == 0) return 0;
  int64_t last = 0;
  for (int64_t d = 0; d < t.dim(); ++d) last += (t.size(d) - 1) * t.stride(d);
  return size_t(last + 1) * size_of(t.dtype());
}

}  // namespace

KernelArgument::KernelArgument(const Tensor& t) : tensor_(t) {
  if (!t.defined()) throw TypeError("RawKernel", "an argument is an undefined tensor");
  void* const data = t.data_ptr();
  std::memcpy(bytes_.data(), &data, sizeof(data));
}

struct RawKernel::Found {
  std::mutex mutex;
  std::map<int, const void*> kernels;  // by the number of the GPU
  lanes::ProgramPtr lanes;

  const void* on(const RawKernel& k, Device device) {
    const std::lock_guard lock(mutex);
    const void*& kernel = kernels[device.index];
    if (!kernel)
      kernel = prim::backend_for(device).find_user_kernel(k.source_, k.name_, k.options_);
    return kernel;
  }
  const lanes::Program& on_cpu(const RawKernel& k) {
    const std::lock_guard lock(mutex);
    if (!lanes) lanes = lanes::read(k.source_, k.name_, k.options_);
    return *lanes;
  }
};

RawKernel::RawKernel(std::string source, std::string name, std::vector<std::string> options)
    : source_(std::move(source)),
      name_(std::move(name)),
      options_(std::move(options)),
      found_(std::make_shared<Found>()) {
  if (name_.empty()) throw ValueError("RawKernel", "the name of the function is empty");
}

void RawKernel::operator()(Dim grid, Dim block, std::vector<KernelArgument> arguments,
                           size_t shared_bytes) const {
  std::optional<Device> device;
  for (const KernelArgument& a : arguments) {
    if (!a.tensor().defined()) continue;
    const Device d = a.tensor().device();
    if ((!d.is_cuda() && !d.is_cpu()) || (device && *device != d))
      throw DeviceError(name_, "all tensors of a kernel must be on one GPU, or on the CPU")
          .got(device ? device->to_string() + " and " + d.to_string() : d.to_string());
    device = d;
  }
  for (int i = 0; i < 3; ++i) {
    if (grid[size_t(i)] == 0) return;  // nothing to do
    if (block[size_t(i)] == 0) throw ValueError(name_, "a block has no threads");
  }
  if (!device) device = is_available() ? Device(DeviceType::cuda, current_device()) : Device(kCPU);
  if (device->is_cpu()) {
    std::vector<lanes::Argument> plain;
    for (KernelArgument& a : arguments) {
      if (a.tensor().defined())
        plain.push_back({.bytes = span_of(a.tensor()),
                         .data = a.tensor().data_ptr(),
                         .dtype = a.tensor().dtype(),
                         .is_plain = a.is_plain()});
      else
        plain.push_back({.number = a.address(), .bytes = a.size(), .is_whole = a.is_whole()});
    }
    lanes::launch(found_->on_cpu(*this), grid, block, plain, shared_bytes);
    return;
  }
  std::vector<void*> addresses;
  std::vector<const void*> memory;
  for (KernelArgument& a : arguments) {
    addresses.push_back(a.address());
    if (a.tensor().defined()) memory.push_back(a.tensor().data_ptr());
  }
  addresses.push_back(nullptr);
  prim::Backend& backend = prim::backend_for(*device);
  backend.launch_user_kernel(found_->on(*this, *device),
                             {grid, block, shared_bytes, addresses.data(), memory});
}

const prim::UserKernel& RawKernel::on_current_gpu(const char* wanted) const {
  if (!is_available())
    throw NotImplementedError(name_, std::string(wanted) + " of kernels are those of GPUs")
        .hint(unavailable_reason());
  const Device device(DeviceType::cuda, current_device());
  return *static_cast<const prim::UserKernel*>(found_->on(*this, device));
}

int64_t RawKernel::fact(prim::KernelFact which) const {
  return on_current_gpu("attributes").fact(which);
}

void RawKernel::set(prim::KernelFact which, int value) const {
  on_current_gpu("attributes").set(which, value);
}

int RawKernel::resident_blocks(int threads, size_t shared_bytes) const {
  return on_current_gpu("multiprocessors").resident_blocks(threads, shared_bytes);
}

prim::KernelVariable RawKernel::variable(const std::string& name) const {
  if (is_available()) return on_current_gpu("variables").variable(name);
  found_->on_cpu(*this);
  const std::span<std::byte> memory = lanes::variable_of(source_, name, options_);
  if (memory.empty()) throw ValueError(name_, "the source has no such variable").got(name);
  return {memory.data(), memory.size()};
}

void* RawKernel::native_handle() const { return on_current_gpu("handles").native_handle(); }

void RawKernel::compile() const {
  if (is_available())
    found_->on(*this, Device(DeviceType::cuda, current_device()));
  else
    found_->on_cpu(*this);
}

}  // namespace arete::cuda
