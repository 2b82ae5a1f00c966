// The pools as operators over batched inputs with explicit geometry.
#pragma once

#include <tuple>

#include "arete/ops/record.h"

namespace arete::ops {

/// One number for each spatial dimension. With `output`, its sizes, windows are not strided but
/// adaptive or, where samples are given, random: prim::PoolArgs.
struct PoolParams {
  Shape kernel, stride, padding, dilation, output;
  bool ceil_mode = false;
};
/// Windows that give `output`; of adaptive ones the kernel is not read.
inline PoolParams placed_params(IntList kernel, IntList output) {
  return {Shape(kernel),           Shape(output.size(), 1), Shape(output.size(), 0),
          Shape(output.size(), 1), Shape(output),           false};
}

/// Arguments of a call, or of a gradient's, from position `at` on.
template <class C>
PoolParams params_of(const C& call, size_t at, bool has_dilation) {
  PoolParams p{
      Shape(call.ints(at)), Shape(call.ints(at + 1)), Shape(call.ints(at + 2)), {}, {}, false};
  p.dilation = has_dilation ? Shape(call.ints(at + 3)) : Shape(p.kernel.size(), 1);
  p.ceil_mode = call.boolean(at + (has_dilation ? 4 : 3));
  p.output = Shape(call.ints(at + (has_dilation ? 5 : 6)));
  return p;
}
/// Arguments from position 1 on: kernel_size, stride (empty: the kernel's), padding[, dilation],
/// each one number or one for each dimension.
PoolParams pool_params(const Call& c, int spatial, bool has_dilation);

/// `samples` (N, C, spatial): where random windows lie.
std::tuple<Tensor, Tensor> max_pool(const Tensor& x, const PoolParams& p,
                                    const Tensor& samples = {});
/// Without positions, for results that need no gradient.
Tensor max_pool_values(const Tensor& x, const PoolParams& p, const Tensor& samples = {});
Tensor avg_pool(const Tensor& x, const PoolParams& p, bool count_include_pad, int64_t divisor);

}  // namespace arete::ops
