// Writing and combining elements at computed positions.
#include <algorithm>

#include "arete/backend/cuda/index_common.h"
#include "arete/backend/cuda/pointwise_launch.h"
#include "arete/base/error.h"
#include "arete/prim/decompose/scatter_internal.h"
#include "arete/prim/slots.h"

namespace arete::cuda {
namespace {

using prim::ScatterArgs;
using prim::ScatterMode;

/// The destinations of one call, without the dimension that the index supplies.
struct Target {
  explicit Target(const ScatterArgs& a)
      : scalar(a.out.rank() == 0), base(a.out), strides(a.out.strides) {
    if (!scalar) strides[size_t(a.dim)] = 0;
    base.sizes = a.index.sizes;
    base.strides = strides;
    size = scalar ? 1 : a.out.sizes[size_t(a.dim)];
    step = scalar ? 0 : a.out.strides[size_t(a.dim)] * int64_t(size_of(a.out.dtype));
  }
  Target(const Target&) = delete;
  prim::LoopNest plan(const ScatterArgs& a, bool keep_order) const {
    // The source may be larger than the index: only as much of it counts.
    prim::View src = a.src;
    src.sizes = a.index.sizes;
    const std::array<prim::View, 3> views{src, a.index, base};
    return prim::LoopNest::plan(a.index.sizes, views, keep_order);
  }

  bool scalar;
  prim::View base;
  Shape strides;
  int64_t size, step;
};

/// Whether so many elements are added to so few that they would wait for each other.
bool are_few(const ScatterArgs& a) {
  const int64_t count = a.index.numel(), size = a.out.rank() == 1 ? a.out.sizes[0] : 0;
  return a.mode == ScatterMode::add && !a.factors && indexing::has_few(a.out.dtype, size) &&
         count >= (1 << 15) && count >= 16 * size;
}

size_t kernel_number(const ScatterArgs& a, bool wide) {
  const size_t mode = a.factors ? 5 : size_t(a.mode);
  return (mode * kNumDTypes + size_t(a.out.dtype)) * 2 + wide;
}
constexpr size_t kKernelNumbers = 6 * kNumDTypes * 2;
uint64_t factors_of(const ScatterArgs& a) { return a.factors ? address_of(a.factors.data) : 0; }

void scatter_any_order(CudaBackend& backend, CUstream stream, const ScatterArgs& args) {
  const Target target(args);
  const prim::LoopNest nest = target.plan(args, false);
  indexing::ScatterArgs a;
  a.walk = indexing::make_walk(nest);
  a.src = address_of(args.src.data);
  a.index = address_of(args.index.data);
  a.out = address_of(args.out.data);
  a.factors = factors_of(args);
  a.size = target.size;
  a.step = target.step;
  a.error = error_sink(backend, args.op, args.dim);
  const bool wide = !nest.fits_32bit();
  if (are_few(args)) {
    const bool equal = is_integer(args.out.dtype) && args.src.strides[0] == 0;
    const int64_t most = 8 * int64_t(backend.limits().multiprocessors);
    static KernelTable<kNumDTypes * 4> few_kernels;
    const Kernel& k =
        few_kernels.get(backend, (size_t(args.out.dtype) * 2 + equal) * 2 + wide,
                        [&] { return indexing::scatter_few_source(args.out.dtype, wide, equal); });
    const int64_t blocks =
        std::min(most, int64_t(blocks_for(a.walk.count, 4 * indexing::kElementsPerBlock)));
    return backend.launch(k, {unsigned(blocks)}, {indexing::kThreads}, 0, stream, a);
  }
  static KernelTable<kKernelNumbers> kernels;
  const Kernel& k = kernels.get(backend, kernel_number(args, wide), [&] {
    return args.mode == ScatterMode::set
               ? indexing::scatter_set_source(size_of(args.out.dtype), wide)
               : indexing::scatter_source(args.mode, args.out.dtype, wide, bool(args.factors));
  });
  const auto run = [&](const prim::LoopNest& walk) {
    a.walk = indexing::make_walk(walk);
    a.src = address_of(walk.operands[0].data);
    a.index = address_of(walk.operands[1].data);
    a.out = address_of(walk.operands[2].data);
    backend.launch(k, {blocks_for(a.walk.count, indexing::kElementsPerBlock)}, {indexing::kThreads},
                   0, stream, a);
  };
  if (args.factors) return run(nest);  // they lie as the whole index does
  walk_in_strips(backend, nest, target.size, run);
}

// Sorts the elements of index by destination first, stably, so that each destination takes its
// elements in the order of the dimension.
void scatter_in_order(CudaBackend& backend, CUstream stream, const ScatterArgs& args) {
  const Target target(args);
  const int64_t count = args.index.numel(),
                length = target.scalar ? 1 : args.index.sizes[size_t(args.dim)];
  int64_t inner = 1;
  for (int d = args.dim + 1; d < args.index.rank(); ++d) inner *= args.index.sizes[size_t(d)];
  const int64_t destinations = count / length * target.size;
  SortedPairs pairs(backend, stream, count, uint64_t(destinations));

  indexing::ScatterKeysArgs keys;
  keys.walk = indexing::make_walk(target.plan(args, true));
  keys.index = address_of(args.index.data);
  keys.keys = pairs.unsorted();
  keys.length = length;
  keys.inner = inner;
  keys.size = target.size;
  keys.destinations = destinations;
  keys.error = error_sink(backend, args.op, args.dim);
  static KernelTable<2> key_kernels;
  const bool wide = pairs.wide();
  const unsigned blocks = blocks_for(count, indexing::kThreads);
  backend.launch(
      key_kernels.get(backend, wide, [&] { return indexing::scatter_keys_source(wide); }), {blocks},
      {indexing::kThreads}, 0, stream, keys);
  pairs.sort();

  indexing::ScatterSortedArgs a;
  a.walk = keys.walk;
  a.src = address_of(args.src.data);
  a.out = address_of(args.out.data);
  a.factors = factors_of(args);
  a.keys = pairs.keys();
  a.positions = pairs.positions();
  a.inner = inner;
  a.size = target.size;
  a.step = target.step;
  a.destinations = destinations;
  static KernelTable<kKernelNumbers> kernels;
  const Kernel& k = kernels.get(backend, kernel_number(args, wide), [&] {
    return args.mode == ScatterMode::set
               ? indexing::scatter_sorted_set_source(size_of(args.out.dtype), wide)
               : indexing::scatter_sorted_source(args.mode, args.out.dtype, wide,
                                                 bool(args.factors));
  });
  backend.launch(k, {blocks}, {indexing::kThreads}, 0, stream, a);
}

}  // namespace

void CudaBackend::scatter(const ScatterArgs& args) {
  if (!args.slots.empty()) [[unlikely]] {
    enter(args);
    return scatter(prim::Addressed(args).args());
  }
  if (args.places) {
    const CUstream stream = enter(args);
    const bool done = args.out.rank() == 3 ? launch_taps(*this, args, stream)
                                           : launch_counts(*this, args, stream);
    if (!done) prim::scatter_to_stored_places(*this, args);
    return;
  }
  ARETE_ASSERT(args.index.dtype == kInt64 && args.src.dtype == args.out.dtype);
  ARETE_ASSERT(args.out.rank() == args.index.rank() && args.src.rank() == args.index.rank());
  ARETE_ASSERT(!args.factors || (args.mode == ScatterMode::add && args.out.rank() > 0 &&
                                 args.factors.dtype == args.out.dtype &&
                                 (args.out.dtype == kFloat32 || args.out.dtype == kFloat64)));
  const bool ordered = args.mode == ScatterMode::min || args.mode == ScatterMode::max;
  if (ordered && is_complex(args.out.dtype))
    throw NotImplementedError(args.op, "complex numbers have no order").argument("reduce");
  const CUstream stream = enter(args);
  if (args.index.numel() == 0) return;
  // Integers give the same in any order, unless they overwrite each other.
  const bool order_matters = args.context.deterministic &&
                             (args.mode == ScatterMode::set || is_differentiable(args.out.dtype));
  if (order_matters || !indexing::has_atomic(args.mode, args.out.dtype))
    scatter_in_order(*this, stream, args);
  else
    scatter_any_order(*this, stream, args);
}

}  // namespace arete::cuda
