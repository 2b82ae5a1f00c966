// The pools as operators over batched inputs with explicit geometry.
#pragma once

#include <tuple>

#include "arete/core/tensor.h"

namespace arete::ops {

/// One number for each spatial dimension.
struct PoolParams {
  Shape kernel, stride, padding, dilation;
  bool ceil_mode = false;
};

std::tuple<Tensor, Tensor> max_pool(const Tensor& x, const PoolParams& p);
/// Without positions, for results that need no gradient.
Tensor max_pool_values(const Tensor& x, const PoolParams& p);
Tensor avg_pool(const Tensor& x, const PoolParams& p, bool count_include_pad, int64_t divisor);

}  // namespace arete::ops
