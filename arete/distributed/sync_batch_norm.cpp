#include "arete/distributed/sync_batch_norm.h"

#include "arete/autograd/function.h"
#include "arete/core/modes.h"
#include "arete/distributed/distributed.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/norm.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"

namespace arete::distributed {

namespace {

// The vectors of all processes as the rows of a matrix; and the sum over the processes of the row
// that belongs to this one. Each is the other's gradient.
Tensor rows_of_all(const ProcessGroupPtr& group, const Tensor& vector);
Tensor sum_of_own(const ProcessGroupPtr& group, const Tensor& rows);

Tensor apply_exchange(const char* name, const ProcessGroupPtr& group, const Tensor& input,
                      Tensor (*forward)(ProcessGroup&, const Tensor&),
                      Tensor (*backward)(const ProcessGroupPtr&, const Tensor&)) {
  return autograd::apply({name,
                          [group, forward](autograd::Context&, const std::vector<Tensor>& in) {
                            return std::vector<Tensor>{forward(*group, in[0])};
                          },
                          [group, backward](autograd::Context&, const std::vector<Tensor>& g) {
                            return std::vector<Tensor>{backward(group, g[0])};
                          }},
                         {input})[0];
}

Tensor rows_of_all(const ProcessGroupPtr& group, const Tensor& vector) {
  return apply_exchange(
      "GatherStatistics", group, vector,
      [](ProcessGroup& g, const Tensor& t) {
        Tensor rows = ops::empty_tensor({g.size(), t.numel()}, t.dtype(), t.device());
        g.all_gather_into_tensor(rows, t.contiguous());
        return rows;
      },
      sum_of_own);
}

Tensor sum_of_own(const ProcessGroupPtr& group, const Tensor& rows) {
  return apply_exchange(
      "SumStatistics", group, rows,
      [](ProcessGroup& g, const Tensor& t) {
        const Tensor sum = t.clone();
        g.all_reduce(sum);
        return sum[g.rank()].clone();
      },
      rows_of_all);
}

}  // namespace

Tensor sync_batch_norm(const Tensor& input, const Tensor& running_mean, const Tensor& running_var,
                       const Tensor& weight, const Tensor& bias, double momentum, double eps,
                       const ProcessGroupPtr& group) {
  ARETE_CHECK(input.dim() >= 2,
              ValueError("SyncBatchNorm", "expected at least 2D input (got " +
                                              std::to_string(input.dim()) + "D input)"));
  ARETE_CHECK(
      input.size(1) > 0,
      ValueError("SyncBatchNorm", "SyncBatchNorm number of input channels should be non-zero"));
  const int64_t channels = input.size(1), own = input.numel() / channels;
  const DType wide = input.dtype() == kFloat64 ? kFloat64 : kFloat32;
  const Tensor x = input.to(wide);
  Shape dims, along(size_t(input.dim()), 1);
  for (int64_t d = 0; d < input.dim(); ++d)
    if (d != 1) dims.push_back(d);
  along[1] = channels;
  // Of this process: its number of elements, means, and sums of squared differences from these;
  // then those of all, put together without cancellation (Chan, Golub and LeVeque, 1979).
  // No elements give zeros with history, so that this process answers the others backward, too.
  Tensor mean, squares;
  if (own > 0) {
    std::tie(squares, mean) = var_mean(x, dims, 0);
    squares = squares * double(own);
  } else {
    squares = mean = x.sum(dims);
  }
  const Tensor all = rows_of_all(group, cat({full({1}, double(own), x.options()), mean, squares}));
  const Tensor counts = all.narrow(1, 0, 1), means = all.narrow(1, 1, channels);
  const Tensor count = counts.sum();
  mean = (counts * means).sum({0}) / count;
  const Tensor away = means - mean;
  squares = (all.narrow(1, 1 + channels, channels) + counts * away * away).sum({0});
  const Tensor var = squares / count;
  if (running_mean.defined()) {
    const NoGradGuard no_grad;
    Tensor to_mean = running_mean, to_var = running_var;
    to_mean.mul_(1 - momentum).add_(mean.to(running_mean.dtype()) * momentum);
    to_var.mul_(1 - momentum).add_((squares / (count - 1)).to(running_var.dtype()) * momentum);
  }
  Tensor scale = rsqrt(var + eps);
  if (weight.defined()) scale = scale * weight.to(wide);
  const Tensor centred = x - mean.reshape(along);
  const Tensor y = bias.defined()
                       ? addcmul(bias.to(wide).reshape(along), centred, scale.reshape(along))
                       : centred * scale.reshape(along);
  return y.to(input.dtype());
}

Tensor SyncBatchNorm::forward(const Tensor& input) {
  const bool tracked = running_mean.defined();
  if (!is_training())
    return batch_norm(input, running_mean, running_var, weight, bias, !tracked, 0, settings_.eps);
  double momentum = settings_.momentum.value_or(0);
  if (tracked) {
    const NoGradGuard no_grad;
    num_batches_tracked.add_(1);
    if (!settings_.momentum) momentum = 1 / num_batches_tracked.item<double>();
  }
  return sync_batch_norm(input, running_mean, running_var, weight, bias, momentum, settings_.eps,
                         group_ ? group_ : world());
}

}  // namespace arete::distributed
