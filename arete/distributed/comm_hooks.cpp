#include "arete/distributed/comm_hooks.h"

#include "arete/ops/pointwise.h"

namespace arete::distributed {

CommHook allreduce_hook(ProcessGroupPtr group) {
  return [group = std::move(group)](const GradBucket& bucket) -> std::function<Tensor()> {
    Tensor buffer = bucket.buffer;
    buffer.div_(group->size());
    return [buffer, work = group->all_reduce(buffer, kSum, true)] {
      work->wait();
      return buffer;
    };
  };
}

CommHook compress_hook(ProcessGroupPtr group, DType dtype) {
  ARETE_CHECK(dtype == kFloat16 || dtype == kBFloat16,
              TypeError("compress_hook", "gradients travel in float16 or bfloat16")
                  .got(std::string(name_of(dtype))));
  return [group = std::move(group), dtype](const GradBucket& bucket) -> std::function<Tensor()> {
    Tensor small = bucket.buffer.to(dtype);
    if (small.is_same(bucket.buffer)) small = small.clone();
    small.div_(group->size());
    return [small, work = group->all_reduce(small, kSum, true)] {
      work->wait();
      return small;
    };
  };
}

}  // namespace arete::distributed
