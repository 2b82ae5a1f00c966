// Which ways of computing scaled_dot_product_attention a program allows.
#pragma once

namespace arete {

/// Under PyTorch's names. There is one kernel that does not store the scores, cuDNN's on GPUs, for
/// half types, no mask, no dropout; it may be taken while any of the first three is true. `math`
/// are two products around a softmax, which can do everything. CPUs have nothing else and take it
/// whichever of the four is true.
struct AttentionBackends {
  bool flash = true, mem_efficient = true, cudnn = true, math = true;
  bool fused() const { return flash || mem_efficient || cudnn; }
};
/// Of the process. Where a GPU's call fits into none that is allowed, it is a DeviceError.
AttentionBackends attention_backends() noexcept;
void set_attention_backends(const AttentionBackends& backends) noexcept;

}  // namespace arete
