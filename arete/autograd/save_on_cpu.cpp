#include "arete/autograd/save_on_cpu.h"

#include <utility>

#include "arete/ops/creation.h"

namespace arete::autograd {

namespace {

class OnCpu final : public PackedTensor {
 public:
  OnCpu(Tensor t, Device device) : tensor_(std::move(t)), device_(device) {}
  Tensor unpack() override {
    Tensor t = empty_like(tensor_, {}, device_);
    // The host goes on: what comes next on the stream sees the values.
    t.copy_(tensor_, tensor_.is_pinned());
    return t;
  }

 private:
  const Tensor tensor_;
  const Device device_;
};

}  // namespace

IntrusivePtr<PackedTensor> SaveOnCpu::pack(const Tensor& t) {
  if (!t.device().is_cuda()) return nullptr;
  // A copy that is not waited for lands in pinned memory; whoever reads it waits.
  Tensor host = pin_memory_ ? t.to(kCPU, /*non_blocking=*/true) : t.to(kCPU);
  return IntrusivePtr<PackedTensor>(new OnCpu(std::move(host), t.device()));
}

}  // namespace arete::autograd
