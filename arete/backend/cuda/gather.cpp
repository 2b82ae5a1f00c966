// Reading elements at computed positions.
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
  const prim::LoopNest nest = prim::LoopNest::plan(args.out.sizes, views);

  indexing::GatherArgs a;
  a.walk = indexing::make_walk(nest);
  a.out = address_of(args.out.data);
  a.index = address_of(args.index.data);
  a.in = address_of(args.in.data);
  a.size = scalar ? 1 : args.in.sizes[size_t(args.dim)];
  a.step = scalar ? 0 : args.in.strides[size_t(args.dim)] * bytes;
  a.error = error_sink(*this, args.op, args.dim);

  static KernelTable<34> kernels;
  const bool wide = !nest.fits_32bit();
  const Kernel& k = kernels.get(*this, size_t(2 * bytes + wide),
                                [&] { return indexing::gather_source(size_t(bytes), wide); });
  launch(k, {blocks_for(a.walk.count, indexing::kElementsPerBlock)}, {indexing::kThreads}, 0,
         stream, a);
}

}  // namespace arete::cuda
