// Normalization layers.
#pragma once

#include <optional>
#include <string>

#include "arete/nn/module.h"

namespace arete::nn {

struct BatchNormOptions {
  double eps = 1e-5;
  /// How far running statistics move towards those of a batch; absent: they are the plain average
  /// over all batches so far.
  std::optional<double> momentum = 0.1;
  bool affine = true;
  bool track_running_stats = true;
};

/// Batch normalization; use BatchNorm1d, 2d or 3d, which check the rank of their inputs.
/// Parameters weight and bias (if affine); buffers running_mean, running_var, num_batches_tracked
/// (if tracked). In eval mode, and only if tracked, the running statistics are used.
class BatchNorm : public Module {
 public:
  BatchNorm(int64_t num_features, const BatchNormOptions& options = {});
  Tensor forward(const Tensor& input) override;
  /// relu(forward(input) + residual) in one pass; `residual` (like input) may be undefined. What a
  /// Sequential does with a BatchNorm before a ReLU.
  Tensor forward_relu(const Tensor& input, const Tensor& residual = {});
  std::string extra_repr() const override;
  void reset_parameters();
  void reset_running_stats();

  Parameter weight, bias;
  Buffer running_mean, running_var, num_batches_tracked;

 protected:
  virtual void check_input(const Tensor&) const {}

 private:
  Tensor run(const Tensor& input, bool rectified, const Tensor& residual);
  int64_t num_features_;
  BatchNormOptions options_;
};
/// (N, C) or (N, C, L).
class BatchNorm1d : public BatchNorm {
 public:
  using BatchNorm::BatchNorm;

 protected:
  void check_input(const Tensor& input) const override;
};
/// (N, C, H, W).
class BatchNorm2d : public BatchNorm {
 public:
  using BatchNorm::BatchNorm;

 protected:
  void check_input(const Tensor& input) const override;
};
/// (N, C, D, H, W).
class BatchNorm3d : public BatchNorm {
 public:
  using BatchNorm::BatchNorm;

 protected:
  void check_input(const Tensor& input) const override;
};

struct InstanceNormOptions {
  double eps = 1e-5;
  double momentum = 0.1;
  bool affine = false;
  bool track_running_stats = false;
};
/// Normalizes each channel of each sample over its N spatial dimensions; the batch may be missing.
template <int N>
class InstanceNormNd : public Module {
 public:
  explicit InstanceNormNd(int64_t num_features, const InstanceNormOptions& options = {});
  Tensor forward(const Tensor& input) override;
  std::string name() const override;
  std::string extra_repr() const override;

  Parameter weight, bias;
  Buffer running_mean, running_var, num_batches_tracked;

 private:
  int64_t num_features_;
  InstanceNormOptions options_;
};
using InstanceNorm1d = InstanceNormNd<1>;
using InstanceNorm2d = InstanceNormNd<2>;
using InstanceNorm3d = InstanceNormNd<3>;
extern template class InstanceNormNd<1>;
extern template class InstanceNormNd<2>;
extern template class InstanceNormNd<3>;

/// The sizes of the last dimensions: nn::LayerNorm(64) or nn::LayerNorm({8, 8}).
class NormalizedShape {
 public:
  NormalizedShape(int size) : sizes{size} {}
  NormalizedShape(int64_t size) : sizes{size} {}
  NormalizedShape(std::initializer_list<int64_t> s) : sizes(s.begin(), s.end()) {}
  NormalizedShape(IntList s) : sizes(s) {}
  Shape sizes;
};

struct LayerNormOptions {
  double eps = 1e-5;
  bool elementwise_affine = true;
  bool bias = true;
};
/// Normalizes over the last dimensions. Parameters weight (ones) and bias (zeros) of their sizes.
class LayerNorm : public Module {
 public:
  explicit LayerNorm(const NormalizedShape& normalized_shape, const LayerNormOptions& options = {});
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

  Parameter weight, bias;

 private:
  Shape sizes_;
  double eps_;
};

struct RMSNormOptions {
  std::optional<double> eps = {};  ///< absent: that of the input's dtype
  bool elementwise_affine = true;
};
/// x / sqrt(mean(x^2) + eps) * weight over the last dimensions.
class RMSNorm : public Module {
 public:
  explicit RMSNorm(const NormalizedShape& normalized_shape, const RMSNormOptions& options = {});
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

  Parameter weight;

 private:
  Shape sizes_;
  std::optional<double> eps_;
};

struct GroupNormOptions {
  double eps = 1e-5;
  bool affine = true;
};
/// Normalizes num_groups groups of channels of each sample; (N, num_channels, ...).
class GroupNorm : public Module {
 public:
  GroupNorm(int64_t num_groups, int64_t num_channels, const GroupNormOptions& options = {});
  Tensor forward(const Tensor& input) override;
  std::string extra_repr() const override;

  Parameter weight, bias;

 private:
  int64_t groups_, channels_;
  double eps_;
};

}  // namespace arete::nn
