// Dropout in one pass over the tensor.
#include <algorithm>
#include <cmath>

#include "arete/backend/cuda/codegen/dropout.h"
#include "arete/backend/cuda/codegen/random.h"
#include "arete/backend/cuda/cuda_backend.h"
#include "arete/backend/cuda/kernel_memo.h"

namespace arete::cuda {
namespace {

// Mirrors device/dropout.cuh.
struct DropoutKernelArgs {
  const std::byte* in;
  std::byte* out;
  uint64_t numel, block, kept;
  uint32_t keys[20];
  double scale;
  const uint64_t* state;
};

}  // namespace

void CudaBackend::dropout(const prim::DropoutArgs& a) {
  const int64_t numel = a.in.numel();
  if (numel == 0) return;
  // Positions count in row-major order: other memory orders go the general way.
  if (!a.in.is_contiguous() || !a.out.is_contiguous()) return prim::Primitives::dropout(a);
  const CUstream stream = enter(a);
  const bool vectors =
      (reinterpret_cast<uintptr_t>(a.in.data) | reinterpret_cast<uintptr_t>(a.out.data)) % 16 == 0;
  const uint64_t* const state = random_state(a, stream);
  const bool moved = state != nullptr;
  static KernelTable<4 * kNumDTypes> kernels;
  const DType dtype = a.in.dtype;
  const Kernel& k = kernels.get(*this, size_t(dtype) * 4 + size_t(vectors) * 2 + moved,
                                [&] { return dropout_source(dtype, vectors, moved); });
  DropoutKernelArgs args{.in = a.in.data,
                         .out = a.out.data,
                         .numel = uint64_t(numel),
                         .block = a.offset,
                         // lane * 2^-32 < keep
                         .kept = uint64_t(std::ceil(std::ldexp(a.keep, 32))),
                         .scale = a.scale,
                         .state = state};
  philox_keys(a.seed, args.keys);
  const int64_t groups = (numel + dropout_group(dtype) - 1) / dropout_group(dtype);
  const int64_t blocks = std::min<int64_t>((groups + 255) / 256, 64 * limits().multiprocessors);
  launch(k, {unsigned(blocks)}, {256}, 0, stream, args);
}

}  // namespace arete::cuda
