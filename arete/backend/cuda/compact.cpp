// Positions of the true elements of a mask.
#include <optional>

#include "arete/backend/cuda/codegen/compact.h"
#include "arete/backend/cuda/index_common.h"
#include "arete/backend/cuda/runtime/driver.h"
#include "arete/base/error.h"

namespace arete::cuda {

int64_t CudaBackend::compact(const prim::CompactArgs& args) {
  ARETE_ASSERT(args.out.dtype == kInt64 && args.out.is_contiguous());
  ARETE_ASSERT(args.mask.dtype == kBool || args.mask.dtype == kUInt8);
  const CUstream stream = enter(args);
  const int64_t n = args.mask.numel();
  if (n == 0) return 0;
  const std::byte* mask = args.mask.data;
  std::optional<prim::ScratchView> dense;
  if (!args.mask.is_contiguous()) {
    dense.emplace(*this, args.mask.dtype, args.mask.sizes);
    copy({.out = dense->view(), .in = args.mask});
    mask = dense->view().data;
  }
  const int64_t tiles = (n + compaction::kTile - 1) / compaction::kTile;
  // The total, the number of the next tile, and the tiles' states.
  Scratch memory(*this, size_t(16 + 8 * tiles));
  ARETE_CU(cuMemsetD8Async, memory.address(), 0, size_t(16 + 8 * tiles), stream);
  compaction::CompactArgs a;
  a.mask = address_of(mask);
  a.out = address_of(args.out.data);
  a.total = memory.address();
  a.next_tile = memory.address() + 8;
  a.states = memory.address() + 16;
  a.count = n;
  static KernelTable<2> kernels;
  const bool aligned = a.mask % 16 == 0;
  const Kernel& k =
      kernels.get(*this, aligned, [&] { return compaction::compact_source(aligned); });
  launch(k, {unsigned(tiles)}, {compaction::kThreads}, 0, stream, a);
  int64_t total = 0;
  copy_to_host(&total, memory.data(), sizeof total);
  return total;
}

}  // namespace arete::cuda
