// Positions or coordinates of the true elements of a mask.
#include <optional>

#include "arete/backend/cuda/codegen/compact.h"
#include "arete/backend/cuda/index_common.h"
#include "arete/backend/cuda/runtime/driver.h"
#include "arete/base/error.h"

namespace arete::cuda {

int64_t CudaBackend::compact(const prim::CompactArgs& args) {
  const bool coordinates = args.out.rank() == 2;
  ARETE_ASSERT(args.out.dtype == kInt64);
  ARETE_ASSERT(coordinates ? args.out.sizes[0] == args.mask.rank() : args.out.is_contiguous());
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
  if (coordinates) {
    a.rank = args.mask.rank();
    a.coordinate_step = args.out.strides[0], a.step = args.out.strides[1];
    a.is_wide = n > INT32_MAX;
    for (size_t d = 0; d < args.mask.sizes.size(); ++d) {
      a.dims[d].size = args.mask.sizes[d];
      if (!a.is_wide) a.dims[d].divisor = indexing::make_divisor(args.mask.sizes[d]);
    }
  }
  static KernelTable<4> kernels;
  const bool aligned = a.mask % 16 == 0;
  const Kernel& k = kernels.get(*this, size_t(aligned) * 2 + coordinates,
                                [&] { return compaction::compact_source(aligned, coordinates); });
  launch(k, {unsigned(tiles)}, {compaction::kThreads}, 0, stream, a);
  // Where there is less room than for all the caller knows how many there are.
  const int64_t room = args.out.sizes[size_t(args.out.rank()) - 1];
  if (room < n) return room;
  int64_t total = 0;
  copy_to_host(&total, memory.data(), sizeof total);
  return total;
}

}  // namespace arete::cuda
