// Reading elements at computed positions.
#include <algorithm>

#include "arete/backend/cuda/index_common.h"
#include "arete/base/error.h"

namespace arete::cuda {

void CudaBackend::gather(const prim::GatherArgs& args) {
  ARETE_ASSERT(args.index.dtype == kInt64 && args.out.dtype == args.in.dtype);
  ARETE_ASSERT(args.out.rank() == args.in.rank() && args.index.rank() == args.in.rank());
  const CUstream stream = enter(args);
  if (args.out.numel() == 0) return;
  const bool scalar = args.in.rank() == 0;
  const int64_t bytes = int64_t(size_of(args.in.dtype));
  // The input without the dimension that the index supplies.
  prim::View base = args.in;
  Shape strides(args.in.strides);
  if (!scalar) strides[size_t(args.dim)] = 0;
  base.sizes = args.out.sizes;
  base.strides = strides;
  const std::array<prim::View, 3> views{args.out, args.index, base};
  prim::LoopNest nest = prim::LoopNest::plan(args.out.sizes, views);
  const int64_t step = scalar ? 0 : args.in.strides[size_t(args.dim)] * bytes;
  // Runs of elements that one index moves are pieces of up to 16 bytes.
  int64_t piece = bytes;
  prim::LoopNest::Operand &to = nest.operands[0], &from = nest.operands[2];
  if (to.strides[0] == bytes && from.strides[0] == bytes && nest.operands[1].strides[0] == 0) {
    uint64_t bits = address_of(args.out.data) | address_of(args.in.data) | uint64_t(step) |
                    uint64_t(nest.sizes[0] * bytes) | 16;
    for (size_t d = 1; d < size_t(nest.rank); ++d)
      bits |= uint64_t(to.strides[d]) | uint64_t(from.strides[d]);
    piece = std::max(bytes, int64_t(bits & (~bits + 1)));
    nest.sizes[0] = nest.sizes[0] * bytes / piece;
    to.strides[0] = from.strides[0] = piece;
  }

  indexing::GatherArgs a;
  a.size = scalar ? 1 : args.in.sizes[size_t(args.dim)];
  a.step = step;
  a.leaves_out = args.leaves_out;
  a.left_out = args.left_out;
  a.error = error_sink(*this, args.op, args.dim);

  static KernelTable<34> kernels;
  const bool wide = !nest.fits_32bit();
  const Kernel& k = kernels.get(*this, size_t(2 * piece + wide),
                                [&] { return indexing::gather_source(size_t(piece), wide); });
  walk_in_strips(*this, nest, a.size, [&](const prim::LoopNest& walk) {
    a.walk = indexing::make_walk(walk);
    a.out = address_of(walk.operands[0].data);
    a.index = address_of(walk.operands[1].data);
    a.in = address_of(walk.operands[2].data);
    launch(k, {blocks_for(a.walk.count, indexing::kElementsPerBlock)}, {indexing::kThreads}, 0,
           stream, a);
  });
}

}  // namespace arete::cuda
