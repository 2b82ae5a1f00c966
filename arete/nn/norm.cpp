#include "arete/nn/norm.h"

#include "arete/core/modes.h"
#include "arete/nn/layer_internal.h"
#include "arete/ops/norm.h"

namespace arete::nn {

namespace {
// Running statistics as PyTorch starts them.
void start_statistics(const Tensor& mean, const Tensor& var, const Tensor& count) {
  init::zeros_(mean);
  init::ones_(var);
  init::zeros_(count);
}
void check_rank(const Tensor& input, const char* layer, int64_t least, int64_t most) {
  const std::string expected = least == most
                                   ? std::to_string(least) + "D"
                                   : std::to_string(least) + "D or " + std::to_string(most) + "D";
  ARETE_CHECK(input.dim() >= least && input.dim() <= most,
              ValueError(layer, "expected " + expected + " input (got " +
                                    std::to_string(input.dim()) + "D input)")
                  .got(to_string(input.sizes())));
}
}  // namespace

BatchNorm::BatchNorm(int64_t num_features, const BatchNormOptions& options)
    : num_features_(num_features), options_(options) {
  check_sizes("BatchNorm", {{"num_features", num_features}}, 0);
  weight = register_parameter("weight", options.affine ? ones({num_features}) : Tensor());
  bias = register_parameter("bias", options.affine ? zeros({num_features}) : Tensor());
  const bool track = options.track_running_stats;
  running_mean = register_buffer("running_mean", track ? zeros({num_features}) : Tensor());
  running_var = register_buffer("running_var", track ? ones({num_features}) : Tensor());
  num_batches_tracked =
      register_buffer("num_batches_tracked", track ? zeros({}, kInt64) : Tensor());
}

void BatchNorm::reset_running_stats() {
  if (running_mean.defined()) start_statistics(running_mean, running_var, num_batches_tracked);
}

void BatchNorm::reset_parameters() {
  reset_running_stats();
  if (weight.defined()) {
    init::ones_(weight);
    init::zeros_(bias);
  }
}

Tensor BatchNorm::forward(const Tensor& input) { return run(input, false, {}); }

Tensor BatchNorm::forward_relu(const Tensor& input, const Tensor& residual) {
  return run(input, true, residual);
}

Tensor BatchNorm::run(const Tensor& input, bool rectified, const Tensor& residual) {
  check_input(input);
  const bool tracked = running_mean.defined();
  const bool use_batch = is_training() || !tracked;
  double momentum = options_.momentum.value_or(0);
  if (is_training() && tracked) {
    const NoGradGuard no_grad;
    num_batches_tracked.add_(1);
    if (!options_.momentum) momentum = 1 / num_batches_tracked.item<double>();
  }
  const bool use_running = tracked && (is_training() || !use_batch);
  const Tensor mean = use_running ? Tensor(running_mean) : Tensor(),
               var = use_running ? Tensor(running_var) : Tensor();
  return rectified ? batch_norm_relu(input, mean, var, weight, bias, use_batch, momentum,
                                     options_.eps, residual)
                   : batch_norm(input, mean, var, weight, bias, use_batch, momentum, options_.eps);
}

std::string BatchNorm::extra_repr() const {
  return text_of(num_features_) + ", eps=" + text_of(options_.eps) +
         ", momentum=" + (options_.momentum ? text_of(*options_.momentum) : "None") +
         ", affine=" + text_of(options_.affine) +
         ", track_running_stats=" + text_of(options_.track_running_stats);
}

void BatchNorm1d::check_input(const Tensor& x) const { check_rank(x, "BatchNorm1d", 2, 3); }
void BatchNorm2d::check_input(const Tensor& x) const { check_rank(x, "BatchNorm2d", 4, 4); }
void BatchNorm3d::check_input(const Tensor& x) const { check_rank(x, "BatchNorm3d", 5, 5); }

template <int N>
InstanceNormNd<N>::InstanceNormNd(int64_t num_features, const InstanceNormOptions& options)
    : num_features_(num_features), options_(options) {
  check_sizes("InstanceNorm", {{"num_features", num_features}}, 0);
  weight = register_parameter("weight", options.affine ? ones({num_features}) : Tensor());
  bias = register_parameter("bias", options.affine ? zeros({num_features}) : Tensor());
  const bool track = options.track_running_stats;
  running_mean = register_buffer("running_mean", track ? zeros({num_features}) : Tensor());
  running_var = register_buffer("running_var", track ? ones({num_features}) : Tensor());
  num_batches_tracked =
      register_buffer("num_batches_tracked", track ? zeros({}, kInt64) : Tensor());
}

template <int N>
Tensor InstanceNormNd<N>::forward(const Tensor& input) {
  check_rank(input, "InstanceNorm", N + 1, N + 2);
  const bool single = input.dim() == N + 1;
  const Tensor x = single ? input.unsqueeze(0) : input;
  ARETE_CHECK(!options_.affine || x.size(1) == num_features_,
              ValueError("InstanceNorm", "expected input's size at dim=1 to match num_features (" +
                                             text_of(num_features_) +
                                             "), but got: " + text_of(x.size(1)) + "."));
  const Tensor y =
      instance_norm(x, running_mean, running_var, weight, bias,
                    is_training() || !running_mean.defined(), options_.momentum, options_.eps);
  return single ? y.squeeze(0) : y;
}

template <int N>
std::string InstanceNormNd<N>::name() const {
  return "InstanceNorm" + std::to_string(N) + "d";
}

template <int N>
std::string InstanceNormNd<N>::extra_repr() const {
  return text_of(num_features_) + ", eps=" + text_of(options_.eps) +
         ", momentum=" + text_of(options_.momentum) + ", affine=" + text_of(options_.affine) +
         ", track_running_stats=" + text_of(options_.track_running_stats);
}
template class InstanceNormNd<1>;
template class InstanceNormNd<2>;
template class InstanceNormNd<3>;

LayerNorm::LayerNorm(const NormalizedShape& normalized_shape, const LayerNormOptions& options)
    : sizes_(normalized_shape.sizes), eps_(options.eps) {
  weight = register_parameter("weight", options.elementwise_affine ? ones(sizes_) : Tensor());
  bias = register_parameter("bias",
                            options.elementwise_affine && options.bias ? zeros(sizes_) : Tensor());
}

Tensor LayerNorm::forward(const Tensor& x) { return layer_norm(x, sizes_, weight, bias, eps_); }

std::string LayerNorm::extra_repr() const {
  return tuple_text(sizes_) + ", eps=" + text_of(eps_) +
         ", elementwise_affine=" + text_of(weight.defined());
}

RMSNorm::RMSNorm(const NormalizedShape& normalized_shape, const RMSNormOptions& options)
    : sizes_(normalized_shape.sizes), eps_(options.eps) {
  weight = register_parameter("weight", options.elementwise_affine ? ones(sizes_) : Tensor());
}

Tensor RMSNorm::forward(const Tensor& x) { return rms_norm(x, sizes_, weight, eps_); }

std::string RMSNorm::extra_repr() const {
  return tuple_text(sizes_) + ", eps=" + (eps_ ? text_of(*eps_) : "None") +
         ", elementwise_affine=" + text_of(weight.defined());
}

GroupNorm::GroupNorm(int64_t num_groups, int64_t num_channels, const GroupNormOptions& options)
    : groups_(num_groups), channels_(num_channels), eps_(options.eps) {
  check_sizes("GroupNorm", {{"num_groups", num_groups}, {"num_channels", num_channels}});
  ARETE_CHECK(num_channels % num_groups == 0,
              ValueError("GroupNorm", "num_channels must be divisible by num_groups")
                  .got(text_of(num_channels) + " and " + text_of(num_groups)));
  weight = register_parameter("weight", options.affine ? ones({num_channels}) : Tensor());
  bias = register_parameter("bias", options.affine ? zeros({num_channels}) : Tensor());
}

Tensor GroupNorm::forward(const Tensor& x) { return group_norm(x, groups_, weight, bias, eps_); }

std::string GroupNorm::extra_repr() const {
  return text_of(groups_) + ", " + text_of(channels_) + ", eps=" + text_of(eps_) +
         ", affine=" + text_of(weight.defined());
}

}  // namespace arete::nn
