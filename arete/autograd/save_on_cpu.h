// Activations in host memory instead of on the GPU, between forward and backward.
#pragma once

#include "arete/core/saved_tensor_hooks.h"

namespace arete::autograd {

/// Hooks that move what is saved from GPUs to host memory, and back when backward needs it.
/// `pin_memory`: to memory that GPUs reach by themselves, without waiting for the copies. Tensors
/// that are in host memory are kept as they are.
class SaveOnCpu final : public SavedTensorHooks {
 public:
  explicit SaveOnCpu(bool pin_memory = false) : pin_memory_(pin_memory) {}
  IntrusivePtr<PackedTensor> pack(const Tensor& t) override;

 private:
  bool pin_memory_;
};

/// While it lives, what calls save for backward is kept in host memory.
class SaveOnCpuGuard {
 public:
  explicit SaveOnCpuGuard(bool pin_memory = false)
      : guard_(std::make_shared<SaveOnCpu>(pin_memory)) {}

 private:
  SavedTensorHooksGuard guard_;
};

}  // namespace arete::autograd
