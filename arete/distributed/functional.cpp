#include "arete/distributed/functional.h"

#include "arete/ops/call.h"

namespace arete::distributed::functional {
namespace {

int64_t number_of(const ProcessGroupPtr& group) { return (group ? group : world())->number(); }

template <class... Args>
Tensor call_collective(const char* name, const Args&... args) {
  const ops::Arg list[] = {ops::Arg(args)...};
  return ops::call(*ops::find_record(name), list);
}

}  // namespace

Tensor all_reduce(const Tensor& tensor, ReduceOp op, const ProcessGroupPtr& group) {
  return call_collective("collective_all_reduce", tensor, name_of(op.kind), op.factor,
                         number_of(group));
}

Tensor reduce(const Tensor& tensor, int dst, ReduceOp op, const ProcessGroupPtr& group) {
  return call_collective("collective_reduce", tensor, name_of(op.kind), op.factor, dst,
                         number_of(group));
}

Tensor broadcast(const Tensor& tensor, int src, const ProcessGroupPtr& group) {
  return call_collective("collective_broadcast", tensor, src, number_of(group));
}

Tensor all_gather(const Tensor& tensor, const ProcessGroupPtr& group) {
  return call_collective("collective_all_gather", tensor, number_of(group));
}

Tensor reduce_scatter(const Tensor& tensor, ReduceOp op, const ProcessGroupPtr& group) {
  return call_collective("collective_reduce_scatter", tensor, name_of(op.kind), op.factor,
                         number_of(group));
}

Tensor all_to_all(const Tensor& tensor, const std::vector<int64_t>& output_splits,
                  const std::vector<int64_t>& input_splits, const ProcessGroupPtr& group) {
  return call_collective("collective_all_to_all", tensor, IntList(output_splits),
                         IntList(input_splits), number_of(group));
}

Tensor gather(const Tensor& tensor, int dst, const ProcessGroupPtr& group) {
  return call_collective("collective_gather", tensor, dst, number_of(group));
}

Tensor scatter(const Tensor& tensor, int src, const ProcessGroupPtr& group) {
  return call_collective("collective_scatter", tensor, src, number_of(group));
}

}  // namespace arete::distributed::functional
