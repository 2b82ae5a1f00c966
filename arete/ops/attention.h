// Which ways of computing scaled_dot_product_attention a program allows.
#pragma once

namespace arete {

/// Under PyTorch's names. cuDNN's kernel on GPUs, for half types, no mask, no dropout, may be taken
/// while any of the first three is true. Bands (Note [Attention in bands]), which are taken where
/// scores are many, are mem_efficient; `math` are two products around a softmax, which store all
/// scores. CPUs have these two, whichever of the four is true, but no bands under `math` alone.
struct AttentionBackends {
  bool flash = true, mem_efficient = true, cudnn = true, math = true;
  bool fused() const { return flash || mem_efficient || cudnn; }
};
/// Of the process. Where a GPU's call fits into none that is allowed, it is a DeviceError.
AttentionBackends attention_backends() noexcept;
void set_attention_backends(const AttentionBackends& backends) noexcept;

}  // namespace arete
