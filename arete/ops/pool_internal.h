// The pools as operators over batched inputs with explicit geometry.
#pragma once

#include <tuple>

#include "arete/ops/record.h"

namespace arete::ops {

/// One number for each spatial dimension.
struct PoolParams {
  Shape kernel, stride, padding, dilation;
  bool ceil_mode = false;
};

/// Arguments of a call, or of a gradient's, from position `at` on.
template <class C>
PoolParams params_of(const C& call, size_t at, bool has_dilation) {
  PoolParams p{Shape(call.ints(at)), Shape(call.ints(at + 1)), Shape(call.ints(at + 2)), {}, false};
  p.dilation = has_dilation ? Shape(call.ints(at + 3)) : Shape(p.kernel.size(), 1);
  p.ceil_mode = call.boolean(at + (has_dilation ? 4 : 3));
  return p;
}
/// Arguments from position 1 on: kernel_size, stride (empty: the kernel's), padding[, dilation],
/// each one number or one for each dimension.
PoolParams pool_params(const Call& c, int spatial, bool has_dilation);

std::tuple<Tensor, Tensor> max_pool(const Tensor& x, const PoolParams& p);
/// Without positions, for results that need no gradient.
Tensor max_pool_values(const Tensor& x, const PoolParams& p);
Tensor avg_pool(const Tensor& x, const PoolParams& p, bool count_include_pad, int64_t divisor);

}  // namespace arete::ops
