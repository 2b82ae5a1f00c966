// What processes compute together, with gradients: results are new tensors, and the gradient of one
// goes to all processes that it came from. All must call the same functions, and let the same
// gradients flow back, in the same order. Reductions are sums and averages. Ranks are those of the
// group; null: the default group.
#pragma once

#include "arete/distributed/distributed.h"

namespace arete::distributed::functional {

Tensor all_reduce(const Tensor& tensor, ReduceOp op = {}, const ProcessGroupPtr& group = nullptr);
/// Others than `dst` get their own tensor.
Tensor reduce(const Tensor& tensor, int dst, ReduceOp op = {},
              const ProcessGroupPtr& group = nullptr);
Tensor broadcast(const Tensor& tensor, int src, const ProcessGroupPtr& group = nullptr);
/// The rows of all ranks, one after the other.
Tensor all_gather(const Tensor& tensor, const ProcessGroupPtr& group = nullptr);
/// Of the sums of all rows those for this rank, as many for each.
Tensor reduce_scatter(const Tensor& tensor, ReduceOp op = {},
                      const ProcessGroupPtr& group = nullptr);
/// Rows for each rank, and of each; empty: equally many.
Tensor all_to_all(const Tensor& tensor, const std::vector<int64_t>& output_splits = {},
                  const std::vector<int64_t>& input_splits = {},
                  const ProcessGroupPtr& group = nullptr);
/// [ranks, ...] for `dst`, and zeros for others.
Tensor gather(const Tensor& tensor, int dst, const ProcessGroupPtr& group = nullptr);
/// Of [ranks, ...] of `src` the row for this rank.
Tensor scatter(const Tensor& tensor, int src, const ProcessGroupPtr& group = nullptr);

}  // namespace arete::distributed::functional
