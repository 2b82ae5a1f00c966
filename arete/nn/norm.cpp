#include "arete/nn/norm.h"

#include "arete/base/warn.h"
#include "arete/core/modes.h"
#include "arete/nn/layer_internal.h"
#include "arete/ops/norm.h"

namespace arete::nn {

NormBase::NormBase(std::string_view layer, int64_t num_features, const BatchNormOptions& o)
    : DescribedLayer(layer, {{"num_features", num_features},
                             {"eps", o.eps},
                             {"momentum", o.momentum},
                             {"affine", o.affine},
                             {"track_running_stats", o.track_running_stats}}),
      num_features_(num_features),
      settings_(o) {
  weight = register_parameter("weight", o.affine ? ones({num_features}) : Tensor());
  bias = register_parameter("bias", o.affine ? zeros({num_features}) : Tensor());
  const bool track = o.track_running_stats;
  running_mean = register_buffer("running_mean", track ? zeros({num_features}) : Tensor());
  running_var = register_buffer("running_var", track ? ones({num_features}) : Tensor());
  num_batches_tracked =
      register_buffer("num_batches_tracked", track ? zeros({}, kInt64) : Tensor());
}

void NormBase::reset_running_stats() {
  if (!running_mean.defined()) return;
  init::zeros_(running_mean);
  init::ones_(running_var);
  init::zeros_(num_batches_tracked);
}

void NormBase::reset_parameters() {
  reset_running_stats();
  if (!weight.defined()) return;
  init::ones_(weight);
  init::zeros_(bias);
}

void NormBase::check_rank(const Tensor& input, int least, int most) const {
  const std::string either = least == most ? "" : std::to_string(least) + "D or ";
  ARETE_CHECK(input.dim() >= least && input.dim() <= most,
              ValueError(name(), "expected " + either + std::to_string(most) + "D input (got " +
                                     std::to_string(input.dim()) + "D input)"));
}

Tensor BatchNorm::forward(const Tensor& input) { return run(input, false, {}); }

Tensor BatchNorm::forward_relu(const Tensor& input, const Tensor& residual) {
  return run(input, true, residual);
}

Tensor BatchNorm::run(const Tensor& input, bool rectified, const Tensor& residual) {
  check_rank(input, least_, most_);
  const bool tracked = running_mean.defined();
  const bool use_batch = is_training() || !tracked;
  double momentum = settings_.momentum.value_or(0);
  if (is_training() && tracked) {
    const NoGradGuard no_grad;
    num_batches_tracked.add_(1);
    if (!settings_.momentum) momentum = 1 / num_batches_tracked.item<double>();
  }
  return rectified ? batch_norm_relu(input, running_mean, running_var, weight, bias, use_batch,
                                     momentum, settings_.eps, residual)
                   : batch_norm(input, running_mean, running_var, weight, bias, use_batch, momentum,
                                settings_.eps);
}

template <int N>
Tensor InstanceNormNd<N>::forward(const Tensor& input) {
  check_rank(input, N + 1, N + 2);
  const bool single = input.dim() == N + 1;
  const int64_t channels = input.size(single ? 0 : 1);
  if (channels != num_features_) {
    const std::string where = std::string("input's size at dim=") + (single ? "0" : "1");
    ARETE_CHECK(
        !settings_.affine,
        ValueError(name(), "expected " + where + " to match num_features (" +
                               text_of(num_features_) + "), but got: " + text_of(channels) + "."));
    warn(where +
         " does not match num_features. You can silence this warning by not passing in "
         "num_features, which is not used because affine=False");
  }
  const Tensor y = instance_norm(single ? input.unsqueeze(0) : input, running_mean, running_var,
                                 weight, bias, is_training() || !running_mean.defined(),
                                 settings_.momentum.value_or(0), settings_.eps);
  return single ? y.squeeze(0) : y;
}
template class InstanceNormNd<1>;
template class InstanceNormNd<2>;
template class InstanceNormNd<3>;

LayerNorm::LayerNorm(const NormalizedShape& normalized_shape, const LayerNormOptions& options)
    : DescribedLayer("LayerNorm", {{"normalized_shape", IntList(normalized_shape.sizes)},
                                   {"eps", options.eps},
                                   {"elementwise_affine", options.elementwise_affine},
                                   {"bias", options.bias}}),
      sizes_(normalized_shape.sizes),
      eps_(options.eps) {
  weight = register_parameter("weight", options.elementwise_affine ? ones(sizes_) : Tensor());
  bias = register_parameter("bias",
                            options.elementwise_affine && options.bias ? zeros(sizes_) : Tensor());
}

Tensor LayerNorm::forward(const Tensor& x) { return layer_norm(x, sizes_, weight, bias, eps_); }

RMSNorm::RMSNorm(const NormalizedShape& normalized_shape, const RMSNormOptions& options)
    : DescribedLayer("RMSNorm", {{"normalized_shape", IntList(normalized_shape.sizes)},
                                 {"eps", options.eps},
                                 {"elementwise_affine", options.elementwise_affine}}),
      sizes_(normalized_shape.sizes),
      eps_(options.eps) {
  weight = register_parameter("weight", options.elementwise_affine ? ones(sizes_) : Tensor());
}

Tensor RMSNorm::forward(const Tensor& x) { return rms_norm(x, sizes_, weight, eps_); }

GroupNorm::GroupNorm(int64_t num_groups, int64_t num_channels, const GroupNormOptions& options)
    : DescribedLayer("GroupNorm", {{"num_groups", num_groups},
                                   {"num_channels", num_channels},
                                   {"eps", options.eps},
                                   {"affine", options.affine}}),
      groups_(num_groups),
      eps_(options.eps) {
  weight = register_parameter("weight", options.affine ? ones({num_channels}) : Tensor());
  bias = register_parameter("bias", options.affine ? zeros({num_channels}) : Tensor());
}

Tensor GroupNorm::forward(const Tensor& x) {
  ARETE_CHECK(x.dim() < 2 || x.numel() != groups_,
              ValueError("GroupNorm",
                         "Expected more than 1 value per channel when training, got input size " +
                             text_of(x.sizes())));
  return group_norm(x, groups_, weight, bias, eps_);
}

}  // namespace arete::nn
